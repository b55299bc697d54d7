"""Pools on disk: agents killed, stopped and started again, budgets smaller than the rows, disks full or corrupt."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group
from agent_process import AgentProcess, agent, run_agent, until
from small_disk import mounted_disk

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
ROWS = 20_000  # 320 KB
MIB = 1 << 20


def batch(step: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    random = np.random.default_rng(step)
    return {"id": random.integers(0, 1 << 60, rows), "x": random.random(rows)}


def put_steps(session: offpath.Session, pool: str, steps: range, name: str = "particles") -> None:
    stream = session.stream(name, SCHEMA, rows_max=ROWS, pool=pool)
    tickets = [stream.send(batch(step), key=(f"step{step}", "")) for step in steps]
    for ticket in tickets:
        ticket.wait_stored(PATIENCE_S)
    stream.close()


def check_steps(session: offpath.Session, pool: str, steps: range) -> None:
    for step in steps:
        table, made = session.pool(pool).get(f"step{step}", timeout=PATIENCE_S), batch(step)
        assert np.array_equal(table["id"], made["id"]) and np.array_equal(table["x"], made["x"]), step


def connect(running: AgentProcess) -> offpath.Session:
    return offpath.connect(running.ready["address"])


def disk_of(running: AgentProcess) -> dict:
    return running.status()["disk"]


@pytest.fixture
def spill(tmp_path: Path) -> Path:
    return tmp_path / "spill"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", 4) as place:
        yield place


def test_an_agent_killed_and_started_again_has_everything_that_was_stored(tmp_path: Path, spill: Path) -> None:
    pool = "local:/p?spill=durable"
    odd = {"": b"", "../../etc": b"x", "a/b\n*?": os.urandom(100_000), "ü" * 100: os.urandom(7)}
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        put_steps(session, pool, range(12))
        for row, data in odd.items():
            session.pool(pool).put(data, row, "bytes")
        session.pool(pool).put(b"old", "twice")
        session.pool(pool).put(b"new", "twice")
        session.pool(pool).drop("step11")
        # Dropped and replaced objects leave the disk a moment later.
        assert until(lambda: len([*spill.glob("*.arrow"), *spill.glob("*.bytes")]) == 11 + len(odd) + 1)
        order = session.pool(pool).keys()
        # Killed with puts under way, none of which was reported stored.
        stream = session.stream("more", SCHEMA, rows_max=ROWS, pool=pool)
        for step in range(100, 110):
            stream.send(batch(step), key=(f"step{step}", ""))
        running.stop(signal.SIGKILL)
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        assert disk_of(running)["recovered"] >= len(order)
        assert session.pool(pool).keys()[: len(order)] == order
        check_steps(session, pool, range(11))
        for row, data in odd.items():
            assert session.pool(pool).get_bytes(row, "bytes").to_pybytes() == data
        assert session.pool(pool).get_bytes("twice").to_pybytes() == b"new"
        with pytest.raises(offpath.NotFound):
            session.pool(pool).get("step11")
        for row, _ in session.pool(pool).keys()[len(order) :]:  # whole, if it is there
            check_steps(session, pool, range(int(row[4:]), int(row[4:]) + 1))
        assert disk_of(running)["corrupt"] == 0


def test_more_than_the_budget_is_all_read_back_and_pyarrow_opens_the_files(tmp_path: Path, spill: Path) -> None:
    pool, steps = "local:/p?spill=on&budget=2MiB", range(40)
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        put_steps(session, pool, steps)
        status = running.status()
        assert status["disk"]["spilled_bytes"] > 10 * ROWS * 16
        (here,) = status["pools"]
        assert here["spilled_bytes"] == status["disk"]["spilled_bytes"]
        assert here["bytes"] - here["spilled_bytes"] <= 2 * MIB
        check_steps(session, pool, steps)
        check_steps(session, pool, range(39, 20, -1))
        # All ways to read the whole pool: queries and files.
        everything = session.pool(pool).query(aggregates={"n": "count", "x": ("sum", pc.field("x"))})
        assert everything["n"][0].as_py() == len(steps) * ROWS
        assert everything["x"][0].as_py() == pytest.approx(sum(batch(step)["x"].sum() for step in steps))
        session.pool(pool).write(tmp_path / "all.arrows")
        assert pa.ipc.open_stream(tmp_path / "all.arrows").read_all().num_rows == len(steps) * ROWS
        files = sorted(spill.glob("*.arrow"))
        assert len(files) == disk_of(running)["objects"] > 20
        tables = [pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in files]
        made = {int(batch(step)["id"][0]): batch(step) for step in steps}
        for table in tables:
            expected = made[table["id"][0].as_py()]
            assert np.array_equal(table["id"], expected["id"]) and np.array_equal(table["x"], expected["x"])
        text = running.get("/metrics")[2]
        assert "offpath_pool_spilled_bytes " in text and "offpath_pool_disk_failing 0" in text
        session.pool(pool).drop()
        assert until(lambda: not list(spill.glob("*.arrow")))


def test_memory_of_the_agent_smaller_than_what_is_put(tmp_path: Path, spill: Path) -> None:
    pool, steps = "local:/p?spill=on", range(60)
    with agent(tmp_path, "--spill", str(spill), "--memory", "8MiB", "--set", "memory.window=1MiB") as running:
        with connect(running) as session:
            put_steps(session, pool, steps)
            check_steps(session, pool, steps)
            assert running.status()["memory"]["used_bytes"] <= 8 * MIB


def test_an_orderly_stop_keeps_what_is_in_memory(tmp_path: Path, spill: Path) -> None:
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        put_steps(session, "local:/p?spill=on", range(5))
        session.pool("local:/q").put(b"of no such pool", "row")
        assert disk_of(running)["objects"] == 0
        assert running.stop() == 0
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        check_steps(session, "local:/p", range(5))
        assert session.pool("local:/q").keys() == []


def test_a_full_disk_holds_the_program_back_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    pool, place = "local:/p?spill=on&budget=2MiB", small_disk / "spill"
    with agent(tmp_path, "--spill", str(place)) as running, connect(running) as session:
        filler = small_disk / "filler"
        filler.write_bytes(bytes(3 * MIB))
        stream = session.stream("particles", SCHEMA, rows_max=ROWS, pool=pool)
        tickets = [stream.send(batch(step), key=(f"step{step}", "")) for step in range(14)]
        # One that fails may be followed by one that fits.
        assert until(lambda: "No space left" in disk_of(running)["failure"])
        assert disk_of(running)["failures"] > 0
        with pytest.raises(offpath.Timeout):
            tickets[-1].wait_stored(1)
        for row, _ in session.pool(pool).keys():
            check_steps(session, pool, range(int(row[4:]), int(row[4:]) + 1))
        assert until(lambda: "offpath_pool_disk_failing 1" in running.get("/metrics")[2])
        filler.unlink()
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)
        check_steps(session, pool, range(14))
        assert until(lambda: disk_of(running)["failure"] == "")
        assert running.says("objects stay in memory") and running.says("can be written again")


def test_a_durable_put_waits_for_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    pool, place = "local:/p?spill=durable", small_disk / "spill"
    with agent(tmp_path, "--spill", str(place)) as running, connect(running) as session:
        filler = small_disk / "filler"
        filler.write_bytes(bytes(3 * MIB + MIB // 2))
        stream = session.stream("particles", SCHEMA, rows_max=ROWS, pool=pool)
        # Alone: among several, any may be the one that fits.
        stream.send(batch(0), key=("step0", "")).wait_stored(PATIENCE_S)
        tickets = [stream.send(batch(step), key=(f"step{step}", "")) for step in range(1, 4)]
        with pytest.raises(offpath.Timeout):
            tickets[-1].wait_stored(1)
        filler.unlink()
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)
        running.stop(signal.SIGKILL)
    with agent(tmp_path, "--spill", str(place)) as running, connect(running) as session:
        check_steps(session, pool, range(4))


def flip_byte(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        before = opened.read(1)
        opened.seek(at)
        opened.write(bytes([before[0] ^ 1]))


def test_corrupt_files_are_named_and_the_others_go_on(tmp_path: Path, spill: Path) -> None:
    pool = "local:/p?spill=durable"
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        put_steps(session, pool, range(4))
    files = sorted(spill.glob("*.arrow"))
    flip_byte(files[1], 200_000)  # in the object: found when it is read
    os.truncate(files[2], 100_000)  # found at start
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        assert len(session.pool(pool)) == 3
        check_steps(session, pool, range(1))
        with pytest.raises(offpath.Error, match=rf"step1.*lost here: file .*{files[1].name} is corrupt: the checksum"):
            session.pool(pool).get("step1")
        check_steps(session, pool, range(3, 4))
        for file in files[1:3]:
            assert Path(f"{file}.corrupt").exists() and not file.exists()
            assert running.says(file.name)
        assert disk_of(running)["corrupt"] == 1
        put_steps(session, pool, range(1, 3))
        check_steps(session, pool, range(4))


def test_directories_that_others_could_use_are_refused(tmp_path: Path) -> None:
    listen = ["--listen", f"unix:{tmp_path}/a.sock"]
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name, why in {"open": "chmod 700", "link": "symbolic link", "no/such": "making the directory"}.items():
        ended = run_agent(*listen, "--spill", str(tmp_path / name))
        assert ended.returncode == 1 and why in ended.stderr, ended.stderr
    ended = run_agent(*listen, "--spill", "relative")
    assert ended.returncode == 2 and "not an absolute path" in ended.stderr
    with agent(tmp_path, "--spill", str(tmp_path / "spill")):
        ended = run_agent(*listen, "--spill", str(tmp_path / "spill"))
        assert ended.returncode == 1 and "another agent uses" in ended.stderr


def test_without_a_directory_such_a_pool_is_refused(tmp_path: Path) -> None:
    with agent(tmp_path) as running, connect(running) as session:
        with pytest.raises(offpath.Unsupported, match=r"agent\.spill_directory"):
            session.pool("local:/p?spill=on").create()
        assert "disk" not in running.status()


def test_objects_on_disk_are_not_changed_in_place(tmp_path: Path, spill: Path) -> None:
    with agent(tmp_path, "--spill", str(spill)) as running, connect(running) as session:
        stream = session.stream("moves", destination="native", pool="local:/p?spill=on")
        stream.move([(np.arange(10), 0)], key=("row", "")).wait_stored(PATIENCE_S)
        with pytest.raises(offpath.Unsupported, match="put the object again"):
            stream.move([(np.arange(10), 0)], key=("row", ""), update=True).wait_stored(PATIENCE_S)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.stop_all()


def start_all(group: Group, *names: str) -> None:
    everybody = ",".join(group.address(name) for name in names)
    for name in names:
        group.start(name, "--set", f"group.members={everybody}", "--spill", str(group.directory / f"spill-{name}"))
    alive = dict.fromkeys(names, "alive")
    assert until(lambda: group.all_know(list(names), alive), PATIENCE_S)


def test_a_whole_group_killed_comes_back_with_everything(group: Group) -> None:
    pool, names = "hash:/p?spill=durable&replicas=2", ["a", "b", "c"]
    start_all(group, *names)
    with group.connect("a") as session:
        put_steps(session, pool, range(12))
    for name in names:
        group.running[name].stop(signal.SIGKILL)
    start_all(group, *names)
    for name in names:
        with group.connect(name) as session:
            check_steps(session, pool, range(12))


def test_of_a_corrupt_object_another_members_copy_is_read(group: Group) -> None:
    pool, names = "hash:/p?spill=durable&replicas=2", ["a", "b"]
    start_all(group, *names)
    with group.connect("a") as session:
        put_steps(session, pool, range(6))
    for name in names:
        group.running[name].stop(signal.SIGKILL)
    for file in sorted((group.directory / "spill-a").glob("*.arrow"))[:3]:
        flip_byte(file, 1000)
    for file in sorted((group.directory / "spill-b").glob("*.arrow"))[3:]:
        flip_byte(file, 1000)
    start_all(group, *names)
    for name in names:
        with group.connect(name) as session:
            check_steps(session, pool, range(6))
    assert until(lambda: sum(disk_of(group.running[name])["corrupt"] for name in names) > 0, PATIENCE_S)


def test_a_corrupt_copy_is_repaired_from_the_other_member(group: Group) -> None:
    # Of two members `a` is the first owner of even steps, which a get asks first.
    pool, names = "rank:/p?spill=durable&replicas=2", ["a", "b"]
    start_all(group, *names)
    with group.connect("a") as session:
        put_steps(session, pool, range(6))
    for name in names:
        group.running[name].stop(signal.SIGKILL)
    spilled = group.directory / "spill-a"
    for step in (0, 2, 4):
        (file,) = (each for each in spilled.glob("*.arrow") if f"step{step}".encode() in each.read_bytes()[-256:])
        flip_byte(file, 1000)
    start_all(group, *names)
    with group.connect("a") as session:
        check_steps(session, pool, range(6))  # finds corrupt objects
    assert until(
        lambda: disk_of(group.running["a"])["corrupt"] == 3 and len([*spilled.glob("*.arrow")]) == 6, PATIENCE_S
    )
    # The repaired object is whole, and no other member is asked for it.
    group.running["b"].stop(signal.SIGKILL)
    group.running["a"].stop(signal.SIGKILL)
    with agent(group.directory, "--name", "a", "--spill", str(spilled)) as running, connect(running) as session:
        check_steps(session, "rank:/p", range(6))
        assert disk_of(running)["corrupt"] == 0


def test_what_was_put_while_a_member_was_away_is_not_undone_by_its_disk(group: Group) -> None:
    pool, names = "hash:/p?spill=durable&replicas=2", ["a", "b"]
    start_all(group, *names)
    with group.connect("a") as session:
        for row in range(10):
            session.pool(pool).put(b"old", f"row{row}")
        group.running["b"].stop(signal.SIGKILL)
        assert until(lambda: group.states("a")["b"] == "dead", PATIENCE_S)
        for row in range(10):
            session.pool(pool).put(b"new", f"row{row}", timeout=PATIENCE_S)
    everybody = ",".join(group.address(name) for name in names)
    group.start("b", "--set", f"group.members={everybody}", "--spill", str(group.directory / "spill-b"))
    assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
    with group.connect("b") as session:
        at_b = session.pool(pool)
        assert until(
            lambda: all(bytes(at_b.get_bytes(f"row{row}", timeout=60)) == b"new" for row in range(10)), PATIENCE_S
        )
