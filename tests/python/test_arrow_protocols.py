"""Pools, frames and segments as other libraries take them: Arrow's PyCapsules and Python's buffers."""

import duckdb
import nanoarrow
import numpy as np
import offpath
import polars
import pyarrow as pa
import pytest

SCHEMA = pa.schema([pa.field("x", pa.float64(), nullable=False)])


@pytest.fixture
def pool(session, name):
    stream = session.stream(name, SCHEMA, rows_max=100)
    for step in range(3):
        stream.send({"x": np.full(10, float(step))}, f"step{step}").wait_stored(60)
    return session.pool(stream.pool_name)


@pytest.mark.parametrize("rows", ["frame", "pool"])
def test_readers_take_it_as_it_is(pool, rows):
    data = pool if rows == "pool" else pool.get_frame("step1")
    expected = [0.0] * 10 + [1.0] * 10 + [2.0] * 10 if rows == "pool" else [1.0] * 10
    assert pa.schema(data).names == ["x"]
    assert pa.table(data)["x"].to_pylist() == expected
    assert polars.DataFrame(data)["x"].to_list() == expected
    assert list(nanoarrow.ArrayStream(data).read_all().to_pylist()) == [{"x": each} for each in expected]
    reader = pa.RecordBatchReader.from_stream(data)  # noqa: F841  duckdb finds it by its name
    with duckdb.connect() as connection:  # the default one is every test's of this process
        assert connection.sql("select sum(x) from reader").fetchall() == [(sum(expected),)]


def test_a_frame_is_read_where_it_lies(pool):
    frame = pool.get_frame("step1")
    address = pa.table(frame)["x"].chunk(0).buffers()[1].address
    assert frame.address <= address < frame.address + frame.nbytes


def test_what_is_no_arrow_says_so(session, name):
    pool = session.pool(f"local:/{name}").create()
    with pytest.raises(offpath.Error):
        pa.table(pool)
    pool.put(b"plain", "a")
    for each in (pa.schema, pa.table):
        with pytest.raises(offpath.SchemaError, match="plain bytes"):
            each(pool.get_frame("a"))


def test_a_segment_is_a_buffer(session):
    segment = session.alloc(4096)
    view = np.frombuffer(segment, dtype=np.float64)
    assert view.size == 512 and not view.any() and memoryview(segment).nbytes == 4096
    memoryview(segment)[:8] = np.float64(7).tobytes()
    assert view[0] == 7 and segment.numpy(np.float64)[0] == 7
    view[1] = 8
    del segment
    assert view[1] == 8
