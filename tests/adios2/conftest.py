"""ADIOS2's engine of Offpath, in the wheel of ADIOS2 that it is built against, beside the wheel's own engines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share

pytest.importorskip("adios2", reason="no wheel of ADIOS2")

import offpath
from adios2_streams import BUILD

LIBRARY = "liboffpath_adios2.so"


@pytest.fixture(scope="session", autouse=True)
def library() -> Path:
    """The engine of the build, or of the environment that it is installed in."""
    for folder in (BUILD / "lib", Path(sys.prefix) / "lib"):
        if (folder / LIBRARY).exists():
            os.environ["ADIOS2_PLUGIN_PATH"] = str(folder)
            return folder / LIBRARY
    raise FileNotFoundError(f"{LIBRARY} is neither in {BUILD}/lib nor in {sys.prefix}/lib: run ./dev build")


@pytest.fixture(scope="session")
def agent() -> Iterator[offpath.Agent]:
    with offpath.Agent.start(memory="1GiB") as started:
        os.environ["OFFPATH_AGENT"] = started.address
        yield started


@pytest.fixture
def session(agent: offpath.Agent) -> Iterator[offpath.Session]:
    with offpath.connect(agent.address) as connected:
        yield connected


@pytest.fixture
def pool(request: pytest.FixtureRequest, agent: offpath.Agent) -> str:
    """A pool of the test's own."""
    return "local:/" + "".join(c if c.isalnum() else "-" for c in request.node.name)
