"""offpath-md as a program of the tests: its output, on ranks, and beside agents that have its plug-in."""

from __future__ import annotations

import re
import shutil
import subprocess
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
    done = subprocess.run([*launcher, PROGRAM, *options], capture_output=True, text=True, check=True, timeout=300)
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
    """What starts a program as so many of MPI's ranks."""
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
    copy = shutil.copy(plugin, folder)  # in a folder which nobody else can write to
    settings = folder / "agent.toml"
    settings.write_text(f'[[plugin]]\nname = "md"\npath = "{copy}"\n{more}')
    return ["--config", str(settings)]


def processes_of(agent: AgentProcess) -> list[int]:
    """The agent and its workers."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return [agent.process.pid, *map(int, children)]
