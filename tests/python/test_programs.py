"""Several programs at one agent, some of which die: the others are not disturbed, and the memory of the dead comes
back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath.agent_http import fetch_status
from waiting import until

SCHEMA = pa.schema([("x", pa.float64())])
ROWS = 4_000_000  # 32 MB: the agent is at it for a while

PROGRAM = """
import sys, time
import numpy as np, pyarrow as pa, offpath
address, name, rows, batches, rank, ranks = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
session = offpath.connect(address, name=name)
stream = session.stream(name, pa.schema([("x", pa.float64())]), rows_max=rows, keep=4, pool="local:/" + name,
                        ranks=ranks, rank=rank)
x = np.full(rows, float(rank))
for batch in range(batches):
    ticket = stream.send({"x": x}, key=(f"step{batch}", f"rank{rank}"))
    if ranks:
        stream.step_end(f"step{batch}")
    if batch == 0:
        print("posted", flush=True)
ticket.wait_stored(60)
print("stored", flush=True)
sys.stdin.read()
"""


def start(address: str, name: str, *, rows: int, batches: int, rank: int = 0, ranks: int = 0) -> subprocess.Popen[str]:
    arguments = [address, name, rows, batches, rank, ranks]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def says(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.fixture
def own_agent():
    with offpath.Agent.start(memory="1GiB") as agent:
        yield agent


def test_a_program_killed_in_a_transfer_leaves_nothing_and_disturbs_nobody(own_agent):
    with offpath.connect(own_agent.address) as session:
        mine = session.stream("mine", SCHEMA, rows_max=1000, keep=100)
        x = np.arange(1000.0)
        victim = start(own_agent.address, "victim", rows=ROWS, batches=10_000)
        assert says(victim) == "posted"
        before = [mine.send({"x": x}, key=(f"before{i}", "")) for i in range(20)]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        after = [mine.send({"x": x}, key=(f"after{i}", "")) for i in range(20)]
        for ticket in before + after:
            ticket.wait_stored(60)
        assert until(
            lambda: all(each["name"] != "victim" for each in fetch_status(own_agent.http_address)["streams"]), 60
        ), "the killed program's channel is still open"
        for name in ("before", "after"):
            for i in range(20):
                assert session.pool("local:/mine").get(f"{name}{i}", "")["x"].to_numpy().tobytes() == x.tobytes()
        # Its name is free, and so is its credit: the whole of the agent's memory can be asked for again.
        session.pool("local:/victim").drop()
        heir = session.stream("victim", SCHEMA, rows_max=100_000_000)
        big = np.zeros(100_000_000)
        heir.send({"x": big}, key=("big", "")).wait_stored(60)


def test_a_stopped_program_is_read_all_the_same(own_agent):
    program = start(own_agent.address, "stopped", rows=1000, batches=1)
    assert says(program) == "posted"
    assert says(program) == "stored"
    program.send_signal(signal.SIGSTOP)
    try:
        with offpath.connect(own_agent.address) as session:
            table = session.pool("local:/stopped").get("step0", "rank0", timeout=60)
            assert table.num_rows == 1000
    finally:
        program.send_signal(signal.SIGCONT)
        program.communicate("")


def test_two_programs_with_one_stream_name(own_agent):
    with offpath.connect(own_agent.address, name="first") as first, offpath.connect(own_agent.address) as second:
        stream = first.stream("particles", SCHEMA, rows_max=10)
        with pytest.raises(offpath.Exists, match=r'"particles" is open already, by first \(process'):
            second.stream("particles", SCHEMA, rows_max=10)
        stream.close()
        second.stream("particles", SCHEMA, rows_max=10)


def test_ranks_of_a_parallel_program(own_agent):
    ranks = 4
    programs = [
        start(own_agent.address, "simulation", rows=1000, batches=3, rank=rank, ranks=ranks) for rank in range(ranks)
    ]
    for program in programs:
        assert says(program) == "posted"
        assert says(program) == "stored"
    with offpath.connect(own_agent.address) as session:
        pool = session.pool("local:/simulation")
        # keep=4 of 12 frames, for any order of the ranks: the last step is whole
        for rank in range(ranks):
            assert pool.get("step2", f"rank{rank}", timeout=60)["x"].to_pylist() == [float(rank)] * 1000
    for program in programs:
        program.communicate("")
        assert program.returncode == 0


def test_many_programs_at_once(own_agent):
    programs = [start(own_agent.address, f"program{i}", rows=20_000, batches=5) for i in range(8)]
    for i, program in enumerate(programs):
        assert says(program) == "posted"
        assert says(program) == "stored", i
        program.communicate("")
        assert program.returncode == 0
    with offpath.connect(own_agent.address) as session:
        for i in range(8):
            assert len(session.pool(f"local:/program{i}")) == 4


def test_the_library_adds_no_thread(own_agent):
    with offpath.connect(own_agent.address) as session:
        assert session.info.threads == 0
        assert session.info.one_sided
        names = {open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}
        assert not any(name.startswith("offpath") for name in names)
