"""An agent whose machine refuses one call: a descriptor, a mapping, memory. Only one request may fail by it.

``failing_calls.cc`` counts the agent's calls from when the load begins, and fails the Nth. N grows until a whole load
is done before its turn comes. The short suite takes some of them, drawn from a seed; OFFPATH_LONG takes all.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import re
import shutil
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_process import AgentProcess, find_program, until
from built import needs_built

TESTS = find_program().parents[1] / "tests"
LIBRARY, PLUGIN = TESTS / "failing_calls.so", TESTS / "task_plugin.so"
PATIENCE_S = 100.0  # deadline of work that takes milliseconds
SEED = int(os.environ.get("OFFPATH_SIM_SEED", "1"))
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
ROWS = 5_000
CONFIGURATION = """
[[plugin]]
name = "t"
path = "{plugin}"
workers = 1

[[exchange]]
name = "load"
topology = "allgather"
interval = "20ms"
deadline = "10ms"
fields = ["power:f64:watts"]
reductions = ["sum(power)"]
"""

SYSTEM_CALLS, NEW_IN_LOOP, NEW_IN_JOBS = 1, 2, 4  # as failing_calls.cc has them

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent is not dumpable: its descriptors are shown to root alone"),
    needs_built(LIBRARY, PLUGIN),
]


class FailingCalls:
    """The page that failing_calls.cc shares."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def _write(self, word: int, value: int) -> None:
        struct.pack_into("Q", self.page, 8 * word, value)

    def _read(self, word: int) -> int:
        return int(struct.unpack_from("Q", self.page, 8 * word)[0])

    def fail(self, kinds: int, number: int) -> None:
        """From now on, the call of this number."""
        self.stop()
        for word, value in ((2, number), (3, 0), (4, 0), (1, kinds)):
            self._write(word, value)

    def stop(self) -> bool:
        """True if one has failed."""
        self._write(1, 0)
        return self._read(4) > 0

    @property
    def counted(self) -> int:
        return self._read(3)


def put_and_get(session: offpath.Session) -> None:
    pool = session.pool("local:/plain")
    pool.put(b"bytes" * 1000, "row", timeout=PATIENCE_S)
    assert pool.get_bytes("row", timeout=PATIENCE_S).to_pybytes() == b"bytes" * 1000
    pool.drop(timeout=PATIENCE_S)


def send_and_query(session: offpath.Session) -> None:
    data = {"id": np.arange(ROWS), "x": np.ones(ROWS)}
    with session.stream("sent", SCHEMA, rows_max=ROWS, pool="local:/sent", compression="lz4") as stream:
        for step in range(2):
            stream.send(data, key=f"step{step}").wait_stored(PATIENCE_S)
    pool = session.pool("local:/sent")
    assert pool.query(pc.field("id") < 10, timeout=PATIENCE_S).num_rows == 20
    assert pool.get("step1", timeout=PATIENCE_S)["x"].to_numpy().sum() == ROWS
    pool.drop(timeout=PATIENCE_S)


def keep_on_disk(session: offpath.Session) -> None:
    data = {"id": np.arange(ROWS), "x": np.ones(ROWS)}
    with session.stream("kept", SCHEMA, rows_max=ROWS, pool="local:/kept?spill=durable&budget=128KiB") as stream:
        for step in range(3):
            stream.send(data, key=f"step{step}").wait_stored(PATIENCE_S)
    pool = session.pool("local:/kept")
    for step in range(3):
        assert pool.get(f"step{step}", timeout=PATIENCE_S).num_rows == ROWS
    pool.drop(timeout=PATIENCE_S)


def sift(session: offpath.Session) -> None:
    pool = "sift:/tracks?key=id&stages=2&fanout=4&threshold=64KiB&age=200ms&budget=32MiB"
    with contextlib.suppress(offpath.NotFound):
        session.tracks("sift:/tracks").drop(PATIENCE_S)  # the rest of the last load
    with session.stream("sifted", SCHEMA, rows_max=ROWS, pool=pool) as stream:
        tickets = [
            stream.send({"id": np.arange(ROWS), "x": np.full(ROWS, float(step))}, key=f"step{step}", snapshot=True)
            for step in range(3)
        ]
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)
    tracks = session.tracks("sift:/tracks")
    tracks.flush(PATIENCE_S)
    assert tracks.track(4711)["x"].to_pylist() == [0, 1, 2]
    tracks.drop(PATIENCE_S)


def run_task(session: offpath.Session) -> None:
    z = session.alloc(8 * ROWS).numpy(np.float64)
    with session.tasks() as tasks:
        inputs = {"x": np.arange(ROWS, dtype=np.float64), "y": np.zeros(ROWS)}
        assert tasks.submit("t/axpy", inputs, {"z": z}, arguments=struct.pack("d", 2.0)).wait(PATIENCE_S)
    assert z[-1] == 2 * (ROWS - 1)


def exchange(session: offpath.Session) -> None:
    with session.exchange("load", publish=True) as load:
        load.publish(power=7.0)
        end = time.monotonic() + PATIENCE_S
        while load.view(PATIENCE_S).figures["sum(power)"].count != 1:
            assert time.monotonic() < end, "the agent shows no value"


LOAD = (put_and_get, send_and_query, keep_on_disk, sift, run_task, exchange)


def run_load(address: str) -> Iterator[str]:
    """The failures and their reasons as text, because an exception keeps memory. Each part is a program of its own."""
    for part in LOAD:
        try:
            with offpath.connect(address) as session:
                part(session)
        except offpath.Error as error:
            yield f"{part.__name__}: {type(error).__name__}: {error}"


def descriptors(pid: int) -> Counter[str]:
    """How many there are of each kind: number and inode say nothing."""
    found: Counter[str] = Counter()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[re.sub(r"\d+", "N", os.readlink(fd))] += 1
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def mappings(pid: int) -> int:
    """Only mappings of descriptors, because the allocators' own mappings change."""
    return sum("/memfd:" in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines())


class Trial:
    """One agent, for as many calls as are to fail."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        plugin = shutil.copy(PLUGIN, directory)
        (directory / "agent.toml").write_text(CONFIGURATION.format(plugin=plugin))
        self.calls = FailingCalls(directory / "calls")
        launcher = ["env", f"LD_PRELOAD={LIBRARY}", f"OFFPATH_FAILING_CALLS={directory / 'calls'}"]
        settings = ["--config", str(directory / "agent.toml"), "--spill", str(directory / "spill")]
        settings += ["--set", "memory.cached_max=0"]  # or descriptors stay with buffers
        self.agent = AgentProcess(directory, [*settings, "--listen", f"unix:{directory}/agent.sock"], launcher)
        self.address = str(self.agent.ready["address"])
        self.before: tuple[Counter[str], int] = (Counter(), 0)

    def warm_up(self) -> None:
        for _ in range(2):  # memory that is allocated once
            self.check_all_works()
        self.before = self.at_rest()

    def at_rest(self) -> tuple[Counter[str], int]:
        """Descriptors and mappings, once nothing of the last program is left."""
        held = None
        for _ in range(100):
            held, last = (descriptors(self.agent.pid), mappings(self.agent.pid)), held
            if held == last:
                break
            time.sleep(0.02)
        assert held is not None
        return held

    def check_all_works(self) -> None:
        failed = list(run_load(self.address))
        assert not failed, failed

    def check_nothing_is_left(self) -> None:
        def left() -> str:
            more, mapped = descriptors(self.agent.pid) - self.before[0], mappings(self.agent.pid) - self.before[1]
            return f"left: {more}, {mapped} mappings" if more or mapped > 0 else ""

        assert until(lambda: not left(), PATIENCE_S), left()

    def fail(self, kinds: int, number: int) -> bool:
        """False: no call was the one."""
        self.calls.fail(kinds, number)
        errors = list(run_load(self.address))
        has_failed = self.calls.stop()
        assert self.agent.process.poll() is None, f"the agent has died of call {number}"
        assert not any(": Timeout: " in error for error in errors), f"call {number}: {errors}"
        self.check_all_works()
        self.check_nothing_is_left()
        return has_failed


# About how many trials the short suite makes, and how many calls a load makes at most.
@pytest.mark.timeout(1200 if "OFFPATH_LONG" not in os.environ else 20_000)
@pytest.mark.parametrize(
    ("kinds", "stride"),
    [(SYSTEM_CALLS, 25), (NEW_IN_LOOP, 80), (NEW_IN_JOBS, 80)],
    ids=["system-calls", "memory-of-the-loop", "memory-of-jobs"],
)
def test_a_call_that_fails_costs_one_request(tmp_path: Path, kinds: int, stride: int) -> None:
    trial = Trial(tmp_path)
    drawn = random.Random(SEED)
    try:
        trial.warm_up()
        number = 0
        for _ in itertools.count():
            number += 1 if "OFFPATH_LONG" in os.environ else drawn.randrange(1, 2 * stride)
            if not trial.fail(kinds, number):
                break
    except BaseException:
        print(trial.agent.log()[-6000:])
        raise
    finally:
        trial.calls.stop()
        if trial.agent.process.poll() is None:
            assert trial.agent.stop() == 0
