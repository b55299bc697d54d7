"""Sessions, tickets and lost agents."""

import asyncio
import errno
import os
import pickle
import select
import signal
import subprocess
import sys
import time

import numpy as np
import offpath
import pyarrow as pa
import pytest

SCHEMA = pa.schema([pa.field("v", pa.int64(), nullable=False)])


def test_info_tells_the_link(session, agent):
    info = session.info
    assert info.link == "local" and info.threads == 0 and info.agent_pid == agent.pid
    assert info.agent_version == offpath.__version__
    assert info.one_sided != info.staged
    assert info.link_reason


def test_probe(session):
    before = time.monotonic_ns()
    seen_ns, returned_ns = session.probe(60)
    assert before <= seen_ns <= returned_ns <= time.monotonic_ns()


def test_addresses(monkeypatch, agent):
    monkeypatch.delenv("OFFPATH_AGENT", raising=False)
    with pytest.raises(offpath.Invalid, match="OFFPATH_AGENT"):
        offpath.connect()
    with pytest.raises(offpath.Invalid, match="carrier:pigeon"):
        offpath.connect("carrier:pigeon")
    with pytest.raises(offpath.Error, match="/nobody/here"):
        offpath.connect("unix:/nobody/here")
    monkeypatch.setenv("OFFPATH_AGENT", agent.address)
    offpath.connect().close()


def test_closed(session, name):
    stream = session.stream(name, SCHEMA, rows_max=10)
    session.close()
    session.close()
    with pytest.raises(offpath.Closed):
        session.probe()
    with pytest.raises(offpath.Closed):
        stream.send({"v": np.arange(10)}, key="a")


def test_event_descriptor(session, name):
    stream = session.stream(name, SCHEMA, rows_max=1000)
    ticket = stream.send({"v": np.arange(1000)}, key="a")
    stream._native.arm(ticket.number, True)
    deadline = time.monotonic() + 60
    while not ticket.stored:
        assert select.select([session.event_fd], [], [], max(0, deadline - time.monotonic()))[0]
        session.poll()


def test_awaiting_tickets(session, name):
    stream = session.stream(name, SCHEMA, rows_max=1_000_000)

    async def send_many():
        values = np.arange(1_000_000)
        tickets = [stream.send({"v": values}, key=f"s{step}") for step in range(8)]
        await asyncio.gather(*tickets)
        assert all(ticket.pulled for ticket in tickets)
        await asyncio.gather(*(ticket.when_stored() for ticket in tickets))
        return len(session.pool(stream.pool_name))

    assert asyncio.run(send_many()) == 8
    assert asyncio.run(send_many()) == 8  # in another event loop


def test_announced_memory_that_moves(session, name):
    stream = session.stream(name, SCHEMA, rows_max=2000)
    first, second = np.full(1000, 1), np.full(2000, 2)
    with session.announce(first) as announcement:
        stream.send({"v": first}, key="a").wait_stored(60)
        announcement.reannounce(second)
        stream.send({"v": second}, key="b").wait_stored(60)
    pool = session.pool(stream.pool_name)
    assert pool.get("a").num_rows == 1000 and (pool.get("b")["v"].to_numpy() == 2).all()


def test_memory_that_is_gone_fails_its_send_only(session, name):
    import mmap

    if session.info.staged:
        pytest.skip("arrays are copied by the program itself here")
    stream = session.stream(name, SCHEMA, rows_max=100_000)
    stream.send({"v": np.arange(10)}, key="before").wait_stored(60)  # so its credit is there when the agent is stopped
    memory = mmap.mmap(-1, 800_000)
    announcement = session.announce(np.frombuffer(memory, np.int64))
    os.kill(session.info.agent_pid, signal.SIGSTOP)
    try:
        ticket = stream.send({"v": np.frombuffer(memory, np.int64)}, key="gone")
        import ctypes

        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        assert libc.munmap(address, 800_000) == 0
    finally:
        os.kill(session.info.agent_pid, signal.SIGCONT)
    with pytest.raises(offpath.Unreadable):
        ticket.wait_stored(60)
    # Something has to be there again before Python gives it back.
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    assert libc.mmap(address, 800_000, 3, 0x32, -1, 0) == address  # private, anonymous, fixed
    announcement.retire()
    stream.send({"v": np.arange(10)}, key="next").wait_stored(60)
    assert session.pool(stream.pool_name).keys() == [("before", ""), ("next", "")]


def test_a_killed_agent_ends_every_wait_within_a_second(name):
    with offpath.Agent.start() as doomed:
        session = offpath.connect(doomed.address)
        stream = session.stream(name, SCHEMA, rows_max=1000)
        values = np.arange(1000)
        stream.send({"v": values}, key="a").wait_stored(60)
        table = session.pool(stream.pool_name).get("a")
        os.kill(doomed.pid, signal.SIGSTOP)
        ticket = stream.send({"v": values}, key="b")
        doomed.kill()
        began = time.monotonic()
        with pytest.raises(offpath.PeerLost):
            ticket.wait_pulled(30)
        assert time.monotonic() - began < 4  # on a slow machine
        with pytest.raises(offpath.PeerLost):
            stream.send({"v": values}, key="c")
        assert table.num_rows == 1000  # pages that are mapped stay
        session.close()


def test_a_forked_child_is_refused_and_the_parent_goes_on(agent, name):
    program = f"""
import os, sys, numpy as np, offpath, pyarrow as pa
session = offpath.connect({agent.address!r})
schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
stream = session.stream({name!r}, schema, rows_max=10)
child = os.fork()
if child == 0:
    status = 1
    try:
        stream.send({{"v": np.arange(10)}}, key="child")
    except offpath.Forked:
        session.close()
        with offpath.connect({agent.address!r}) as own:
            own.probe(60)
        status = 0
    os._exit(status)
assert os.waitpid(child, 0)[1] == 0
stream.send({{"v": np.arange(10)}}, key="parent").wait_stored(60)
print(session.pool(stream.pool_name).keys())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "parent" in done.stdout and "child" not in done.stdout


def test_errors_are_one_family():
    codes = {cls.code for cls in offpath.Error.__subclasses__()}
    assert set(range(1, 22)) <= codes
    assert issubclass(offpath.Timeout, TimeoutError) and issubclass(offpath.PeerLost, ConnectionError)
    error = offpath.errors.error_of(2, "late")
    assert isinstance(error, offpath.Timeout) and str(error) == "late"
    assert type(offpath.errors.error_of(99, "?")) is offpath.Error


def test_errors_of_the_system_have_its_numbers():
    for kind in [each for each in offpath.Error.__subclasses__() if issubclass(each, OSError)]:
        assert kind("late").errno in errno.errorcode and str(kind("late")) == "late"
    assert offpath.NoSpace("full").errno == errno.ENOSPC and offpath.IoError("broken").errno == errno.EIO
    assert pickle.loads(pickle.dumps(offpath.NoSpace("full"))).errno == errno.ENOSPC


def test_interrupting_a_wait(agent, name):
    program = f"""
import offpath
session = offpath.connect({agent.address!r})
try:
    print("waiting", flush=True)
    session.pool("local:/never").get("never", timeout=None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as waiting:
        assert waiting.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        waiting.send_signal(signal.SIGINT)
        assert waiting.communicate(timeout=60)[0] == "interrupted\n"


def test_over_tcp(tcp_agent, name, tmp_path):
    _, address, key = tcp_agent
    with offpath.connect(address, key_file=key) as session:
        info = session.info
        assert info.link == "tcp" and not info.one_sided and info.threads == 1
        stream = session.stream(name, SCHEMA, rows_max=300_000)
        for step in range(3):
            ticket = stream.send({"v": np.arange(300_000) + step}, key=f"s{step}")
        ticket.wait_stored(60)
        pool = session.pool(stream.pool_name)
        frame = pool.get_frame("s2")
        assert not frame.mapped
        assert frame.table()["v"].to_numpy().tolist()[:3] == [2, 3, 4]
        path = tmp_path / "over-tcp.arrows"
        assert pool.write(path) == path.stat().st_size
        with pa.memory_map(str(path)) as source:
            assert pa.ipc.open_stream(source).read_all().equals(pool.table())


def test_a_wrong_key_is_denied(tcp_agent, tmp_path):
    _, address, _ = tcp_agent
    wrong = tmp_path / "wrong"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    with pytest.raises(offpath.Denied):
        offpath.connect(address, key_file=wrong)
