"""Tracks of ten times the memory that they may have: read, queried and written as those of a pool that keeps all in
memory, with a disk that is full for a while, and over the death of an agent."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.dataset
import pytest
from agent_group import PATIENCE_S, Group, new_group
from agent_process import AgentProcess, agent, until
from small_disk import mounted_disk

ATOMS, STEPS = 20_000, 30
MIB = 1 << 20
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("type", pa.int32())])
SETTINGS = "key=id&stages=1&fanout=8&threshold=64KiB&budget=4MiB&age=100ms"
ROW_BYTES = 28  # with its step, without an index


def send_steps(session: offpath.Session, steps: range, pool: str, wait: bool = True) -> list[offpath.stream.Ticket]:
    stream = session.stream(f"{pool}{steps.start}", SCHEMA, rows_max=ATOMS, pool=pool)
    random = np.random.default_rng(steps.start)
    tickets = []
    for step in steps:
        ids = random.permutation(ATOMS)
        columns = {"id": ids, "x": ids + step / 1024, "type": (ids % 3).astype(np.int32)}
        tickets.append(stream.send(columns, key=(f"step{step:06}", ""), snapshot=True))
        if wait:
            tickets[-1].wait_stored(PATIENCE_S)
    return tickets


def assert_sorted_tracks(table: pa.Table, steps: int) -> None:
    ids, step = table["id"].to_numpy(), table["step"].to_numpy()
    assert np.array_equal(ids, np.repeat(np.arange(ATOMS), steps))
    assert np.array_equal(step, np.tile(np.arange(steps), ATOMS))
    assert np.array_equal(table["x"].to_numpy(), ids + step / 1024)
    assert np.array_equal(table["type"].to_numpy(), ids % 3)


def sift_status(running: AgentProcess, pool: str) -> dict[str, int]:
    (found,) = [each for each in running.status()["sifts"] if each["name"] == pool]
    return found


@pytest.fixture(params=["on", "durable"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Group, str]]:
    with new_group(tmp_path, "local") as made:
        for number, name in enumerate("ab"):
            join = ["--join", made.address("a")] if number else []
            made.start(name, "--spill", str(tmp_path / name / "spill"), "--set", "memory.bytes_max=128MiB", *join)
        assert until(lambda: made.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)
        yield made, request.param


def test_tracks_of_ten_times_their_memory_are_those_in_memory(group: tuple[Group, str], tmp_path: Path) -> None:
    agents, spill = group
    budget = ATOMS * STEPS * ROW_BYTES // 2 // 10  # of one member's half
    with agents.connect("a") as a, agents.connect("b") as b:
        for name, more in (("sift:/plain", ""), ("sift:/spilled", f"&spill={spill}&tracks_budget={budget}")):
            send_steps(a, range(STEPS // 2), f"{name}?{SETTINGS}{more}")
            send_steps(b, range(STEPS // 2, STEPS), name)
        plain, spilled = b.tracks("sift:/plain"), b.tracks("sift:/spilled")
        for tracks in (plain, spilled):
            tracks.flush(PATIENCE_S)
        for name in "ab":
            found = sift_status(agents.running[name], "sift:/spilled")
            assert found["spilled_track_bytes"] > 7 * budget
            assert found["track_bytes"] - found["spilled_track_bytes"] <= budget
            assert sift_status(agents.running[name], "sift:/plain")["spilled_track_bytes"] == 0
        table = spilled.table()
        assert_sorted_tracks(table, STEPS)
        assert table.equals(plain.table())
        for identifier in (0, 4711, ATOMS - 1):
            assert spilled.track(identifier).equals(plain.track(identifier))
        assert spilled.tracks([9, 5, 7], 3, 12).equals(plain.tracks([9, 5, 7], 3, 12))
        where = "x < 2000 and step > 25 and type == 1"
        assert spilled.tracks(where, columns=["id", "x"]).equals(plain.tracks(where, columns=["id", "x"]))
        written = spilled.write(tmp_path / "written", timeout=PATIENCE_S)
        assert written == ATOMS * STEPS
        files = pyarrow.dataset.dataset(tmp_path / "written", format="parquet").to_table()
        assert_sorted_tracks(files.sort_by([("id", "ascending"), ("step", "ascending")]), STEPS)
        for name in ("sift:/plain", "sift:/spilled"):
            a.tracks(name).drop()
    assert until(lambda: not [*tmp_path.glob("*/spill/*.bytes")], PATIENCE_S), "files of a dropped pool"


def test_a_full_disk_holds_back_programs_and_loses_nothing(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk", 4) as disk:
        with agent(tmp_path, "--spill", str(disk)) as running, offpath.connect(running.ready["address"]) as session:
            pool = f"sift:/spilled?{SETTINGS}&spill=on&tracks_budget=1MiB"
            tickets = send_steps(session, range(STEPS), pool, wait=False)
            assert running.says("No space left"), "the log says why"
            with pytest.raises(offpath.Timeout):
                tickets[-1].wait_stored(2)
            found = sift_status(running, "sift:/spilled")
            assert found["track_bytes"] - found["spilled_track_bytes"] <= MIB
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            for ticket in tickets:
                ticket.wait_stored(PATIENCE_S)
            tracks = session.tracks("sift:/spilled")
            tracks.flush(PATIENCE_S)
            assert_sorted_tracks(tracks.table(), STEPS)
            assert running.says("can be written again")


def test_a_block_that_is_corrupt_costs_its_rows_and_nothing_else(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with agent(tmp_path, "--spill", str(spill)) as running, offpath.connect(running.ready["address"]) as session:
        send_steps(session, range(STEPS), f"sift:/spilled?{SETTINGS}&spill=on&tracks_budget=2MiB")
        tracks = session.tracks("sift:/spilled")
        tracks.flush(PATIENCE_S)

        def last_stage() -> dict[str, int]:
            return sift_status(running, "sift:/spilled")["stages"][-1]

        def merges_rest() -> bool:
            before = last_stage()["merges"]
            time.sleep(0.5)
            return last_stage()["merges"] == before

        assert until(merges_rest, PATIENCE_S), "a flush waits for no merge"
        largest = max(spill.glob("*.bytes"), key=lambda file: file.stat().st_size)  # it is not merged any more
        with largest.open("r+b") as file:
            file.seek(largest.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        said = rf"block \d+ of \d+ of a run of tracks, in {largest}, is corrupt"
        with pytest.raises(offpath.IoError, match=said):
            tracks.table()
        lost = 0
        for identifier in range(0, ATOMS, 21):
            try:
                assert tracks.track(identifier).num_rows == STEPS
            except offpath.IoError as error:
                assert largest.name in str(error)
                lost += 1
        assert lost < ATOMS // 21 // 8
        before = last_stage()
        assert before["damaged_runs"] == 1
        for step in range(STEPS, STEPS + 12):  # a run of each, so small that it is merged, however slow the machine is
            send_steps(session, range(step, step + 1), "sift:/spilled")
            tracks.flush(PATIENCE_S)

        assert until(lambda: last_stage()["merges"] > before["merges"], PATIENCE_S)
        assert last_stage()["damaged_runs"] == 1
        assert running.log().count("is corrupt") == 1


def test_after_a_kill_a_durable_pool_has_its_tracks_and_another_one_nothing(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with agent(tmp_path, "--spill", str(spill)) as running:
        with offpath.connect(running.ready["address"]) as session:
            for name, kept in (("sift:/passing", "on"), ("sift:/durable", "durable")):
                send_steps(session, range(STEPS), f"{name}?{SETTINGS}&spill={kept}&tracks_budget=1MiB")
                session.tracks(name).flush(PATIENCE_S)
        running.stop(signal.SIGKILL)
    before = len([*spill.glob("*.bytes")])
    with agent(tmp_path, "--spill", str(spill)) as running, offpath.connect(running.ready["address"]) as session:
        tracks = session.tracks("sift:/durable")
        assert until(lambda: [each["restored"] for each in running.status()["sifts"]] == [True], PATIENCE_S)
        tracks.flush(PATIENCE_S)
        assert_sorted_tracks(tracks.table(), STEPS)
        found = sift_status(running, "sift:/durable")
        assert found["track_bytes"] - found["spilled_track_bytes"] <= MIB
        assert [each["name"] for each in running.status()["sifts"]] == ["sift:/durable"]
        assert until(lambda: len([*spill.glob("*.bytes")]) < before, PATIENCE_S), "files of the other pool"
