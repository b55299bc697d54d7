"""``offpath agent --group N``: several agents of one machine, started, watched and ended by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import offpath
import pytest
from agent_process import find_program, until

COUNT = 4


class Group:
    """The command and its output."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.log_path = directory / "group.log"
        words = [sys.executable, "-m", "offpath", "agent", f"--group={COUNT}", *options]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(words, stderr=log, env=environment())

    def log(self) -> str:
        return self.log_path.read_text()

    def offpath(self, *words: str, agent: int = 0) -> str:
        where = f"unix:{self.directory}/agent-{agent}.sock"
        words = (sys.executable, "-m", "offpath", *words, "--agent", where)
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self, agent: int) -> dict[str, object]:
        status: dict[str, object] = json.loads(self.offpath("status", "--json", agent=agent))
        return status

    def states(self, agent: int = 0) -> dict[str, str]:
        """Of each member, as one of them knows it."""
        members = json.loads(self.offpath("status", "--json", agent=agent))["members"]
        return {each["name"]: each["state"] for each in members}


def environment() -> dict[str, str]:
    return {**os.environ, "OFFPATH_AGENT_PROGRAM": str(find_program())}


def places(directory: Path) -> list[str]:
    """Sockets in a directory of the test's own: the default one may have an agent."""
    return ["--listen", f"unix:{directory}/agent-{{index}}.sock", "--http", f"unix:{directory}/http-{{index}}.sock",
            "--memory", "64MiB", "--name", "a{index}", "--set", "group.dead_after=2s"]  # fmt: skip


@contextmanager
def run_group(directory: Path, *options: str) -> Iterator[Group]:
    group = Group(directory, *places(directory), *options)
    try:
        assert until(lambda: "form a group" in group.log() or group.process.poll() is not None), group.log()
        yield group
    finally:
        group.process.send_signal(signal.SIGTERM)
        group.process.wait(60)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_one_command_starts_a_group_and_ends_it(tmp_path: Path) -> None:
    with run_group(tmp_path, "--log-level", "info") as group:
        assert until(lambda: group.states() == {f"a{i}": "alive" for i in range(COUNT)}), group.log()
        pids = []
        for index in range(COUNT):  # each at its own address, with its own pages
            status = group.status(index)
            assert status["name"] == f"a{index}"
            pids.append(int(str(status["pid"])))
        with offpath.connect(f"unix:{tmp_path}/agent-1.sock") as first:
            first.pool("hash:/p").put({"x": np.arange(10.0)}, "row")
        with offpath.connect(f"unix:{tmp_path}/agent-3.sock") as last:
            assert last.pool("hash:/p").get("row").num_rows == 10
        assert any(line.startswith("a2 | ") for line in group.log().splitlines()), group.log()
    assert group.process.returncode == 0
    assert not any(map(alive, pids))
    assert list(tmp_path.glob("*.sock")) == []


def test_the_others_go_on_when_an_agent_is_killed(tmp_path: Path) -> None:
    with run_group(tmp_path) as group:
        assert until(lambda: list(group.states().values()) == ["alive"] * COUNT), group.log()
        os.kill(int(str(group.status(2)["pid"])), signal.SIGKILL)
        assert until(lambda: "a2 ended by signal 9; 3 continue" in group.log()), group.log()
        assert until(lambda: group.states()["a2"] == "dead"), group.log()
    assert group.process.returncode == 0


def test_agents_end_with_a_command_that_is_killed(tmp_path: Path) -> None:
    group = Group(tmp_path, *places(tmp_path))
    assert until(lambda: "form a group" in group.log()), group.log()
    pids = [int(str(group.status(index)["pid"])) for index in range(COUNT)]
    group.process.kill()
    group.process.wait()
    assert until(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "unix:/tmp/a.sock"], "every agent needs --listen of its own"),
        (["--set", "no.such=1"], "agent 0 of the group ended with status"),
    ],
)
def test_a_group_that_cannot_be_says_why(tmp_path: Path, options: list[str], why: str) -> None:
    given = options if options[0] == "--listen" else [*places(tmp_path), *options]
    group = Group(tmp_path, *given)
    assert group.process.wait(60) != 0
    assert why in group.log(), group.log()
    assert "Traceback" not in group.log()
    assert "no.such" in group.log() or options[0] == "--listen"
