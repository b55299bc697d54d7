"""Pools over four agents, as processes: programs at any of them, objects at all of them, owners killed meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import LINKS, PATIENCE_S, Group, joined_group
from agent_process import run_agent, until

NAMES = ["a", "b", "c", "d"]
ALL_ALIVE = dict.fromkeys(NAMES, "alive")
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
SMALL, LARGE = 10, 200_000  # rows: one comes with its answer, the other is pulled


def batch(first: int, rows: int) -> dict[str, np.ndarray]:
    ids = np.arange(first, first + rows)
    return {"id": ids, "x": ids * 0.5}


def equals(table: pa.Table, first: int, rows: int) -> bool:
    made = batch(first, rows)
    return table.num_rows == rows and np.array_equal(table["id"], made["id"]) and np.array_equal(table["x"], made["x"])


def put_steps(session: offpath.Session, pool: str, steps: int, name: str = "particles") -> None:
    stream = session.stream(name, SCHEMA, rows_max=LARGE, pool=pool)
    tickets = [stream.send(batch(step, LARGE if step % 2 else SMALL), key=(f"step{step}", "")) for step in range(steps)]
    tickets[-1].wait_stored(PATIENCE_S)
    stream.close()


def check_steps(session: offpath.Session, pool: str, steps: int) -> None:
    for step in range(steps):
        assert equals(session.pool(pool).get(f"step{step}", timeout=PATIENCE_S), step, LARGE if step % 2 else SMALL)


def frames_of(group: Group, name: str, pool: str) -> int:
    return sum(each["frames"] for each in group.running[name].status()["pools"] if each["name"] == pool)


def held(group: Group, pool: str, frames: int, among: list[str] = NAMES) -> bool:
    """Whether these members come to hold so many frames together. A status is not of this very moment."""
    return until(lambda: sum(frames_of(group, name, pool) for name in among) == frames, PATIENCE_S)


@pytest.fixture(params=LINKS)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, request.param) as made:
        yield made


def test_pools_of_the_configuration_are_there_from_the_start_on_all_members(tmp_path: Path) -> None:
    group = Group(tmp_path)
    configuration = tmp_path / "agent.toml"
    names = "hash:/twice?replicas=2&overwrite=no", "hash:/once"
    configuration.write_text("".join(f'[[pool]]\nname = "{name}"\n' for name in names))
    try:
        group.start("a", "--config", str(configuration))
        group.start("b", "--join", group.address("a"))
        assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)

        def pools_of(name: str) -> dict[str, str]:
            return {pool["name"]: pool["options"] for pool in group.running[name].status()["pools"]}

        assert until(lambda: set(pools_of("b")) == {"hash:/twice", "hash:/once"}, PATIENCE_S)
        assert pools_of("a") == pools_of("b")
        with group.connect("b") as session:
            put_steps(session, "hash:/twice", 4)
            assert held(group, "hash:/twice", 8, ["a", "b"])
            with pytest.raises(offpath.Error, match="replicas=2"):
                session.pool("hash:/twice?replicas=1").create()
    finally:
        group.stop_all()


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        ('name = "hash:/p?replicas=9"', "replicas"),
        ('name = "hash:/p"\nuser = "nobody-of-this-name"', "there is no user"),
        ('name = "sift:/tracks?key=id"', "sifted among the members"),
        ('name = "sift:/tracks?key=id&members=dpu*"', "or all of them"),
        ('name = "sift:/tracks?fanout=3&wait=2"', "key="),
        ('name = "local:/tracks.kept-00000001"', "reserved for the agent's own objects"),
        ("", "pool.name"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_at_the_start(tmp_path: Path, pool: str, complaint: str) -> None:
    (tmp_path / "agent.toml").write_text(f"[[pool]]\n{pool}\n")
    ended = run_agent("--config", str(tmp_path / "agent.toml"), "--check-config")
    assert ended.returncode == 2
    assert complaint in ended.stderr and "agent.toml" in ended.stderr


def test_rows_are_spread_over_members_and_found_from_any(group: Group) -> None:
    with group.connect("a") as writer, group.connect("c") as reader:
        put_steps(writer, "hash:/p", 16)
        assert held(group, "hash:/p", 16)
        assert sum(frames_of(group, name, "hash:/p") > 0 for name in NAMES) >= 2
        check_steps(reader, "hash:/p", 16)
        pool = reader.pool("hash:/p")
        expected = {(f"step{i}", LARGE if i % 2 else SMALL) for i in range(16)}
        assert {(entry.row, entry.rows) for entry in pool.list()} == expected
        assert [entry.sequence for entry in pool.list()] == list(range(1, 17))
        assert pool.drop("step1?") == 6
        assert len(pool.list()) == 10
        with pytest.raises(offpath.NotFound, match="has no object"):
            pool.get("step12")
        assert held(group, "hash:/p", 10)


def test_the_same_keys_again_are_another_put(group: Group) -> None:
    with group.connect("a") as session, group.connect("b") as reader:
        for pool in ("local:/again", "hash:/again", "hash:/again-twice?replicas=2"):
            for row in ("one", "two", "three", "four"):
                session.pool(pool).put(b"first", row)
                session.pool(pool).put(b"second, and longer", row)
                assert bytes(session.pool(pool.partition("?")[0]).get_bytes(row)) == b"second, and longer"
        assert bytes(reader.pool("hash:/again").get_bytes("three")) == b"second, and longer"
        table = pa.table({"id": [1, 2], "x": [0.5, 1.0]})
        session.pool("hash:/again").put(table, "table", "c")
        assert reader.pool("hash:/again").get("table", "c").equals(table)
        session.pool("hash:/once?overwrite=no").put(b"first", "one")
        with pytest.raises(offpath.Exists, match="overwrite=no"):
            session.pool("hash:/once").put(b"second", "one")


def test_a_reader_waits_for_what_another_program_puts_elsewhere(group: Group) -> None:
    with group.connect("b") as reader, group.connect("d") as writer:
        got: list[pa.Table] = []
        waits = threading.Thread(target=lambda: got.append(reader.pool("hash:/later").get("step1", timeout=PATIENCE_S)))
        waits.start()
        time.sleep(0.2)
        put_steps(writer, "hash:/later", 2)
        waits.join(PATIENCE_S)
        assert got and equals(got[0], 1, LARGE)
        with pytest.raises(offpath.Timeout):
            reader.pool("hash:/later").get("never", timeout=0.2)


def test_a_want_that_is_cancelled_or_whose_program_goes_waits_nowhere(group: Group) -> None:
    def waiting() -> int:
        return sum(int(group.running[name].status()["table"]["waiting"]) for name in NAMES)

    with group.connect("a") as reader:
        pool = reader.pool("rank:/wanted?replicas=1").create()
        wanted = [pool.want(f"step{step}", "c") for step in range(6)]
        assert until(lambda: waiting() == 6, PATIENCE_S)
        for future in wanted[:3]:
            assert future.cancel()
        assert until(lambda: waiting() == 3, PATIENCE_S)
        pool.put(b"there", "step4", "c", timeout=PATIENCE_S)
        assert bytes(wanted[4].result(PATIENCE_S)) == b"there"
        assert until(lambda: waiting() == 2, PATIENCE_S)
    assert until(lambda: waiting() == 0, PATIENCE_S)


def test_objects_are_wanted_before_any_program_has_put_them(group: Group) -> None:
    with group.connect("a") as writer, group.connect("b") as reader:
        wanted = [reader.pool("hash:/wanted?replicas=1").want(f"step{step}", timeout=PATIENCE_S) for step in range(8)]
        late = reader.pool("hash:/wanted").want("never", timeout=0.3)
        put_steps(writer, "hash:/wanted", 8)
        for step, future in enumerate(wanted):
            assert equals(future.result(PATIENCE_S).table(), step, LARGE if step % 2 else SMALL)
        with pytest.raises(offpath.Timeout, match="no object"):
            late.result(PATIENCE_S)


def test_replicas_survive_the_death_of_a_member_and_are_made_anew(group: Group) -> None:
    pool = "hash:/safe?replicas=2"
    with group.connect("a") as session:
        put_steps(session, pool, 12)
        assert held(group, "hash:/safe", 24)
        assert len(session.pool("hash:/safe").list()) == 12
        group.running["d"].stop(signal.SIGKILL)
        check_steps(session, "hash:/safe", 12)
        # The two copies of each row are on three members again.
        assert held(group, "hash:/safe", 24, NAMES[:3])
        check_steps(session, "hash:/safe", 12)
        put_steps(session, "hash:/safe", 12, "again")


@pytest.mark.skipif("OFFPATH_LONG" not in os.environ, reason="starts 32 agents: ./dev test --long")
def test_five_of_thirty_two_members_die_and_every_stored_row_is_there_once(tmp_path: Path) -> None:
    """One after the other, while a program puts; none comes back. Between two deaths the copies are made again."""
    names = [f"m{i:02}" for i in range(32)]
    pool = "hash:/rows?replicas=2"
    stored: dict[str, int] = {}
    victims = ["m31", "m05", "m17", "m09", "m22"]
    over = threading.Event()

    def put(session: offpath.Session, first: int) -> None:
        rows = session.pool(pool)
        for number in itertools.count(first, 2):
            if over.is_set():
                return
            with contextlib.suppress(offpath.Error):  # an owner died: whether it was stored is not known
                rows.put(number.to_bytes(8, "little"), f"row{number}", timeout=PATIENCE_S)
                stored[f"row{number}"] = number

    with joined_group(tmp_path, names, "local") as group, ExitStack() as sessions:
        connected = [sessions.enter_context(group.connect(name)) for name in names[:2]]
        connected[0].pool(pool).create()
        with ThreadPoolExecutor(2) as threads:
            writers = [threads.submit(put, session, first) for first, session in enumerate(connected)]
            try:
                for victim in victims:
                    goal = len(stored) + 200
                    assert until(lambda goal=goal: len(stored) >= goal, PATIENCE_S)
                    group.running[victim].process.kill()
                    group.running[victim].process.wait()
                    names.remove(victim)
                    assert until(lambda victim=victim: copies_are_made(group, names, victim), 2 * PATIENCE_S)
            finally:
                over.set()
            for writer in writers:
                writer.result(PATIENCE_S)
        for session in connected:
            rows = session.pool(pool)
            found = {row: rows.get_bytes(row, timeout=PATIENCE_S).to_pybytes() for row in stored}
            wrong = [row for row, number in stored.items() if found[row] != number.to_bytes(8, "little")]
            assert wrong == [], f"{len(wrong)} of {len(stored)} rows"
        listed = [row for row, _ in connected[0].pool(pool).keys()]
        assert len(listed) == len(set(listed)) and set(stored) <= set(listed)


def copies_are_made(group: Group, names: list[str], dead: str) -> bool:
    statuses = [group.running[name].status() for name in names]
    knows = all({each["name"]: each["state"] for each in status["members"]}[dead] == "dead" for status in statuses)
    return knows and all(status["remote"]["moves_waiting"] == 0 for status in statuses)


def test_rows_move_to_a_member_that_comes_back(group: Group) -> None:
    with group.connect("b") as session:
        put_steps(session, "hash:/moving?replicas=2", 12)
        group.running["a"].stop(signal.SIGTERM)
        others = NAMES[1:]
        assert until(lambda: group.all_know(others, ALL_ALIVE | {"a": "left"}), PATIENCE_S)
        assert held(group, "hash:/moving", 24, others)
        group.start("a", "--join", group.address("b"))
        assert until(lambda: frames_of(group, "a", "hash:/moving") > 0, PATIENCE_S)
        assert held(group, "hash:/moving", 24)
        check_steps(session, "hash:/moving", 12)
        with group.connect("a") as fresh:
            check_steps(fresh, "hash:/moving", 12)


def test_steps_of_ranks_at_different_agents_appear_together(group: Group) -> None:
    with group.connect("a") as first, group.connect("b") as second, group.connect("c") as reader:
        streams = [session.stream("ranks", SCHEMA, rows_max=SMALL, pool="hash:/ranks", ranks=2, rank=rank)
                   for rank, session in enumerate([first, second])]  # fmt: skip
        streams[0].send(batch(0, SMALL), key=("step0", "rank0"))
        streams[0].step_end("step0").wait_stored(PATIENCE_S)
        with pytest.raises(offpath.NotFound):
            reader.pool("hash:/ranks").get("step0", "rank0")
        streams[1].send(batch(1, SMALL), key=("step0", "rank1"))
        streams[1].step_end("step0")
        for rank in range(2):
            assert equals(reader.pool("hash:/ranks").get("step0", f"rank{rank}", timeout=PATIENCE_S), rank, SMALL)


def test_a_full_pool_holds_the_program_back_and_loses_nothing(group: Group) -> None:
    pool = "hash:/small?budget=4MiB&members=c"
    with group.connect("a") as session:
        stream = session.stream("full", SCHEMA, rows_max=LARGE, pool=pool)
        one = 16 * LARGE
        tickets = [stream.send(batch(step, LARGE), key=(f"step{step}", "")) for step in range(4)]
        tickets[0].wait_stored(PATIENCE_S)
        assert not tickets[1].stored and one < 4 << 20 < 2 * one
        for step in range(4):
            assert equals(session.pool("hash:/small").get(f"step{step}", timeout=PATIENCE_S), step, LARGE)
            session.pool("hash:/small").drop(f"step{step}")
        tickets[-1].wait_stored(PATIENCE_S)


def test_an_object_larger_than_its_owners_memory_fails_at_once(group: Group) -> None:
    group.start("e", "--join", group.address("a"), "--set", "memory.bytes_max=16MiB")
    assert until(lambda: group.all_know([*NAMES, "e"], ALL_ALIVE | {"e": "alive"}), PATIENCE_S)
    with group.connect("a") as session:
        pool = session.pool("hash:/large?members=e")
        pool.put(bytes(4 << 20), "fits", timeout=PATIENCE_S)
        with pytest.raises(offpath.TooLarge, match=r"of 20971520 bytes.*memory for 16777216"):
            pool.put(bytes(20 << 20), "large", timeout=PATIENCE_S)
        assert [entry.row for entry in pool.list()] == ["fits"]


def test_misuse_is_named(group: Group) -> None:
    with group.connect("a") as session:
        put_steps(session, "hash:/kind?replicas=2", 1)
        with pytest.raises(offpath.Error, match='exists already, as "hash:/kind\\?replicas=2"'):
            session.stream("other", SCHEMA, rows_max=SMALL, pool="hash:/kind?replicas=3")
        with pytest.raises(offpath.NotFound, match='there is no pool "hash:/unknown"'):
            session.pool("hash:/unknown").get("step0")
        with pytest.raises(offpath.NotFound, match='there is no pool "hash:/unknown"'):
            session.pool("hash:/unknown").list()
        with pytest.raises(offpath.Error, match="copies: there is no such option"):
            session.stream("wrong", SCHEMA, rows_max=SMALL, pool="hash:/kind?copies=3")
        with pytest.raises(offpath.Error, match="a pool's name begins with one of"):
            session.stream("wrong", SCHEMA, rows_max=SMALL, pool="disk:/kind")
        stream = session.stream("nobody", SCHEMA, rows_max=SMALL, pool="hash:/nobody?members=x*")
        with pytest.raises(offpath.Error, match="none of its members is alive"):
            session.pool("hash:/nobody").get("step0")
        stream.close()


def test_a_get_that_waits_at_a_member_is_shown_by_both(tmp_path: Path) -> None:
    group = Group(tmp_path)
    try:
        group.start("a")
        group.start("b", "--join", group.address("a"))
        assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}))
        with offpath.connect(group.address("a"), name="reader") as session:
            pool = session.pool("hash:/p?members=b")
            pool.create()
            wanted = pool.want("step7")

            def waiting(name: str) -> Any:
                status = group.running[name].status()
                return status["waiting_gets"]["longest"]

            assert until(lambda: waiting("a") and waiting("b"))
            (here,), (there,) = waiting("a"), waiting("b")
            assert here["row"] == there["row"] == "step7" and here["waits_s"] >= 1 and there["waits_s"] >= 1
            assert here["program"] == "reader" and here["why"] == "member b has been asked for it"
            assert there["program"] == "agent a" and "has no object (step7, )" in there["why"]
            pool.put(b"x", "step7")
            wanted.result(PATIENCE_S)
            assert until(lambda: not waiting("a") and not waiting("b"))
    finally:
        group.stop_all()


def test_a_put_that_waits_for_members_names_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    group = Group(tmp_path)
    patient = ["--set", "group.dead_after=60s"]
    try:
        group.start("a", *patient)
        group.start("b", *patient, "--join", group.address("a"))
        assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}))
        group.running["b"].process.send_signal(signal.SIGSTOP)
        with offpath.connect(group.address("a")) as session:
            future = session.pool("hash:/p?members=b").put_async(b"x" * 100, "step7")
            assert until(lambda: group.running["a"].status()["waiting_puts"]["count"] == 1)
            (put,) = group.running["a"].status()["waiting_puts"]["longest"]
            assert put["pool"] == "hash:/p" and put["row"] == "step7" and put["members"] == ["b"]
            assert group.running["a"].says('pool "hash:/p": a put of (step7, ) has waited')
            command = [sys.executable, "-m", "offpath", "status", "--http", group.running["a"].ready["http"]]
            wide = {**os.environ, "COLUMNS": "200"}
            shown = subprocess.run(command, capture_output=True, text=True, env=wide, timeout=60, check=True).stdout
            assert "put of (step7, ) into hash:/p" in shown and "members b: " in shown
            waiting = threading.Thread(target=lambda: session.pool("hash:/p?members=b").put(b"y", "step8"))
            waiting.start()
            told = ""

            def is_told() -> bool:
                nonlocal told
                told += capfd.readouterr().err
                return "has waited 1 s to be stored" in told

            assert until(is_told), told
            assert re.search(r'pool "hash:/p\?members=b": the put of \(step\d, \) waits for members b: ', told), told
            group.running["b"].process.send_signal(signal.SIGCONT)
            future.result(PATIENCE_S)
            waiting.join(PATIENCE_S)
            assert not waiting.is_alive()
            assert until(lambda: group.running["a"].status()["waiting_puts"]["count"] == 0)
    finally:
        group.stop_all()
