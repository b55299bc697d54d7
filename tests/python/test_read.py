"""Reading back: without a copy, for as long as the program holds it, in every form that readers know."""

import gc
import os
import stat
import subprocess

import numpy as np
import offpath
import pyarrow as pa
import pytest

SCHEMA = pa.schema([pa.field("v", pa.int64(), nullable=False)])


@pytest.fixture
def filled(session, name):
    """A pool of five objects of 1000 rows."""
    stream = session.stream(name, SCHEMA, rows_max=1000)
    for step in range(5):
        ticket = stream.send({"v": np.full(1000, step)}, key=(f"step{step}", "rank0"))
        ticket.wait_stored(60)
    return session.pool(stream.pool_name)


def test_tables_lie_in_the_agents_pages(filled):
    frame = filled.get_frame("step3", "rank0")
    assert frame.mapped and frame.is_arrow and frame.rows == 1000
    column = frame.table()["v"].chunk(0)
    address = column.buffers()[1].address
    assert frame.address <= address < frame.address + frame.nbytes
    assert address % 4096 == 0


def test_a_table_outlives_frame_pool_and_session(agent, name):
    session = offpath.connect(agent.address)
    stream = session.stream(name, SCHEMA, rows_max=1000)
    stream.send({"v": np.arange(1000)}, key="a").wait_stored(60)
    table = session.pool(stream.pool_name).get("a")
    session.pool(stream.pool_name).drop()
    session.close()
    del session, stream
    gc.collect()
    assert table["v"].to_numpy().tolist() == list(range(1000))


def test_pages_are_read_only(filled):
    values = filled.get("step0", "rank0")["v"].to_numpy()
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1


def test_listing(filled):
    entries = filled.list()
    assert [entry.row for entry in entries] == [f"step{step}" for step in range(5)]
    assert all(entry.rows == 1000 and entry.nbytes > 8000 for entry in entries)
    assert [entry.row for entry in filled.list(row="step[12]")] in (["step1", "step2"], [])
    assert [entry.row for entry in filled.list(row="*3")] == ["step3"]
    assert ("step1", "rank0") in filled and ("step1", "rank1") not in filled


def test_a_long_listing_comes_in_pieces(session, name):
    stream = session.stream(name, destination="native")
    for number in range(2000):
        ticket = stream.send(b"x", key=(f"row{number:05}", "column"))
    ticket.wait_stored(60)
    assert [row for row, _ in session.pool(stream.pool_name).keys()] == [f"row{number:05}" for number in range(2000)]


def test_drop(filled):
    held = filled.get("step2", "rank0")
    assert filled.drop("step2") == 1
    assert len(filled) == 4
    assert (held["v"].to_numpy() == 2).all()
    with pytest.raises(offpath.NotFound, match="step2"):
        filled.get("step2", "rank0")


def test_what_is_not_there(session, filled):
    with pytest.raises(offpath.NotFound, match="nothing"):
        filled.get("nothing")
    with pytest.raises(offpath.Timeout, match="nothing"):
        filled.get("nothing", timeout=0.2)
    with pytest.raises(offpath.NotFound, match="local:/nowhere"):
        session.pool("local:/nowhere").list()
    assert session.pool("local:/nowhere").keys() == []
    with pytest.raises(offpath.Error, match="hash:"):
        session.pool("hash:/there").get("a", timeout=0.1)


def test_get_waits_for_the_object(agent, session, name):
    import threading

    stream = session.stream(name, SCHEMA, rows_max=10)
    timer = threading.Timer(0.3, lambda: stream.send({"v": np.arange(10)}, key="later"))
    timer.start()
    with offpath.connect(agent.address) as reader:
        assert reader.pool(stream.pool_name).get("later", timeout=60).num_rows == 10
    timer.join()


def test_all_objects_as_one_stream(filled, tmp_path):
    assert filled.table()["v"].to_pylist() == [step for step in range(5) for _ in range(1000)]
    assert pa.table(filled).num_rows == 5000
    assert pa.table(filled.get_frame("step1", "rank0")).num_rows == 1000
    assert [batch.num_rows for batch in filled] == [1000] * 5
    path = tmp_path / "all.arrows"
    written = filled.write(path)
    assert path.stat().st_size == written
    with pa.memory_map(str(path)) as source:
        assert pa.ipc.open_stream(source).read_all().equals(filled.table())


def test_writing_to_what_is_no_file_leaves_it_there(filled, tmp_path):
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    with file.open("wb") as copy, subprocess.Popen(["cat", pipe], stdout=copy) as reader:
        written = filled.write(pipe)
        assert reader.wait(60) == 0
    assert file.stat().st_size == written and stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "pipe"]


def test_writing_to_a_full_device_keeps_the_frames(filled):
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(offpath.NoSpace, match="frames are still in the pool"):
            filled.session._native.pool_write(filled.name, fd, 10)
    finally:
        os.close(fd)
    assert len(filled) == 5


def test_steps_become_visible_when_all_ranks_have_ended_them(agent, name):
    sessions = [offpath.connect(agent.address) for _ in range(2)]
    streams = [session.stream(name, SCHEMA, rows_max=10, ranks=2, rank=rank) for rank, session in enumerate(sessions)]
    pool = sessions[0].pool(f"local:/{name}")
    for rank, stream in enumerate(streams):
        stream.send({"v": np.full(10, rank)}, key=("step0", f"rank{rank}")).wait_stored(60)
    streams[0].step_end("step0").wait_stored(60)
    assert pool.keys() == []
    with pytest.raises(offpath.NotFound, match="1 of 2 ranks"):
        pool.get("step0", "rank0")
    streams[1].step_end("step0").wait_stored(60)
    assert pool.keys() == [("step0", "rank0"), ("step0", "rank1")]
    for session in sessions:
        session.close()


def test_moves(session, name):
    stream = session.stream(name, destination="native")
    first, second = np.arange(100, dtype=np.uint8), np.full(50, 7, np.uint8)
    stream.move([(first, 10), (second, 200)], key="made").wait_stored(60)
    made = np.frombuffer(session.pool(stream.pool_name).get_bytes("made"), np.uint8)
    expected = np.zeros(250, np.uint8)
    expected[10:110], expected[200:] = first, second
    assert np.array_equal(made, expected)
    stream.move([(second, 0)], key="made", update=True).wait_stored(60)
    changed = np.frombuffer(session.pool(stream.pool_name).get_bytes("made"), np.uint8)
    assert (changed[:50] == 7).all() and np.array_equal(changed[50:], expected[50:])
    with pytest.raises(offpath.TooLarge, match=r"249.*250|object"):
        ticket = stream.move([(second, 249)], key="made", update=True)
        ticket.wait_stored(60)
    with pytest.raises(offpath.NotFound, match="absent"):
        stream.move([(second, 0)], key="absent", update=True).wait_stored(60)


def test_segments(any_session, name):
    segment = any_session.alloc(10_000)
    values = segment.numpy(np.int32)
    assert segment.nbytes == 10_000 and not values.any()
    values[:] = np.arange(2500)
    stream = any_session.stream(name, pa.schema([pa.field("v", pa.int32(), nullable=False)]), rows_max=2500)
    stream.send({"v": values}, key="a").wait_stored(60)
    assert any_session.pool(stream.pool_name).get("a")["v"].to_numpy().tolist() == list(range(2500))
