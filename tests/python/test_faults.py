"""Bad input and faults in real processes: a clear error names the field and both values, nothing is lost, and no other
program is disturbed. tests/faults.toml lists every fault of docs/operate/faults.md with its tests."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath.agent_http import fetch_status
from small_disk import mounted_disk

SCHEMA = pa.schema([pa.field("v", pa.int64(), nullable=False)])
A_SECOND = 4.0  # on a slow machine; what nobody noticed would take until limits.silence, 5 s, or for ever
MIB = 1 << 20

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@pytest.fixture
def own_agent():
    with offpath.Agent.start(memory="1GiB") as agent:
        yield agent


@contextlib.contextmanager
def stopped(pid: int):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Bystander:
    """Another program at the same agent: its batches before and after a fault arrive, bit for bit."""

    def __init__(self, agent: offpath.Agent) -> None:
        self.session = offpath.connect(agent.address, name="bystander")
        name = f"bystander-{secrets.token_hex(3)}"
        self.stream = self.session.stream(name, SCHEMA, rows_max=1000, keep=10_000)
        self.sent: dict[str, np.ndarray] = {}
        self.goes_on()

    def goes_on(self) -> None:
        for _ in range(20):
            key, values = f"b{len(self.sent)}", np.arange(1000) + len(self.sent)
            self.stream.send({"v": values}, key=key).wait_stored(60)
            self.sent[key] = values
        pool = self.session.pool(self.stream.pool_name)
        for key, values in self.sent.items():
            assert pool.get(key)["v"].to_numpy().tobytes() == values.tobytes()

    def close(self) -> None:
        self.session.pool(self.stream.pool_name).drop()
        self.session.close()


@pytest.fixture
def bystander(own_agent):
    other = Bystander(own_agent)
    yield other
    other.goes_on()
    other.close()


@contextlib.contextmanager
def program(text: str, *arguments: object):
    """A Python program of its own; killed at the end if it still lives."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", text, *map(str, arguments)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        running.stdin.close()
        running.stdout.close()


def within(seconds: float, what: str, condition) -> float:
    """Waits for a condition and returns how long it took; fails beyond `seconds`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"after {seconds} s: {what}"
        time.sleep(0.002)
    return time.monotonic() - began


# ---- wrong arguments


def test_a_batch_of_another_schema_names_the_field_and_both_types(session, name):
    stream = session.stream(name, SCHEMA, rows_max=10)
    with pytest.raises(offpath.SchemaError, match=r"column 'v': expected int64, given float64"):
        stream.send(pa.record_batch({"v": pa.array([1.0])}), key="a")
    stream.send({"v": np.arange(3)}, key="b").wait_stored(60)
    assert session.pool(stream.pool_name).keys() == [("b", "")]


def test_columns_of_different_lengths_name_both(session, name):
    two = pa.schema([pa.field(each, pa.int64(), nullable=False) for each in "vw"])
    stream = session.stream(name, two, rows_max=10)
    with pytest.raises(offpath.SchemaError, match=r"column 'w' has 4 rows, column 'v' has 5"):
        stream.send({"v": np.zeros(5, np.int64), "w": np.zeros(4, np.int64)}, key="a")


def test_an_unknown_destination_is_named_with_those_there_are(session, name):
    with pytest.raises(offpath.Invalid, match=r'destination "mars" is unknown; known are native, .*ipc-page'):
        session.stream(name, SCHEMA, rows_max=10, destination="mars")
    with pytest.raises(offpath.Unsupported, match=r'pool "mars:/x": a pool.s name begins with one of local:/'):
        session.stream(name, SCHEMA, rows_max=10, pool="mars:/x")


# ---- memory


def pages(count: int) -> tuple[mmap.mmap, np.ndarray, int]:
    memory = mmap.mmap(-1, count * mmap.PAGESIZE)
    values = np.frombuffer(memory, np.int64)
    values[:] = np.arange(values.size)
    return memory, values, values.ctypes.data


def test_read_only_memory_is_sent_and_stays_read_only(session, name):
    _memory, values, address = pages(16)
    assert libc.mprotect(address, 16 * mmap.PAGESIZE, mmap.PROT_READ) == 0
    stream = session.stream(name, SCHEMA, rows_max=values.size)
    stream.send({"v": values}, key="a").wait_stored(60)
    assert session.pool(stream.pool_name).get("a")["v"].to_numpy().tobytes() == values.tobytes()
    (line,) = [each for each in Path("/proc/self/maps").read_text().splitlines() if each.startswith(f"{address:x}-")]
    assert line.split()[1].startswith("r-")


def test_memory_that_may_not_be_read_fails_its_send_only(session, name):
    _memory, values, address = pages(16)
    stream = session.stream(name, SCHEMA, rows_max=values.size)
    announcement = session.announce(values)
    assert libc.mprotect(address + 8 * mmap.PAGESIZE, 8 * mmap.PAGESIZE, 0) == 0
    try:
        if session.info.staged:
            pytest.skip("arrays are copied by the program itself here")
        with pytest.raises(offpath.Unreadable, match=r"range \d+"):
            stream.send({"v": values}, key="gone").wait_stored(60)
    finally:
        libc.mprotect(address, 16 * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
        announcement.retire()
    stream.send({"v": values}, key="next").wait_stored(60)
    assert session.pool(stream.pool_name).keys() == [("next", "")]


# ---- full resources


def test_a_full_ring_would_block_and_loses_nothing(own_agent, bystander):
    with offpath.connect(own_agent.address, ring_slots=64) as session:
        stream = session.stream("full", SCHEMA, rows_max=10, keep=0)
        tickets = []
        with (
            stopped(own_agent.pid),
            pytest.raises(offpath.WouldBlock, match=r"the request ring is full: \d+ of 64 slots are used"),
        ):
            for step in range(1000):
                tickets.append(stream.send({"v": np.full(10, step)}, key=f"s{step}", wait=False))
        assert tickets
        tickets[-1].wait_stored(60)
        pool = session.pool(stream.pool_name)
        assert [pool.get(f"s{step}")["v"][9].as_py() for step in range(len(tickets))] == list(range(len(tickets)))
        assert len(pool) == len(tickets)


def test_a_send_without_credit_says_so_and_ends_in_time(capfd):
    with offpath.Agent.start(memory="64MiB") as small, offpath.connect(small.address) as session:
        stream = session.stream("filling", SCHEMA, rows_max=2 * MIB)
        values = np.arange(2 * MIB)
        with pytest.raises(offpath.Timeout, match=r"stream 'filling' has waited .* no credit.*drop frames.*`keep`"):
            for step in range(10):
                stream.send({"v": values}, key=f"s{step}", timeout=2.0)
        waiting = threading.Thread(target=lambda: stream.send({"v": values}, key="last").wait_stored(60))
        waiting.start()
        told = ""
        while 'stream "filling": a send has waited' not in told and waiting.is_alive():
            told += capfd.readouterr().err
            time.sleep(0.05)
        assert 'stream "filling": a send has waited' in told and "drop frames" in told
        session.pool(stream.pool_name).drop()
        waiting.join(60)
        assert not waiting.is_alive() and len(session.pool(stream.pool_name)) == 1


def test_no_credit_names_what_is_needed_and_what_there_is_and_comes_back():
    with offpath.Agent.start(memory="64MiB") as small, offpath.connect(small.address) as session:
        stream = session.stream("small", SCHEMA, rows_max=2 * MIB)
        values = np.arange(2 * MIB)  # 16 MiB
        stored = 0
        with pytest.raises(offpath.WouldBlock, match="credit") as caught:
            for step in range(10):
                send_within(stream, values, f"s{step}", 2.0).wait_stored(60)
                stored += 1
        needed, there = map(int, re.search(r"(\d+) bytes.*?(\d+)", str(caught.value)).groups())
        assert needed >= values.nbytes > there
        assert 1 <= stored <= 4 and len(session.pool(stream.pool_name)) == stored
        assert session.pool(stream.pool_name).drop() == stored
        stream.send({"v": values}, key="again").wait_stored(60)
        larger = session.stream("larger", SCHEMA, rows_max=1 << 27)
        with pytest.raises(offpath.TooLarge, match=r"\d+.*\d+"):
            larger.send({"v": np.zeros(13 * MIB, np.int64)}, key="a")  # more than all of the agent's memory


def send_within(stream, values, key, seconds):
    """Credit that was asked for comes a moment later, if there is any."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return stream.send({"v": values}, key=key, wait=False)
        except offpath.WouldBlock:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    with mounted_disk(tmp_path / "small", 1) as place:
        yield place


@pytest.mark.parametrize("link", ["local", "tcp"])
def test_a_disk_that_fills_while_writing_loses_nothing(link, small_disk, tcp_agent, name):
    agent, tcp, key = tcp_agent
    address = agent.address if link == "local" else tcp
    with offpath.connect(address, key_file=key) as session:
        stream = session.stream(name, SCHEMA, rows_max=50_000)
        pool = session.pool(stream.pool_name)
        file = small_disk / "frames.arrows"
        stream.send({"v": np.arange(50_000)}, key="a").wait_stored(60)  # 400 kB: fits
        assert pool.write(file) == file.stat().st_size
        earlier = file.read_bytes()
        for step in range(4):
            stream.send({"v": np.arange(50_000) + step}, key=f"s{step}").wait_stored(60)
        with pytest.raises(offpath.NoSpace, match=r"No space left.* after \d+ bytes; the frames are still in the pool"):
            pool.write(file)
        assert file.read_bytes() == earlier  # the former file stays, without a partial file beside it
        assert [each.name for each in small_disk.iterdir()] == [file.name]
        assert len(pool) == 5
        elsewhere = small_disk.parent / "elsewhere.arrows"
        assert pool.write(elsewhere) == elsewhere.stat().st_size > 5 * 400_000
        pool.drop()


# ---- hostile programs

SCRIBBLES = """
import ctypes, os, random, select, socket, struct, sys, offpath
address, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
session = offpath.connect(address, name=f"scribbler{seed}", ring_slots=64)
(line,) = [each for each in open("/proc/self/maps") if "memfd:offpath" in each]
begin = int(line.split("-")[0], 16)
ring, slots = begin + 4096, 64
tail = ctypes.c_uint64.from_address(begin)
links = {fd: f"/proc/self/fd/{fd}" for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2}
(control,) = [fd for fd, link in links.items() if os.path.lexists(link) and "socket:" in os.readlink(link)]
said = "nothing was noticed"
for attempt in range(100):
    for _ in range(chance.randrange(1, 200)):
        ctypes.c_uint8.from_address(ring + chance.randrange(64 * slots)).value = chance.randrange(256)
    tail.value += chance.choice([1, 7, 63, 64, 65, 2**32, 2**63])
    try:
        os.write(control, struct.pack("<IHH", 0, 9, 0))  # a wake
    except BrokenPipeError:
        break  # the agent was awake, and has seen it
    if select.select([control], [], [], 1.0)[0]:
        break
try:
    session.probe(60)
except offpath.Error as error:
    said = f"{type(error).__name__} {error}"
print(said, flush=True)
sys.stdin.read()
"""


def test_a_program_that_scribbles_over_its_ring_loses_its_channel_for_a_reason_that_is_named(own_agent, bystander):
    for seed in range(6):
        with program(SCRIBBLES, own_agent.address, seed) as scribbler:
            said = scribbler.stdout.readline().strip()
            # The word or slot, its value and the expected one.
            assert re.match(r"ProtocolError the agent ended the channel: .*(slot|tail|head).*\d+.*\d+", said), said
            reason = said.split("channel: ")[1]
            within(A_SECOND, f"the log does not say {reason}", lambda reason=reason: reason in own_agent.log)
            bystander.goes_on()
    within(A_SECOND, "a scribbler's channel is still open", lambda: len(programs_of(own_agent)) == 1)
    assert own_agent.running


TAKES_BACK = """
import ctypes, fcntl, mmap, os, sys, offpath
session = offpath.connect(sys.argv[1], name="thief", ring_slots=64)
session.probe(60)
(line,) = [each for each in open("/proc/self/maps") if "memfd:offpath" in each]
begin, end = (int(each, 16) for each in line.split()[0].split("-"))
links = {fd: f"/proc/self/fd/{fd}" for fd in map(int, os.listdir("/proc/self/fd"))}
(memory,) = [fd for fd, link in links.items() if os.path.lexists(link) and "memfd:offpath" in os.readlink(link)]
for length in (0, 4096, end - begin + 4096):
    try:
        os.ftruncate(memory, length)
        print("the segment could be resized to", length)
    except PermissionError:
        pass
try:
    fcntl.fcntl(memory, 1033, 0x8)  # F_ADD_SEALS, F_SEAL_WRITE
    print("more seals could be set")
except PermissionError:
    pass
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
assert libc.mmap(begin, end - begin, 3, 0x32, -1, 0) == begin  # other memory where the segment was
os.close(memory)
print("taken back", flush=True)
sys.stdin.read()
"""


def test_a_program_that_truncates_unseals_or_remaps_what_it_shared_harms_itself_only(own_agent, bystander):
    with program(TAKES_BACK, own_agent.address) as thief:
        assert thief.stdout.readline().strip() == "taken back"
        bystander.goes_on()
        assert [each["program"] for each in programs_of(own_agent)] == ["bystander", "thief"]
    within(A_SECOND, "the thief's channel is still open", lambda: len(programs_of(own_agent)) == 1)


def programs_of(agent: offpath.Agent) -> list[dict]:
    return fetch_status(agent.http_address)["channels"]


def test_garbage_on_the_control_socket_disturbs_nobody(own_agent, bystander):
    path = own_agent.address.removeprefix("unix:")
    chance = random.Random(7)
    refused = fetch_status(own_agent.http_address)["acceptor"]["refused"]
    for length in (1, 8, 9, 100, 5000):
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(path)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    stranger.sendall(chance.randbytes(length))
        bystander.goes_on()
    within(
        A_SECOND,
        "not every stranger was refused",
        lambda: fetch_status(own_agent.http_address)["acceptor"]["refused"] == refused + 100,
    )


# ---- an agent killed, a program killed, an agent stopped


@pytest.mark.parametrize("how", ["direct", "staged", "tcp"])
def test_an_agent_killed_in_a_transfer_ends_every_lease_within_a_second(how, tmp_path):
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    rows = 4 * MIB  # 32 MiB: the kill comes while they are pulled
    with offpath.Agent.start(memory="1GiB", listen=["tcp:127.0.0.1:0"], settings={"security.key_file": key}) as doomed:
        os.setpriority(os.PRIO_PROCESS, doomed.pid, 10)  # it is not done before the kill if processors are busy
        tcp = next(each for each in doomed.addresses if each.startswith("tcp:"))
        address = tcp if how == "tcp" else doomed.address
        with offpath.connect(address, key_file=key, force_staging=how == "staged") as session:
            arrays = [np.arange(rows) + each for each in range(3)]
            streams = [session.stream(f"s{each}", SCHEMA, rows_max=rows, keep=2) for each in range(3)]
            tickets = [s.send({"v": a}, key="a") for s, a in zip(streams, arrays, strict=True) for _ in range(2)]
            assert not all(ticket.stored for ticket in tickets)
            doomed.kill()
            killed = time.monotonic()
            for ticket in tickets:
                if not ticket.stored:
                    with pytest.raises(offpath.PeerLost, match="agent"):
                        ticket.wait_stored(60)
                with contextlib.suppress(offpath.PeerLost):
                    ticket.wait_pulled(60)
            assert time.monotonic() - killed < A_SECOND
            for stream in streams:
                with pytest.raises(offpath.PeerLost):
                    stream.send({"v": arrays[0]}, key="late")
            for array in arrays:  # the program's again
                array[:] = -1
            closing = time.monotonic()
        assert time.monotonic() - closing < A_SECOND


VICTIM = """
import sys, numpy as np, pyarrow as pa, offpath
session = offpath.connect(sys.argv[1], name="victim")
schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
values = np.arange(4 << 20)
stream = session.stream("victim", schema, rows_max=values.size, keep=2, pool="local:/victim")
print("posting", flush=True)
for step in range(100_000):
    stream.send({"v": values}, key=f"s{step}")
"""


def test_a_program_killed_in_a_transfer_returns_memory_and_credit_within_a_second(own_agent, bystander):
    memory = fetch_status(own_agent.http_address)["memory"]
    with program(VICTIM, own_agent.address) as victim:
        assert victim.stdout.readline() == "posting\n"
        within(60, "the victim has stored nothing", lambda: pool_bytes(own_agent, "local:/victim") > 0)
        victim.kill()
        within(A_SECOND, "the victim's channel is still open", lambda: len(programs_of(own_agent)) == 1)
        after = fetch_status(own_agent.http_address)
        assert [each["program"] for each in after["channels"]] == ["bystander"]
        assert all(each["name"] != "victim" for each in after["streams"])
        # Only its stored objects stay; nothing is promised to it any more.
        kept = pool_bytes(own_agent, "local:/victim")
        assert after["memory"]["promised_bytes"] <= memory["promised_bytes"]
        assert after["memory"]["used_bytes"] <= memory["used_bytes"] + kept + MIB
    bystander.goes_on()
    bystander.session.pool("local:/victim").drop()
    within(
        A_SECOND,
        "the victim's memory is still in use",
        lambda: fetch_status(own_agent.http_address)["memory"]["used_bytes"] <= memory["used_bytes"] + MIB,
    )


def pool_bytes(agent: offpath.Agent, pool: str) -> int:
    return sum(each["bytes"] for each in fetch_status(agent.http_address)["pools"] if each["name"] == pool)


@pytest.mark.parametrize("how", ["direct", "staged", "tcp"])
def test_an_agent_stopped_and_continued_loses_nothing(how, tcp_agent, name):
    agent, tcp, key = tcp_agent
    address = tcp if how == "tcp" else agent.address
    with offpath.connect(address, key_file=key, force_staging=how == "staged") as session:
        stream = session.stream(name, SCHEMA, rows_max=1000, keep=0)
        arrays = [np.arange(1000) + 7 * step for step in range(30)]
        stream.send({"v": arrays[0]}, key="first").wait_stored(60)  # a staged link has its staging memory now
        tickets = []
        for third in range(3):
            with stopped(agent.pid):
                for step in range(10 * third, 10 * third + 10):
                    tickets.append(stream.send({"v": arrays[step]}, key=f"s{step}"))
                with pytest.raises(offpath.Timeout):
                    tickets[-1].wait_stored(0.05)
        tickets[-1].wait_stored(60)
        pool = session.pool(stream.pool_name)
        for step, array in enumerate(arrays):
            assert pool.get(f"s{step}")["v"].to_numpy().tobytes() == array.tobytes()
        pool.drop()


# ---- growth


def descriptors_and_memory(pid: int | str) -> tuple[int, int]:
    """Open descriptors, and bytes of memory that belong to this process alone."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = sum(int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", rollup, re.MULTILINE))
    return len(os.listdir(f"/proc/{pid}/fd")), private << 10


OPENS_AND_CLOSES = """
import sys
import numpy as np, offpath, pyarrow as pa

schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
values = np.arange(1000)
for cycles in sys.stdin:
    for number in range(int(cycles)):
        with offpath.connect(sys.argv[1]) as session:
            stream = session.stream("again", schema, rows_max=1000, keep=1)
            stream.send({"v": values}, key=f"s{number}").wait_stored(60)
            assert session.pool(stream.pool_name).get(f"s{number}").num_rows == 1000
    print("done", flush=True)
"""


def test_a_thousand_open_close_cycles_without_growth_in_both_processes(own_agent):
    if os.geteuid() != 0:
        pytest.skip("the agent is not dumpable: its memory and descriptors are shown to root alone")

    # A process of its own, because leftovers of other tests in this one come and go.
    with program(OPENS_AND_CLOSES, own_agent.address) as opener:

        def cycles(count: int) -> None:
            opener.stdin.write(f"{count}\n")
            opener.stdin.flush()
            assert opener.stdout.readline() == "done\n"

        def least() -> dict[str, list[int]]:
            """The least of some readings: the allocator gives the top of its heap back by megabytes, now and then."""
            readings = []
            for _ in range(10):
                cycles(20)
                within(A_SECOND, "a channel is still open", lambda: programs_of(own_agent) == [])
                readings.append([descriptors_and_memory(pid) for pid in (opener.pid, own_agent.pid)])
            of_opener, of_agent = (
                [min(each) for each in zip(*reading, strict=True)] for reading in zip(*readings, strict=True)
            )
            return {"the program": of_opener, "the agent": of_agent}

        cycles(100)  # memory that is allocated once
        before = least()
        cycles(1000)
        now = least()
        for whose, (descriptors, memory) in before.items():
            assert now[whose][0] <= descriptors + 1, whose  # one for the page just served
            # 2 kB a cycle would be seen
            assert now[whose][1] <= memory + 2 * MIB, f"{whose}: {now[whose][1] - memory} bytes more"
