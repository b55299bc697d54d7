"""Minutes of waiting for tasks and views, as thousands of short waits, in Python and C++: no request is sent to the
agent twice, and the channel goes on."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import offpath
import pytest
from agent_process import AgentProcess, agent, find_program
from built import needs_built

TESTS = find_program().parents[1] / "tests"
WAITS = 1500
MOMENT_S = 0.0002
PATIENCE_S = 60.0
SETTINGS = """
[[plugin]]
name = "t"
path = "{plugin}"
deadline = "1h"

[[exchange]]
name = "slow"
topology = "allgather"
interval = "1h"
deadline = "1s"
fields = ["power:f64:watts"]
"""

pytestmark = needs_built(TESTS / "task_plugin.so")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[AgentProcess]:
    plugin = shutil.copy(TESTS / "task_plugin.so", tmp_path)
    (tmp_path / "agent.toml").write_text(SETTINGS.format(plugin=plugin))
    with agent(tmp_path, "--config", str(tmp_path / "agent.toml")) as started:
        yield started


@pytest.fixture
def session(running: AgentProcess) -> Iterator[offpath.Session]:
    with offpath.connect(running.ready["address"]) as connected:
        yield connected


def nap(tasks: offpath.Tasks, seconds: float) -> offpath.Task:
    return tasks.submit("t/nap", arguments=struct.pack("q", int(seconds * 1e9)), timeout=3600)


def not_for_long(wait: Callable[[float], object]) -> None:
    for _ in range(WAITS):
        assert not wait(MOMENT_S)


def test_thousands_of_short_waits_for_a_task(session: offpath.Session) -> None:
    with session.tasks() as tasks:
        task = nap(tasks, 3600)
        not_for_long(task.wait)
        not_for_long(tasks.next)
        task.cancel()
        with pytest.raises(offpath.Cancelled):
            task.wait(PATIENCE_S)
        assert nap(tasks, 0).wait(PATIENCE_S)


def test_thousands_of_short_waits_for_a_tasks_inputs(running: AgentProcess, session: offpath.Session) -> None:
    x = np.arange(1000.0)
    with session.tasks() as tasks:
        os.kill(running.pid, signal.SIGSTOP)
        task = tasks.submit("t/nothing", {"x": x})
        not_for_long(task.wait_pulled)
        os.kill(running.pid, signal.SIGCONT)
        assert task.wait_pulled(PATIENCE_S)
        assert nap(tasks, 0).wait(PATIENCE_S)


def test_thousands_of_short_waits_for_a_view(session: offpath.Session) -> None:
    with session.exchange("slow", publish=True) as exchange:
        exchange.publish(power=1.0)

        def look(timeout: float) -> bool:
            with pytest.raises(offpath.Timeout):
                exchange.view(timeout)
            return False

        not_for_long(look)
    session.pool("local:/after").put(b"x", "here", timeout=PATIENCE_S)


def test_thousands_of_short_waits_in_cpp(running: AgentProcess) -> None:
    program = TESTS / "waits_program"
    waited = subprocess.run(
        [program, running.ready["address"]], capture_output=True, text=True, check=False, timeout=300
    )
    assert waited.returncode == 0, waited.stderr
