"""Sift pools that survive their agents: killed by SIGKILL while particles go through them, and started again, with
their rows on disk or with copies at other members. Every row that was reported stored is in its track exactly once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import PATIENCE_S, Group, new_group
from agent_process import agent, until
from small_disk import mounted_disk

ATOMS = 4000
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("type", pa.int32())])
SETTINGS = "key=id&stages=2&fanout=4&threshold=64KiB&age=100ms"
MIB = 1 << 20
THIRTY_TWO = [f"m{i:02}" for i in range(32)]


def particles(step: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(step).permutation(ATOMS)
    return {"id": ids, "x": ids + step / 1024, "type": (ids % 3).astype(np.int32)}


class Rank(threading.Thread):
    """A program that sends steps of its own, and connects again when its agent is gone. It does not
    repeat a send without an answer: it cannot know whether that was stored."""

    def __init__(self, connect: Callable[[], offpath.Session], pool: str, steps: range) -> None:
        super().__init__()
        self.connect, self.pool, self.steps = connect, pool, steps
        self.stored: set[int] = set()
        self.unknown: set[int] = set()
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        left = list(self.steps)
        while left and not self.over.is_set():
            try:
                with self.connect() as session:
                    stream = session.stream(f"particles{self.steps.start}", SCHEMA, rows_max=ATOMS, pool=self.pool)
                    while left and not self.over.is_set():
                        step = left[0]
                        ticket = stream.send(particles(step), key=(f"step{step:06}", ""), snapshot=True)
                        left.pop(0)
                        self.unknown.add(step)
                        ticket.wait_stored(PATIENCE_S)
                        self.unknown.remove(step)
                        self.stored.add(step)
            except (offpath.Error, OSError):
                time.sleep(0.05)

    def finish(self) -> None:
        self.join(4 * PATIENCE_S)
        assert not self.is_alive()


def flush(session: offpath.Session) -> offpath.tracks.Tracks:
    """While a member comes back, a flush may fail with it: then it is asked for again."""
    tracks = session.tracks("sift:/tracks")
    end = time.monotonic() + 2 * PATIENCE_S
    while True:
        try:
            tracks.flush(30)
            return tracks
        except offpath.Error:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def assert_once(table: pa.Table, stored: set[int], unknown: set[int]) -> None:
    ids, step = table["id"].to_numpy(), table["step"].to_numpy()
    assert np.array_equal(table["x"].to_numpy(), ids + step / 1024)
    assert np.array_equal(table["type"].to_numpy(), ids % 3)
    found = {int(each): int(count) for each, count in zip(*np.unique(step, return_counts=True), strict=True)}
    for each in stored:
        assert found.get(each) == ATOMS, f"step {each} was stored, and has {found.get(each)} rows of {ATOMS}"
    for each in set(found) - stored:
        assert each in unknown and found[each] == ATOMS, f"step {each} has {found[each]} rows"
    order = ids.astype(np.int64) * 1_000_000 + step
    assert np.all(np.diff(order) > 0), "a row twice, or tracks that are not sorted"


def kill(group: Group, *names: str) -> None:
    """All at the same moment."""
    for name in names:
        group.running[name].process.send_signal(signal.SIGKILL)
    for name in names:
        group.running[name].process.wait()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", 8) as place:
        yield place


def test_one_agent_killed_while_it_splits_and_merges_has_everything_again(tmp_path: Path) -> None:
    pool, spill = f"sift:/tracks?{SETTINGS}&spill=durable", tmp_path / "spill"
    stored: set[int] = set()
    unknown: set[int] = set()
    for life in range(4):
        with agent(tmp_path, "--spill", str(spill)) as running:
            if stored:  # of all former lives, without naming the pool's settings
                with offpath.connect(running.ready["address"]) as session:
                    assert_once(flush(session).table(), stored, unknown)
                assert running.status()["sifts"][0]["restored"]
            steps = range(100 * life, 100 * life + 40)
            rank = Rank(lambda at=running.ready["address"]: offpath.connect(at), pool, steps)
            assert until(lambda rank=rank, life=life: len(rank.stored) > 6 + 3 * life, PATIENCE_S)
            running.stop(signal.SIGKILL)
            rank.over.set()
            rank.finish()
            stored |= rank.stored
            unknown |= rank.unknown
    with agent(tmp_path, "--spill", str(spill)) as running, offpath.connect(running.ready["address"]) as session:
        assert_once(flush(session).table(), stored, unknown)
        # Pieces that went on have left the disk: tracks are all there is.
        kept = {each["name"]: each for each in running.status()["pools"]}
        (own,) = [each for name, each in kept.items() if name.startswith("local:/tracks.kept-")]
        assert until(lambda: running.status()["sifts"][0]["stages"][0]["used_bytes"] == 0, PATIENCE_S)
        assert own["bytes"] < 4 * (len(stored) + len(unknown)) * ATOMS * 28
        session.tracks("sift:/tracks").drop()
        assert until(lambda: not [*spill.glob("*.bytes")], PATIENCE_S)


def all_is_back(group: Group, names: list[str]) -> bool:
    """All know the same processes, each has its rows again, and copies are where they belong: the next one may die."""
    known = [group.members(each) for each in names]
    if len({tuple(sorted((name, member["incarnation"]) for name, member in each.items())) for each in known}) != 1:
        return False
    statuses = [group.running[name].status() for name in names]
    return all(
        status["remote"]["moves_waiting"] == 0 and all(sift["restored"] for sift in status["sifts"]) and status["sifts"]
        for status in statuses
    )


def members_of(tmp_path: Path, names: list[str], spill: bool) -> dict[str, list[str]]:
    return {name: ["--spill", str(tmp_path / f"spill-{name}")] if spill else [] for name in names}


def run_with_kills(
    tmp_path: Path,
    settings: str,
    spill: bool,
    victims: Sequence[Sequence[str]],
    names: Sequence[str] = ("a", "b", "c"),
    dead_after: str = "6s",
) -> None:
    """Ranks put through the first three members. ``victims``: members that are killed at the same moment, and started
    again before the next ones are killed."""
    names = list(names)
    # A killed member comes back before others take it for dead, and none of the others is taken for dead.
    arguments = {name: [*words, "--set", f"group.dead_after={dead_after}"]
                 for name, words in members_of(tmp_path, names, spill).items()}  # fmt: skip
    with new_group(tmp_path, "local") as group:
        group.start(names[0], *arguments[names[0]])
        for name in names[1:]:
            group.start(name, "--join", group.address(names[0]), *arguments[name])
        assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
        pool = f"sift:/tracks?{SETTINGS}&members={','.join(names)}&{settings}"
        ranks = [Rank(lambda name=name: group.connect(name), pool, range(1000 * i, 1000 * i + 40))
                 for i, name in enumerate(names[:3])]  # fmt: skip
        for number, together in enumerate(victims):
            goal = (number + 1) * 12
            assert until(lambda goal=goal: sum(len(rank.stored) for rank in ranks) >= goal, 2 * PATIENCE_S)
            kill(group, *together)
            other = next(name for name in names if name not in together)
            for victim in together:
                group.start(victim, "--join", group.address(other), *arguments[victim])
            assert until(lambda: all_is_back(group, names), 2 * PATIENCE_S)
        for rank in ranks:
            rank.finish()
        assert until(lambda: all_is_back(group, names), 2 * PATIENCE_S)
        stored = set.union(*(rank.stored for rank in ranks))
        unknown = set.union(*(rank.unknown for rank in ranks))
        assert len(stored) >= 3 * 40 - 3 * (len(victims) + 1)
        for name in names[:3]:
            with group.connect(name) as session:
                assert_once(flush(session).table(), stored, unknown)
        for name in names:
            (sift,) = group.running[name].status()["sifts"]
            assert sift["kept"] and sift["restored"]
            assert sum(stage["pieces_lost"] for stage in sift["stages"]) == 0


def test_members_with_disks_are_killed_one_after_the_other(tmp_path: Path) -> None:
    run_with_kills(tmp_path, "spill=durable", True, [["b"], ["a"], ["c"], ["b"]])


def test_members_with_copies_at_others_come_back_with_nothing(tmp_path: Path) -> None:
    run_with_kills(tmp_path, "replicas=2", False, [["b"], ["c"], ["a"]])


def test_five_of_thirty_two_members_are_killed_and_come_back_with_nothing(tmp_path: Path) -> None:
    victims = [["m01"], ["m30"], ["m07"], ["m00"], ["m16"]]
    run_with_kills(tmp_path, "replicas=2", False, victims, THIRTY_TWO)


@pytest.mark.skipif("OFFPATH_LONG" not in os.environ, reason="starts 32 agents with disks: ./dev test --long")
def test_five_of_thirty_two_members_with_disks_are_killed_at_the_same_moment(tmp_path: Path) -> None:
    """Twice, with members that ranks are connected to among them."""
    victims = [["m01", "m30", "m07", "m00", "m16"], ["m02", "m31", "m07", "m12", "m23"]]
    run_with_kills(tmp_path, "spill=durable", True, victims, THIRTY_TWO, dead_after="30s")


def test_members_with_disks_and_copies(tmp_path: Path) -> None:
    run_with_kills(tmp_path, "replicas=2&spill=durable", True, [["c"], ["a"]])


def test_an_agent_started_with_too_little_memory_leaves_what_was_kept(tmp_path: Path) -> None:
    """Objects that it cannot take up stay on its disk, for a start with as much memory as before."""
    names = ["a", "b"]
    arguments = members_of(tmp_path, names, True)
    pool = f"sift:/tracks?{SETTINGS}&members=a,b&replicas=2&spill=durable&budget=128MiB"

    def start(group: Group, *more: str) -> None:
        group.start("a", *arguments["a"], *more)
        group.start("b", "--join", group.address("a"), *arguments["b"], *more)
        assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)

    with new_group(tmp_path, "local") as group:
        start(group)
        rank = Rank(lambda: group.connect("a"), pool, range(10))
        rank.finish()
        assert len(rank.stored) == 10
        kill(group, *names)
        objects = {each.name for name in names for each in (tmp_path / f"spill-{name}").glob("*.bytes")}
        assert objects
        start(group, "--memory", "64MiB")
        for name in names:
            assert until(lambda name=name: "its kept objects are not used" in group.running[name].log(), PATIENCE_S)
            assert group.running[name].status()["sifts"] == []
            kill(group, name)
        assert objects == {each.name for name in names for each in (tmp_path / f"spill-{name}").glob("*.bytes")}
        start(group)
        assert until(lambda: all_is_back(group, names), 2 * PATIENCE_S)
        with group.connect("b") as session:
            assert_once(flush(session).table(), rank.stored, rank.unknown)


def test_a_full_disk_holds_the_program_back_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    pool, place = f"sift:/tracks?{SETTINGS}&spill=durable", small_disk / "spill"
    with agent(tmp_path, "--spill", str(place)) as running:
        filler = small_disk / "filler"
        ranks = [Rank(lambda: offpath.connect(running.ready["address"]), pool, range(2))]
        ranks[0].finish()
        with contextlib.suppress(OSError):  # files that the agent has written meanwhile: the disk is still full
            filler.write_bytes(bytes(small_disk_left(small_disk) - 256 * 1024))
        ranks.append(Rank(lambda: offpath.connect(running.ready["address"]), pool, range(2, 12)))
        assert until(lambda: running.status()["disk"]["failures"] > 0, PATIENCE_S)
        filler.unlink()
        ranks[1].finish()
        running.stop(signal.SIGKILL)
    stored, unknown = (set.union(*sets) for sets in ((r.stored for r in ranks), (r.unknown for r in ranks)))
    with agent(tmp_path, "--spill", str(place)) as running, offpath.connect(running.ready["address"]) as session:
        assert len(stored) >= 10
        assert_once(flush(session).table(), stored, unknown)


def small_disk_left(place: Path) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        with pytest.raises(offpath.Unsupported, match=r"no directory for objects on disk \(agent.spill_directory\)"):
            session.stream("s", SCHEMA, rows_max=10, pool="sift:/t?key=id&spill=durable")
        with pytest.raises(offpath.Unsupported, match=r"no directory for objects on disk"):
            session.stream("s", SCHEMA, rows_max=10, pool="sift:/t?key=id&spill=on")
        with pytest.raises(offpath.Unsupported, match="spill=on with replicas=2"):
            session.stream("s", SCHEMA, rows_max=10, pool="sift:/t?key=id&spill=on&replicas=2")
        with pytest.raises(offpath.Invalid, match="spill=on or spill=durable"):
            session.stream("s", SCHEMA, rows_max=10, pool="sift:/t?key=id&tracks_budget=1GiB")
        session.stream("s", SCHEMA, rows_max=10, pool="sift:/t?key=id")
        with pytest.raises(offpath.Exists, match="alive when it was made"):
            session.stream("s2", SCHEMA, rows_max=10, pool="sift:/t?key=id&members=other")
