"""A group of six agents in two namespaces, whose network is cut and joined again while programs of both sides put.

Objects stored on one side only are found from every member as soon as the halves know of each other. Of two puts to one
key, one on each side, one stays, everywhere the same, and keeps its place when a member dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_process import AgentProcess, until
from offpath.agent_http import fetch_status
from switched_network import AGENT, PROGRAM, Network, switched_network

CUTS = 200 if "OFFPATH_LONG" in os.environ else 2  # ./dev test --long
DEAD_AFTER_S = 2
PATIENCE_S = 90.0
ROWS, SHARED = 40, 5  # put on each side with each cut: keys of its own, and keys that the other side puts as well
SIDES = {"agent": ["a", "b", "c"], "program": ["d", "e", "f"]}
EVERYBODY = [name for names in SIDES.values() for name in names]
POOL = "hash:/rows?replicas=2"
SCHEMA = pa.schema([pa.field("value", pa.int64(), nullable=False)])


class SplitGroup:
    """Six agents, each with a session of a program beside it."""

    def __init__(self, directory: Path, network: Network, stack: ExitStack) -> None:
        self.directory, self.network, self.stack = directory, network, stack
        self.agents: dict[str, AgentProcess] = {}
        self.sessions: dict[str, offpath.Session] = {}
        self.streams: dict[str, Any] = {}
        key = directory / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        where = [(place, name) for place, names in SIDES.items() for name in names]
        addresses = {
            name: f"tcp:{AGENT if place == 'agent' else PROGRAM}:{7000 + number}"
            for number, (place, name) in enumerate(where)
        }
        for place, name in where:
            (directory / name).mkdir()
            arguments = [
                "--name", name, "--listen", f"unix:{directory}/{name}/agent.sock", "--listen", addresses[name],
                "--http", f"unix:{directory}/{name}/http.sock", "--key-file", str(key), "--insecure-network",
                "--set", f"group.dead_after={DEAD_AFTER_S}s", "--set", f"group.address={addresses[name]}",
                "--set", f"group.members={','.join(addresses.values())}", "--set", "limits.silence=4s",
            ]  # fmt: skip
            self.agents[name] = AgentProcess(directory / name, arguments, network.at(place))
            stack.callback(self.end, name)
        for name in EVERYBODY:
            self.sessions[name] = stack.enter_context(offpath.connect(f"unix:{directory}/{name}/agent.sock"))

    def end(self, name: str) -> None:
        self.agents[name].process.kill()
        self.agents[name].process.wait()

    def know(self, names: list[str]) -> bool:
        """Whether each of these knows that exactly these are alive."""
        return all(
            {member.name for member in self.sessions[name].members() if member.state == "alive"} == set(names)
            for name in names
        )

    def cut(self) -> None:
        self.network.set_cable(False)
        for names in SIDES.values():
            assert until(lambda names=names: self.know(names), PATIENCE_S), self.states()

    def join(self) -> None:
        self.network.set_cable(True)
        assert until(lambda: self.know(EVERYBODY), PATIENCE_S), self.states()

    def states(self) -> dict[str, dict[str, str]]:
        return {name: {each.name: each.state for each in self.sessions[name].members()} for name in EVERYBODY}

    def put(self, name: str, rows: dict[str, int]) -> None:
        """By the program beside this member; returns when all are stored."""
        if name not in self.streams:
            stream = self.sessions[name].stream(f"of-{name}", SCHEMA, rows_max=1, pool=POOL)
            self.streams[name] = self.stack.enter_context(stream)
        tickets = [
            self.streams[name].send({"value": np.array([value])}, key=key, snapshot=True) for key, value in rows.items()
        ]
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)

    def get(self, name: str, key: str) -> int | None:
        """The row that the program beside this member gets at once; None if there is no such row."""
        try:
            return int(self.sessions[name].pool(POOL).get(key, timeout=0.0)["value"][0].as_py())
        except offpath.NotFound:
            return None

    def conflicts(self, names: list[str]) -> int:
        """Puts given up for others of their keys, as these members count them."""
        return sum(fetch_status(f"unix:{self.directory}/{name}/http.sock")["remote"]["conflicts"] for name in names)


@pytest.fixture
def split(tmp_path: Path) -> Iterator[SplitGroup]:
    with ExitStack() as stack:
        network = stack.enter_context(switched_network())
        made = SplitGroup(tmp_path, network, stack)
        made.join()
        yield made


@pytest.mark.timeout(1200 + 60 * CUTS)
def test_what_was_stored_on_either_side_of_a_cut_is_found_everywhere(split: SplitGroup) -> None:
    stays: dict[str, int | None] = {}  # of keys that both sides put, once it is known
    for number in range(CUTS):
        split.cut()
        own: dict[str, int] = {}
        both: dict[str, set[int]] = {f"both-{number}-{i}": set() for i in range(SHARED)}
        for side, names in enumerate(SIDES.values()):
            rows = {f"of-{side}-{number}-{i}": 1000 * number + i for i in range(ROWS)}
            own |= rows
            values = {key: 2 * (number * SHARED + i) + side for i, key in enumerate(both)}
            for key, value in values.items():
                both[key].add(value)
            split.put(names[number % len(names)], rows | values)
        split.join()
        lost = [(name, key) for name in EVERYBODY for key, value in own.items() if split.get(name, key) != value]
        assert lost == [], f"cut {number}: {len(lost)} of {len(own)} rows, seen by six members"

        # Dropped while they move, they stay away. There is a limit of each user's rows, too.
        split.sessions[EVERYBODY[number % len(EVERYBODY)]].pool(POOL).drop("of-*")
        left = [(name, key) for name in EVERYBODY for key in own if split.get(name, key) is not None]
        assert left == [], f"cut {number}: {len(left)} of {len(own)} dropped rows, seen by six members"

        def agreed(keys: dict[str, set[int]] = both) -> dict[str, set[int | None]]:
            return {key: {split.get(name, key) for name in EVERYBODY} for key in keys}

        assert until(lambda: all(len(values) == 1 for values in agreed().values()), PATIENCE_S), agreed()
        assert all(values <= both[key] for key, values in agreed().items()), (agreed(), both)
        stays |= {key: split.get("a", key) for key in both}
    assert split.conflicts(EVERYBODY) >= CUTS * SHARED, "puts are given up without being counted"

    # A member's death changes nothing of what was kept.
    split.end("b")
    rest = [name for name in EVERYBODY if name != "b"]
    assert until(lambda: split.know(rest), PATIENCE_S), split.states()
    changed = [(name, key) for name in rest for key, value in stays.items() if split.get(name, key) != value]
    assert changed == []
