"""Keys of up to 64 KiB, row and column each: every call with a key takes these, between agents and on disk too."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import LINKS, PATIENCE_S, Group, joined_group
from agent_process import agent, until
from built import needs_built
from test_compute import HOSTILE, PARTICLES, configured, mean_of

LENGTHS = [255, 256, 65535, 65536]
SCHEMA = pa.schema([("id", pa.int64())])
SMALL, LARGE = 10, 100_000  # rows: one comes with its answer, the other is pulled


def key(letter: str, length: int) -> str:
    return f"{letter}{length}-".ljust(length, letter)


def values(length: int) -> np.ndarray:
    return np.arange(length, length + (LARGE if length % 2 else SMALL))


def put_all(session: offpath.Session, pool: str) -> None:
    stream = session.stream("long", SCHEMA, rows_max=LARGE, pool=pool)
    for length in LENGTHS:
        stream.send({"id": values(length)}, key=(key("r", length), key("c", length))).wait_stored(PATIENCE_S)
    stream.close()


def check_all(session: offpath.Session, pool: str) -> None:
    held = session.pool(pool)
    assert sorted(held.keys()) == sorted((key("r", length), key("c", length)) for length in LENGTHS)
    for length in LENGTHS:
        row, column = key("r", length), key("c", length)
        assert np.array_equal(held.get(row, column, timeout=PATIENCE_S)["id"], values(length))
        assert (row, column) in held
        [entry] = held.list(row, column)
        assert (entry.row, entry.column) == (row, column)


@pytest.fixture(params=LINKS)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, ["a", "b"], request.param) as made:
        yield made


def test_all_that_is_done_with_keys_between_members(group: Group) -> None:
    pool = "hash:/long?replicas=2"
    with group.connect("a") as writer, group.connect("b") as reader:
        wanted = reader.pool(pool).create().want(key("r", 65536), key("c", 65536), timeout=PATIENCE_S)
        put_all(writer, pool)
        assert np.array_equal(wanted.result(PATIENCE_S).table()["id"], values(65536))
        for session in (writer, reader):
            check_all(session, "hash:/long")
            assert {entry.row for entry in session.pool("hash:/long").list(key("r", 65535)[:-1] + "*")} == {
                key("r", 65535)
            }
            table = session.pool("hash:/long").query(rows=key("r", 65536), columns_glob=key("c", 65536))
            assert np.array_equal(table["id"], values(65536))
        assert reader.pool("hash:/long").drop(key("r", 65536), key("c", 65536)) == 1
        with pytest.raises(offpath.NotFound, match=r"r65536-rrr.*… of 65536 bytes, c65536-ccc"):
            writer.pool("hash:/long").get(key("r", 65536), key("c", 65536))
        assert writer.pool("hash:/long").drop() == len(LENGTHS) - 1


def test_rows_move_to_a_member_that_comes_and_from_one_that_dies(group: Group) -> None:
    pool = "hash:/moved?replicas=2"
    rows = [key(chr(ord("A") + number), 65536 - number) for number in range(12)]
    with group.connect("a") as session:
        for row in rows:
            session.pool(pool).put(b"x" * 100, row, "c", timeout=PATIENCE_S)
        group.start("c", "--join", group.address("a"))

        def held(*names: str) -> int:
            pools = [
                each
                for name in names
                for each in group.running[name].status()["pools"]
                if each["name"] == "hash:/moved"
            ]
            return sum(each["frames"] for each in pools)

        assert until(lambda: held("a", "b", "c") == 2 * len(rows) and held("c") > 0, PATIENCE_S)
        group.running["b"].stop(signal.SIGKILL)
        assert until(lambda: held("a", "c") == 2 * len(rows), PATIENCE_S)
        with group.connect("c") as other:
            assert sorted(other.pool("hash:/moved").keys()) == sorted((row, "c") for row in rows)
            assert all(bytes(other.pool("hash:/moved").get_bytes(row, "c")) == b"x" * 100 for row in rows)


def test_many_of_them_at_a_time_and_in_a_small_ring(group: Group) -> None:
    with offpath.connect(
        group.address("a"), ring_slots=64, **({"key_file": group.key} if group.key else {})
    ) as session:
        stream = session.stream("many", SCHEMA, rows_max=SMALL, pool="hash:/many")
        rows = [f"{number:03}".ljust(30_000 + 500 * number, "k") for number in range(64)]
        tickets = [stream.send({"id": np.full(SMALL, number)}, key=(row, "")) for number, row in enumerate(rows)]
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)
        wanted = [session.pool("hash:/many").want(row, timeout=PATIENCE_S) for row in rows]
        for number, each in enumerate(wanted):
            assert each.result(PATIENCE_S).table()["id"].to_pylist() == [number] * SMALL
        assert [entry.row for entry in session.pool("hash:/many").list()] == rows


def test_one_byte_more_is_refused(tmp_path: Path) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        pool, longer = session.pool("local:/p").create(), "k" * 65537
        for refused in (
            lambda: pool.put(b"x", longer),
            lambda: pool.put(b"x", "row", longer),
            lambda: pool.get(longer),
            lambda: pool.want(longer),
            lambda: pool.compute("plugin/function", longer),
            lambda: pool.compute("plugin/function", "row", result=(longer, "")),
        ):
            with pytest.raises(offpath.TooLarge, match="key has more than 65536 bytes"):
                refused()
        with pytest.raises(offpath.TooLarge, match="pattern has more than 196608 bytes"):
            pool.drop("k" * 196609)
        with pytest.raises(offpath.TooLarge, match=r"has 301 bytes from its first \* to its last, at most 255"):
            pool.list("*" + "k" * 299 + "*")
        assert len(pool) == 0


def test_keys_of_wildcards_are_their_own(tmp_path: Path) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        pool = session.pool("local:/p")
        rows = ["[" * 65536, "[" * 65535 + "]", "*" * 65536]
        for row in rows:
            pool.put(row[-1:].encode(), row)
        assert [bytes(pool.get_bytes(row)) for row in rows] == [row[-1:].encode() for row in rows]
        assert pool.drop("[[]" * 65536) == 1
        assert {entry.row for entry in pool.list()} == {*rows[1:]}


def test_on_disk_and_in_snapshots(tmp_path: Path) -> None:
    arguments = "--spill", str(tmp_path / "spill")
    with agent(tmp_path, *arguments) as running:
        with offpath.connect(running.ready["address"]) as session:
            put_all(session, "local:/kept?spill=durable")
        running.stop(signal.SIGKILL)
    with agent(tmp_path, *arguments) as running, offpath.connect(running.ready["address"]) as session:
        check_all(session, "local:/kept")
        session.pool("local:/kept").snapshot(tmp_path / "snapshot")
        assert session.pool("local:/again").restore(tmp_path / "snapshot") == len(LENGTHS)
        check_all(session, "local:/again")
        session.pool("local:/spilled?spill=on&budget=1MiB").restore(tmp_path / "snapshot")
        check_all(session, "local:/spilled")


@needs_built(PARTICLES, HOSTILE)
def test_functions_over_objects_with_such_keys(tmp_path: Path) -> None:
    with agent(tmp_path, *configured(tmp_path)) as running, offpath.connect(running.ready["address"]) as session:
        pool, row, column = session.pool("local:/p"), key("r", 65536), key("c", 65536)
        stream = session.stream("values", destination="native", pool="local:/p")
        stream.send(np.full(1000, 0.5, np.float32), key=(row, column)).wait_stored(PATIENCE_S)
        assert mean_of(pool.compute("particles/mean", row, column)) == (1000, 0.5)
        result = key("R", 65536), key("C", 65536 - len(".mean"))
        pool.compute("particles/mean", row, column, result=result)
        assert result[0] in {entry.row for entry in pool.list()}


def test_sifted_rows_may_have_long_keys(tmp_path: Path) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        stream = session.stream("sifted", SCHEMA, rows_max=100, pool="sift:/tracks?key=id")
        for step in (1, 2):
            stream.send({"id": np.arange(100)}, key=(f"{step:06}".rjust(65536, "s"), key("c", 65536))).wait_stored(
                PATIENCE_S
            )
        tracks = session.tracks("sift:/tracks")
        tracks.flush()
        assert tracks.track(7)["step"].to_pylist() == [1, 2]


def test_flight(tmp_path: Path) -> None:
    flight = pytest.importorskip("pyarrow.flight")
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0o600)
    with offpath.Agent.start(settings={"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": token}) as started:
        if started.flight is None:
            pytest.skip("built without Flight")
        bearer = f"Bearer {token.read_text()}".encode()
        said = flight.FlightCallOptions(headers=[(b"authorization", bearer)], timeout=PATIENCE_S)
        table = pa.table({"id": np.arange(1000)})
        path = "local:/p", "[" * 65536, key("c", 65536)
        with flight.connect(started.flight) as client:
            writer, _ = client.do_put(flight.FlightDescriptor.for_path(*path), table.schema, said)
            with writer:
                writer.write_table(table)
            info = client.get_flight_info(flight.FlightDescriptor.for_path("local:/p", "[[]" * 65536, path[2]), said)
            assert client.do_get(info.endpoints[0].ticket, said).read_all().equals(table)
            with pytest.raises(pa.ArrowInvalid, match="65537 bytes, at most 65536"):
                writer, _ = client.do_put(flight.FlightDescriptor.for_path("local:/p", "k" * 65537), table.schema, said)
                with writer:
                    writer.write_table(table)


def test_the_command_line(tmp_path: Path) -> None:
    with agent(tmp_path) as running:
        row, column, file = key("r", 65536), key("c", 65536), tmp_path / "file"
        file.write_bytes(b"some bytes")

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "offpath", "pool", *arguments, "--agent", running.ready["address"]]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        run("put", "local:/p", row, str(file), "--column", column)
        assert json.loads(run("get", "local:/p", row, column, "--json"))["nbytes"] == 10
        [listed] = json.loads(run("ls", "local:/p", "--json"))
        assert (listed["row"], listed["column"]) == (row, column)
        assert "r65536-r" in run("ls", "local:/p")
        run("drop", "local:/p", "--row", row)
        assert json.loads(run("ls", "local:/p", "--json")) == []
