"""offpath-md as a program of the tests: its output, on ranks, and beside agents that have its plug-in."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess
from agent_process import find_program as find_agent
from built import missing
from offpath.bench.programs import ProgramError, find_program

try:
    PROGRAM = str(find_program("offpath-md"))
except ProgramError as error:
    missing(str(error))


def ended(*options: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Skips if the program is built without MPI and is to run on several ranks."""
    done = subprocess.run([*launcher, PROGRAM, *options], capture_output=True, text=True, check=True, timeout=500)
    if launcher:
        ranks = re.findall(r"^# offpath-md: .* (\d+) ranks", done.stdout, re.M)
        if ranks == ["1"] * int(launcher[-1]):
            pytest.skip("offpath-md is built without MPI")
        assert ranks == [launcher[-1]], done.stdout
    return done


def rows_of(text: str) -> dict[int, list[float]]:
    """step -> T, U, P"""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {int(line[0]): [float(word) for word in line[1:4]] for line in lines}


def rows(*options: str, launcher: tuple[str, ...] = ()) -> dict[int, list[float]]:
    return rows_of(ended(*options, launcher=launcher).stdout)


def on_ranks(count: int) -> tuple[str, ...]:
    """The command that starts a program as so many of MPI's ranks."""
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    return (mpirun, "--allow-run-as-root", "--oversubscribe", "-np", str(count))


def address_of(agent: AgentProcess) -> str:
    return str(agent.ready["address"])


def settings_of_plugin(folder: Path, more: str = "") -> list[str]:
    """The words for an agent that has the plug-in, with more of its settings."""
    plugin = find_agent().parents[1] / "lib" / "md_plugin.so"
    if not plugin.exists():
        missing("the plug-in is not built")
    copy = shutil.copy(plugin, folder)  # in a folder that no other user can write to
    settings = folder / "agent.toml"
    settings.write_text(f'[[plugin]]\nname = "md"\npath = "{copy}"\n{more}')
    return ["--config", str(settings)]


def processes_of(agent: AgentProcess) -> list[int]:
    """The agent and its workers."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return [agent.process.pid, *map(int, children)]


CELL = (4 / 0.8442) ** (1 / 3)


def crystal_file(path: Path, cells: tuple[int, int, int], inside: Callable[[list[float]], bool]) -> None:
    """A data file of the lattice's atoms that are ``inside``, as seen from the middle of the box."""
    corners = ((0, 0, 0), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5))
    places = itertools.product(*map(range, cells), corners)
    atoms = [[CELL * (n + c) for n, c in zip(place[:3], place[3], strict=True)] for place in places]
    kept = [atom for atom in atoms if inside([x - CELL * n / 2 for x, n in zip(atom, cells, strict=True)])]
    sides = "".join(f"0 {CELL * n} {axis}lo {axis}hi\n" for n, axis in zip(cells, "xyz", strict=True))
    lines = "".join(f"{n} 1 {x:.17g} {y:.17g} {z:.17g}\n" for n, (x, y, z) in enumerate(kept, 1))
    path.write_text(f"crystal\n\n{len(kept)} atoms\n1 atom types\n\n{sides}\nAtoms\n\n{lines}")
