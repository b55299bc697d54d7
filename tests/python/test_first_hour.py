"""Schemas, keys and queries in the forms that a new user tries first."""

import re

import numpy as np
import offpath
import polars
import pyarrow as pa
import pytest

ARRAYS = {"x": np.array([1, 2, 3]), "v": np.zeros((3, 2), np.float32)}
TYPES = {"x": pa.int64(), "v": pa.list_(pa.float32(), 2)}


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema(TYPES),
        TYPES,
        ARRAYS,
        polars.Schema({"x": polars.Int64, "v": polars.Array(polars.Float32, 2)}),
        polars.DataFrame(ARRAYS, schema={"x": polars.Int64, "v": polars.Array(polars.Float32, 2)}),
        pa.table(ARRAYS | {"v": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(6, np.float32)), 2)}),
        np.zeros(3, [("x", "i8"), ("v", "f4", 2)]),
    ],
    ids=["schema", "types", "arrays", "Polars schema", "Polars frame", "table", "records"],
)
def test_schemas_are_taken_in_every_form(session, name, schema):
    stream = session.stream(name, schema, rows_max=10)
    assert stream.schema.names == ["x", "v"] and stream.schema.types == list(TYPES.values())
    stream.send(ARRAYS, "a").wait_stored(60)
    assert session.pool(stream.pool_name).get("a")["x"].to_pylist() == [1, 2, 3]


def test_types_may_be_those_of_numpy(session, name):
    given = {"a": "f4", "b": np.int32, "c": np.dtype("M8[ns]"), "d": ["text"]}
    expected = [pa.float32(), pa.int32(), pa.timestamp("ns"), pa.string()]
    assert session.stream(name, given, rows_max=1).schema.types == expected
    with pytest.raises(offpath.SchemaError, match="given int"):
        session.stream(name, 5, rows_max=1)


def test_types_by_arrows_names_and_by_names_that_there_are_not(session, name):
    stream = session.stream(name, {"text": "string", "when": "timestamp[us]", "x": "float"}, rows_max=9)
    assert stream.schema.types == [pa.string(), pa.timestamp("us"), pa.float64()], "NumPy's name where both have one"
    with pytest.raises(offpath.SchemaError, match=r"column 'x': 'int65' names no type .* string or timestamp"):
        session.stream(f"{name}-odd", {"x": "int65"}, rows_max=9)


def test_sends_without_a_key_are_numbered(session, name):
    stream = session.stream(name, TYPES, rows_max=10)
    for _ in range(3):
        ticket = stream.send(ARRAYS)
    ticket.wait_stored(60)
    assert session.pool(stream.pool_name).keys() == [("step0", ""), ("step1", ""), ("step2", "")]


def test_queries_take_the_text_of_the_command_line(session, name):
    stream = session.stream(name, TYPES, rows_max=10)
    stream.send(ARRAYS).wait_stored(60)
    pool = session.pool(stream.pool_name)
    assert pool.query("x > 1", ["x"])["x"].to_pylist() == [2, 3]
    assert pool.query("max(x)").to_pylist() == [{"max(x)": 3}]
    assert pool.query("count").to_pylist() == [{"count": 3}]
    assert pool.query("x > 1", aggregates="least=min(x)").to_pylist() == [{"least": 2}]
    assert pool.query_async("x == 3", ["x"]).result(60)["x"].to_pylist() == [3]
    with pytest.raises(offpath.Invalid, match="means nothing"):
        pool.query("max(x) > 1")


@pytest.mark.parametrize("ask", [len, offpath.Pool.list, offpath.Pool.table])
def test_a_pool_that_is_not_there_is_named_by_every_call(session, name, ask):
    with pytest.raises(offpath.NotFound, match=re.escape(f"local:/{name}")):
        ask(session.pool(f"local:/{name}"))
    assert "a" not in session.pool(f"local:/{name}")
