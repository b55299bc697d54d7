"""The directory of a group, and stages of sift pools mapped by it: real agents of two roles in two racks."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import PATIENCE_S, Group
from agent_process import find_program, until
from offpath.directory import Change, Resource

ATOMS, STEPS = 4000, 6
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
PLACES = {  # host1 and its card are in one rack
    "host1": ("host", "r1"), "dpu1": ("dpu", "r1"), "dpu2": ("dpu", "r1"),
    "host2": ("host", "r2"), "dpu3": ("dpu", "r2"), "dpu4": ("dpu", "r2"),
}  # fmt: skip
PLUGIN = find_program().parent.parent / "examples" / "particles_plugin.so"
CONFIGURATION = """
[[exchange]]
name = "power"
interval = "250ms"
deadline = "200ms"
fields = ["power:f64:watts"]
"""
NEAR = """
[[exchange]]
name = "near"
interval = "250ms"
deadline = "200ms"
topology = "grouped_allgather(3)"
order = "locality"
fields = ["power:f64:watts"]
"""
IDLE_S = 1.5
WATCH_S = 5.0


def start(group: Group, name: str, configuration: str = "") -> None:
    role, rack = PLACES[name]
    path = group.directory / f"{name}.toml"
    path.write_text(configuration)
    joined = next((group.address(other) for other in group.running if other != name), None)
    group.start(name, "--config", str(path), "--set", f"agent.role={role}", "--set", f"agent.rack={rack}",
                *(["--join", joined] if joined else []))  # fmt: skip


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        yield made
    finally:
        made.stop_all()


def start_all(group: Group, configurations: dict[str, str]) -> None:
    for name in PLACES:
        start(group, name, configurations.get(name, ""))
    names = list(PLACES)
    assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)


def paths(resources: list[Resource]) -> list[str]:
    return [each.path for each in resources]


def command(group: Group, name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "offpath", *words, "--agent", group.address(name)]


def run(group: Group, name: str, *words: str) -> str:
    asked = subprocess.run(command(group, name, *words), capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0, asked
    return asked.stdout


def test_what_a_group_has_is_listed_by_path(group: Group, tmp_path: Path) -> None:
    shutil.copy(PLUGIN, tmp_path / "particles.so")
    plugin = f'[[plugin]]\nname = "particles"\npath = "{tmp_path}/particles.so"\n'
    start_all(group, {"dpu1": plugin + CONFIGURATION, "dpu3": CONFIGURATION})
    with group.connect("dpu3") as session:
        session.pool("local:/here?budget=64MiB").create()
        session.pool("hash:/everywhere?replicas=2").create()
        session.stream("tracks", pa.schema([("id", pa.int64())]), rows_max=1, pool="sift:/tracks?key=id")
        with group.connect("host2") as other:  # any agent lists all
            found = {each.path: each for each in other.directory()}
            for name, (role, rack) in PLACES.items():
                assert found[f"/members/{name}"].properties["role"] == role
                assert found[f"/members/{name}"].properties["state"] == "alive"
                assert found[f"/members/{name}"].properties["address"] == group.address(name)
                assert found[f"/racks/{rack}/{name}"].properties == {"role": role}
                assert found[f"/roles/{role}/{name}"].members == (name,)
            assert found["/pools/local:/here"] == ("/pools/local:/here", "budget=67108864", ("dpu3",))
            assert found["/pools/hash:/everywhere"].properties == {"replicas": "2"}
            assert found["/pools/hash:/everywhere"].members == tuple(sorted(PLACES))
            assert until(lambda: other.directory("/sift")[0].properties["state"] == "ready", PATIENCE_S)
            assert until(lambda: other.directory("/sift")[0].members == tuple(sorted(PLACES)), PATIENCE_S)
            assert found["/exchanges/power"].properties["topology"] == "allgather"
            assert found["/exchanges/power"].members == ("dpu1", "dpu3")
            assert until(lambda: bool(other.directory("/functions/particles/mean")), PATIENCE_S)
            functions = other.directory("/functions")
            assert all(each.members == ("dpu1",) and each.about for each in functions)
            assert paths(other.directory("/racks/r2")) == [f"/racks/r2/{name}" for name in ("dpu3", "dpu4", "host2")]
            assert paths(other.directory("/pools/hash:")) == ["/pools/hash:/everywhere"]
            assert other.directory("/no/such/folder") == []
            with pytest.raises(offpath.Invalid, match="begins with '/'"):
                other.directory("pools")
            roles = {each.name: (each.role, each.rack) for each in other.members()}
            assert roles == PLACES
    assert json.loads(run(group, "host1", "ls", "/racks/r1", "--json"))[0] == {
        "path": "/racks/r1/dpu1", "about": "role=dpu", "members": ["dpu1"]
    }  # fmt: skip
    shown = run(group, "host1", "ls", "/pools")
    assert "/pools/local:/here" in shown and "dpu3" in shown and "budget=67108864" in shown
    told = group.members("dpu4")["host1"]
    assert (told["role"], told["rack"]) == ("host", "r1")


def groups_of(tree: list[dict[str, Any]]) -> set[frozenset[str]]:
    """Members of an exchange's tree, by the node above them."""
    groups: dict[int, set[str]] = {}
    for node in tree:
        if "member" in node:
            groups.setdefault(node["parent"], set()).add(node["member"])
    return {frozenset(each) for each in groups.values()}


def test_an_exchange_keeps_racks_together(group: Group) -> None:
    start_all(group, dict.fromkeys(PLACES, NEAR))
    racks = {frozenset(name for name, place in PLACES.items() if place[1] == rack) for rack in ("r1", "r2")}

    def groups(name: str) -> set[frozenset[str]]:
        (exchange,) = group.running[name].status()["exchanges"]
        return groups_of(exchange["tree"])

    assert until(lambda: all(groups(name) == racks for name in PLACES), PATIENCE_S), groups("host1")


def requests_of(group: Group, agent: str, program: str) -> int:
    """How many requests a program of that name has posted to the agent."""
    channels = group.running[agent].status()["channels"]
    return sum(each["requests"] for each in channels if each["program"] == program)


def idle_for(group: Group, agent: str, program: str, seconds: float) -> bool:
    before = requests_of(group, agent, program)
    time.sleep(seconds)
    return requests_of(group, agent, program) == before


def questions(group: Group) -> dict[str, int]:
    """How many questions for the directory wait at each agent."""
    return {name: agent.status()["group"]["directory_questions"] for name, agent in group.running.items()}


def test_questions_wait_only_while_somebody_watches(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("host1", "dpu1", "dpu2"):
        start(group, name)
    names = list(group.running)
    assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
    with group.connect("host1") as session:
        asked: list[Any] = []
        start_one = session._waits.start
        with monkeypatch.context() as patch:
            patch.setattr(session._waits, "start", lambda *args: (asked.append(args), start_one(*args))[1])
            session.directory()
        assert len(asked) == 3, "a question for each agent"
        assert questions(group) == dict.fromkeys(names, 0)
        watch = threading.Thread(target=lambda: list(session.watch_directory("/", timeout=WATCH_S)))
        watch.start()
        assert until(lambda: questions(group) == {"host1": 3, "dpu1": 1, "dpu2": 1}, WATCH_S), questions(group)
        watch.join(PATIENCE_S)
        assert until(lambda: questions(group) == dict.fromkeys(names, 0), PATIENCE_S), questions(group)
        # A watch that is shorter than its first listing ends like others.
        assert list(session.watch_directory("/", timeout=0)) == []
        assert until(lambda: questions(group) == dict.fromkeys(names, 0), PATIENCE_S), questions(group)


def test_a_watch_of_the_command_line_goes_on_until_it_is_interrupted(group: Group) -> None:
    start(group, "host1")
    watch = subprocess.Popen(command(group, "host1", "ls", "/pools", "--watch"), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        with group.connect("host1") as session:
            assert until(lambda: questions(group)["host1"] == 1, PATIENCE_S), "it waits for a change"
            session.pool("local:/later").create()
            assert watch.stdout is not None
            assert watch.stdout.readline().startswith("+ /pools/local:/later")
    finally:
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == 0, errors
    assert errors == ""


def test_a_slow_member_is_named_and_keeps_what_it_told(group: Group) -> None:
    for name in ("host1", "dpu1"):
        start(group, name)
    names = list(group.running)
    assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
    with group.connect("dpu1") as there:
        there.pool("local:/there").create()
    with group.connect("host1") as session:
        assert paths(session.directory("/pools")) == ["/pools/local:/there"]
        slow = group.running["dpu1"]
        slow.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(offpath.Timeout, match="have not answered: dpu1"):
                session.directory("/pools", timeout=0.5)
        finally:
            slow.process.send_signal(signal.SIGCONT)
        assert until(lambda: paths(session.directory("/pools", timeout=PATIENCE_S)) == ["/pools/local:/there"],
                     PATIENCE_S)  # fmt: skip


def test_a_card_makes_a_pool_of_which_it_takes_no_rows(group: Group) -> None:
    text = "sift:/{}?key=id&stages=1&stage1=hosts&stage2=dpus"
    start(group, "host1")
    start(group, "dpu1", f'[[pool]]\nname = "{text.format("configured")}&wait=2"\n')
    names = list(group.running)
    assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
    run(group, "dpu1", "pool", "create", text.format("made"))
    with group.connect("dpu1") as session:
        session.pool(text.format("waits") + "&wait=5").create()
        session.pool(text.format("other")).create()
        known = {each.path: each.properties["state"] for each in session.directory("/sift")}
        assert known.keys() == {f"/sift/{name}" for name in ("configured", "made", "waits", "other")}, known
        assert known["/sift/waits"] == "waits"
        with pytest.raises(offpath.Unsupported, match="stage1=hosts"):
            session.stream("cards", SCHEMA, rows_max=1, pool="sift:/made")


def test_changes_come_without_polling(group: Group) -> None:
    for name in ("host1", "dpu1", "dpu2", "host2", "dpu3"):
        start(group, name)
    names = list(group.running)
    assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
    changes: queue.Queue[Change] = queue.Queue()

    def watch(session: offpath.Session) -> None:
        with contextlib.suppress(offpath.Closed):
            for change in session.watch_directory("/", 10 * PATIENCE_S):
                changes.put(change)

    def seen(what: str, path: str, **properties: str) -> Resource:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            change = changes.get(timeout=max(until_s - time.monotonic(), 0.01))
            told = change.resource.properties
            if (change.what, change.resource.path) == (what, path) and properties.items() <= told.items():
                return change.resource

    with offpath.connect(group.address("host1"), name="watcher") as session:
        thread = threading.Thread(target=watch, args=(session,))
        thread.start()
        for name in sorted(names):
            seen("added", f"/members/{name}", state="alive")
        # A pool that another agent alone has.
        with group.connect("dpu3") as there:
            there.pool("local:/far").create()
            assert seen("added", "/pools/local:/far").members == ("dpu3",)
        # The effects of that are over: a question waits at each member. From then on only changes cause further
        # questions.
        assert until(lambda: group.running["host1"].status()["group"]["directory_questions"] == len(names), PATIENCE_S)
        assert until(lambda: idle_for(group, "host1", "watcher", IDLE_S), PATIENCE_S), "nothing is asked meanwhile"
        start(group, "dpu4")
        assert seen("added", "/racks/r2/dpu4").properties == {"role": "dpu"}
        with group.connect("dpu4") as there:  # also of the new member
            there.pool("local:/newer").create()
            assert seen("added", "/pools/local:/newer").members == ("dpu4",)
        group.running["dpu3"].stop(signal.SIGKILL)
        seen("changed", "/members/dpu3", state="dead")
        until_s = time.monotonic() + PATIENCE_S
        while any(each.path in ("/pools/local:/far", "/roles/dpu/dpu3") for each in session.directory()):
            assert time.monotonic() < until_s
            time.sleep(0.1)
        session.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a watch ends with its session"


def test_a_program_waits_for_members_of_a_role(group: Group) -> None:
    start(group, "host1")
    waits = subprocess.Popen(command(group, "host1", "wait", "--members", "2", "--role", "dpu", "--rack", "r1"),
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    with group.connect("host1") as session:
        assert session.wait_members(1, timeout=PATIENCE_S) == ["host1"]
        with pytest.raises(offpath.Timeout, match="0 of 1 members with role dpu are alive"):
            session.wait_members(1, role="dpu", timeout=0.2)
        start(group, "dpu3")
        start(group, "dpu1")
        assert session.wait_members(2, role="dpu", timeout=PATIENCE_S) == ["dpu1", "dpu3"]
        assert waits.poll() is None, "one of them is in another rack"
        start(group, "dpu2")
        out, _ = waits.communicate(timeout=PATIENCE_S)
        assert waits.returncode == 0
        assert out.split() == ["dpu1", "dpu2"]
    words = command(group, "host1", "wait", "--members", "9", "--timeout", "0.2")
    late = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert late.returncode == 1
    assert "4 of 9 members are alive" in late.stderr


MAPPED = ("sift:/tracks?key=id&stages=2&fanout=4&threshold=32KiB&budget=512KiB&age=100ms"
          "&stage1=hosts&stage2=rack:*/dpus&stage3=dpus")  # fmt: skip


def stages_at(group: Group, name: str) -> list[dict[str, Any]]:
    (sift,) = group.running[name].status()["sifts"]
    stages: list[dict[str, Any]] = sift["stages"]
    return stages


def test_stages_of_a_sift_pool_are_mapped(group: Group) -> None:
    """Hosts take rows, the cards of each rack split that rack's rows, and all cards keep tracks."""
    start_all(group, {"host1": f'[[pool]]\nname = "{MAPPED}&wait=6"\n'})
    with group.connect("host1") as first, group.connect("host2") as second, group.connect("dpu4") as card:
        assert until(lambda: [each.members for each in card.directory("/sift")] == [tuple(sorted(PLACES))], PATIENCE_S)
        (known,) = card.directory("/sift/tracks")
        assert known.properties["stage2"] == "rack:*/dpus"
        assert known.properties["racks"] == "r1:dpu{1..2},host1|r2:dpu{3..4},host2"
        assert known.properties["cards"] == "dpu{1..4}"
        with pytest.raises(offpath.Unsupported, match="stage1=hosts"):
            card.stream("cards", SCHEMA, rows_max=ATOMS, pool="sift:/tracks")
        sent = {"r1": 0, "r2": 0}
        random = np.random.default_rng(3)
        for rack, session, share in (("r1", first, slice(0, ATOMS // 4)), ("r2", second, slice(ATOMS // 4, ATOMS))):
            stream = session.stream(f"rank{rack}", SCHEMA, rows_max=ATOMS, pool=MAPPED)
            for step in range(STEPS):
                ids = random.permutation(np.arange(ATOMS)[share])
                batch = {"id": ids, "x": ids + step / 1024}
                stream.send(batch, key=(f"step{step:06}", rack), snapshot=True).wait_stored(PATIENCE_S)
                sent[rack] += len(ids)
        tracks = card.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        table = tracks.table()
        assert np.array_equal(table["id"].to_numpy(), np.repeat(np.arange(ATOMS), STEPS))
        assert np.array_equal(table["step"].to_numpy(), np.tile(np.arange(STEPS), ATOMS))
        assert np.array_equal(table["x"].to_numpy(), table["id"].to_numpy() + table["step"].to_numpy() / 1024)
    taken = {name: [stage["rows"] for stage in stages_at(group, name)] for name in PLACES}
    assert [taken["host1"], taken["host2"]] == [[sent["r1"], 0, 0], [sent["r2"], 0, 0]]
    for cards, rack in ((("dpu1", "dpu2"), "r1"), (("dpu3", "dpu4"), "r2")):
        assert all(taken[card][0] == 0 and taken[card][1] > 0 and taken[card][2] > 0 for card in cards)
        assert sum(taken[card][1] for card in cards) == sent[rack], "the second stage does not leave the rack"
    assert sum(taken[name][2] for name in PLACES) == ATOMS * STEPS
