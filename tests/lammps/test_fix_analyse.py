"""fix offpath/analyse: an agent's results equal those of LAMMPS's own compute."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import offpath
import pytest
from lammps_runs import MELT, UNTIL_GO, Simulation, refusal, run

ANALYSE = """
fix integrated all nve
fix analysed {group} offpath/analyse {every} rdf 60 cutoff 2.5 {more}
"""
# LAMMPS's own compute counts pairs of its neighbour list, up to the cutoff of forces.
COMPUTE = """
compute own {group} rdf 60
fix own {group} ave/time {every} 1 {every} c_own[*] file own.txt mode vector format " %.17g"
"""
AVERAGED = """
fix written {group} ave/time {every} 1 {every} f_analysed[1] f_analysed[2] f_analysed[3] file agent.txt mode vector &
    format " %.17g"
"""
GROUP = "group second type 2\n"


def tables(path: Path) -> dict[int, np.ndarray]:
    """The output of fix ave/time: by step, a row for each bin."""
    found: dict[int, list[list[float]]] = {}
    step = -1
    for line in path.read_text().splitlines():
        fields = line.split()
        if line.startswith("#"):
            continue
        if len(fields) == 2:
            step = int(fields[0])
            found[step] = []
        else:
            found[step].append([float(field) for field in fields[1:]])
    return {step: np.array(rows) for step, rows in found.items()}


def agree(folder: Path) -> None:
    own, agents = tables(folder / "own.txt"), tables(folder / "agent.txt")
    assert own.keys() == agents.keys()
    assert len(own) >= 3
    for step, rows in own.items():
        assert rows[:, 1].max() > 1, "there is a liquid's structure"
        np.testing.assert_allclose(agents[step], rows, rtol=1e-12, err_msg=f"step {step}")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("group", ["all", "second"])
def test_the_agent_counts_as_lammps_does(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, ranks: int, group: str
) -> None:
    script = (MELT + GROUP + ANALYSE + COMPUTE + AVERAGED).format(cells=6, every=10, group=group, more="") + "run 50\n"
    run(tmp_path, plugin, script, agent, ranks)
    agree(tmp_path)


def test_with_lag_a_read_gives_the_hand_over_before(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    script = (MELT + ANALYSE + COMPUTE + AVERAGED).format(cells=5, every=10, group="all", more="lag yes") + "run 50\n"
    run(tmp_path, plugin, script, agent)
    own, agents = tables(tmp_path / "own.txt"), tables(tmp_path / "agent.txt")
    for step in (20, 30, 40, 50):
        np.testing.assert_allclose(agents[step], own[step - 10], rtol=1e-12)


def test_lammps_counts_itself_when_the_agent_dies(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    script = (MELT + ANALYSE + COMPUTE + AVERAGED).format(cells=5, every=10, group="all", more="wait 20")
    simulation = Simulation(
        tmp_path, plugin, script + f"run 20\nprint analysed file marker.txt\n{UNTIL_GO}\nrun 40\n", agent
    )
    simulation.wait_for_marker()
    os.kill(agent.pid, signal.SIGKILL)
    simulation.go()
    assert simulation.end().count("this process counts itself") == 1
    agree(tmp_path)


CRYSTALS = """
units lj
lattice {lattice}
region box block 0 7 0 7 0 7
create_box 1 box
create_atoms 1 box
mass 1 1.0
group second id 1:700
{disorder}
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix integrated all nve
fix analysed {group} offpath/analyse 10 cna {cutoff}
compute own all cna/atom {cutoff}
"""
STRUCTURES = ["fcc", "hcp", "bcc", "icosahedral", "other"]
COUNTED = "".join(
    f"variable is_{name} atom c_own=={value}\ncompute {name} {{group}} reduce sum v_is_{name}\n"
    for value, name in enumerate(STRUCTURES, 1)
)
PRINTED = "fix own all ave/time 10 1 10 " + " ".join(f"c_{name}" for name in STRUCTURES) + " file own.txt\n"
PRINTED += "fix agents all ave/time 10 1 10 " + " ".join(f"f_analysed[{i}]" for i in range(1, 6)) + " file agent.txt\n"


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("group", ["all", "second"])
@pytest.mark.parametrize(
    ("lattice", "cutoff", "disorder", "expected"),
    [
        ("fcc 0.8442", 1.434, "velocity all create 0.3 87287", "fcc"),
        ("hcp 1.0", 1.35, "velocity all create 0.1 87287", "hcp"),
        ("bcc 1.0", 1.52, "velocity all create 0.001 87287", "bcc"),
        ("fcc 0.8442", 1.434, "velocity all create 6.0 87287", "other"),
    ],
)
def test_the_agent_finds_the_structures_that_lammps_finds(
    tmp_path: Path,
    plugin: Path,
    agent: offpath.Agent,
    lattice: str,
    cutoff: float,
    disorder: str,
    expected: str,
    group: str,
    ranks: int,
) -> None:
    script = (CRYSTALS + COUNTED).format(lattice=lattice, cutoff=cutoff, disorder=disorder, group=group) + PRINTED
    run(tmp_path, plugin, script + "run 30\n", agent, ranks)
    own, agents = (np.loadtxt(tmp_path / name) for name in ("own.txt", "agent.txt"))
    assert len(own) == 4
    assert own[:, 1 + STRUCTURES.index(expected)].max() > 0, "there is what is looked for"
    np.testing.assert_array_equal(agents, own)


def test_an_agent_that_does_not_run_plugins_of_users_is_told(tmp_path: Path, plugin: Path) -> None:
    with offpath.Agent.start(memory="64MiB") as strict:
        script = MELT.format(cells=3) + ANALYSE.format(every=10, group="all", more="") + "run 20\n"
        said = refusal(tmp_path, plugin, script, strict)
    assert "Let the agent run it: offpath agent --set task.user_plugins=own" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fix analysed all offpath/analyse 10 rfd 5", "unknown analysis rfd; it knows rdf, cna, msd and vacf"),
        ("fix analysed all offpath/analyse 10 rdf 0 cutoff 2", "0 bins, from 1 to 1048576 are possible"),
        ("fix analysed all offpath/analyse 10 rdf 50", "cutoff R is missing"),
        ("fix analysed all offpath/analyse 10 rdf 50 cutoff 9", "is more than ghost atoms reach, 2.8: use comm_modify"),
        (
            "fix analysed all offpath/analyse 10 rdf 50 cutof 2",
            "unknown keyword cutof; rdf knows cutoff, lag, agent and wait",
        ),
        ("fix analysed all offpath/analyse 10 cna 0", "cutoff 0, the largest distance of two atoms that are bonded"),
        ("fix analysed all offpath/analyse 10 cna 9", "is more than ghost atoms reach, 2.8: use comm_modify"),
        ("fix analysed all offpath/analyse 10 cna 1 cutoff 2", "unknown keyword cutoff; cna knows lag, agent and wait"),
        (
            "change_box all triclinic\nfix analysed all offpath/analyse 10 rdf 50 cutoff 2",
            "boxes that are not orthogonal are not supported",
        ),
    ],
)
def test_mistakes_are_told_before_the_run(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, line: str, says: str
) -> None:
    assert says in refusal(tmp_path, plugin, MELT.format(cells=4) + line + "\nrun 0\n", agent)
