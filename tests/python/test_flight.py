"""Arrow Flight: pools through the clients people have; nothing without the token."""

import importlib.util
import secrets
import shutil

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from certificate import make_certificate
from offpath.expression import encode_query, flight_command

fl = pytest.importorskip("pyarrow.flight")
TOKEN = secrets.token_hex(16)
NAMES = [f"n{number % 7}" for number in range(1000)]
TABLE = pa.table({"id": np.arange(1000, dtype=np.int64), "x": np.linspace(0, 1, 1000), "name": NAMES})


def secret_file(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("flight")


@pytest.fixture(scope="module")
def agent(folder):
    token = secret_file(folder, "token", TOKEN + "\n")
    settings = {"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": token}
    with offpath.Agent.start(settings=settings) as started:
        if started.flight is None:
            pytest.skip("built without Flight")
        yield started


def with_token(token=TOKEN):
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=60)


@pytest.fixture
def client(agent):
    with fl.connect(agent.flight) as connected:
        yield connected


@pytest.fixture
def pool(client, name):
    pool = f"local:/{name}"
    for row in ("a", "b"):
        put(client, [pool, row], TABLE)
    return pool


def put(client, path, table):
    writer, _ = client.do_put(fl.FlightDescriptor.for_path(*path), table.schema, with_token())
    with writer:
        writer.write_table(table, max_chunksize=300)


def get(client, descriptor):
    info = client.get_flight_info(descriptor, with_token())
    return client.do_get(info.endpoints[0].ticket, with_token()).read_all()


def test_what_is_put_is_got_and_a_program_sees_it_too(agent, client, pool):
    assert get(client, fl.FlightDescriptor.for_path(pool, "a")).equals(TABLE)
    assert get(client, fl.FlightDescriptor.for_path(pool)).equals(pa.concat_tables([TABLE, TABLE]))
    with offpath.connect(agent.address) as session:
        assert session.pool(pool).get("b").equals(TABLE)
        stream = session.stream("sent", pa.schema([pa.field("v", pa.int64(), nullable=False)]), rows_max=10)
        stream.send({"v": np.arange(10)}, key="a").wait_stored(60)
        assert get(client, fl.FlightDescriptor.for_path(stream.pool_name)).column("v").to_pylist() == list(range(10))


def test_pools_are_listed(client, pool):
    flights = {flight.descriptor.path[0].decode(): flight for flight in client.list_flights(options=with_token())}
    assert flights[pool].total_records == 2 * TABLE.num_rows
    assert flights[pool].schema.equals(TABLE.schema)
    assert client.get_schema(fl.FlightDescriptor.for_path(pool), with_token()).schema.equals(TABLE.schema)


def test_queries(client, pool):
    chosen = encode_query(pc.field("x") < 0.25, ["id", "name"])
    command = flight_command(pool, query=chosen)
    answer = get(client, fl.FlightDescriptor.for_command(command))
    expected = TABLE.filter(pc.field("x") < 0.25).select(["id", "name"])
    assert answer.equals(pa.concat_tables([expected, expected]))
    counted = flight_command(pool, rows="a", query=encode_query(aggregates={"n": "count", "most": ("max", "id")}))
    (result,) = client.do_action(fl.Action("query", counted), with_token())
    assert pa.ipc.open_stream(result.body).read_all().to_pylist() == [{"n": 1000, "most": 999}]


def test_unions_come_back_as_they_were_put(client, name):
    codes, numbers = pa.array(np.arange(1000) % 2, pa.int8()), pa.array(range(1000))
    children = [numbers, pa.array(NAMES)]
    table = pa.table({"d": pa.UnionArray.from_dense(codes, numbers.cast(pa.int32()), children),
                      "s": pa.UnionArray.from_sparse(codes, children), "x": numbers})  # fmt: skip
    put(client, [f"local:/{name}", "a"], table)
    got = get(client, fl.FlightDescriptor.for_path(f"local:/{name}", "a"))
    got.validate(full=True)
    assert got.schema == table.schema and got.to_pylist() == table.to_pylist()
    asked = flight_command(f"local:/{name}", query=encode_query(pc.field("x") >= 400))
    assert get(client, fl.FlightDescriptor.for_command(asked)).to_pylist() == table.slice(400).to_pylist()


def test_drop(client, pool):
    (result,) = client.do_action(fl.Action("drop", flight_command(pool, rows="a")), with_token())
    assert result.body.to_pybytes() == b"1"
    assert get(client, fl.FlightDescriptor.for_path(pool)).equals(TABLE)


def test_actions_are_listed(client):
    assert [action.type for action in client.list_actions(with_token())] == ["drop", "query"]


PLACE = fl.FlightDescriptor.for_path("local:/p", "a")
CALLS = {
    "list": lambda client, options: list(client.list_flights(options=options)),
    "info": lambda client, options: client.get_flight_info(fl.FlightDescriptor.for_path("local:/p"), options),
    "get": lambda client, options: client.do_get(fl.Ticket(b"local:/p"), options).read_all(),
    "put": lambda client, options: client.do_put(PLACE, TABLE.schema, options)[0].close(),
    "action": lambda client, options: list(client.do_action(fl.Action("drop", b"local:/p"), options)),
}


@pytest.mark.parametrize("call", CALLS)
def test_without_a_token_nothing_is_answered(client, call):
    with pytest.raises(fl.FlightUnauthenticatedError, match="has no token"):
        CALLS[call](client, fl.FlightCallOptions(timeout=60))


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_token_is_refused(client, call):
    for wrong in (TOKEN[:-1], TOKEN + "0", TOKEN[:-1] + "g", ""):
        with pytest.raises(fl.FlightUnauthenticatedError, match="not this agent's"):
            CALLS[call](client, with_token(wrong))


def test_what_is_not_there_and_commands_cut_off(client, pool):
    with pytest.raises(KeyError, match="there is no pool"):
        get(client, fl.FlightDescriptor.for_path("local:/none"))
    with pytest.raises(KeyError, match='there is no column "speed"'):
        get(client, fl.FlightDescriptor.for_command(flight_command(pool, query=encode_query(pc.field("speed") > 1))))
    for junk in (b"", b"\xff", b"\x01\x00x", secrets.token_bytes(200)):
        with pytest.raises((pa.ArrowInvalid, KeyError)):
            client.do_get(fl.Ticket(junk), with_token()).read_all()
    with pytest.raises(pa.ArrowInvalid, match="this one has 1 parts"):
        put(client, [pool], TABLE)
    with pytest.raises(NotImplementedError, match="there is no action"):
        list(client.do_action(fl.Action("burn", flight_command(pool)), with_token()))


def test_pandas_polars_and_duckdb_read_it(client, pool):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    info = client.get_flight_info(fl.FlightDescriptor.for_path(pool, "a"), with_token())

    def reader():
        return client.do_get(info.endpoints[0].ticket, with_token()).to_reader()

    assert polars.from_arrow(reader().read_all())["id"].sum() == 499_500
    with duckdb.connect() as connection:
        connection.register("flight", reader())
        assert connection.execute("SELECT sum(id) FROM flight").fetchone()[0] == 499_500
    if importlib.util.find_spec("pandas"):
        assert reader().read_pandas()["id"].sum() == 499_500


def test_tls(folder, name):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    certificate, key = make_certificate(folder, "DNS:localhost,IP:127.0.0.1")
    settings = {
        "flight.listen": "tls:127.0.0.1:0", "flight.token_file": secret_file(folder, "token2", TOKEN),
        "flight.tls_certificate": certificate, "flight.tls_key": key,
    }  # fmt: skip
    with offpath.Agent.start(settings=settings) as agent:
        if agent.flight is None:
            pytest.skip("built without Flight")
        assert agent.flight.startswith("grpc+tls://")
        with fl.connect(agent.flight, tls_root_certs=certificate.read_bytes()) as client:
            put(client, [f"local:/{name}", "a"], TABLE)
            assert get(client, fl.FlightDescriptor.for_path(f"local:/{name}")).equals(TABLE)
        with fl.connect(agent.flight.replace("+tls", "+tcp")) as plain, pytest.raises(fl.FlightUnavailableError):
            list(plain.list_flights(options=fl.FlightCallOptions(timeout=60)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"flight.listen": "tcp:127.0.0.1:0"}, "it needs flight.token_file"),
        ({"flight.listen": "unix:/tmp/x", "flight.token_file": "t"}, "neither tcp:HOST:PORT nor tls:HOST:PORT"),
        ({"flight.listen": "tls:127.0.0.1:0", "flight.token_file": "t"}, "tls needs flight.tls_certificate"),
        (
            {"flight.listen": "tcp:0.0.0.0:0", "flight.token_file": "t"},
            "from other machines without encryption",
        ),
        ({"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": "/nowhere/token"}, "/nowhere/token"),
    ],
)
def test_what_is_configured_wrongly_is_said_at_start(settings, said):
    with pytest.raises(offpath.AgentError, match=said):
        offpath.Agent.start(settings=settings)


def test_a_token_that_others_may_read_or_guess_is_refused(folder):
    for text, mode, said in ((TOKEN, 0o644, "may be read by others"), ("short", 0o600, "16 are needed")):
        token = secret_file(folder, f"token{mode}", text)
        token.chmod(mode)
        with pytest.raises(offpath.AgentError, match=said):
            offpath.Agent.start(settings={"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": token})


def test_an_agent_stops_while_clients_are_connected(folder):
    token = secret_file(folder, "token3", TOKEN)
    agent = offpath.Agent.start(settings={"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": token})
    with fl.connect(agent.flight) as client:
        assert list(client.list_flights(options=with_token())) == []
        agent.stop()
        with pytest.raises((fl.FlightUnavailableError, pa.ArrowException)):
            list(client.list_flights(options=with_token()))
