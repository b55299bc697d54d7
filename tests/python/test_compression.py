"""Frames whose bodies the agent compressed: the result of every reader, the cost, and refused requests."""

import numpy as np
import offpath
import polars
import pyarrow as pa
import pytest
from offpath.agent_http import fetch, fetch_status

ROWS = 100_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("noise", pa.uint64(), nullable=False)])

codecs = pytest.mark.parametrize("codec", ["lz4", "zstd"])


@pytest.fixture
def data():
    """A column that becomes smaller, and one that does not."""
    noise = np.random.default_rng(3).integers(0, 1 << 64, ROWS, dtype=np.uint64)
    return {"id": np.arange(ROWS), "noise": noise}


def of_any_type():
    return pa.RecordBatch.from_pydict(
        {
            "text": pa.array(["a", None, "ccc" * 100, ""]),
            "list": pa.array([[1, 2], None, [], [3] * 500], pa.list_(pa.int16())),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}]),
            "word": pa.array(["u", "v" * 300, "u", None]).dictionary_encode(),
            "flag": pa.array([True, None, False, True]),
            "nothing": pa.nulls(4),
        }
    )


@codecs
@pytest.mark.parametrize("destination", ["ipc-page", "ipc"])
def test_frames_are_smaller_and_equal(any_session, name, data, codec, destination):
    stream = any_session.stream(name, SCHEMA, rows_max=ROWS, destination=destination, compression=codec)
    ticket = stream.send(data, key="a")
    ticket.wait_pulled(60)
    ticket.wait_stored(60)
    frame = any_session.pool(stream.pool_name).get_frame("a")
    # The noise does not compress; half of the rest is zeros.
    assert 8 * ROWS < frame.nbytes < 13 * ROWS
    table = frame.table()
    assert table.schema.equals(SCHEMA)
    for column, values in data.items():
        assert np.array_equal(table[column].to_numpy(), values)
    # Read into memory of the reader's own: that is the cost of compression.
    address = table["id"].chunk(0).buffers()[1].address
    assert not frame.address <= address < frame.address + frame.nbytes
    assert polars.read_ipc_stream(bytes(frame), use_pyarrow=False).equals(polars.DataFrame(data))


@codecs
def test_any_type_and_slices(any_session, name, codec):
    batch = of_any_type()
    stream = any_session.stream(name, batch.schema, rows_max=4, compression=codec)
    pool = any_session.pool(stream.pool_name)
    for key, piece in {"whole": batch, "slice": batch.slice(1, 2), "empty": batch.slice(0, 0)}.items():
        stream.send(piece, key=key).wait_stored(60)
        assert pool.get(key).to_pylist() == piece.to_pylist()


@codecs
def test_over_the_network(tcp_agent, name, data, codec):
    _, address, key = tcp_agent
    with offpath.connect(address, key_file=key) as session:
        stream = session.stream(name, SCHEMA, rows_max=ROWS, compression=codec)
        stream.send(data, key="a").wait_stored(60)
        table = session.pool(stream.pool_name).get("a")
        assert np.array_equal(table["id"].to_numpy(), data["id"])


def test_a_pool_of_all_kinds_is_written_to_one_file(session, name, tmp_path):
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    pool = f"local:/{name}"
    for codec in (None, "lz4", "zstd", "none"):
        with session.stream(f"{name}-{codec}", schema, rows_max=ROWS, pool=pool, compression=codec) as stream:
            stream.send({"v": np.arange(ROWS)}, key=str(codec)).wait_stored(60)
    path = tmp_path / "all.arrows"
    written = session.pool(pool).write(path)
    assert 2 * 8 * ROWS < written < 3 * 8 * ROWS
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    assert np.array_equal(table["v"].to_numpy(), np.tile(np.arange(ROWS), 4))
    assert session.pool(pool).table().equals(table)


def test_it_is_counted(name, data):
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        with session.stream(name, SCHEMA, rows_max=ROWS, compression="zstd") as stream:
            stream.send(data, key="a").wait_stored(60)
            status = fetch_status(agent.http_address)
            assert [each["compression"] for each in status["streams"]] == ["zstd"]
        mover = status["mover"]
        assert mover["packed_frames"] == 1
        assert mover["packed_bytes"] == session.pool(stream.pool_name).get_frame("a").nbytes
        assert mover["plain_bytes"] > 16 * ROWS > mover["packed_bytes"]
        assert mover["pack_s"] > 0
        # The memory that it was pulled into is free for other frames again.
        assert status["memory"]["used_bytes"] < 13 * ROWS
        metrics = fetch(agent.http_address, "/metrics")
        assert "offpath_compressed_frames_total 1" in metrics
        assert f'offpath_compression_bytes_total{{of="kept"}} {mover["packed_bytes"]}' in metrics
        assert "offpath_compression_seconds_total" in metrics


def test_an_unknown_codec_is_named_with_those_there_are(session, name):
    with pytest.raises(offpath.Invalid, match='compression "snappy" is unknown; known are none, lz4, zstd'):
        session.stream(name, SCHEMA, rows_max=10, compression="snappy")


@pytest.mark.parametrize("destination", ["arrays", "record-batch", "c-abi", "agent-serialise", "native", "serialised"])
def test_destinations_that_are_not_compressed_say_which_are(session, name, destination):
    schema = None if destination in ("native", "serialised") else SCHEMA
    with pytest.raises(
        offpath.Unsupported,
        match=f"compression zstd with destination {destination}; frames of ipc and ipc-page are compressed",
    ):
        session.stream(name, schema, rows_max=10, destination=destination, compression="zstd")
    session.stream(name, schema, rows_max=10, destination=destination, compression="none").close()


def test_it_is_part_of_what_a_stream_says_of_itself(session, name):
    with session.stream(name, SCHEMA, rows_max=10, compression="lz4") as stream:
        assert stream.compression == "lz4"
        assert "ipc-page, lz4" in repr(stream)
