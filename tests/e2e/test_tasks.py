"""Tasks: functions of plug-ins over a program's memory, with real agents and workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pytest
from agent_process import AgentProcess, agent, find_program

BUILT = find_program().parents[1] / "tests" / "task_plugin.so"
PATIENCE_S = 20.0

pytestmark = pytest.mark.skipif(not BUILT.exists(), reason="the plug-in is not built")


@contextlib.contextmanager
def started(directory: Path, *arguments: str, workers: int = 1, deadline: str = "10s", more: str = "") -> Iterator[AgentProcess]:
    plugin = shutil.copy(BUILT, directory)
    plugins = f'[[plugin]]\nname = "t"\npath = "{plugin}"\nworkers = {workers}\ndeadline = "{deadline}"\n'
    (directory / "agent.toml").write_text(plugins + more)
    with agent(directory, "--config", str(directory / "agent.toml"), *arguments) as running:
        yield running


@contextlib.contextmanager
def connected(link: str, directory: Path, **settings: Any) -> Iterator[offpath.Session]:
    """A program of an agent of its own, over this link."""
    key = directory / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    arguments = ["--listen", "tcp:127.0.0.1:0", "--key-file", str(key)] if link == "tcp" else []
    with started(directory, *arguments, **settings) as running:
        address = running.ready["address"] if link == "tcp" else f"unix:{directory}/agent.sock"
        with offpath.connect(address, key_file=key, force_staging=link == "staged") as session:
            assert session.info.staged == (link == "staged")
            yield session


@pytest.fixture(params=["local", "staged", "tcp"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[offpath.Session]:
    with connected(request.param, tmp_path) as made:
        yield made


def doubles(session: offpath.Session, count: int) -> np.ndarray:
    return session.alloc(8 * count).numpy(np.float64)


def test_a_task_over_the_programs_memory(session: offpath.Session) -> None:
    count = 200_000
    x, y = np.arange(count, dtype=np.float64), np.full(count, 0.5)
    z = doubles(session, count)
    with session.tasks() as tasks:
        for a in (2.0, -3.0):
            task = tasks.submit("t/axpy", {"x": x, "y": y}, {"z": z}, arguments=struct.pack("d", a))
            assert task.wait_pulled(PATIENCE_S)
            assert task.wait(PATIENCE_S)
            assert np.array_equal(z, a * x + y)
            assert task.output_bytes("z") == 8 * count
            info = task.info
            assert info.pulled_bytes == 16 * count and info.pushed_bytes == 8 * count
            assert info.ran_ns > 0 and not info.here
