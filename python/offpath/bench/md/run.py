"""Runs of offpath-md for ``offpath bench md``, alone and beside an agent that has its functions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..agent_process import AgentProcess
from ..programs import ProgramError, find_program

# Options for ranks that share cores: they run as the benchmark's user, and sleep while they wait.
SHARED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "passive"}


def run_md(words: list[str], cores: str, address: str = "", launcher: tuple[str, ...] = ()) -> dict[str, Any]:
    """One run on ``cores`` (as for taskset), with the agent at ``address``; returns its report."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        path = Path(directory) / "report.json"
        command = ["taskset", "-c", cores, *launcher, str(find_program("offpath-md")), *words, "--report", str(path)]
        environment = {**os.environ, **({"OFFPATH_AGENT": address} if address else {}), **(SHARED if launcher else {})}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise ProgramError(f"offpath-md ended with status {done.returncode}: {done.stderr.strip()}")
        if "continued without the agent" in done.stderr:
            raise ProgramError(done.stderr.strip())
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report


def find_plugin() -> Path:
    """The plug-in: beside the programs in a build, in an installation's lib/offpath."""
    folder = find_program("offpath-md").resolve().parent.parent
    for place in (folder / "lib" / "md_plugin.so", folder / "lib" / "offpath" / "md_plugin.so"):
        if place.exists():
            return place
    raise ProgramError(f"md_plugin.so is not in {folder / 'lib'}")


@contextmanager
def agent_with_functions(core: int, launcher: tuple[str, ...] = (), workers: int = 1) -> Iterator[AgentProcess]:
    """Its ``workers`` also run on ``core``, all of them behind the words of ``launcher``. Raises AgentUnavailableError,
    ProgramError."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        plugin = shutil.copy(find_plugin(), directory)  # in a folder that no other user can write to
        configuration = Path(directory) / "agent.toml"
        settings = f'[[plugin]]\nname = "md"\npath = "{plugin}"\nworkers = {workers}\n'
        configuration.write_text(settings, encoding="utf-8")
        with AgentProcess.start(core=core, configuration=configuration, launcher=launcher) as agent:
            yield agent
