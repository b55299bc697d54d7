"""OpenTelemetry's spans: which are recorded, where they are sent, how the context travels, and that none exists when it
is off. The receiver is a server of OTLP over HTTP on this machine; the spans are those of the real SDK."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from offpath import telemetry

pytest.importorskip("opentelemetry.sdk", reason="no OpenTelemetry (packages/spans.txt)")
fl = pytest.importorskip("pyarrow.flight")

from google.protobuf import json_format  # noqa: E402
from offpath.flight_tracing import ClientTracing  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

TOKEN = secrets.token_hex(16)
PATIENCE_S = 60.0
METHODS = [(owner, name, vars(owner)[name]) for owner, name, _ in telemetry.METHODS]


class Recorded:
    """The spans of this process since it was made."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def all(self):
        return self.exporter.get_finished_spans()

    def names(self):
        return [span.name for span in self.all()]

    def one(self, name):
        (found,) = [span for span in self.all() if span.name == name]
        return found


@pytest.fixture
def recorded():
    made = Recorded()
    telemetry.start(made.provider)
    yield made
    telemetry.stop()


@pytest.fixture
def pool(session, name):
    """A pool with one object, put before anything is recorded."""
    made = session.pool(f"local:/{name}")
    made.put(pa.table({"v": np.arange(10)}), "a")
    return made


def is_child(span, parent):
    return span.parent is not None and (span.parent.span_id, span.context.trace_id) == (
        parent.context.span_id,
        parent.context.trace_id,
    )


# ---- recorded spans


def test_sends_and_step_ends(session, name, recorded):
    with session.stream(name, {"v": "int64"}, rows_max=10) as stream:
        tickets = [stream.send({"v": np.arange(10)}), stream.send({"v": np.arange(10)}, ("r", "c"))]
        tickets.append(stream.step_end("r"))
        tickets[-1].wait_stored(PATIENCE_S)
    first, second, end = recorded.all()
    assert [first.name, second.name, end.name] == [f"{each} local:/{name}" for each in ("send", "send", "step_end")]
    assert {span.kind for span in recorded.all()} == {SpanKind.PRODUCER}
    assert [span.attributes["offpath.row"] for span in recorded.all()] == ["step0", "r", "r"]
    assert [span.attributes["offpath.column"] for span in recorded.all()] == ["", "c", ""]
    assert [span.attributes["offpath.ticket"] for span in recorded.all()] == [each.number for each in tickets]
    assert first.attributes["messaging.system"] == "offpath" and first.attributes["offpath.stream"] == name
    assert all(span.attributes["messaging.destination.name"] == f"local:/{name}" for span in recorded.all())


def test_moves_are_sends_of_pieces(session, name, recorded):
    with session.stream(name, rows_max=0) as stream:
        stream.move([(np.arange(4), 0)], "r").wait_stored(PATIENCE_S)
    assert recorded.one(f"move local:/{name}").attributes["offpath.row"] == "r"


def test_puts_gets_and_queries(session, pool, recorded):
    pool.put(pa.table({"v": np.arange(5)}), "b", "c")
    assert pool.get("b", "c").num_rows == 5
    assert pool.query(pc.field("v") < 3, ["v"]).num_rows == 6
    put, get, query = (recorded.one(f"{each} {pool.name}") for each in ("put", "get", "query"))
    assert is_child(recorded.one(f"send {pool.name}"), put)
    assert {put.kind, get.kind, query.kind} == {SpanKind.CLIENT}
    for span, operation in ((put, "put"), (get, "get"), (query, "query")):
        assert span.attributes["db.system.name"] == "offpath" and span.attributes["db.operation.name"] == operation
        assert span.attributes["db.collection.name"] == pool.name and span.status.status_code == StatusCode.UNSET
    assert (get.attributes["offpath.row"], get.attributes["offpath.column"]) == ("b", "c")
    assert get.attributes["db.response.returned_rows"] == 5 and get.attributes["offpath.bytes"] > 0
    assert query.attributes["db.response.returned_rows"] == 6


def test_what_does_not_wait_lasts_until_its_future_ends(session, pool, recorded):
    pool.put_async(b"bytes", "later").result(PATIENCE_S)
    assert pool.want("later").result(PATIENCE_S).nbytes == 5
    assert pool.query_async(columns=["v"], rows="a").result(PATIENCE_S).num_rows == 10
    cancelled = pool.want("never")
    get, put, query = (recorded.one(f"{each} {pool.name}") for each in ("get", "put", "query"))
    assert get.attributes["offpath.row"] == "later" and get.attributes["offpath.bytes"] == 5
    assert is_child(recorded.one(f"send {pool.name}"), put) and query.attributes["offpath.rows"] == "a"
    cancelled.cancel()
    assert [span.attributes.get("error.type") for span in recorded.all() if span.name == get.name] == [
        None,
        "CancelledError",
    ]


def test_spans_of_the_program_are_the_parents(pool, recorded):
    with recorded.provider.get_tracer("program").start_as_current_span("step"):
        pool.get("a")
        list(pool.query_frames())
    for operation in ("get", "query"):
        assert is_child(recorded.one(f"{operation} {pool.name}"), recorded.one("step"))


def test_failures_are_those_of_the_call(session, pool, recorded):
    with pytest.raises(offpath.NotFound):
        pool.get("nothing")
    with pytest.raises(offpath.NotFound):
        pool.query(pc.field("w") < 1)
    with pytest.raises(offpath.Timeout):
        pool.want("nothing", timeout=0.01).result(PATIENCE_S)
    spans = recorded.all()
    assert [span.attributes["error.type"] for span in spans] == ["NotFound", "NotFound", "Timeout"]
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}
    assert "nothing" in spans[0].status.description


def test_waits_for_credit_are_spans_of_their_own(name, recorded):
    with offpath.Agent.start(memory="16MiB") as agent, offpath.connect(agent.address) as session:
        stream = session.stream(name, {"v": "int64"}, rows_max=1 << 19)
        pool = session.pool(f"local:/{name}")
        values = np.arange(1 << 19)

        with pytest.raises(offpath.Timeout):
            for step in range(20):
                stream.send({"v": values}, ("r", str(step)), timeout=0.2)
        waits = [span for span in recorded.all() if span.name == "wait for credit"][-1]
        sends = [span for span in recorded.all() if span.name == f"send local:/{name}"]
        assert is_child(waits, sends[-1]) and "credit" in waits.attributes["offpath.reason"]
        assert waits.attributes["error.type"] == sends[-1].attributes["error.type"] == "Timeout"
        pool.drop()
        waiting = threading.Thread(target=lambda: [stream.send({"v": values}, ("s", str(step))) for step in range(6)])
        waiting.start()
        while waiting.is_alive():
            pool.drop()
            waiting.join(0.05)
        assert len([span for span in recorded.all() if span.name.startswith("send")]) == len(sends) + 6
        with pytest.raises(offpath.WouldBlock):
            for step in range(20):
                stream.send({"v": values}, ("t", str(step)), wait=False)
        assert recorded.all()[-1].attributes["error.type"] == "WouldBlock"


# ---- when


@pytest.mark.parametrize(
    ("environment", "configured"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False),
    ],
)
def test_the_environment_says_whether(environment, configured):
    assert telemetry.is_configured(environment) is configured


def plain_methods():
    return all(vars(owner)[name] is plain for owner, name, plain in METHODS)


def test_off_is_the_plain_methods(session, pool):
    assert plain_methods() and telemetry.current() is None
    made = Recorded()
    telemetry.start(made.provider)
    assert not any(vars(owner)[name] is plain for owner, name, plain in METHODS)
    pool.get("a")
    telemetry.stop()
    assert plain_methods() and telemetry.current() is None
    pool.get("a")
    assert made.names() == [f"get {pool.name}"]


def test_another_provider_takes_the_place_of_the_first(pool, recorded):
    other = Recorded()
    telemetry.start(other.provider)
    telemetry.start()  # on already
    pool.get("a")
    assert (other.names(), recorded.names()) == ([f"get {pool.name}"], [])


# ---- to a receiver of OTLP


@contextlib.contextmanager
def receiver():
    """Its address, and the spans that it has got: (span, name of the service)."""
    got = []

    def read(body, kind):
        if kind == "application/json":  # where identities are hexadecimal, and not base64 as protobuf's JSON has bytes
            coded = re.sub(rb'("(?:traceId|spanId|parentSpanId)":")([0-9a-f]+)"', in_base64, body)
            return json_format.Parse(coded, ExportTraceServiceRequest())
        asked = ExportTraceServiceRequest()
        asked.ParseFromString(body)
        return asked

    def in_base64(found):
        return found[1] + base64.b64encode(bytes.fromhex(found[2].decode())) + b'"'

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = read(self.rfile.read(int(self.headers["Content-Length"])), self.headers["Content-Type"])
            for resource in asked.resource_spans:
                service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
                got.extend((span, service) for scope in resource.scope_spans for span in scope.spans)
            assert self.path == "/v1/traces"
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        server.server_close()


PROGRAM = """
import sys
import numpy as np, offpath
with offpath.connect(sys.argv[1]) as session:
    session.stream("sent-by-a-program", {"v": "int64"}, rows_max=10).send({"v": np.arange(10)}, "a").wait_stored(60)
    session.pool("local:/sent-by-a-program").drop()
print("opentelemetry" in {name.partition(".")[0] for name in sys.modules})
"""


def run_program(agent, before="", after="", **environment):
    """A program that knows nothing of spans, with these variables and no others of OpenTelemetry."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    inherited["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.run([sys.executable, "-c", before + PROGRAM + after, agent.address], env=inherited | environment,
                          capture_output=True, text=True, timeout=200, check=False)  # fmt: skip


def test_a_program_sends_its_spans_where_the_environment_says(agent):
    with receiver() as (address, got):
        ran = run_program(agent, OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_SERVICE_NAME="solver")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")
    ((span, service),) = got
    assert (span.name, service) == ("send local:/sent-by-a-program", "solver")
    assert span.end_time_unix_nano > span.start_time_unix_nano


def test_stop_sends_what_is_left(agent):
    after = "import os, offpath.telemetry\noffpath.telemetry.stop()\nos._exit(0)\n"
    with receiver() as (address, got):
        ran = run_program(agent, after=after, OTEL_EXPORTER_OTLP_ENDPOINT=address)
    assert ran.returncode == 0 and len(got) == 1


def test_a_program_without_a_configuration_does_not_import_opentelemetry(agent):
    for environment in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}):
        ran = run_program(agent, **environment)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\n", "")


def test_a_program_goes_on_without_a_receiver(agent):
    ran = run_program(agent, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


def test_a_program_goes_on_without_opentelemetry_and_is_warned(agent):
    hidden = "import sys\nsys.modules['opentelemetry'] = None\n"
    ran = run_program(agent, hidden, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert ran.returncode == 0
    assert ran.stderr.count("RuntimeWarning") == 1 and "pip install '.[otel]' in the checkout" in ran.stderr
    ran = run_program(agent, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert ran.returncode == 0 and "pip install opentelemetry-exporter-otlp-proto-grpc" in ran.stderr
    asked = "import offpath.telemetry\noffpath.telemetry.start()\n"
    ran = run_program(agent, hidden + asked)
    assert ran.returncode == 1 and "Unsupported: opentelemetry" in ran.stderr


# ---- over Flight


def bearer(**more):
    return [(b"authorization", f"Bearer {TOKEN}".encode()), *((k.encode(), v.encode()) for k, v in more.items())]


def test_a_client_of_flight_sql_is_the_parent_of_the_server(agent, pool, recorded):
    pytest.importorskip("duckdb")
    from offpath.flight_sql import FlightSqlServer, field, packed

    query = packed("CommandStatementQuery", field(1, f"SELECT v FROM pool('{pool.name}') WHERE v < 4".encode()))
    options = fl.FlightCallOptions(headers=bearer(), timeout=PATIENCE_S)
    with FlightSqlServer("grpc+tcp://127.0.0.1:0", TOKEN, agent=agent.address) as server:
        place = f"grpc+tcp://127.0.0.1:{server.port}"
        with fl.connect(place, middleware=[ClientTracing()]) as client:
            info = client.get_flight_info(fl.FlightDescriptor.for_command(query), options)
            assert client.do_get(info.endpoints[0].ticket, options).read_all().num_rows == 4
            with pytest.raises(fl.FlightUnauthenticatedError):
                client.get_flight_info(fl.FlightDescriptor.for_command(query))
    calls = [span for span in recorded.all() if span.kind == SpanKind.CLIENT and "rpc.method" in span.attributes]
    served = {span.parent.span_id: span for span in recorded.all() if span.kind == SpanKind.SERVER}
    assert [span.attributes["rpc.method"] for span in calls] == ["GetFlightInfo", "DoGet", "GetFlightInfo"]
    for call in calls[:2]:
        assert is_child(served[call.context.span_id], call)
    assert calls[2].context.span_id not in served and calls[2].attributes["error.type"] == "FlightUnauthenticatedError"
    # The rows that DuckDB reads, in threads of its own, belong to the call as well.
    read = [
        span
        for span in recorded.all()
        if span.name == f"query {pool.name}" and is_child(span, served[calls[1].context.span_id])
    ]
    assert [
        span.attributes["db.response.returned_rows"] for span in read if span.attributes["db.response.returned_rows"]
    ] == [4]


def test_adbc_hands_its_context_over_in_a_header(agent, pool, recorded):
    pytest.importorskip("duckdb")
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    from offpath.flight_sql import FlightSqlServer

    with FlightSqlServer("grpc+tcp://127.0.0.1:0", TOKEN, agent=agent.address) as server:
        trace, span = secrets.token_hex(16), secrets.token_hex(8)
        headers = {
            "adbc.flight.sql.authorization_header": f"Bearer {TOKEN}",
            "adbc.flight.sql.rpc.call_header.traceparent": f"00-{trace}-{span}-01",
        }
        with (
            dbapi.connect(f"grpc+tcp://127.0.0.1:{server.port}", db_kwargs=headers, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SELECT count(*) FROM pool('{pool.name}')")
            assert cursor.fetchall() == [(10,)]
    served = [each for each in recorded.all() if each.kind == SpanKind.SERVER]
    assert {each.attributes["rpc.method"] for each in served} >= {"GetFlightInfo", "DoGet"}
    assert {(each.context.trace_id, each.parent.span_id) for each in served} == {(int(trace, 16), int(span, 16))}


def test_the_servers_make_no_spans_while_they_are_off(agent, pool):
    pytest.importorskip("duckdb")
    from offpath.flight_sql import FlightSqlServer

    options = fl.FlightCallOptions(headers=bearer(), timeout=PATIENCE_S)
    with FlightSqlServer("grpc+tcp://127.0.0.1:0", TOKEN, agent=agent.address) as server:
        with fl.connect(f"grpc+tcp://127.0.0.1:{server.port}", middleware=[ClientTracing()]) as client:
            assert len(list(client.list_actions(options))) == 2


@contextlib.contextmanager
def agent_with_flight(folder, monkeypatch, **environment):
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    settings = {"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": token, "agent.name": "dpu7"}
    with offpath.Agent.start(settings=settings) as agent:
        if agent.flight is None:
            pytest.skip("built without Flight")
        yield agent


TABLE = pa.table({"v": np.arange(10)})


def put_and_get(agent, **headers):
    options = fl.FlightCallOptions(headers=bearer(**headers), timeout=PATIENCE_S)
    with fl.connect(agent.flight, middleware=[ClientTracing()]) as client:
        writer, _ = client.do_put(fl.FlightDescriptor.for_path("local:/p", "a"), TABLE.schema, options)
        with writer:
            writer.write_table(TABLE)
        assert client.do_get(fl.Ticket(b"local:/p"), options).read_all().num_rows == 10
        with pytest.raises(KeyError):
            client.do_get(fl.Ticket(b"local:/nothing"), options).read_all()
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.do_get(fl.Ticket(b"local:/p")).read_all()


def test_a_client_of_an_agent_is_the_parent_of_the_agent(tmp_path, monkeypatch, recorded):
    with receiver() as (address, got):
        with agent_with_flight(tmp_path, monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=address) as agent:
            put_and_get(agent)
    calls = [span for span in recorded.all() if "rpc.method" in span.attributes]
    assert [span.attributes["rpc.method"] for span in calls] == ["DoPut", "DoGet", "DoGet", "DoGet"]
    assert {service for _, service in got} == {"offpath-agent"}
    served = {int.from_bytes(span.parent_span_id): span for span, _ in got}
    assert len(got) == len(served) == 3, "a call without the token is not one of the agent's"
    for call in calls[:3]:
        span = served[call.context.span_id]
        assert int.from_bytes(span.trace_id) == call.context.trace_id and span.name == call.name
        assert span.kind == span.SPAN_KIND_SERVER
        assert call.start_time <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert (span.status.code == span.status.STATUS_CODE_ERROR) == (call is calls[2])
    assert "there is no pool" in served[calls[2].context.span_id].status.message


def test_an_agent_records_calls_without_a_context_and_none_that_are_not_sampled(tmp_path, monkeypatch):
    with receiver() as (address, got):
        with agent_with_flight(
            tmp_path, monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_SERVICE_NAME="x"
        ) as agent:
            put_and_get(agent, traceparent=f"00-{'a' * 32}-{'b' * 16}-00")
            put_and_get(agent, traceparent="nonsense")
    assert [(span.parent_span_id, service) for span, service in got] == [(b"", "x")] * 3
    assert len({span.trace_id for span, _ in got}) == 3 and b"\xaa" * 16 not in {span.trace_id for span, _ in got}


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://127.0.0.1:9", "the receiver of spans at 127.0.0.1:9 does not answer"),
        ("https://127.0.0.1:9", "an agent sends spans by plain HTTP"),
    ],
)
def test_an_agent_answers_without_a_receiver_and_says_so(tmp_path, monkeypatch, endpoint, said):
    with agent_with_flight(tmp_path, monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as agent:
        put_and_get(agent)
        end = time.monotonic() + PATIENCE_S
        while said not in agent.log and time.monotonic() < end:
            time.sleep(0.05)
        assert agent.log.count(said) == 1
        put_and_get(agent)
