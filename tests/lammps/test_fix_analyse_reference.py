"""fix offpath/analyse msd and vacf: an agent compares atoms with a reference, as LAMMPS's own computes do."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import offpath
import pytest
from lammps_runs import MELT, UNTIL_GO, Simulation, refusal, run

# The liquid drifts through the borders of the box; types have masses of their own, and atoms are sorted every 20 steps.
LIQUID = (
    MELT
    + """
group second type 2
mass 2 2.5
velocity all set 2.0 1.0 0.0 sum yes
atom_modify sort 20 0.0
fix integrated all nve
"""
)
ANALYSE = """
fix analysed {group} offpath/analyse {every} {what} {more}
fix written all ave/time {every} 1 {every} f_analysed[1] f_analysed[2] f_analysed[3] f_analysed[4] file agent.txt &
    format " %.17g"
compute own {group} {what}
fix own all ave/time {every} 1 {every} c_own[1] c_own[2] c_own[3] c_own[4] file own.txt format " %.17g"
"""
CREATE = "change_box all z final 0 25\ncreate_atoms 1 single 1 1 12\n"  # alone in the part that is new
DELETE = "group last id 864\ndelete_atoms group last\n"
DUMP = "dump written all custom {every} dump.txt id proc ix\n"


def script(
    what: str, *, cells: int = 6, group: str = "all", more: str = "", liquid: str = LIQUID, analyse: str = ANALYSE
) -> str:
    return (liquid + analyse + DUMP).format(cells=cells, every=50, what=what, group=group, more=more)


def rows(path: Path) -> dict[int, np.ndarray]:
    """By step: x, y, z and their sum."""
    return {int(row[0]): row[1:] for row in np.loadtxt(path, ndmin=2)}


def agree(folder: Path, steps: int = 0) -> None:
    """In the first ``steps`` rows; 0: in all."""
    own, agents = rows(folder / "own.txt"), rows(folder / "agent.txt")
    assert own.keys() == agents.keys()
    for step in sorted(own)[: steps or None]:
        scale = np.abs(own[step]).max()
        assert step == min(own) or scale > 0.01, "atoms have moved"
        np.testing.assert_allclose(
            agents[step], own[step], rtol=1e-11, atol=1e-13 * scale + 1e-25, err_msg=f"step {step}"
        )


def workers_of(agent: int) -> list[int]:
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "offpath-worker"]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("group", ["all", "second"])
@pytest.mark.parametrize("what", ["msd", "msd com yes", "vacf"])
def test_the_agent_gives_what_lammps_does(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, what: str, group: str, ranks: int
) -> None:
    dumped = run(tmp_path, plugin, script(what, group=group) + "run 200\nrun 200\n", agent, ranks).dumped()
    agree(tmp_path)
    first, last = dumped[0], dumped[400]
    assert (first[:, 2] != last[:, 2]).any(), "atoms left the box"
    assert ranks == 1 or (first[:, 1] != last[:, 1]).any(), "atoms migrated"


def test_masses_of_each_atom_and_a_box_that_is_not_orthogonal(
    tmp_path: Path, plugin: Path, agent: offpath.Agent
) -> None:
    liquid = LIQUID.replace("atom_style atomic", "atom_style sphere").replace("mass * 1.0", "set type 1 mass 1.0")
    liquid = liquid.replace(
        "mass 2 2.5", "set type 2 mass 2.5\nchange_box all triclinic xy final 2.0 yz final 1.0 remap"
    )
    liquid = liquid.replace("velocity all create 1.44 87287", "").replace(
        "velocity all set", "velocity all create 1.44 87287\nvelocity all set"
    )
    run(tmp_path, plugin, script("msd com yes", liquid=liquid) + "run 300\n", agent, ranks=2)
    agree(tmp_path)


def test_a_process_without_atoms(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    liquid = "processors 1 1 2\n" + LIQUID.replace("fix integrated", "change_box all z final 0 100\nfix integrated")
    dumped = run(tmp_path, plugin, script("msd", group="second", liquid=liquid) + "run 100\n", agent, ranks=2).dumped()
    assert (dumped[0][:, 1] == 0).all()
    agree(tmp_path)


def test_with_lag_a_read_gives_the_hand_over_before(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    run(tmp_path, plugin, script("msd", more="lag yes") + "run 200\n", agent)
    own, agents = rows(tmp_path / "own.txt"), rows(tmp_path / "agent.txt")
    for step in (100, 150, 200):
        np.testing.assert_allclose(agents[step], own[step - 50], rtol=1e-11)


# The reference is gone with the agent.
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("what", ["msd", "vacf"])
def test_values_are_nan_when_the_agent_dies(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, what: str, ranks: int
) -> None:
    more = f"run 100\nprint analysed file marker.txt\n{UNTIL_GO}\nrun 100\n"
    simulation = Simulation(tmp_path, plugin, script(what, more="wait 20") + more, agent, ranks)
    simulation.wait_for_marker()
    os.kill(agent.pid, signal.SIGKILL)
    simulation.go()
    assert simulation.end().count("its values are nan from now on") == ranks
    agree(tmp_path, steps=3)
    agents = rows(tmp_path / "agent.txt")
    assert sorted(agents) == [0, 50, 100, 150, 200]
    assert np.isnan([agents[150], agents[200]]).all()


def test_an_agent_that_was_restarted_has_no_reference(tmp_path: Path, plugin: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="offpath-") as folder:  # paths of sockets are short
        address = f"unix:{folder}/agent.sock"
        more = f"run 100\nprint analysed file marker.txt\n{UNTIL_GO}\nrun 100\n"

        def start() -> offpath.Agent:
            return offpath.Agent.start(memory="64MiB", listen=[address], settings={"task.user_plugins": "own"})

        with start() as first:
            simulation = Simulation(tmp_path, plugin, script("msd", more=f"agent {address}") + more, None)
            simulation.wait_for_marker()
            os.kill(first.pid, signal.SIGKILL)
        with start():
            simulation.go()
            assert simulation.end().count("its values are nan from now on") == 1
    agree(tmp_path, steps=3)
    agents = rows(tmp_path / "agent.txt")
    assert np.isnan([agents[150], agents[200]]).all()


# The reference is the agent's, not that of the process that runs the functions.
def test_the_reference_outlives_the_worker(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    more = f"run 100\nprint analysed file marker.txt\n{UNTIL_GO}\nrun 100\n"
    simulation = Simulation(tmp_path, plugin, script("msd") + more, agent)
    simulation.wait_for_marker()
    workers = workers_of(agent.pid)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    simulation.go()
    assert "nan from now on" not in simulation.end()
    assert not set(workers) & set(workers_of(agent.pid))
    agree(tmp_path)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (CREATE, "atom 865 was not in the group at the reference"),
        (DELETE, "864 atoms at the reference (step 0), 863 now, 0 created since"),
        # LAMMPS gives the last atom's id to another one.
        (DELETE + CREATE, "864 atoms at the reference (step 0), 864 now, 1 created since"),
    ],
    ids=["appears", "disappear", "is replaced"],
)
def test_other_atoms_than_at_the_reference_are_told(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, change: str, says: str, ranks: int
) -> None:
    # LAMMPS's own compute refuses to go on.
    alone = script("msd", analyse=ANALYSE.partition("compute own")[0])
    said = Simulation(tmp_path, plugin, alone + f"run 100\n{change}run 100\n", agent, ranks).end()
    assert says in " ".join(said.split())
    agents = rows(tmp_path / "agent.txt")
    assert np.isfinite([agents[step] for step in (0, 50, 100)]).all()
    assert np.isnan([agents[step] for step in (150, 200)]).all()


def test_a_new_fix_begins_with_a_new_reference(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    again = "".join(f"unfix {name}\n" for name in ("written", "own", "analysed")) + "uncompute own\n"
    again += ANALYSE.format(every=50, what="msd", group="all", more="")
    run(tmp_path, plugin, script("msd") + f"run 100\n{DELETE}{again}run 100\n", agent)
    assert sorted(rows(tmp_path / "agent.txt")) == [100, 150, 200]
    agree(tmp_path)


def test_ids_stay_those_of_the_reference(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    said = refusal(tmp_path, plugin, script("msd", cells=3) + "run 50\nreset_atoms id\nrun 50\n", agent)
    assert "Cannot use reset_atoms id with a fix offpath/analyse storing atom IDs" in said


def test_an_agent_that_may_not_keep_the_reference_is_told(tmp_path: Path, plugin: Path) -> None:
    settings = {"task.user_plugins": "own", "task.resident_max": "16KiB"}
    with offpath.Agent.start(memory="64MiB", settings=settings) as small:
        said = refusal(tmp_path, plugin, script("msd") + "run 100\n", small)
    assert "27648 bytes of inputs would stay on the agent, at most 16384 are allowed" in said
    assert "Let the agent keep more: offpath agent --memory SIZE --set task.resident_max=SIZE" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fix analysed all offpath/analyse 10 vacf com yes", "unknown keyword com; vacf knows lag, agent and wait"),
        ("fix analysed all offpath/analyse 10 msd cutoff 2", "unknown keyword cutoff; msd knows com, lag, agent"),
        ("fix analysed all offpath/analyse 0 msd", "N is 0, the number of steps from one hand-over to the next"),
        ("fix analysed all offpath/analyse 10 msd com", "com command: missing argument"),
        ("group none id 99999\nfix analysed none offpath/analyse 10 msd", "the group none has no atoms"),
    ],
)
def test_mistakes_are_told_before_the_run(
    tmp_path: Path, plugin: Path, agent: offpath.Agent, line: str, says: str
) -> None:
    assert says in refusal(tmp_path, plugin, MELT.format(cells=3) + line + "\nrun 0\n", agent)


def test_atoms_without_ids_are_refused(tmp_path: Path, plugin: Path, agent: offpath.Agent) -> None:
    liquid = MELT.replace("atom_style atomic", "atom_style atomic\natom_modify id no").format(cells=3)
    liquid = liquid.replace("87287", "87287 loop local")
    said = refusal(tmp_path, plugin, liquid + "fix analysed all offpath/analyse 10 msd\nrun 0\n", agent)
    assert "atoms have no ids, by which they are found again" in said
