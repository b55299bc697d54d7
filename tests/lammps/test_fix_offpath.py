"""fix offpath: an agent reads the same atoms that LAMMPS's own dump writes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from lammps_runs import MELT, UNTIL_GO, Simulation, refusal, run
from offpath.agent_http import fetch_status

DUMP = """
dump written all custom {every} dump.txt id type x y z vx vy vz fx fy fz
dump_modify written format float %.17g
"""


def read(pool: offpath.Pool, step: int, ranks: int = 1) -> np.ndarray:
    """One step as dump has it: id, type, x, v, f."""
    parts = [pool.get(f"step{step}", f"rank{rank}") for rank in range(ranks)]
    table = pa.concat_tables(parts).combine_chunks()
    columns = [table["id"].to_numpy()[:, None], table["type"].to_numpy()[:, None]]
    columns += [np.asarray(table[name].chunk(0).flatten()).reshape(-1, 3) for name in ("x", "v", "f")]
    rows = np.concatenate(columns, axis=1)
    return rows[np.argsort(rows[:, 0])]


def handed_over(agent: offpath.Agent, pool: str, frames: dict[int, np.ndarray], ranks: int = 1) -> None:
    """Each dumped step is in the pool, bit for bit."""
    with offpath.connect(agent.address) as session:
        opened = session.pool(pool)
        assert {entry.row for entry in opened.list()} == {f"step{step}" for step in frames}
        for step, rows in frames.items():
            np.testing.assert_array_equal(read(opened, step, ranks), rows)


FIX = "fix handed all offpath {every} pool local:/melt columns id type x v f {more}\n"
NVE = "fix integrated all nve\n"


@pytest.mark.parametrize("first", [NVE, FIX], ids=["after the integrator", "before it"])
@pytest.mark.parametrize("more", ["", "snapshot yes"])
def test_what_an_agent_reads_is_what_dump_writes(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, first: str, more: str
) -> None:
    fixes = first + (FIX if first == NVE else NVE)
    script = (MELT + fixes + DUMP).format(cells=5, every=5, more=more) + "run 40\nrun 20\n"
    frames = run(tmp_path, plugin, script, agent).dumped()
    assert sorted(frames) == list(range(0, 61, 5))
    handed_over(agent, "local:/melt", frames)


def test_two_ranks_with_atoms_that_move_between_them(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    script = (MELT + FIX + NVE + DUMP).format(cells=6, every=10, more="") + "run 100\n"
    frames = run(tmp_path, plugin, script, agent, ranks=2).dumped()
    handed_over(agent, "local:/melt", frames, ranks=2)
    with offpath.connect(agent.address) as session:
        pool = session.pool("local:/melt")
        first, last = (set(pool.get(f"step{step}", "rank0")["id"].to_pylist()) for step in (0, 100))
    assert first != last


def test_two_agents_keep_the_rows_of_a_pool_by_their_hash(tmp_path: Path, plugin: Path) -> None:
    fix = FIX.replace("local:/melt", "hash:/melt")
    script = (MELT + fix + NVE + DUMP).format(cells=6, every=5, more="") + "run 80\n"
    with contextlib.ExitStack() as agents:
        first = agents.enter_context(offpath.Agent.start(memory="512MiB", settings={"agent.name": "first"}))
        joins = {"agent.name": "second", "group.join": first.address}
        second = agents.enter_context(offpath.Agent.start(memory="512MiB", settings=joins))
        for each in (first, second):
            deadline = time.monotonic() + 60
            while len(fetch_status(each.http_address)["members"]) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        frames = run(tmp_path, plugin, script, first, ranks=2).dumped()
        assert len(frames) == 17
        for each in (first, second):  # which of them a reader asks makes no difference
            handed_over(each, "hash:/melt", frames, ranks=2)
        pools = [pool for each in (first, second) for pool in fetch_status(each.http_address)["pools"]]
        held = [pool["frames"] for pool in pools if pool["name"].startswith("hash:/melt")]
    assert len(held) == 2 and min(held) > 0, "rows are on both"
    assert sum(held) == 2 * len(frames), "a frame of each process, once"


# With the arrays as they lie nothing but the fix's wait keeps the integrator from writing over them.
def test_the_next_step_begins_when_a_stopped_agent_has_read(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    marker = "print handed file marker.txt"
    script = (MELT + NVE + FIX + DUMP).format(cells=5, every=10, more="") + f"run 0\n{marker}\n{UNTIL_GO}\nrun 20\n"
    simulation = Simulation(tmp_path, plugin, script, agent)
    simulation.wait_for_marker()
    os.kill(agent.pid, signal.SIGSTOP)
    simulation.go()
    while "TIMESTEP\n10\n" not in (tmp_path / "dump.txt").read_text():
        assert simulation.process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)  # ten times as long as the rest of the run
    assert simulation.process.poll() is None, "it waits"
    os.kill(agent.pid, signal.SIGCONT)
    simulation.end()
    handed_over(agent, "local:/melt", simulation.dumped())


def test_arrays_that_grow_are_announced_anew(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    script = (MELT + FIX + NVE + DUMP).format(cells=5, every=5, more="") + (
        "run 10\nchange_box all z final 0 25\nregion upper block 0 5 0 5 6 14\ncreate_atoms 2 region upper\nrun 10\n"
    )
    frames = run(tmp_path, plugin, script, agent).dumped()
    assert len(frames[20]) > 2 * len(frames[0])
    frames[10] = frames[10][: len(frames[0])]  # dump writes the step again after the atoms were made
    with offpath.connect(agent.address) as session:
        pool = session.pool("local:/melt")
        for step in (0, 5, 15, 20):
            np.testing.assert_array_equal(read(pool, step), frames[step])


def test_arrays_that_grow_wait_no_longer_for_a_stopped_agent_than_others(
    tmp_path: Path, plugin: Path, agent: offpath.Agent
) -> None:
    grow = "change_box all z final 0 25\nregion upper block 0 5 0 5 6 14\ncreate_atoms 2 region upper\n"
    script = (MELT + FIX + NVE).format(cells=5, every=5, more="wait 1") + (
        f"run 10\nprint handed file marker.txt\n{UNTIL_GO}\n{grow}run 10\n"
    )
    simulation = Simulation(tmp_path, plugin, script, agent)
    simulation.wait_for_marker()
    os.kill(agent.pid, signal.SIGSTOP)
    simulation.go()
    try:
        assert simulation.end().count("the run continues without the agent") == 1
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def test_a_group_is_copied(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    fix = "group second type 2\nfix handed second offpath 10 pool local:/second columns id type x v f\n"
    script = (MELT + fix + NVE + DUMP).format(cells=5, every=10) + "run 30\n"
    frames = run(tmp_path, plugin, script, agent).dumped()
    handed_over(agent, "local:/second", {step: rows[rows[:, 1] == 2] for step, rows in frames.items()})


def test_respa_waits_too(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    script = (MELT + NVE + FIX + DUMP).format(
        cells=5, every=5, more=""
    ) + "run_style respa 2 2 inner 1 2.0 2.1 outer 2\n"
    script = script.replace("inner 1 2.0 2.1 outer 2", "pair 2") + "run 20\n"
    handed_over(agent, "local:/melt", run(tmp_path, plugin, script, agent).dumped())


def test_the_run_goes_on_when_the_agent_dies(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    script = (MELT + FIX + NVE).format(cells=5, every=10, more="wait 20") + (
        f"thermo_style custom step f_handed[1] f_handed[5]\nrun 20\nprint handed file marker.txt\n{UNTIL_GO}\nrun 30\n"
    )
    simulation = Simulation(tmp_path, plugin, script, agent)
    simulation.wait_for_marker()
    os.kill(agent.pid, signal.SIGKILL)
    simulation.go()
    said = simulation.end()
    # The post of step 30 finds out, or the wait for it.
    assert re.search("fix offpath handed: step 3[01]: the run continues without the agent", said)
    assert said.count("the run continues without the agent") == 1
    last = next(line for line in reversed(said.splitlines()) if line.split()[:1] == ["50"])
    assert last.split() == ["50", "3", "3"], "steps 0, 10 and 20 were handed over, 30 to 50 were not"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fix handed all offpath 0", "N is 0, the number of steps from one hand-over to the next"),
        ("fix handed all offpath 5 colums id", "unknown keyword colums; it knows pool, columns, agent"),
        ("fix handed all offpath 5 columns id charge", 'atoms have no property "charge"'),
        ("fix handed all offpath 5 columns id q", 'atoms of this atom_style have no property "q"'),
        ("fix handed all offpath 5 columns id mass", "mass is a value of each type"),
        ("fix handed all offpath 5 wait 0", "wait is 0, a number of seconds"),
        ("fix handed all offpath 5 agent unix:/nowhere/agent.sock", "Start an agent with `offpath agent`"),
    ],
)
def test_mistakes_are_told_before_the_run(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, line: str, says: str
) -> None:
    assert says in refusal(tmp_path, plugin, MELT.format(cells=3) + line + "\nrun 0\n", agent)
