"""Queries over several members, as processes: every row once, whichever member is asked and whichever dies."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import LINKS, PATIENCE_S, Group, joined_group
from agent_process import until

NAMES = ["a", "b", "c"]
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
ROWS = [10, 200_000, 3_000, 150_000, 1, 50_000, 20, 70_000, 40_000]  # of each step: small answers and delivered ones
AGGREGATES = {
    "s": ("sum", "x"),
    "low": ("min", "x"),
    "high": ("max", "id"),
    "m": ("mean", "x"),
    "n": "count",
    "c": ("count", "id"),
}


@pytest.fixture(params=LINKS)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, request.param) as made:
        yield made


def step_of(step: int) -> pa.Table:
    ids = np.arange(ROWS[step]) + sum(ROWS[:step])
    return pa.table({"id": ids, "x": np.sin(ids)}, schema=SCHEMA)


def put_all(session: offpath.Session, pool: str) -> pa.Table:
    for step in range(len(ROWS)):
        session.pool(pool).put(step_of(step), f"step{step}", timeout=PATIENCE_S)
    return pa.concat_tables([step_of(step) for step in range(len(ROWS))])


def sorted_rows(table: pa.Table) -> pa.Table:
    return table.sort_by("id").combine_chunks()


def frames_of(group: Group, name: str, pool: str) -> int:
    return sum(each["frames"] for each in group.running[name].status()["pools"] if each["name"] == pool)


def open_answers(group: Group, name: str) -> int:
    return int(group.running[name].status()["queries"]["open"])


def check_figures(table: pa.Table, rows: pa.Table) -> None:
    [figures] = table.to_pylist()
    assert figures["n"] == figures["c"] == rows.num_rows
    assert figures["low"] == pc.min(rows["x"]).as_py()
    assert figures["high"] == pc.max(rows["id"]).as_py()
    assert figures["s"] == pytest.approx(pc.sum(rows["x"]).as_py(), abs=1e-6)
    assert figures["m"] == pytest.approx(pc.mean(rows["x"]).as_py(), abs=1e-9)


def test_rows_of_all_members_are_answered_by_the_one_that_is_asked(group: Group) -> None:
    with group.connect("a") as writer, group.connect("b") as reader:
        rows = put_all(writer, "rank:/p")
        assert all(until(lambda name=name: frames_of(group, name, "rank:/p") == 3, PATIENCE_S) for name in NAMES)
        for session in (writer, reader):
            pool = session.pool("rank:/p")
            assert sorted_rows(pool.query()).equals(rows.combine_chunks())
            filter = (pc.field("x") > 0.5) & (pc.field("id") < 400_000)
            chosen = pool.query(filter, {"id": "id", "twice": pc.field("x") * 2.0})
            kept = rows.filter(filter)
            assert sorted_rows(chosen)["id"].to_pylist() == kept["id"].to_pylist()
            assert np.array_equal(sorted_rows(chosen)["twice"], kept["x"].to_numpy() * 2)
        # By member, and within it in the order of storing.
        assert pc.unique(reader.pool("rank:/p").query(columns=["id"])["id"]).to_pylist()[0] == 0
        order = [step for member in range(3) for step in range(member, len(ROWS), 3)]
        assert reader.pool("rank:/p").query().equals(pa.concat_tables([step_of(step) for step in order]))
        assert pool.query(pc.field("id") < 0).num_rows == 0
        assert pool.query(rows="step4").num_rows == 1
        with pytest.raises(offpath.NotFound, match="no objects whose keys match"):
            pool.query(rows="none*")
        with pytest.raises(offpath.NotFound, match='no column "speed"'):
            pool.query(pc.field("speed") > 1)
        assert all(until(lambda name=name: open_answers(group, name) == 0, PATIENCE_S) for name in NAMES)


def test_figures_are_those_over_all_members(group: Group) -> None:
    with group.connect("a") as writer, group.connect("c") as reader:
        rows = put_all(writer, "rank:/p")
        for session in (writer, reader):
            pool = session.pool("rank:/p")
            check_figures(pool.query(aggregates=AGGREGATES), rows)
            check_figures(pool.query(pc.field("x") < 0, aggregates=AGGREGATES), rows.filter(pc.field("x") < 0))
        # Aggregates over members without chosen rows, and over no rows at all.
        assert pool.query(pc.field("id") < 5, aggregates=AGGREGATES).to_pylist()[0]["n"] == 5
        nothing = pool.query(pc.field("id") < 0, aggregates=AGGREGATES).to_pylist()[0]
        assert nothing["n"] == 0 and nothing["s"] is None and nothing["m"] is None
        assert all(until(lambda name=name: open_answers(group, name) == 0, PATIENCE_S) for name in NAMES)


def test_histograms_are_those_over_all_members(group: Group) -> None:
    with group.connect("a") as writer, group.connect("c") as reader:
        rows = put_all(writer, "rank:/p")
        assert all(until(lambda name=name: frames_of(group, name, "rank:/p") == 3, PATIENCE_S) for name in NAMES)
        ids, x = rows["id"].to_numpy(), rows["x"].to_numpy()
        pool = reader.pool("rank:/p")
        for found, expected in (
            (pool.histogram("x", 37), np.histogram(x, 37)),
            (pool.histogram("x", 9, (-0.3, 0.2)), np.histogram(x, 9, (-0.3, 0.2))),
            (pool.histogram2d("id", "x", (11, 24)), np.histogram2d(ids, x, (11, 24))),
            (pool.histogram("id", 5, filter=pc.field("x") > 0), np.histogram(ids[x > 0], 5)),
            (pool.histogram(pc.field("x") * pc.field("x"), 8), np.histogram(x * x, 8)),
        ):
            assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
        with pytest.raises(offpath.Invalid, match="cannot be divided into bins"):
            pool.histogram(pc.field("x") * 1e308 * 1e308, 8)
        with pytest.raises(offpath.NotFound, match='no column "speed"'):
            pool.histogram("speed", 8)


def test_a_row_with_copies_is_counted_once(group: Group) -> None:
    with group.connect("a") as session:
        rows = put_all(session, "hash:/safe?replicas=2")
        pool = session.pool("hash:/safe")
        assert until(lambda: sum(frames_of(group, name, "hash:/safe") for name in NAMES) == 2 * len(ROWS), PATIENCE_S)
        assert sorted_rows(pool.query()).equals(rows.combine_chunks())
        check_figures(pool.query(aggregates=AGGREGATES), rows)
        group.running["c"].stop(signal.SIGKILL)
        assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive", "c": "dead"}), PATIENCE_S)
        check_figures(pool.query(aggregates=AGGREGATES, timeout=PATIENCE_S), rows)
        assert sorted_rows(pool.query(timeout=PATIENCE_S)).equals(rows.combine_chunks())


def test_a_member_that_dies_ends_the_answer_with_its_name(group: Group) -> None:
    with group.connect("a") as session:
        put_all(session, "rank:/p")
        frames = session.pool("rank:/p").query_frames(timeout=PATIENCE_S)
        next(frames)
        group.running["c"].stop(signal.SIGKILL)
        with pytest.raises(offpath.Error, match="member c"):
            list(frames)
        assert until(lambda: open_answers(group, "a") == 0, PATIENCE_S)


def test_a_member_that_dies_meanwhile_takes_no_row_away_silently(group: Group) -> None:
    with group.connect("a") as session:
        rows = put_all(session, "hash:/p?replicas=1")
        ended: list[str] = []

        def ask() -> None:
            pool = session.pool("hash:/p")
            while not ended:
                try:
                    table = pool.query(timeout=PATIENCE_S)
                except offpath.Error as error:
                    ended.append(str(error))
                else:
                    assert sorted_rows(table).equals(rows.combine_chunks())

        asks = threading.Thread(target=ask)
        asks.start()
        group.running["b"].stop(signal.SIGKILL)
        asks.join(PATIENCE_S)
        assert ended and "member b" in ended[0]


def test_rows_that_a_lost_member_alone_had_are_missed_unless_the_answer_may_be_partial(group: Group) -> None:
    with group.connect("a") as session:
        rows = put_all(session, "rank:/p")
        put_all(session, "rank:/copied?replicas=2")
        group.running["b"].stop(signal.SIGKILL)
        assert until(lambda: group.states("a")["b"] == group.states("c")["b"] == "dead", PATIENCE_S)
        pool = session.pool("rank:/p")
        for asked in (pool, group.connect("c").pool("rank:/p")):
            with pytest.raises(offpath.PeerLost, match="rows that only member b had are missing"):
                asked.query(aggregates=AGGREGATES, timeout=PATIENCE_S)
        left = pa.concat_tables([step_of(step) for step in range(len(ROWS)) if step % 3 != 1])
        assert sorted_rows(pool.query(partial=True)).equals(left.combine_chunks())

        def copies_answer() -> bool:  # as soon as members agree who is there
            try:
                return sorted_rows(session.pool("rank:/copied").query()).equals(rows.combine_chunks())
            except offpath.WouldBlock:
                return False

        assert until(copies_answer, PATIENCE_S)
        # Dropped rows are not missed any more.
        pool.drop()
        pool.put(step_of(0), "step0", timeout=PATIENCE_S)
        assert pool.query().num_rows == ROWS[0]


def test_a_member_that_is_back_with_nothing_is_not_missed_any_more(group: Group) -> None:
    with group.connect("a") as session:
        put_all(session, "rank:/p")
        group.running["b"].stop(signal.SIGKILL)
        assert until(lambda: group.states("a")["b"] == "dead", PATIENCE_S)
        with pytest.raises(offpath.PeerLost, match="rows that only member b had"):
            session.pool("rank:/p").query(timeout=PATIENCE_S)
        group.start("b", "--join", group.address("a"))
        left = sum(rows for step, rows in enumerate(ROWS) if step % 3 != 1)

        def is_answered() -> bool:
            try:
                return session.pool("rank:/p").query(timeout=PATIENCE_S).num_rows == left
            except offpath.Error:
                return False

        assert until(is_answered, PATIENCE_S)


def test_an_answer_left_unread_and_a_program_that_goes_end_at_all_members(group: Group) -> None:
    with group.connect("a") as session:
        put_all(session, "rank:/p")
        frames = session.pool("rank:/p").query_frames()
        next(frames)
        assert until(lambda: open_answers(group, "c") > 0, PATIENCE_S)
        frames.close()
        assert all(until(lambda name=name: open_answers(group, name) == 0, PATIENCE_S) for name in NAMES)
        left = group.connect("b")
        kept = left.pool("rank:/p").query_frames()
        next(kept)
        assert until(lambda: open_answers(group, "c") > 0, PATIENCE_S)
        left.close()
        assert all(until(lambda name=name: open_answers(group, name) == 0, PATIENCE_S) for name in NAMES)


def test_members_with_other_columns_are_named(group: Group) -> None:
    with group.connect("a") as session:
        pool = session.pool("rank:/mixed")
        pool.put(pa.table({"id": [1]}), "step0")
        pool.put(pa.table({"name": ["x"]}), "step1")
        with pytest.raises(offpath.Error, match="members a and b answer different columns"):
            pool.query()
