"""Agents of one group as processes of a test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import offpath
from agent_process import AgentProcess, until

DEAD_AFTER_S = 2
PATIENCE_S = 60  # deadline of events that have to happen some time


class Group:
    """Agents of one group below a directory, each at a Unix socket of its own, or at a port where there is a key."""

    def __init__(self, directory: Path, key: Path | None = None) -> None:
        self.directory, self.key = directory, key
        self.running: dict[str, AgentProcess] = {}

    def address(self, name: str) -> str:
        return self.running[name].ready["address"] if self.key else f"unix:{self.directory}/{name}/agent.sock"

    def start(self, name: str, *arguments: str) -> AgentProcess:
        (self.directory / name).mkdir(exist_ok=True)
        if self.key:
            listen = ["--listen", "tcp:127.0.0.1:0", "--key-file", str(self.key)]
        else:
            listen = ["--listen", self.address(name)]
        given = ["--name", name, "--http", "127.0.0.1:0", "--set", f"group.dead_after={DEAD_AFTER_S}s"]
        self.running[name] = AgentProcess(self.directory / name, [*given, *listen, *arguments])
        return self.running[name]

    def connect(self, name: str) -> offpath.Session:
        """A program's session with this member."""
        return offpath.connect(self.address(name), **({"key_file": self.key} if self.key else {}))

    def start_by_list(self, *names: str) -> None:
        everybody = ",".join(self.address(name) for name in names)
        for name in names:
            self.start(name, "--set", f"group.members={everybody}")

    def members(self, name: str) -> dict[str, dict[str, Any]]:
        """An agent's knowledge of all members, itself included, by name."""
        return {member["name"]: member for member in self.running[name].status()["members"]}

    def states(self, name: str) -> dict[str, str]:
        return {other: member["state"] for other, member in self.members(name).items()}

    def all_know(self, among: list[str], states: dict[str, str]) -> bool:
        return all(self.states(name) == states for name in among)

    def stop_all(self) -> None:
        for agent in self.running.values():
            if agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait()


LINKS = ("local", "staged", "tcp")


@contextmanager
def new_group(directory: Path, link: str) -> Iterator[Group]:
    """A group without members. Over TCP it has a key."""
    key = None
    if link == "tcp":
        key = directory / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
    made = Group(directory, key)
    try:
        yield made
    finally:
        made.stop_all()


@contextmanager
def joined_group(directory: Path, names: Sequence[str], link: str, *settings: str) -> Iterator[Group]:
    """Members that know each other, and read directly, with every read staged, or over TCP."""
    staged = [*settings, *(["--set", "security.force_staging=true"] if link == "staged" else [])]
    with new_group(directory, link) as made:
        made.start(names[0], *staged)
        for name in names[1:]:
            made.start(name, "--join", made.address(names[0]), *staged)
        assert until(lambda: made.all_know(list(names), dict.fromkeys(names, "alive")), PATIENCE_S)
        yield made
