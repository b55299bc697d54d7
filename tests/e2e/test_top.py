"""All agents and hosts in one table (`offpath top`): real agents, one of which dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_group import Group
from agent_process import until
from offpath.group_view import Look, agents_rows, host_row, look, rate, sums

SOURCES = "".join(f'[[source]]\nset = "{name}"\n' for name in ("cpu", "memory", "load", "network"))
EXCHANGE = '[[exchange]]\nname = "load"\ninterval = "50ms"\ndeadline = "40ms"\nfields = ["jobs:u64"]\n'


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.stop_all()


def top(group: Group, name: str, *words: str) -> str:
    """The output, with an agent's row on one line."""
    http = group.running[name].ready["http"].removeprefix("http://")
    command = [sys.executable, "-m", "offpath", "top", "--http", http, "--once", "--interval", "0.3", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def row(text: str, first: str) -> list[str]:
    """The cells of the row that begins so."""
    (line,) = [each for each in text.splitlines() if each.strip("│┃ ").startswith(first)]
    return [cell.strip() for cell in line.strip("│ ").split("│")]


def test_all_agents_and_their_hosts(group: Group) -> None:
    config = group.directory / "agent.toml"
    config.write_text(SOURCES + EXCHANGE)
    group.start("a", "--config", str(config))
    group.start("b", "--config", str(config), "--join", group.address("a"))
    assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}))
    assert until(lambda: all(group.running[name].status()["sampled"][0]["fresh"] for name in "ab"))
    text = top(group, "a")
    assert row(text, "a (asked)")[1] == "alive" and row(text, "b ")[1] == "alive"
    found = look(group.running["a"].ready["http"])
    hosts = {each["name"] for status in found.statuses.values() for each in status["sampled"]}
    for host in hosts:
        assert host in text
    assert " of 2" in row(text, "load")[3]

    group.running["b"].process.kill()
    assert until(lambda: group.states("a")["b"] != "alive")
    assert row(top(group, "a"), "b ")[2:8] == ["-"] * 6


def test_a_member_that_does_not_answer_is_a_row(tmp_path: Path) -> None:
    members = [{"name": "a", "self": True, "state": "alive", "why": ""},
               {"name": "b", "self": False, "state": "alive", "why": ""}]  # fmt: skip
    found = Look(0.0, members, {}, {"b": "no agent answers HTTP at dpu02"})
    assert agents_rows(found, None)[1] == ["b", "alive", *"------", "no agent answers HTTP at dpu02"]


def sampled(seconds: dict[str, float], **others: float) -> dict[str, Any]:
    fields = [{"name": f'cpu_seconds{{mode="{mode}"}}', "value": value} for mode, value in seconds.items()]
    return {"fresh": True, "age_s": 0.01, "fields": fields + [{"name": n, "value": v} for n, v in others.items()]}


def test_rates_of_a_host() -> None:
    before = sampled({"user": 10.0, "idle": 90.0, "iowait": 0.0}, load1=1.0)
    now = sampled({"user": 11.0, "idle": 92.5, "iowait": 0.5}, load1=2.0)
    assert host_row("h", "a", now, before, 2.0)[2:5] == ["10 ms", "25%", "2.00"]
    assert host_row("h", "a", now, None, 0.0)[3] == "-"  # nothing to compare with
    assert host_row("h", "a", {**now, "fresh": False}, before, 2.0)[2] == "silent"


def test_devices_are_added_up_without_the_loopback() -> None:
    fields = {'received{device="eth0"}': 3.0, 'received{device="eth1"}': 4.0, 'received{device="lo"}': 9.0}
    assert sums({"fields": [{"name": n, "value": v} for n, v in fields.items()]}) == {"received": 7.0}
    assert sums({"fields": [{"name": "received", "value": None}, {"name": "odd name"}]}) == {}  # missing


def test_a_counter_that_began_anew_has_no_rate() -> None:
    assert rate(5.0, 9.0, 1.0) is None and rate(5.0, None, 1.0) is None and rate(9.0, 5.0, 2.0) == 2.0
