"""A mixed load that repeats: nothing of an agent grows with the number of rounds.

Each round does, at two agents that share pools: a stream with the steps of two ranks, a distributed pool, gets, lists,
a query, a file, tracks, tasks, a program that is killed in the middle of a transfer, and drops all of it. It takes ten
minutes: ``./dev test --long`` runs it, and so does ``OFFPATH_LONG=1 pytest tests/e2e/test_soak.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, new_group
from agent_process import find_program, until
from built import needs_built

WARM_UP_ROUNDS = 150  # until one-time allocations are done, the cache of buffers above all
SOAK_S = 600
ROUNDS_MIN = 300  # a leak of one in ten rounds is seen
MIB = 1 << 20
ROWS = 20_000
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
PLUGIN = find_program().parents[1] / "tests" / "task_plugin.so"

pytestmark = [
    pytest.mark.skipif("OFFPATH_LONG" not in os.environ, reason="takes ten minutes: ./dev test --long"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent is not dumpable: its memory is shown to root alone"),
    needs_built(PLUGIN),
    pytest.mark.timeout(4 * SOAK_S),
]

KILLED_PROGRAM = """
import sys, numpy as np, offpath, pyarrow as pa
session = offpath.connect(sys.argv[1])
stream = session.stream("killed", pa.schema([("x", pa.float64())]), rows_max=1 << 21, pool="local:/killed")
x = np.ones(1 << 21)
print("sends", flush=True)
for step in range(1 << 30):
    stream.send({"x": x}, key=f"step{step}")
"""


@dataclass
class Holdings:
    """An agent's use of its machine: bytes of memory of its own, and counts of other limited resources."""

    memory: int
    descriptors: int
    mappings: int
    threads: int


def holdings_of(pid: int) -> Holdings:
    process = Path(f"/proc/{pid}")
    rollup = (process / "smaps_rollup").read_text()
    private = sum(int(kib) << 10 for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", rollup, re.MULTILINE))
    mappings = (process / "maps").read_text().count("\n")
    return Holdings(private, len(os.listdir(process / "fd")), mappings, len(os.listdir(process / "task")))


def batch(step: int, rank: int) -> dict[str, np.ndarray]:
    ids = np.arange(ROWS) + rank * ROWS
    return {"id": ids, "x": ids * 0.5 + step}


def send_steps(sessions: list[offpath.Session], pool: str) -> None:
    streams = [
        session.stream("soak", SCHEMA, rows_max=ROWS, pool=pool, ranks=len(sessions), rank=rank)
        for rank, session in enumerate(sessions)
    ]
    tickets = [
        stream.send(batch(step, rank), key=(f"step{step}", f"rank{rank}"), snapshot=True)
        for step in range(3)
        for rank, stream in enumerate(streams)
    ]
    if not pool.startswith("sift:"):
        tickets += [stream.step_end(f"step{step}") for step in range(3) for stream in streams]
    for ticket in tickets:
        ticket.wait_stored(PATIENCE_S)
    for stream in streams:
        stream.close()


def kill_a_program(address: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", KILLED_PROGRAM, address], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "sends\n"
    time.sleep(0.02)
    program.send_signal(signal.SIGKILL)
    program.wait()
    program.stdout.close()


def one_round(group: Group, directory: Path, number: int) -> None:
    sessions = [group.connect(name) for name in ("a", "b")]
    try:
        pool = sessions[0].pool("hash:/soak")
        send_steps(sessions, "hash:/soak")
        assert sum(frame.table().num_rows for frame in pool.frames()) == 6 * ROWS
        assert sessions[1].pool("hash:/soak").get("step2", "rank1", PATIENCE_S)["x"][1].as_py() == (ROWS + 1) * 0.5 + 2
        assert pool.query(pc.field("id") < 10).num_rows == 30
        assert pool.drop() == 6

        files = sessions[1].pool("local:/files")
        send_steps(sessions[1:], "local:/files")
        assert files.write(directory / f"soak{number % 2}.arrow") > 0
        assert files.drop() == 3

        send_steps(sessions, "sift:/soak?key=id&stages=2&fanout=4&threshold=64KiB&age=200ms&budget=32MiB")
        tracks = sessions[0].tracks("sift:/soak")
        tracks.flush(PATIENCE_S)
        assert tracks.track(4711)["x"].to_pylist() == [4711 * 0.5 + step for step in range(3)]
        tracks.drop(PATIENCE_S)

        z = sessions[0].alloc(8 * ROWS).numpy(np.float64)
        with sessions[0].tasks() as tasks:
            arguments = np.float64(2).tobytes()
            inputs = {"x": batch(0, 0)["x"], "y": np.zeros(ROWS)}
            assert tasks.submit("t/axpy", inputs, {"z": z}, arguments=arguments).wait(PATIENCE_S)
        assert z[-1] == 2 * (ROWS - 1) * 0.5
    finally:
        for session in sessions:
            session.close()
    kill_a_program(group.address("a"))
    with group.connect("a") as session:
        session.pool("local:/killed").drop(timeout=PATIENCE_S)


def settled(group: Group) -> dict[str, Holdings]:
    """Once only the members themselves are connected."""

    def quiet() -> bool:
        channels = [channel for agent in group.running.values() for channel in agent.status()["channels"]]
        return {channel["pid"] for channel in channels} <= {agent.pid for agent in group.running.values()}

    assert until(quiet, PATIENCE_S)
    return {name: holdings_of(agent.pid) for name, agent in group.running.items()}


def test_nothing_of_an_agent_grows_with_what_is_done_again(tmp_path: Path) -> None:
    plugin = shutil.copy(PLUGIN, tmp_path)
    config = tmp_path / "agent.toml"
    config.write_text(f'[[plugin]]\nname = "t"\npath = "{plugin}"\nworkers = 1\n[memory]\nbytes_max = "256MiB"\n')
    with new_group(tmp_path, "local") as group:
        group.start("a", "--config", str(config))
        group.start("b", "--config", str(config), "--join", group.address("a"))
        assert until(lambda: group.all_know(["a", "b"], dict.fromkeys("ab", "alive")), PATIENCE_S)
        for number in range(WARM_UP_ROUNDS):
            one_round(group, tmp_path, number)
        before = settled(group)
        rounds, end = 0, time.monotonic() + SOAK_S
        while rounds < ROUNDS_MIN or time.monotonic() < end:
            one_round(group, tmp_path, rounds)
            rounds += 1
        after = settled(group)
        for name, was in before.items():
            now = after[name]
            grown = f"agent {name} after {rounds} rounds: {astuple(was)} became {astuple(now)}"
            assert now.threads <= was.threads + 2, grown  # pools start theirs when they are first needed
            assert now.descriptors <= was.descriptors + rounds // 10, grown
            assert now.mappings <= was.mappings + rounds // 10, grown
            assert now.memory <= was.memory + 16 * MIB, grown
