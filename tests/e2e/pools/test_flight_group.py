"""Arrow Flight at agents of a group: pools of several members through any of them, one killed or stopped meanwhile."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, new_group
from agent_process import until
from offpath.expression import encode_query, flight_command

fl = pytest.importorskip("pyarrow.flight")
TOKEN = secrets.token_hex(16)
ROWS = [10, 20_000, 3_000, 1, 5_000, 70_000]


@contextmanager
def group_of(directory: Path, names: list[str], link: str = "local") -> Iterator[Group]:
    with new_group(directory, link) as made:
        token = directory / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        for name in names:
            join = ["--join", made.address(names[0])] if name != names[0] else []
            flight = ["--set", "flight.listen=tcp:127.0.0.1:0", "--set", f"flight.token_file={token}"]
            if made.start(name, *join, *flight).ready.get("flight") is None:
                pytest.skip("built without Flight")
        assert until(lambda: made.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
        yield made


@pytest.fixture(params=[("a", "b"), ("a", "b", "c")], ids=["two", "three"])
def names(request: pytest.FixtureRequest) -> list[str]:
    return list(request.param)


@pytest.fixture
def group(tmp_path: Path, names: list[str]) -> Iterator[Group]:
    with group_of(tmp_path, names) as made:
        yield made


def options(timeout: float = PATIENCE_S, token: str = TOKEN) -> Any:
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=timeout)


def connect(group: Group, name: str) -> Any:
    return fl.connect(group.running[name].ready["flight"])


def step_of(step: int) -> pa.Table:
    ids = np.arange(ROWS[step]) + sum(ROWS[:step])
    return pa.table({"id": ids, "x": np.sin(ids)})


def put_all(client: Any, pool: str) -> pa.Table:
    for step in range(len(ROWS)):
        writer, _ = client.do_put(fl.FlightDescriptor.for_path(pool, f"step{step}"), step_of(step).schema, options())
        with writer:
            writer.write_table(step_of(step), max_chunksize=4000)
    return pa.concat_tables(map(step_of, range(len(ROWS)))).combine_chunks()


def get(client: Any, descriptor: Any) -> pa.Table:
    """By every endpoint, as clients do it that know one address: over the connection they have."""
    info = client.get_flight_info(descriptor, options())
    tables = [client.do_get(endpoint.ticket, options()).read_all() for endpoint in info.endpoints]
    return pa.concat_tables(tables).sort_by("id").combine_chunks()


def answered_bytes(group: Group, name: str, queries: int) -> int:
    """The answers that a member has given, once so many queries have ended there."""

    def counters() -> dict[str, int]:
        return dict(group.running[name].status()["queries"])

    assert until(lambda: counters()["queries"] == queries and counters()["open"] == 0, PATIENCE_S), counters()
    return int(counters()["answered_bytes"])


def objects_at(group: Group, name: str, pool: str) -> int:
    return sum(each["frames"] for each in group.running[name].status()["pools"] if each["name"] == pool)


def open_answers(group: Group, name: str) -> int:
    return int(group.running[name].status()["queries"]["open"])


def test_a_pool_of_several_members_is_there_through_any(group: Group, names: list[str]) -> None:
    with connect(group, "a") as first, connect(group, "b") as second:
        rows = put_all(first, "rank:/p")
        share = len(ROWS) // len(names)
        assert all(until(lambda name=name: objects_at(group, name, "rank:/p") == share, PATIENCE_S) for name in names)
        for client in (first, second):
            path = fl.FlightDescriptor.for_path("rank:/p")
            assert get(client, path).equals(rows)
            assert get(client, fl.FlightDescriptor.for_path("rank:/p", "step[12]")).equals(rows.slice(10, 23_000))
            flights = {flight.descriptor.path[0].decode(): flight for flight in client.list_flights(options=options())}
            assert flights["rank:/p"].total_records == rows.num_rows
            assert flights["rank:/p"].schema.equals(rows.schema)
            assert client.get_schema(path, options()).schema.equals(rows.schema)
            chosen = encode_query(pc.field("x") > 0.5, ["id"])
            command = fl.FlightDescriptor.for_command(flight_command("rank:/p", query=chosen))
            assert get(client, command).equals(rows.filter(pc.field("x") > 0.5).select(["id"]).combine_chunks())
            counted = flight_command("rank:/p", query=encode_query(aggregates={"n": "count", "top": ("max", "id")}))
            (result,) = client.do_action(fl.Action("query", counted), options())
            figures = pa.ipc.open_stream(result.body).read_all().to_pylist()
            assert figures == [{"n": rows.num_rows, "top": rows.num_rows - 1}]
        (result,) = second.do_action(fl.Action("drop", flight_command("rank:/p", rows="step[01]")), options())
        assert result.body.to_pybytes() == b"2"
        assert get(first, fl.FlightDescriptor.for_path("rank:/p")).equals(rows.slice(20_010))
        with pytest.raises(KeyError, match="there is no pool"):
            get(second, fl.FlightDescriptor.for_path("hash:/none"))
        with pytest.raises(KeyError, match="no objects whose keys match"):
            get(second, fl.FlightDescriptor.for_path("rank:/p", "nothing"))


def test_clients_read_each_part_from_its_member_at_the_same_time(group: Group, names: list[str]) -> None:
    with connect(group, "a") as client:
        rows = put_all(client, "rank:/p")
        chosen = encode_query(pc.field("x") > 0.5, ["id"])
        by_query = fl.FlightDescriptor.for_command(flight_command("rank:/p", query=chosen))
        for queries, descriptor, expected in (
            (1, fl.FlightDescriptor.for_path("rank:/p"), rows),
            (3, by_query, rows.filter(pc.field("x") > 0.5).select(["id"]).combine_chunks()),
        ):
            info = client.get_flight_info(descriptor, options())
            flights = [group.running[name].ready["flight"] for name in names]
            for endpoint, flight in zip(info.endpoints, flights, strict=True):
                locations = [location.uri.decode() for location in endpoint.locations]
                assert locations == [flight, "arrow-flight-reuse-connection://?"]
            before = {name: answered_bytes(group, name, queries) for name in names}  # one for the columns

            def read(endpoint: Any) -> pa.Table:
                with fl.connect(endpoint.locations[0]) as beside:
                    return beside.do_get(endpoint.ticket, options()).read_all()

            with ThreadPoolExecutor(len(names)) as threads:
                tables = list(threads.map(read, info.endpoints))
            assert pa.concat_tables(tables).sort_by("id").combine_chunks().equals(expected)
            for name, table in zip(names, tables, strict=True):  # its own part, and nothing for another member
                answered = answered_bytes(group, name, queries + 1) - before[name]
                assert table.nbytes <= answered < 1.1 * table.nbytes + 20_000


def test_a_ticket_of_other_members_is_refused(group: Group, names: list[str]) -> None:
    with connect(group, "a") as client:
        put_all(client, "hash:/p")
        info = client.get_flight_info(fl.FlightDescriptor.for_path("hash:/p"), options())
        group.start("z", "--join", group.address("a"))
        everybody = [*names, "z"]
        assert until(lambda: group.all_know(everybody, dict.fromkeys(everybody, "alive")), PATIENCE_S)
        with pytest.raises(fl.FlightUnavailableError, match="its members have changed since"):
            client.do_get(info.endpoints[0].ticket, options()).read_all()


def test_keys_with_the_signs_of_patterns_are_found(group: Group) -> None:
    with connect(group, "a") as client:
        table = step_of(0)
        for row in ("s*[x]?", "sa[x]b"):
            writer, _ = client.do_put(fl.FlightDescriptor.for_path("hash:/p", row), table.schema, options())
            with writer:
                writer.write_table(table)
        assert get(client, fl.FlightDescriptor.for_path("hash:/p")).num_rows == 2 * table.num_rows


def test_tracks_come_in_their_order(group: Group) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    with group.connect("a") as session, connect(group, "b") as client:
        stream = session.stream("s", schema, rows_max=500, pool="sift:/tracks?key=id&fanout=4&age=50ms")
        for step in range(3):
            ids = np.random.default_rng(step).permutation(500)
            stream.send({"id": ids, "x": ids + step / 8}, key=f"step{step}", snapshot=True).wait_stored(PATIENCE_S)
        session.tracks("sift:/tracks").flush(PATIENCE_S)
        info = client.get_flight_info(fl.FlightDescriptor.for_path("sift:/tracks"), options())
        table = client.do_get(info.endpoints[0].ticket, options()).read_all()
        assert table["id"].to_pylist() == np.repeat(np.arange(500), 3).tolist()
        assert table["step"].to_pylist() == [0, 1, 2] * 500
        assert b"sift:/tracks" in {flight.descriptor.path[0] for flight in client.list_flights(options=options())}


def test_a_killed_member_is_named_and_with_copies_the_others_have_all(group: Group, names: list[str]) -> None:
    with connect(group, "a") as client:
        rows = put_all(client, "hash:/copied?replicas=2")
        put_all(client, "rank:/single")
        killed = names[-1]
        group.running[killed].process.kill()
        with pytest.raises(fl.FlightError, match=f"member {killed}"):
            get(client, fl.FlightDescriptor.for_path("rank:/single"))
        assert until(lambda: group.states("a").get(killed) != "alive", PATIENCE_S)

        def all_there() -> bool:
            try:
                return get(client, fl.FlightDescriptor.for_path("hash:/copied")).equals(rows)
            except fl.FlightError as error:  # while it may still be asked
                assert killed in str(error)
                return False

        assert until(all_there, PATIENCE_S)


def test_a_clients_time_is_that_of_what_is_done_for_it(group: Group) -> None:
    with connect(group, "a") as client:
        put_all(client, "rank:/p")
        group.running["b"].process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(fl.FlightTimedOutError):
                client.do_get(fl.Ticket(b"rank:/p"), options(timeout=0.3)).read_all()
            assert until(lambda: open_answers(group, "a") == 0, PATIENCE_S)
        finally:
            group.running["b"].process.send_signal(signal.SIGCONT)


def test_a_client_that_goes_ends_its_answers_at_all_members(group: Group, names: list[str]) -> None:
    with connect(group, "a") as client:
        for step in range(6):  # more than is computed ahead
            table = pa.table({"id": np.arange(3_000_000) + step})
            writer, _ = client.do_put(fl.FlightDescriptor.for_path("rank:/big", f"step{step}"), table.schema, options())
            with writer:
                writer.write_table(table)
        reader = client.do_get(fl.Ticket(b"rank:/big"), options())
        assert reader.read_chunk().data.num_rows > 0
        assert open_answers(group, "a") > 0
        reader.cancel()
        assert until(lambda: all(open_answers(group, name) == 0 for name in names), PATIENCE_S)


def test_the_token_is_read_again(tmp_path: Path) -> None:
    with group_of(tmp_path, ["a"]) as group, connect(group, "a") as client:
        put_all(client, "local:/p")
        changed = secrets.token_hex(16)
        (tmp_path / "token").write_text(changed)
        group.running["a"].process.send_signal(signal.SIGHUP)

        def is_refused() -> bool:
            try:
                list(client.list_flights(options=options()))
                return False
            except fl.FlightUnauthenticatedError:
                return True

        assert until(is_refused, PATIENCE_S)
        assert len(list(client.list_flights(options=options(token=changed)))) == 1
        # An invalid token changes nothing.
        (tmp_path / "token").write_text("short")
        group.running["a"].process.send_signal(signal.SIGHUP)
        assert until(lambda: "nothing was changed" in group.running["a"].log(), PATIENCE_S)
        assert len(list(client.list_flights(options=options(token=changed)))) == 1


def test_programs_see_what_clients_put(group: Group) -> None:
    with connect(group, "b") as client, group.connect("a") as session:
        put_all(client, "hash:/p")
        assert session.pool("hash:/p").get("step1").equals(step_of(1))
