"""Data of Polars, DuckDB and nanoarrow is sent, and Arrow's other layouts of the stored data come back the same."""

import re

import duckdb
import nanoarrow
import numpy as np
import offpath
import polars
import pyarrow as pa
import pytest
from offpath._native import Stream as NativeStream
from offpath.cli.output import show_frame
from offpath.layouts import stored_schema, stored_type
from offpath.object_file import read_object, write_tables

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
CODES, PLACES = pa.array([3, 0, 3, 0], pa.int8()), pa.array([0, 0, 2, 1], pa.int32())
NUMBERS, TEXTS, VIEWS = (
    pa.array([1, None, 3, 4], pa.int16()),
    pa.array(["a", None, LONG, ""]),
    pa.array(["a", LONG], VIEW),
)
UNIONS = [
    pa.UnionArray.from_sparse(CODES, [NUMBERS, TEXTS], ["number", "text"], [3, 0]),
    pa.UnionArray.from_dense(CODES, PLACES, [NUMBERS, TEXTS], ["number", "text"], [3, 0]),
    pa.UnionArray.from_dense(CODES, PLACES, [NUMBERS, VIEWS], ["number", "view"], [3, 0]),
    pa.UnionArray.from_sparse(CODES, [NUMBERS, pa.array(["a", "b", LONG, ""], VIEW)], ["number", "view"], [3, 0]),
    pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 3, 4], pa.int32()), pa.UnionArray.from_sparse(CODES, [NUMBERS, TEXTS], ["n", "t"], [3, 0])
    ),
    pa.StructArray.from_arrays([pa.UnionArray.from_dense(CODES, PLACES, [NUMBERS, TEXTS], ["n", "t"], [3, 0])], ["u"]),
]
ARRAYS += UNIONS
DESTINATIONS = ["ipc-page", "ipc", "record-batch", "arrays", "c-abi", "agent-serialise"]


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
        stream.send(data, row).wait_stored(60)
        arrived = pool.get(row)["x"]
        arrived.validate(full=True)
        assert arrived.type == stored_type(array.type)
        assert arrived.to_pylist() == (data["x"] if row != "slice" else array.slice(1, 2)).to_pylist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_polars_is_sent_to_the_layout_of_the_stream(session, name, kind):
    frame = polars.DataFrame({"text": ["a", None, LONG], "x": [1, 2, 3], "parts": [["a"], [], [LONG]]})
    stream = session.stream(
        name, pa.schema([("text", kind), ("x", pa.int64()), ("parts", pa.large_list(kind))]), rows_max=100
    )
    pool = session.pool(stream.pool_name)
    stream.send(frame, "frame").wait_stored(60)
    stream.send(polars.concat([frame, frame], rechunk=False), "chunks").wait_stored(60)
    stream.send({each.name: each for each in frame}, "series").wait_stored(60)
    assert pool.get("frame").schema.field("text").type == kind
    assert pool.get("frame").to_pylist() == pool.get("series").to_pylist() == frame.to_dicts()
    assert pool.get("chunks").to_pylist() == frame.to_dicts() * 2
    assert polars.DataFrame(pool.get_frame("frame")).equals(frame)


def test_duckdb_and_nanoarrow_are_sent(session, name):
    stream = session.stream(name, pa.schema([("text", pa.string()), ("x", pa.int32())]), rows_max=100)
    pool = session.pool(stream.pool_name)
    with duckdb.connect() as connection:
        relation = connection.sql("select * from (values ('a', 1), (null, 2)) t(text, x)")
        stream.send(relation, "duckdb").wait_stored(60)
        assert connection.sql("select 1").fetchall() == [(1,)], "a relation that was sent leaves its connection free"
    rows = [{"text": "a", "x": 1}, {"text": None, "x": 2}]
    assert pool.get("duckdb").to_pylist() == rows
    batch = nanoarrow.c_array(pa.record_batch({"text": ["a", None], "x": pa.array([1, 2], pa.int32())}))
    stream.send(nanoarrow.Array(batch), "nanoarrow").wait_stored(60)
    stream.send({"text": nanoarrow.Array(["a", None], nanoarrow.string_view()), "x": np.array([1, 2], "i4")}, "columns")
    stream.step_end("end").wait_stored(60)
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
        stream.send(producer, "a").wait_stored(60)
        assert session.pool(stream.pool_name).get("a").to_pylist() == views.to_pylist()
        assert producer.requested == ([stream.schema] if hasattr(producer, "__arrow_c_schema__") else [None])


def test_producers_convert_values_only_with_cast(session, name):
    stream = session.stream(name, pa.schema([("x", pa.int64())]), rows_max=100)
    for knows_schema in (True, False):
        producer = Producer(pa.table({"x": pa.array([1, 2], pa.int32())}), knows_schema)
        with pytest.raises(offpath.SchemaError, match=r"'x': expected int64, given int32; cast=True"):
            stream.send(producer, "a")
        stream.send(producer, "a", cast=True).wait_stored(60)
        assert session.pool(stream.pool_name).get("a")["x"].to_pylist() == [1, 2]


def test_text_of_another_width_is_another_type(session, name):
    stream = session.stream(name, pa.schema([("text", pa.large_string())]), rows_max=100)
    with pytest.raises(offpath.SchemaError, match="expected large_string, given string"):
        stream.send({"text": pa.array(["a"])}, "a")


@pytest.mark.parametrize("array", ARRAYS, ids=[str(each.type) for each in ARRAYS])
def test_c_and_python_store_the_same(session, name, array):
    """ofp_stream_open with the given schema, and ofp_send, without a conversion by Python."""
    batch = pa.record_batch({"x": array, "n": pa.array([1, 2, 3, 4])})
    stream = NativeStream(
        session._native, name, batch.schema.__arrow_c_schema__(), None, "ipc-page", 100, None, 0, 0, 0, None
    )
    pool = session.pool(f"local:/{name}")
    pieces = {"whole": batch, "slice": batch.slice(1, 2), "empty": batch.slice(2, 0), "last": batch.slice(3)}
    for row, piece in pieces.items():
        for snapshot in (False, True):
            number = stream.send_arrow(piece.__arrow_c_array__()[1], (row, str(snapshot)), snapshot, True, 20)
            stream.wait_stored(number, 20)
            arrived = pool.get(row, str(snapshot))
            arrived.validate(full=True)
            assert arrived.schema == stored_schema(batch.schema)
            assert arrived.to_pylist() == piece.to_pylist()
    stream.close(1)


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("array", UNIONS[:2], ids=["sparse", "dense"])
def test_unions_keep_their_type_codes_and_nulls(session, name, array, destination):
    schema = pa.schema([pa.field("x", array.type, nullable=False)], {"unit": "none"})
    stream = session.stream(name, schema, rows_max=100, destination=destination)
    stream.send({"x": array}, "a").wait_stored(60)
    pool = session.pool(stream.pool_name)
    arrived = pool.get("a")
    assert arrived.schema.equals(schema, check_metadata=True)
    assert arrived["x"].type.type_codes == [3, 0]
    assert arrived["x"].combine_chunks().equals(array)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_unions_are_compressed(session, name, compression):
    count = 10_000
    codes, numbers = pa.array(np.arange(count) % 2, pa.int8()), pa.array(np.arange(count) // 100)
    children = [numbers, numbers.cast(pa.string())]
    places = pa.array(np.arange(count), pa.int32())
    unions = pa.UnionArray.from_dense(codes, places, children), pa.UnionArray.from_sparse(codes, children)
    table = pa.table({"d": unions[0], "s": unions[1], "x": numbers})
    stream = session.stream(name, table.schema, rows_max=count, compression=compression)
    stream.send(table, "a").wait_stored(60)
    pool = session.pool(stream.pool_name)
    assert pool.get_frame("a").nbytes < table.nbytes / 2
    assert pool.get("a").to_pylist() == table.to_pylist()
    assert pool.query("x < 30").to_pylist() == table.slice(0, 3000).to_pylist()


@pytest.mark.parametrize("array", UNIONS[:2], ids=["sparse", "dense"])
def test_unions_in_queries_are_shown_and_computed_with_by_no_function(session, name, array):
    table = pa.table({"u": array, "x": pa.array([1, 2, 3, 4])})
    stream = session.stream(name, table.schema, rows_max=100)
    stream.send(table, "a").wait_stored(60)
    pool = session.pool(stream.pool_name)
    assert pool.query("x > 2").to_pylist() == table.slice(2).to_pylist()
    assert pool.query("x > 2", columns=["u"]).to_pylist() == table.slice(2).select(["u"]).to_pylist()
    with pytest.raises(offpath.Error, match=rf"greater.*{array.type.mode}_union<number: int16"):
        pool.query("u > 2")
    with pytest.raises(offpath.Error, match=rf"max.*{array.type.mode}_union<number: int16.*which does not support it"):
        pool.query("max(u)")


def union_of(array, codes, places=None):
    """The same type and children; what it shows may be nothing that they have."""
    shown = [pa.array(codes, pa.int8()), *([pa.array(places, pa.int32())] if places else [])]
    buffers = [None, *(each.buffers()[1] for each in shown)]
    return pa.Array.from_buffers(array.type, len(codes), buffers, children=[array.field(i) for i in range(2)])


WRONG = [
    (union_of(UNIONS[0], [3, 0, 3, 99]), "'u', row 3: the type code 99, which none of its types has"),
    (union_of(UNIONS[0], [3, 0, -1, 0]), "'u', row 2: the type code -1, which"),
    (union_of(UNIONS[1], [3, 0, 9, 0], [0, 0, 1, 1]), "'u', row 2: the type code 9, which"),
    (union_of(UNIONS[1], [3, 0, 3, 0], [1, 0, 2, 4]), "'u', row 3: the offset 4 in a child of 4 values"),
    (union_of(UNIONS[1], [3, 0, 3, 0], [1, 0, 2, -5]), "'u', row 3: the offset -5 in a child of 4 values"),
    (union_of(UNIONS[1], [3, 0, 3, 0], [1, 0, 0, 1]), "'u', row 2: the offset 0 behind 1 in the same child"),
]


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_union_that_shows_what_it_does_not_have_is_not_stored(session, name, destination):
    """Arrow's libraries read beyond memory for it, so it must reach no reader."""
    for number, (broken, message) in enumerate(WRONG):
        stream = session.stream(f"{name}{number}", pa.schema({"u": broken.type}), rows_max=100, destination=destination)
        ticket = stream.send(pa.record_batch({"u": broken}), "a")
        with pytest.raises(offpath.SchemaError, match=re.escape(message)):
            ticket.wait_stored(60)
        with pytest.raises(offpath.NotFound):
            session.pool(stream.pool_name).get("a")


@pytest.mark.parametrize("broken", [broken for broken, _ in WRONG], ids=range(len(WRONG)))
def test_what_a_program_has_serialised_is_checked_before_it_is_shown(session, name, broken, tmp_path):
    table = pa.table({"u": broken, "x": [1, 2, 3, 4]})
    stream = session.stream(name, destination="serialised")
    stream.send(table, "a").wait_stored(60)
    pool = session.pool(stream.pool_name)
    with pytest.raises(offpath.Error, match="checking object"):
        pool.query("x > 2")
    for out in (None, tmp_path / "u.arrow"):
        with pytest.raises(offpath.Error, match="nion value at position"):
            show_frame(pool.get_frame("a"), {}, out, False, force=False)


def test_files_that_have_no_form_for_unions_say_so(tmp_path):
    table = pa.table({"x": [1, 2, 3, 4], "u": UNIONS[0]})
    for suffix in (".parquet", ".csv"):
        path = tmp_path / f"table{suffix}"
        with pytest.raises(
            offpath.Invalid, match=rf"column 'u' has the type sparse_union<.*, for which \{suffix} files"
        ):
            write_tables([table], path)
        assert not path.exists()
    for suffix in (".arrow", ".arrows"):
        write_tables([table], tmp_path / f"table{suffix}")
        assert read_object(tmp_path / f"table{suffix}").equals(table)


@pytest.mark.parametrize(
    ("suffix", "array"),
    [
        (".csv", pa.array([None, pa.MonthDayNano([1, 2, 3])])),
        (".parquet", pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([[1]]))),
    ],
    ids=["interval", "dictionary-of-lists"],
)
def test_types_that_a_file_refuses_with_the_first_row_are_named(tmp_path, suffix, array):
    path = tmp_path / f"table{suffix}"
    with pytest.raises(offpath.Invalid, match="column 'u' has the type"):
        write_tables([pa.table({"x": [1, 2], "u": array})], path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow", ".arrows"])
def test_a_file_appears_when_it_is_whole(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    table = pa.table({"x": [1, 2]})

    def tables():
        yield table
        raise offpath.Timeout("a member is silent")

    for before in ([], [path]):
        with pytest.raises(offpath.Timeout):
            write_tables(tables(), path)
        assert list(tmp_path.iterdir()) == before
        assert write_tables([table, table], path) == 4
        assert read_object(path).equals(pa.concat_tables([table, table]))
    assert write_tables([], tmp_path / "none") == 0
    assert list(tmp_path.iterdir()) == [path]


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
