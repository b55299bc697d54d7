"""Flight SQL over pools, by ADBC's driver: a client gets the answers of ``offpath sql``; nothing without the token, and
no file from the server's machine."""

import os
import secrets
import signal
import subprocess
import sys
import threading

import numpy as np
import offpath
import pyarrow as pa
import pytest

pytest.importorskip("duckdb")
fl = pytest.importorskip("pyarrow.flight")
dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")

from offpath import flight_sql  # noqa: E402
from offpath.flight_sql import FlightSqlServer, field, fields_of, packed, query_in, unpacked  # noqa: E402
from offpath.flight_sql.tables import matches, numbers_in, text_in  # noqa: E402
from offpath.sql import run_sql  # noqa: E402

TOKEN = secrets.token_hex(16)
ROWS = 10_000


def connect_to(server, token=TOKEN):
    header = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    return dbapi.connect(f"grpc+tcp://127.0.0.1:{server.port}", db_kwargs=header, autocommit=True)


@pytest.fixture(scope="module")
def server(agent):
    with FlightSqlServer("grpc+tcp://127.0.0.1:0", TOKEN, agent=agent.address) as started:
        yield started


@pytest.fixture
def cursor(server):
    with connect_to(server) as connection, connection.cursor() as made:
        yield made


@pytest.fixture
def pool(session, name):
    pool = session.pool(f"local:/{name}")
    for step in range(3):
        x = pa.array(np.where(np.arange(ROWS) % 5 == 0, np.nan, np.arange(ROWS) + step), mask=np.arange(ROWS) % 3 == 0)
        pool.put(pa.table({"id": np.arange(ROWS), "x": x, "name": [f"n{n % 7}" for n in range(ROWS)]}), f"step{step}")
    return pool


def test_adbc_reads_what_offpath_sql_answers(session, cursor, pool):
    for query in (
        f"SELECT id, x, name FROM pool('{pool.name}') WHERE id < 5000 AND name IN ('n1', 'n2') ORDER BY ALL",
        f"SELECT name, count(*) AS n, max(x) AS most FROM pool('{pool.name}', 'step[01]') GROUP BY name ORDER BY name",
        f"SELECT count(*) AS n FROM pool('{pool.name}') WHERE x IS NULL",
        f"SELECT id FROM pool('{pool.name}') WHERE id > 1000000",
    ):
        cursor.execute(query)
        found = cursor.fetch_arrow_table()
        expected = run_sql(session, query)
        assert found.schema.equals(expected.schema) and repr(found.to_pylist()) == repr(expected.to_pylist())


def test_many_rows_come_in_batches(cursor, pool):
    cursor.execute(f"SELECT a.id FROM pool('{pool.name}', 'step0') a, range(30) ORDER BY a.id")
    batches = list(cursor.fetch_record_batch())
    assert sum(batch.num_rows for batch in batches) == 30 * ROWS and len(batches) > 1


def test_errors_are_those_of_the_query(cursor, pool):
    for query, said in (
        (f"SELECT speed FROM pool('{pool.name}')", '"speed" not found'),
        ("SELECT * FROM pool('local:/nowhere')", "there is no pool"),
        ("SELEC", "syntax error"),
        ("SELECT * FROM read_csv('/etc/passwd')", "file system operations are disabled"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "file system operations are disabled"),
        ("SET enable_external_access = true", "configuration"),
    ):
        with pytest.raises(dbapi.Error, match=f"(?s){said}"):
            cursor.execute(query)
            cursor.fetchall()


def test_parameters_are_not_served(cursor, pool):
    with pytest.raises(dbapi.Error):
        cursor.execute(f"SELECT id FROM pool('{pool.name}') WHERE id = ?", (7,))
        cursor.fetchall()


def tables_in(connection, **asked):
    """By name, from the list of ``adbc_get_objects``."""
    (catalog,) = connection.adbc_get_objects(**asked).read_all().to_pylist()
    (schema,) = catalog["catalog_db_schemas"]
    assert (catalog["catalog_name"], schema["db_schema_name"]) == ("offpath", "pools")
    return {each["table_name"]: each for each in schema["db_schema_tables"] or []}


def test_pools_and_tracks_are_listed_and_found_by_their_names(server, session, cursor, pool, name):
    tracked = f"{name}-tracks"
    stream = session.stream(name, {"key": "int64", "v": "float64"}, rows_max=10, pool=f"sift:/{tracked}?key=key")
    stream.send({"key": np.arange(10), "v": np.arange(10.0)}, ("step0", "0")).wait_stored(60)
    session.tracks(f"sift:/{tracked}").flush(60)
    session.pool(f"local:/{name}-empty").create()
    with connect_to(server) as connection:
        assert connection.adbc_get_table_types() == ["TABLE"]
        listed = tables_in(connection, depth="tables", table_name_filter=f"%{name}%")
        assert listed.keys() == {pool.name, f"local:/{name}-empty", f"sift:/{tracked}"}
        assert {each["table_type"] for each in listed.values()} == {"TABLE"}
        described = tables_in(connection, depth="all", table_name_filter=f"%{name}%")
        columns = {table: [each["column_name"] for each in found["table_columns"] or []]
                   for table, found in described.items()}  # fmt: skip
        assert columns == {pool.name: ["id", "x", "name"], f"local:/{name}-empty": [],
                           f"sift:/{tracked}": ["step", "key", "v"]}  # fmt: skip
        assert connection.adbc_get_table_schema(pool.name).names == ["id", "x", "name"]
        assert tables_in(connection, depth="tables", table_name_filter="local:/absent%") == {}
        assert tables_in(connection, depth="tables", table_types_filter=["VIEW"]) == {}
        assert connection.adbc_get_objects(depth="tables", catalog_filter="elsewhere").read_all().num_rows == 0
    for table in (f'"{pool.name}"', f'offpath.pools."{pool.name}"', f'"pools"."{pool.name}" AS p'):
        cursor.execute(f"SELECT count(*) FROM {table} WHERE id < 10")
        assert cursor.fetchall() == [(30,)]
    cursor.execute(f'SELECT "{pool.name}".id FROM offpath.pools."{pool.name}" WHERE id = 7 LIMIT 1')
    assert cursor.fetchall() == [(7,)]


@pytest.mark.parametrize("name", ["PrimaryKeys", "ImportedKeys", "ExportedKeys", "CrossReference"])
def test_tables_have_no_keys(server, name):
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with fl.connect(f"grpc+tcp://127.0.0.1:{server.port}") as client:
        descriptor = fl.FlightDescriptor.for_command(packed(f"CommandGet{name}", field(3, b"t")))
        info = client.get_flight_info(descriptor, options)
        found = client.do_get(info.endpoints[0].ticket, options).read_all()
    assert found.num_rows == 0 and found.schema.equals(info.schema) and "key_sequence" in found.schema.names


def test_the_server_says_what_it_is(server):
    with connect_to(server) as connection:
        about = connection.adbc_get_info()
    assert about["vendor_name"] == "Offpath" and about["vendor_version"] == offpath.__version__
    assert about["vendor_arrow_version"] == pa.__version__
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with fl.connect(f"grpc+tcp://127.0.0.1:{server.port}") as client:
        for asked in (field(1, b"\x03\xf8\x03\x8f\x4e"), b"\x08\x03\x08\xf8\x03"):  # packed, and one by one
            descriptor = fl.FlightDescriptor.for_command(packed("CommandGetSqlInfo", asked))
            info = client.get_flight_info(descriptor, options)
            found = client.do_get(info.endpoints[0].ticket, options).read_all()
            assert found.schema.equals(info.schema)
            assert dict(zip(*found.to_pydict().values(), strict=True)) == {3: True, 504: '"'}


def test_nothing_without_the_token(server):
    for token in ("", TOKEN[:-1], TOKEN + "0"):
        with pytest.raises(dbapi.Error, match="token"), connect_to(server, token) as connection:
            connection.cursor().execute("SELECT 1")
    with fl.connect(f"grpc+tcp://127.0.0.1:{server.port}") as client:
        with pytest.raises(fl.FlightUnauthenticatedError, match="has no token"):
            list(client.list_actions())


def test_so_many_queries_at_a_time(server, pool):
    command = packed("CommandStatementQuery", field(1, f"SELECT a.id FROM pool('{pool.name}') a, range(900)".encode()))
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with fl.connect(f"grpc+tcp://127.0.0.1:{server.port}") as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_command(command), options)
        readers = [client.do_get(info.endpoints[0].ticket, options) for _ in range(flight_sql.QUERIES_MAX)]
        assert all(reader.read_chunk().data.num_rows > 0 for reader in readers)
        with pytest.raises(fl.FlightUnavailableError, match="queries are under way, which is the limit"):
            client.get_flight_info(fl.FlightDescriptor.for_command(command), options)
        for reader in readers:
            reader.cancel()
        ended = threading.Event()
        while not ended.is_set():  # a reader's end reaches the server in its own time
            try:
                client.get_flight_info(fl.FlightDescriptor.for_command(command), options)
                ended.set()
            except fl.FlightUnavailableError:
                continue


def test_messages_that_make_no_sense_are_refused():
    name, text = "CommandStatementQuery", b"x" * 300
    assert unpacked(packed(name, field(1, text))) == (name, {1: [text]})
    assert fields_of(b"\x08\x96\x01" + field(2, b"y") + field(2, b"z") + b"\x1d1234") == {1: [150], 2: [b"y", b"z"]}
    whole = packed("TicketStatementQuery", field(1, b"SELECT 1"))
    for length in range(len(whole)):
        with pytest.raises((offpath.Invalid, NotImplementedError)):
            query_in(*unpacked(whole[:length] if length else b""))
    for junk in (b"\xff" * 20, packed("TicketStatementQuery", field(1, b"\xff")), b"\x0b", field(1, b"elsewhere/X")):
        with pytest.raises(offpath.Invalid):
            query_in(*unpacked(junk))
    with pytest.raises(NotImplementedError, match="CommandGetPrimaryKeys"):
        query_in(*unpacked(packed("CommandGetPrimaryKeys", b"")))
    with pytest.raises(offpath.Invalid, match="too long"):
        numbers_in([b"\xff" * 20])
    with pytest.raises(offpath.Invalid, match="not UTF-8"):
        text_in({3: [b"\xff"]}, 3)


def test_a_place_that_others_reach_needs_a_certificate_and_a_token_to_guess():
    with pytest.raises(offpath.Invalid, match="without encryption"):
        FlightSqlServer("grpc+tcp://0.0.0.0:0", TOKEN)
    with pytest.raises(offpath.Invalid, match="at least 16 are needed"):
        FlightSqlServer("grpc+tcp://127.0.0.1:0", "short")


def test_the_command(agent, pool, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    environment = {**os.environ, "OFFPATH_AGENT": agent.address, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "offpath", "flight-sql", "--token-file", str(token), "--listen", "tcp:127.0.0.1:0"]
    token.chmod(0o644)
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
    assert refused.returncode == 1 and "may be read by others" in refused.stderr and "Traceback" not in refused.stderr
    token.chmod(0o600)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            location = process.stdout.readline().strip()
            header = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
            with dbapi.connect(location, db_kwargs=header, autocommit=True) as connection:
                cursor = connection.cursor()
                cursor.execute(f"SELECT count(*) FROM pool('{pool.name}')")
                assert cursor.fetchall() == [(3 * ROWS,)]
                cursor.close()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        (None, "x", True), ("", "", True), ("%", "", True), ("_", "", False),
        ("a%c", "abbc", True), ("a%c", "abb", False),
        ("%b_", "abbc", True), ("a_c%", "abc", True), ("%.%", "abc", False), ("%_" * 40 + "%x", "y" * 400, False),
    ],
)  # fmt: skip
def test_patterns_are_those_of_like_and_end_soon(pattern: str | None, name: str, is_match: bool) -> None:
    assert matches(pattern, name) is is_match
