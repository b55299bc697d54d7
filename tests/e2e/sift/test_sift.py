"""Sift pools over agents as processes: particles in, tracks out, equal to a plain sort."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from agent_group import LINKS, PATIENCE_S, Group, joined_group
from agent_process import until
from offpath.pool import Frame
from offpath.tracks import Tracks

NAMES = ["a", "b", "c"]
ATOMS, STEPS = 6000, 12
HELD_S = 2.0  # a flush, by a member that is stopped
POOL = "sift:/tracks?key=id&stages=2&fanout=4&threshold=64KiB&budget=1MiB&age=200ms"
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("type", pa.int32())])


@pytest.fixture(params=LINKS)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, request.param) as made:
        yield made


def particles(step: int, ids: np.ndarray) -> dict[str, np.ndarray]:
    return {"id": ids, "x": ids + step / 1024, "type": (ids % 3).astype(np.int32)}


def send_steps(sessions: list[offpath.Session], steps: range, pool: str = POOL) -> None:
    """Each session is a rank with particles of its own, another share with each step, in no order."""
    random = np.random.default_rng(steps.start)
    name, ranks = f"particles{steps.start}", len(sessions)
    streams = [session.stream(name, SCHEMA, rows_max=ATOMS, pool=pool, ranks=ranks, rank=rank)
               for rank, session in enumerate(sessions)]  # fmt: skip
    tickets = []
    for step in steps:
        for rank, ids in enumerate(np.array_split(random.permutation(ATOMS), len(sessions))):
            key = (f"step{step:06}", f"rank{rank}")
            tickets.append(streams[rank].send(particles(step, ids), key=key, snapshot=True))
    for ticket in tickets:
        ticket.wait_stored(PATIENCE_S)


def assert_sorted_tracks(table: pa.Table, steps: int) -> None:
    ids, step = table["id"].to_numpy(), table["step"].to_numpy()
    assert np.array_equal(ids, np.repeat(np.arange(ATOMS), steps))
    assert np.array_equal(step, np.tile(np.arange(steps), ATOMS))
    assert np.array_equal(table["x"].to_numpy(), ids + step / 1024)
    assert np.array_equal(table["type"].to_numpy(), ids % 3)


def test_a_configured_pool_waits_for_its_members(tmp_path: Path) -> None:
    configuration = tmp_path / "agent.toml"
    configuration.write_text(f'[[pool]]\nname = "{POOL}&wait=3"\n')
    group = Group(tmp_path)
    try:
        group.start("a", "--config", str(configuration))
        with group.connect("a") as session:
            stream = session.stream("early", SCHEMA, rows_max=ATOMS, pool="sift:/tracks")
            ticket = stream.send(particles(0, np.arange(ATOMS)), key=("step0", "rank0"), snapshot=True)
            group.start("b", "--join", group.address("a"))
            assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)
            assert group.running["a"].status()["sifts"] == []
            with pytest.raises(offpath.NotFound, match="waits for more of its members"):
                session.tracks("sift:/tracks").flush(1)
            group.start("c", "--join", group.address("a"))
            ticket.wait_stored(PATIENCE_S)

            def made_alike(name: str) -> bool:  # a status is not of this very moment
                sifts = group.running[name].status()["sifts"]
                return len(sifts) == 1 and sifts[0]["options"].endswith("members=a,b,c") and sifts[0]["rival"] == ""

            assert until(lambda: all(made_alike(name) for name in NAMES), PATIENCE_S)
        with group.connect("c") as session:
            tracks = session.tracks("sift:/tracks")
            tracks.flush(PATIENCE_S)
            assert_sorted_tracks(tracks.table(), 1)
    finally:
        group.stop_all()


def test_tracks_are_what_a_plain_sort_gives_from_any_member(group: Group, tmp_path: Path) -> None:
    sessions = [group.connect(name) for name in NAMES]
    try:
        send_steps(sessions, range(STEPS))
        tracks = sessions[1].tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        assert tracks.elements == 16
        assert_sorted_tracks(tracks.table(), STEPS)
        assert_sorted_tracks(sessions[2].tracks("sift:/tracks").table(), STEPS)
        one = tracks.track(4711)
        assert one.column_names == ["step", "id", "x", "type"]
        assert one["step"].to_pylist() == list(range(STEPS))
        assert tracks.track(4711, 3, 5)["step"].to_pylist() == [3, 4, 5]
        some = tracks.tracks([9, 5, ATOMS + 1, 5])
        assert some["id"].to_pylist() == [5] * STEPS + [9] * STEPS
        with pytest.raises(offpath.NotFound, match="no such tracks"):
            tracks.track(ATOMS + 7)
        path = tmp_path / "tracks.parquet"
        assert tracks.write(path) == ATOMS * STEPS
        assert pyarrow.parquet.read_table(path).num_rows == ATOMS * STEPS
    finally:
        for session in sessions:
            session.close()


def test_the_agent_finds_the_element_of_identifiers(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    with group.connect("a") as session:
        send_steps([session], range(2))
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        native = session._native
        assert Frame(native.sift_tracks("sift:/tracks", 0, [3, 19], -1, 1000, PATIENCE_S), "").table().num_rows == 4
        with pytest.raises(offpath.Invalid, match="identifiers 3 and 4 are in elements 3 and 4"):
            native.sift_tracks("sift:/tracks", 0, [3, 4], -1, 1000, PATIENCE_S)
        with pytest.raises(offpath.Invalid, match="no identifiers"):
            native.sift_tracks("sift:/tracks", 0, [], -1, 1000, PATIENCE_S)

        def asked(self: Tracks) -> int:
            raise AssertionError("a second question")

        monkeypatch.setattr(Tracks, "elements", property(asked))
        assert tracks.track(17)["step"].to_pylist() == [0, 1]


def test_tracks_are_read_while_sifting_goes_on(group: Group) -> None:
    with group.connect("a") as writer, group.connect("b") as reader:
        send_steps([writer], range(2))
        tracks = reader.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        over = threading.Event()
        seen: list[list[int]] = []

        def read() -> None:
            while not over.is_set():
                seen.append(tracks.track(17)["step"].to_pylist())

        thread = threading.Thread(target=read)
        thread.start()
        send_steps([writer], range(2, STEPS))
        tracks.flush(PATIENCE_S)
        over.set()
        thread.join(PATIENCE_S)
        # A track only grows, and has no step twice; steps may come to it in any order.
        assert seen and all(steps == sorted(set(steps)) and {0, 1} <= set(steps) for steps in seen)
        assert_sorted_tracks(tracks.table(), STEPS)


def test_a_dropped_pool_gives_its_memory_back_and_can_be_made_anew(group: Group) -> None:
    with group.connect("a") as session:
        send_steps([session], range(3))
        session.tracks("sift:/tracks").flush(PATIENCE_S)
        session.tracks("sift:/tracks").drop()
        with pytest.raises(offpath.NotFound, match="there is no pool"):
            session.tracks("sift:/tracks").flush(1)
        with pytest.raises(offpath.Unsupported, match="read those"):
            session.pool("sift:/tracks").get("step0")

    def held() -> int:
        return max(group.running[name].status()["memory"]["used_bytes"] for name in NAMES)

    assert until(lambda: held() == 0, PATIENCE_S)
    with group.connect("b") as session:
        send_steps([session], range(STEPS))
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        assert_sorted_tracks(tracks.table(), STEPS)


def test_misuse_is_named(group: Group) -> None:
    with group.connect("a") as session:
        with pytest.raises(offpath.Error, match="fanout"):
            session.stream("s", SCHEMA, rows_max=10, pool="sift:/wrong?key=id&fanout=3")
        with pytest.raises(offpath.NotFound, match='there is no pool "sift:/unknown"'):
            session.tracks("sift:/unknown").flush(1)
        stream = session.stream("no-step", SCHEMA, rows_max=10, pool="sift:/t?key=id")
        with pytest.raises(offpath.Error, match="step"):
            stream.send(particles(0, np.arange(3)), key="nothing").wait_stored(PATIENCE_S)
        stream = session.stream("no-key", SCHEMA, rows_max=10, pool="sift:/k?key=identifier")
        with pytest.raises(offpath.SchemaError, match="identifier"):
            stream.send(particles(0, np.arange(3)), key="step0").wait_stored(PATIENCE_S)
        other = pa.schema([("id", pa.int64()), ("y", pa.float32())])
        stream = session.stream("first", SCHEMA, rows_max=10, pool="sift:/m?key=id")
        stream.send(particles(0, np.arange(3)), key="step0").wait_stored(PATIENCE_S)
        stream = session.stream("second", other, rows_max=10, pool="sift:/m?key=id")
        with pytest.raises(offpath.SchemaError):
            stream.send({"id": np.arange(3), "y": np.zeros(3, np.float32)}, key="step0").wait_stored(PATIENCE_S)
        with pytest.raises(offpath.Exists, match="exists already"):
            session.stream("third", SCHEMA, rows_max=10, pool="sift:/m?key=id&fanout=8")


def rows_of(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["id"].to_pylist(), table["step"].to_pylist(), strict=True))


def test_tracks_by_an_expression_are_a_filter_over_the_plain_sort(group: Group) -> None:
    sessions = [group.connect(name) for name in NAMES]
    try:
        send_steps(sessions, range(STEPS))
        tracks = sessions[1].tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        ids, steps = np.repeat(np.arange(ATOMS), STEPS), np.tile(np.arange(STEPS), ATOMS)
        x, kind = ids + steps / 1024, ids % 3

        def expect(table: pa.Table, keep: np.ndarray) -> None:
            assert rows_of(table) == list(zip(ids[keep].tolist(), steps[keep].tolist(), strict=True))

        expect(tracks.tracks((pc.field("x") < 1000.5) & (pc.field("type") == 2)), (x < 1000.5) & (kind == 2))
        expect(tracks.tracks("step == 7 and x >= 5000"), (steps == 7) & (x >= 5000))
        expect(tracks.tracks("type == 1", 3, 5), (kind == 1) & (steps >= 3) & (steps <= 5))
        expect(tracks.tracks("id in (17, 4711, 99999) and step > 9"), np.isin(ids, (17, 4711)) & (steps > 9))
        assert_sorted_tracks(pa.concat_tables(tracks.select(None)), STEPS)
        # Columns that the order needs are not in the answer unless they are asked for.
        table = tracks.tracks("type == 0", 2, 2, columns={"twice": pc.field("x") * 2})
        assert table.column_names == ["twice"]
        assert table["twice"].to_pylist() == (2 * x[(kind == 0) & (steps == 2)]).tolist()
        assert tracks.tracks([5, 3], columns=["step", "id"]).column_names == ["step", "id"]
        # Whole tracks of those for which it holds once.
        inside = np.unique(ids[(x > 5990.002) & (steps < 4)])
        expect(tracks.tracks("x > 5990.002", last_step=3, whole=True), np.isin(ids, inside))
        none = tracks.tracks("x < 0")
        assert none.num_rows == 0 and none.column_names == ["step", "id", "x", "type"]
        assert tracks.tracks("x < 0", whole=True).num_rows == 0
        asked = {"n": "count", "top": ("max", "step"), "x": ("mean", "x")}
        figures = sessions[2].pool("sift:/tracks").query(pc.field("type") == 1, aggregates=asked).to_pylist()
        mean = pytest.approx(x[kind == 1].mean())
        assert figures == [{"n": int((kind == 1).sum()), "top": STEPS - 1, "x": mean}]
    finally:
        for session in sessions:
            session.close()


def test_what_is_wrong_with_an_expression_over_tracks_is_said(group: Group) -> None:
    with group.connect("a") as session:
        tracks = session.tracks("sift:/tracks")
        with pytest.raises(offpath.NotFound, match='there is no pool "sift:/tracks"'):
            tracks.tracks("x < 1")
        stream = session.stream("particles", SCHEMA, rows_max=10, pool=POOL)
        with pytest.raises(offpath.NotFound, match="no tracks yet"):
            tracks.tracks("x < 1")
        stream.send(particles(0, np.arange(3)), key="step0").wait_stored(PATIENCE_S)
        tracks.flush(PATIENCE_S)
        with pytest.raises(offpath.NotFound, match='there is no column "speed"; there are step, id, x, type'):
            tracks.tracks(pc.field("speed") < 1, columns=["x"])
        with pytest.raises(offpath.SchemaError, match="the filter is of type double, not bool"):
            tracks.tracks("x + 1")
        with pytest.raises(offpath.Unsupported, match="no row and column keys"):
            session.pool("sift:/tracks").query(rows="step*")


def test_tracks_by_an_expression_are_asked_for_while_sifting_goes_on(group: Group) -> None:
    with group.connect("a") as writer, group.connect("b") as reader:
        send_steps([writer], range(2))
        tracks = reader.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        over = threading.Event()
        seen: list[list[tuple[int, int]]] = []

        def read() -> None:
            while not over.is_set():
                seen.append(rows_of(tracks.tracks("x < 100")))

        thread = threading.Thread(target=read)
        thread.start()
        send_steps([writer], range(2, STEPS))
        tracks.flush(PATIENCE_S)
        over.set()
        thread.join(PATIENCE_S)
        first = {(id, step) for id in range(100) for step in (0, 1)}
        assert seen and all(rows == sorted(set(rows)) and first <= set(rows) for rows in seen)
        assert len(rows_of(tracks.tracks("x < 100"))) == 100 * STEPS


def test_a_member_that_is_killed_ends_an_expression_over_tracks_with_its_name(group: Group) -> None:
    with group.connect("a") as session:
        send_steps([session], range(2))
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        group.running["c"].process.kill()
        with pytest.raises(offpath.Error, match="member c"):
            tracks.tracks("x < 100", timeout=PATIENCE_S)


def test_a_member_that_is_killed_ends_a_flush_with_its_name(group: Group) -> None:
    """Without a limit of time: the others wait for its marks."""
    with group.connect("a") as session:
        send_steps([session], range(2))
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        os.kill(group.running["c"].pid, signal.SIGSTOP)
        failures: list[str] = []

        def flush() -> None:
            with pytest.raises(offpath.PeerLost) as failed:
                tracks.flush()
            failures.append(str(failed.value))

        flushes = threading.Thread(target=flush, daemon=True)
        flushes.start()
        group.running["c"].process.kill()
        flushes.join(PATIENCE_S)
        assert "member c" in failures[0]
        assert until(lambda: group.states("a")["c"] == "dead", PATIENCE_S)
        with pytest.raises(offpath.PeerLost, match="member c is away"):
            tracks.flush()


def test_a_flush_that_a_stopped_member_holds_up_is_one_request(tmp_path: Path) -> None:
    """In slices, each slice would begin a new flush, and none would end."""
    with (
        joined_group(tmp_path, NAMES, "local", "--set", "group.dead_after=60s") as group,
        group.connect("a") as session,
        ThreadPoolExecutor(1) as threads,
    ):
        send_steps([session], range(2))
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)

        def answered() -> int:
            """Requests of this program that have their answer; each slice of a wait would have its own."""
            channels = group.running["a"].status()["channels"]
            return sum(each["replies"] for each in channels if each["pid"] == os.getpid())

        before = answered()
        os.kill(group.running["c"].pid, signal.SIGSTOP)
        try:
            with pytest.raises(offpath.Timeout, match="have not received all pieces"):
                tracks.flush(0.5)
            assert answered() == before + 1
            flushed = threads.submit(tracks.flush, PATIENCE_S)
            with pytest.raises(TimeoutError):
                flushed.result(HELD_S)
            assert answered() == before + 1
        finally:
            os.kill(group.running["c"].pid, signal.SIGCONT)
        flushed.result(PATIENCE_S)
        assert answered() == before + 2


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_an_export_during_which_a_member_is_killed_leaves_no_file_that_is_not_whole(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path = tmp_path / f"tracks.{suffix}"
    with group.connect("a") as session:
        send_steps([session], range(2))
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        assert tracks.write(path) == 2 * ATOMS
        before = path.read_bytes()
        whole = Tracks.tables

        def killing(self: Tracks) -> Iterator[pa.Table]:
            for number, table in enumerate(whole(self, timeout=PATIENCE_S)):
                if number == 1:
                    group.running["c"].process.kill()
                yield table

        monkeypatch.setattr(Tracks, "tables", killing)
        with pytest.raises(offpath.Error, match="member c"):
            tracks.write(path)
        # The former rows are there, and no others.
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir() if each.name.startswith("tracks.")] == [path.name]
        with pytest.raises(offpath.Error, match="member c"):
            tracks.write(tmp_path / f"another.{suffix}")
        assert not list(tmp_path.glob("another*"))
