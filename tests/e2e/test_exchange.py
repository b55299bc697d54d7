"""Agents that exchange their hosts' records, as processes: over every link, one stopped, one killed, the leader
killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import offpath
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from agent_group import LINKS, PATIENCE_S, Group, new_group
from agent_process import find_program, until
from offpath.exchange_store import whole_batches

NAMES = ["a", "b", "c", "d"]
LOAD = """
[[exchange]]
name = "load"
topology = "{topology}"
interval = "250ms"
deadline = "200ms"
{more}
fields = ["power:f64:watts", "jobs:u64"]
reductions = ["sum(power)", "top(jobs, 2)"]
"""
GRANTS = 'members = ["a", "b", "c", "d"]\ngrant_total = 100\ngrant_ttl = "1s"\ngrant_lease = "2s"'


def start(group: Group, names: list[str], topology: str = "allgather", more: str = "", *settings: str) -> None:
    config = group.directory / "exchange.toml"
    config.write_text(LOAD.format(topology=topology, more=more))
    for i, name in enumerate(names):
        join = ["--join", group.address(names[0])] if i else []
        group.start(name, "--config", str(config), *join, *settings)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.stop_all()


def exchanges(group: Group, names: list[str]) -> dict[str, offpath.Exchange]:
    return {name: group.connect(name).exchange("load", publish=True) for name in names}


def complete_view(exchange: offpath.Exchange, expected: int) -> offpath.View:
    """The first one in which all have a value of this round, which its figures are of as well."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        view = exchange.view(timeout=PATIENCE_S)
        is_complete = view.expected == expected and view.complete
        has_values = all(entry.has_value for entry in view.entries.values())
        if is_complete and has_values and all(figure.count == expected for figure in view.figures.values()):
            return view
    raise AssertionError(f"no complete view: {view}")


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("topology", ["allgather", "neighbourhoods(2)"])
def test_everybody_learns_what_all_published(tmp_path: Path, link: str, topology: str) -> None:
    with new_group(tmp_path, link) as group:
        start(group, NAMES, topology)
        # Programs of their own agents; they open the exchange once that has heard of the others.
        load = exchanges(group, NAMES)
        for i, name in enumerate(NAMES):
            load[name].publish(power=100.0 + i, jobs=i)
        for name in NAMES:
            view = complete_view(load[name], 4)
            assert {member: entry["power"] for member, entry in view.entries.items()} == {
                each: 100.0 + i for i, each in enumerate(NAMES)
            }
            assert all(0 <= entry.age <= PATIENCE_S for entry in view.entries.values())
            assert view.figures["sum(power)"].value == 406.0
            assert view.figures["top(jobs, 2)"].top == [(3.0, "d"), (2.0, "c")]
            assert view.leader == "a" and view.is_leader == (name == "a")
        load["b"].publish(power=7.5)  # nothing is said about jobs
        assert until(lambda: load["d"].view(PATIENCE_S)["b"]["power"] == 7.5, PATIENCE_S)
        assert load["d"].view(PATIENCE_S)["b"]["jobs"] is None


def test_one_stopped_agent_of_sixteen_makes_views_partial_and_never_late(group: Group) -> None:
    names = [f"m{i:02}" for i in range(16)]
    start(group, names, "neighbourhoods(4)", "", "--set", "group.dead_after=5s")
    load = exchanges(group, names)
    for name in names:
        load[name].publish(power=1.0, jobs=1)
    complete_view(load["m00"], 16)
    process = group.running["m04"].process  # which leads the second neighbourhood
    os.kill(process.pid, signal.SIGSTOP)
    try:
        assert until(lambda: load["m00"].view(PATIENCE_S).present < 16, PATIENCE_S)
        # Its neighbours pass it over, and only its own record is missing. Stopped for longer than until it is called
        # dead.
        until_s = time.monotonic() + 10

        def only_it_is_missing() -> bool:
            view = load["m00"].view(PATIENCE_S)
            assert view["m04"].has_value  # the newest there is
            return (view.present, view["m04"].present, view["m05"].present) == (15, False, True)

        while time.monotonic() < until_s:
            only_it_is_missing()
        assert until(only_it_is_missing, PATIENCE_S)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    complete_view(load["m00"], 16)
    complete_view(load["m04"], 16)
    # A view is given by a timer of the agent itself: it is late only if that did not run. One that waited for the
    # stopped agent would wait until that is suspected, after 2 s.
    for name in ("m00", "m05", "m15"):
        told = next(each for each in group.running[name].status()["exchanges"] if each["name"] == "load")
        assert told["partial"] > 0
        assert told["overrun_s_max"] < 1.5


def test_a_killed_leader_is_replaced_and_taken_back(group: Group) -> None:
    start(group, NAMES, "neighbourhoods(2)", 'members = ["a", "b", "c", "d"]')
    load = exchanges(group, NAMES)
    for name in NAMES:
        load[name].publish(power=1.0, jobs=1)
    complete_view(load["d"], 4)
    group.running["a"].process.kill()
    group.running["a"].process.wait()

    def without_a() -> bool:
        view = load["d"].view(PATIENCE_S)
        return view.present == 3 and view.expected == 4 and view.leader == "b" and not view["a"].present

    assert until(without_a, PATIENCE_S)
    group.start("a", "--config", str(group.directory / "exchange.toml"), "--join", group.address("b"))
    again = group.connect("a").exchange("load", publish=True)
    again.publish(power=2.0, jobs=1)
    assert until(lambda: load["d"].view(PATIENCE_S)["a"].values.get("power") == 2.0, PATIENCE_S)
    assert complete_view(load["d"], 4).leader == "a"


def test_grants_reach_programs_and_lapse_with_their_leader(group: Group) -> None:
    start(group, NAMES, "neighbourhoods(2)", GRANTS)
    load = exchanges(group, NAMES)

    def total(wanted: int, names: list[str]) -> bool:
        for name in names:
            load[name].publish(power=1.0, jobs=1)
            load[name].view(PATIENCE_S)
        amounts = [load[name].granted[0] for name in names]
        assert sum(amounts) <= 100
        return sum(amounts) == wanted

    # Everybody would give everybody 40: there are 100.
    for name in NAMES:
        load[name].grant(dict.fromkeys(NAMES, 40))
    assert until(lambda: total(100, NAMES), PATIENCE_S)
    group.running["a"].process.kill()
    group.running["a"].process.wait()
    left = NAMES[1:]
    assert until(lambda: total(0, left), PATIENCE_S)
    assert until(lambda: total(100, left), PATIENCE_S)  # by b, once nothing of a's can be valid


@pytest.mark.parametrize("topology", ["allgather", "neighbourhoods(2)"])
def test_a_leader_that_lost_its_program_hands_over_while_its_agent_lives(group: Group, topology: str) -> None:
    start(group, NAMES, topology, GRANTS)
    load = exchanges(group, NAMES)

    def granted_by(leader: str, present: list[str]) -> bool:
        """Whether it gives all of them a quarter."""
        views = []
        for name in present:
            load[name].publish(power=1.0, jobs=1)
            load[name].grant(dict.fromkeys(NAMES, 25))
            views.append(load[name].view(PATIENCE_S))
        amounts = [load[name].granted[0] for name in present]
        assert sum(amounts) <= 100
        return amounts == [25] * len(present) and all(view.leader == leader for view in views)

    assert until(lambda: granted_by("a", NAMES), PATIENCE_S)
    load["a"].close()
    assert until(lambda: granted_by("b", ["b", "c", "d"]), PATIENCE_S)
    (exchange,) = group.running["a"].status()["exchanges"]
    assert all(member["up"] for member in exchange["members"]) and not exchange["has_decider"]
    load["c"].close()
    load["b"].close()
    assert until(lambda: granted_by("d", ["d"]), PATIENCE_S)  # which leads no part of either tree
    load["b"] = group.connect("b").exchange("load", publish=True)
    assert until(lambda: granted_by("b", ["b", "d"]), PATIENCE_S)


def test_decision_makers_in_c_and_cpp(group: Group) -> None:
    start(group, NAMES, "neighbourhoods(2)", GRANTS)
    built = find_program().parents[1] / "tests"
    programs = [
        subprocess.Popen(
            [built / f"exchange_program_{language}", str(100 + i), str(i)],
            env={**os.environ, "OFFPATH_AGENT": group.address(name)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for i, (name, language) in enumerate(zip(NAMES, ["c", "cc", "c", "cc"], strict=True))
    ]  # fmt: skip
    try:
        # The sum by records and by figure, the member with most jobs, the leader, the granted share, and whether
        # records were made.
        assert [program.stdout.readline() for program in programs if program.stdout] == ["406 406 d a 25 1\n"] * 4
        assert until(lambda: "views_seen" in group.running["b"].get("/metrics")[2], PATIENCE_S)
        assert "views_seen" not in group.running["a"].get("/metrics")[2]
    finally:
        for program in programs:
            program.communicate(timeout=PATIENCE_S)
    assert [program.returncode for program in programs] == [0] * 4


def test_what_is_wrong_is_said(group: Group) -> None:
    start(group, ["a"])
    session = group.connect("a")
    with pytest.raises(offpath.NotFound, match='no exchange "nothing" here: load'):
        session.exchange("nothing")
    first = session.exchange("load", publish=True)
    with pytest.raises(offpath.Exists, match="another program publishes"):
        group.connect("a").exchange("load", publish=True)
    with pytest.raises(offpath.SchemaError, match="power:f, jobs:u, not power:u"):
        session.exchange("load", fields=["power:u64"])
    with pytest.raises(offpath.TooLarge):
        first.publish(b"x" * (64 * 1024 + 1))
    with pytest.raises(offpath.Unsupported, match="no grants"):
        first.grant({"a": 1})
    with pytest.raises(offpath.Invalid, match="no member 'z'"):
        first.grant({"z": 1})
    first.close()
    with pytest.raises(offpath.Closed):
        first.publish(power=1.0)
    session.exchange("load", publish=True).publish(power=1.0)  # the place is free again


def records_in(directory: Path) -> int:
    """Those that are appended to a file that has not ended."""
    return sum(batch.num_rows for part in directory.glob("*.part") for batch in whole_batches(part))


def test_records_are_stored_as_parquet_by_a_command(group: Group) -> None:
    start(group, NAMES[:2])
    parts = exchanges(group, NAMES[:2])
    for number, name in enumerate(NAMES[:2]):
        parts[name].publish(power=10.0 + number, jobs=number)
    complete_view(parts["a"], 2)
    directory = group.directory / "records"
    command = [sys.executable, "-m", "offpath", "exchange", "store", "load", str(directory), "--days", "1"]
    environment = {**os.environ, "OFFPATH_AGENT": group.address("b")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("storing exchange load of 2 members")
        assert until(lambda: records_in(directory) >= 8, PATIENCE_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    table = ds.dataset(sorted(directory.glob("*.parquet"))).to_table()
    for number, name in enumerate(NAMES[:2]):
        rows = table.filter(pc.field("member") == name)
        assert set(rows["power"].to_pylist()) == {10.0 + number} and set(rows["jobs"].to_pylist()) == {number}
    assert len(set(zip(table["member"].to_pylist(), table["epoch"].to_pylist(), strict=True))) == len(table) >= 8


def test_a_tree_that_makes_no_sense_is_refused_at_start(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.write_text("rack0: a b\nrow: rack0 rack1\nrack1: c row\n")
    group = Group(tmp_path)
    with pytest.raises(RuntimeError, match="line 2: group row is part of itself"):
        start(group, ["a"], f"file:{tree}")
    tree.write_text("rack0: a b\nrack1: c d a\n")
    with pytest.raises(RuntimeError, match="line 2: member a is already in rack0"):
        start(group, ["a"], f"file:{tree}")


def test_agents_tell_each_other_of_their_hosts_without_a_program(group: Group) -> None:
    for name, level in (("a", 3), ("b", 4)):
        (group.directory / f"{name}.level").write_text(f"{level}\n")
        (group.directory / f"{name}.toml").write_text(
            f'[sampling]\ninterval = "20ms"\n'
            f'[[source]]\nfile = "{group.directory}/{name}.level"\nfields = ["level"]\n'
            '[[exchange]]\nname = "hosts"\ninterval = "50ms"\ndeadline = "40ms"\nsource = "host"\n'
            'fields = ["level:f64", "nowhere:u64"]\nreductions = ["sum(level)"]\n'
        )
        join = ["--join", group.address("a")] if name == "b" else []
        group.start(name, "--config", str(group.directory / f"{name}.toml"), *join)

    def total() -> float | None:
        (exchange,) = group.running["b"].status()["exchanges"]
        return next((each.get("value") for each in exchange["view"].get("figures", [])), None)

    assert until(lambda: total() == 7.0)
    (group.directory / "a.level").write_text("30\n")
    assert until(lambda: total() == 34.0)
    assert group.running["a"].says("samples of host have no field nowhere")
    view = group.connect("a").exchange("hosts").view(timeout=PATIENCE_S)
    assert view.entries["b"].values == {"level": 4.0, "nowhere": None}
