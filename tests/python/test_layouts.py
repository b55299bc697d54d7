"""What Polars, DuckDB and nanoarrow hold is sent, and Arrow's other layouts of what is stored come back the same."""

import duckdb
import nanoarrow
import numpy as np
import offpath
import polars
import pyarrow as pa
import pytest
from offpath.layouts import stored_type

VIEW = pa.string_view()
LONG = "longer than the twelve bytes that a view holds by itself"
ARRAYS = [
    pa.array(["a", None, LONG, ""], VIEW),
    pa.array([b"a", None, LONG.encode(), b""], pa.binary_view()),
    pa.array([[1], None, [2, 3], []], pa.list_view(pa.int32())),
    pa.array([[LONG], None, ["b", None], []], pa.large_list_view(VIEW)),
    pa.array([["a"], None, [LONG, None], []], pa.list_(VIEW)),
    pa.array([["a", "b"], None, [None, LONG], ["", ""]], pa.list_(VIEW, 2)),
    pa.array(
        [{"a": LONG, "b": [1]}, None, {"a": None, "b": None}, {"a": "", "b": []}],
        pa.struct([("a", VIEW), ("b", pa.list_view(pa.int8()))]),
    ),
    pa.array([[("k", "v")], None, [("l", None), ("m", LONG)], []], pa.map_(VIEW, VIEW)),
    pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int32()), pa.array(["a", LONG], VIEW)),
    pa.RunEndEncodedArray.from_arrays([2, 3, 4], pa.array([LONG, None, "b"], VIEW)),
    pa.RunEndEncodedArray.from_arrays([1, 4], pa.array([1.5, None])),
]


@pytest.mark.parametrize("array", ARRAYS, ids=[str(each.type) for each in ARRAYS])
def test_every_layout_arrives_with_its_values(session, name, array):
    stream = session.stream(name, pa.schema({"x": array.type}), rows_max=100)
    pool = session.pool(stream.pool_name)
    chunks = pa.chunked_array([array, array.slice(1), array.slice(0, 0)])
    for row, data in {
        "batch": pa.record_batch({"x": array}),
        "slice": pa.record_batch({"x": array}).slice(1, 2),
        "empty": pa.record_batch({"x": array}).slice(0, 0),
        "dict": {"x": array},
        "chunks": pa.table({"x": chunks}),
    }.items():
        stream.send(data, row).wait_stored(20)
        arrived = pool.get(row)["x"]
        arrived.validate(full=True)
        assert arrived.type == stored_type(array.type, "x")
        assert arrived.to_pylist() == (data["x"] if row != "slice" else array.slice(1, 2)).to_pylist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_polars_is_sent_to_the_layout_of_the_stream(session, name, kind):
    frame = polars.DataFrame({"text": ["a", None, LONG], "x": [1, 2, 3], "parts": [["a"], [], [LONG]]})
    stream = session.stream(
        name, pa.schema([("text", kind), ("x", pa.int64()), ("parts", pa.large_list(kind))]), rows_max=100
    )
    pool = session.pool(stream.pool_name)
    stream.send(frame, "frame").wait_stored(20)
    stream.send(polars.concat([frame, frame], rechunk=False), "chunks").wait_stored(20)
    stream.send({each.name: each for each in frame}, "series").wait_stored(20)
    assert pool.get("frame").schema.field("text").type == kind
    assert pool.get("frame").to_pylist() == pool.get("series").to_pylist() == frame.to_dicts()
    assert pool.get("chunks").to_pylist() == frame.to_dicts() * 2
    assert polars.DataFrame(pool.get_frame("frame")).equals(frame)


def test_duckdb_and_nanoarrow_are_sent(session, name):
    stream = session.stream(name, pa.schema([("text", pa.string()), ("x", pa.int32())]), rows_max=100)
    pool = session.pool(stream.pool_name)
    with duckdb.connect() as connection:
        relation = connection.sql("select * from (values ('a', 1), (null, 2)) t(text, x)")
        stream.send(relation, "duckdb").wait_stored(20)
        assert connection.sql("select 1").fetchall() == [(1,)], "a relation that was sent leaves its connection free"
    rows = [{"text": "a", "x": 1}, {"text": None, "x": 2}]
    assert pool.get("duckdb").to_pylist() == rows
    batch = nanoarrow.c_array(pa.record_batch({"text": ["a", None], "x": pa.array([1, 2], pa.int32())}))
    stream.send(nanoarrow.Array(batch), "nanoarrow").wait_stored(20)
    stream.send({"text": nanoarrow.Array(["a", None], nanoarrow.string_view()), "x": np.array([1, 2], "i4")}, "columns")
    stream.step_end("end").wait_stored(20)
    assert pool.get("nanoarrow").to_pylist() == pool.get("columns").to_pylist() == rows


class Producer:
    """Exports a table, and notes which schema it was asked for."""

    def __init__(self, table, knows_schema=True):
        self.table, self.requested = table, []
        if knows_schema:
            self.__arrow_c_schema__ = table.schema.__arrow_c_schema__

    def __arrow_c_stream__(self, requested_schema=None):
        asked = requested_schema and pa.Schema._import_from_c_capsule(requested_schema)
        self.requested.append(asked)
        return self.table.__arrow_c_stream__(asked and asked.__arrow_c_schema__())


def test_producers_are_asked_for_the_streams_schema(session, name):
    stream = session.stream(name, pa.schema([("text", pa.string())]), rows_max=100)
    views = pa.table({"text": pa.array(["a", None, LONG], VIEW)})
    for producer in (Producer(views), Producer(views, knows_schema=False)):
        stream.send(producer, "a").wait_stored(20)
        assert session.pool(stream.pool_name).get("a").to_pylist() == views.to_pylist()
        assert producer.requested == ([stream.schema] if hasattr(producer, "__arrow_c_schema__") else [None])


def test_producers_convert_values_only_with_cast(session, name):
    stream = session.stream(name, pa.schema([("x", pa.int64())]), rows_max=100)
    for knows_schema in (True, False):
        producer = Producer(pa.table({"x": pa.array([1, 2], pa.int32())}), knows_schema)
        with pytest.raises(offpath.SchemaError, match=r"'x': expected int64, given int32; cast=True"):
            stream.send(producer, "a")
        stream.send(producer, "a", cast=True).wait_stored(20)
        assert session.pool(stream.pool_name).get("a")["x"].to_pylist() == [1, 2]


def test_text_of_another_width_is_another_type(session, name):
    stream = session.stream(name, pa.schema([("text", pa.large_string())]), rows_max=100)
    with pytest.raises(offpath.SchemaError, match="expected large_string, given string"):
        stream.send({"text": pa.array(["a"])}, "a")


@pytest.mark.parametrize("kind", [pa.dense_union, pa.sparse_union])
def test_unions_are_refused_by_their_names(session, name, kind):
    union = kind([pa.field("number", pa.int8()), pa.field("text", pa.string())])
    refused = r"column 'a.b' has the type (dense|sparse)_union<number: int8.*which agents do not store; send a column"
    with pytest.raises(offpath.Unsupported, match=refused):
        session.stream(name, pa.schema([("a", pa.struct([("b", union)]))]), rows_max=1)


def test_what_is_put_has_layouts_that_queries_know(session, name):
    """Text of Polars and DuckDB comes as views, which no expression takes; unions come back as they were put."""
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    runs = pa.RunEndEncodedArray.from_arrays([1, 2], [5, 6])
    table = pa.table({"text": pa.array(["a", LONG], VIEW), "runs": runs, "union": union})
    pool = session.pool(f"local:/{name}")
    pool.put(table, "a")
    put = pool.get("a")
    assert [field.type for field in put.schema] == [pa.large_string(), pa.int64(), union.type]
    assert put.to_pylist() == table.to_pylist()
    assert pool.query(f"text == '{LONG}' and runs == 6", columns=["text"]).to_pylist() == [{"text": LONG}]


def test_a_schema_without_columns_is_refused_in_these_words(session, name):
    with pytest.raises(offpath.SchemaError, match="without columns"):
        session.stream(name, pa.schema([]), rows_max=1)
