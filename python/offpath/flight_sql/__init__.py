"""Flight SQL over pools, for clients of ADBC and JDBC: ``offpath flight-sql``, a server beside an agent.

DuckDB computes a query as ``offpath sql`` does; agents read its columns and filter its rows. It serves queries,
prepared statements without parameters, and the metadata requests of ``tables``. The server keeps no state between two
calls: tickets and handles of statements are the text of the query, or the question.

The messages are protocol buffers of Flight SQL (arrow/format/FlightSql.proto), in an ``Any``. Those used here have
texts and numbers alone, so they are read and written here.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl

from .. import flight_tracing, telemetry
from ..errors import Error, Invalid, PeerLost, Timeout
from ..part_reading import session_of
from ..sql import open_query
from . import tables

TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
QUERIES_MAX = 4  # at a time
ROWS_OF_A_BATCH = 1 << 16
TOKEN_BYTES_MIN = 16
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def fields_of(message: bytes) -> tables.Fields:
    """The values of a protocol buffer by the number of their field: numbers, and bytes of texts and messages. Numbers
    of fixed width are left out. Raises Invalid if it is cut off."""
    found: tables.Fields = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise Invalid(f"a message of Flight SQL of {len(message)} bytes is cut off")
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        field, kind = divmod(number(), 8)
        length = {0: 0, 1: 8, 5: 4}.get(kind)
        if kind == 0:
            found.setdefault(field, []).append(number())
        elif kind == 2:
            length = number()
        if length is None or at + length > len(message):
            raise Invalid(f"a message of Flight SQL of {len(message)} bytes is cut off")
        if kind == 2:
            found.setdefault(field, []).append(message[at : at + length])
        at += length
    return found


def field(number: int, value: bytes) -> bytes:
    length = len(value)
    size = bytearray()
    while length >= 128:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes((number << 3 | 2, *size, length)) + value


def packed(name: str, message: bytes) -> bytes:
    """A message in an ``Any``."""
    return field(1, (TYPES + name).encode()) + field(2, message)


def bytes_in(fields: tables.Fields, number: int) -> bytes:
    """The last one, as in protocol buffers; may be empty."""
    value = fields.get(number, [b""])[-1]
    return value if isinstance(value, bytes) else b""


def unpacked(message: bytes) -> tuple[str, tables.Fields]:
    """The name of a message in an ``Any``, and its fields."""
    fields = fields_of(message)
    name = bytes_in(fields, 1).decode(errors="replace")
    if not name.startswith(TYPES):
        raise Invalid(f"'{name[:80]}' is not a message of Flight SQL")
    return name.removeprefix(TYPES), fields_of(bytes_in(fields, 2))


def query_in(name: str, fields: tables.Fields) -> str:
    """The text of the query that a command, a ticket or an action names."""
    if name not in (
        "CommandStatementQuery",
        "TicketStatementQuery",
        "CommandPreparedStatementQuery",
        "ActionCreatePreparedStatementRequest",
    ):
        raise NotImplementedError(
            f"Flight SQL's {name}: this server has queries, prepared ones without parameters, and lists of tables"
        )
    if 1 not in fields:
        raise Invalid(f"Flight SQL's {name} without a query")
    try:
        return bytes_in(fields, 1).decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"the query is not UTF-8: {error}") from None


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
    """Raises errors as exceptions of Flight."""
    try:
        yield
    except (PeerLost, Timeout) as error:
        raise fl.FlightUnavailableError(str(error)) from None
    except Error as error:
        raise pa.ArrowInvalid(str(error)) from None


class FlightSqlServer(fl.FlightServerBase):
    """Serves the pools of the agent at ``agent`` (None: as of ``connect``) to clients that send the token, at
    ``location`` (grpc+tcp:// or grpc+tls://), from its construction on. ``memory`` bounds DuckDB's for each query.
    Queries reach no files and load no extensions.

    >>> with FlightSqlServer("grpc+tcp://127.0.0.1:0", token) as server:
    ...     print(server.port)
    """

    def __init__(
        self,
        location: str,
        token: str,
        *,
        agent: str | None = None,
        memory: str = "1GiB",
        certificate: tuple[bytes, bytes] | None = None,
    ) -> None:
        host = location.partition("://")[2].rpartition(":")[0].strip("[]")
        if certificate is None and host not in LOOPBACK:
            raise Invalid(f"{location} is reached from other machines without encryption: it needs a certificate")
        if len(token) < TOKEN_BYTES_MIN:
            raise Invalid(f"the token has {len(token)} characters, at least {TOKEN_BYTES_MIN} are needed")
        self._agent = agent
        self._settings: dict[str, str | bool] = {"memory_limit": memory, "enable_external_access": False}
        self._free = threading.BoundedSemaphore(QUERIES_MAX)
        telemetry.start_if_configured()
        super().__init__(
            location,
            Handshake(),
            middleware={"token": TokenCheck(token), flight_tracing.NAME: flight_tracing.ServerTracing()},
            tls_certificates=[certificate] if certificate else None,
        )

    def get_flight_info(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """The columns of a query or of the answer to a question, and the ticket for its rows."""
        with errors_told(), flight_tracing.inside(context):
            name, fields = unpacked(descriptor.command)
            if name in tables.ANSWERS:
                schema, ticket = tables.schema_of_answer(name, fields), fl.Ticket(descriptor.command)
            else:
                text = query_in(name, fields)
                with self._query(text) as answer:
                    schema = answer.limit(0).to_arrow_table().schema
                ticket = fl.Ticket(packed("TicketStatementQuery", field(1, text.encode())))
        return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])])

    def get_schema(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """The schema of the answer."""
        return fl.SchemaResult(self.get_flight_info(context, descriptor).schema)

    def do_get(self, context: Any, ticket: fl.Ticket) -> fl.GeneratorStream:
        """The rows, computed as they are read."""
        batches = self._batches(ticket.ticket)
        with flight_tracing.inside(context):
            schema = next(batches)
        return fl.GeneratorStream(schema, batches)

    def _batches(self, ticket: bytes) -> Iterator[Any]:
        """The schema and the batches of the answer."""
        with errors_told():
            name, fields = unpacked(ticket)
            if make := tables.ANSWERS.get(name):
                with self._place():
                    table = make(session_of(self._agent), fields)
                yield table.schema
                yield from table.to_batches()
                return
            with self._query(query_in(name, fields)) as answer:
                reader = answer.to_arrow_reader(ROWS_OF_A_BATCH)
                yield reader.schema
                yield from reader

    def do_action(self, context: Any, action: fl.Action) -> list[bytes]:
        """Prepares a statement, or forgets it."""
        if action.type == "ClosePreparedStatement":
            return []
        if action.type != "CreatePreparedStatement":
            raise NotImplementedError(f"Flight SQL's action {action.type}: there are prepared statements")
        with errors_told(), flight_tracing.inside(context):
            text = query_in(*unpacked(action.body.to_pybytes()))
            with self._query(text) as answer:
                schema = answer.limit(0).to_arrow_table().schema
        made = field(1, text.encode()) + field(2, schema.serialize().to_pybytes())
        return [packed("ActionCreatePreparedStatementResult", made)]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """The actions for prepared statements."""
        return [("CreatePreparedStatement", "prepares a query"), ("ClosePreparedStatement", "forgets it")]

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """For one of the queries at a time."""
        if not self._free.acquire(blocking=False):
            raise fl.FlightUnavailableError(f"{QUERIES_MAX} queries are under way, which is the limit; try again")
        try:
            yield
        finally:
            self._free.release()

    @contextlib.contextmanager
    def _query(self, text: str) -> Iterator[duckdb.DuckDBPyRelation]:
        with self._place(), open_query(session_of(self._agent), text, self._settings) as answer:
            yield answer


class Handshake(fl.ServerAuthHandler):
    """Answers the handshake with which the driver of JDBC begins. TokenCheck looks at that call as at all others."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Called by Flight for the handshake; there is nothing to tell."""

    def is_valid(self, token: bytes) -> bytes:
        """Called by Flight for every other call; the name of its user, who is always the server's."""
        return b""


class TokenCheck(fl.ServerMiddlewareFactory):
    """Refuses calls without the token before their contents are read."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        """Called by Flight at the beginning of each call."""
        brought = next((values for name, values in headers.items() if name.lower() == "authorization"), [])
        if not brought:
            raise fl.FlightUnauthenticatedError("the call has no token (authorization: Bearer …)")
        if len(brought) != 1 or not hmac.compare_digest(str(brought[0]).encode(), self._expected):
            raise fl.FlightUnauthenticatedError("the call's token is not this server's")


def read_token(path: Path) -> str:
    """Reads the token from a file that only its owner may read. Raises Invalid, OSError."""
    if (mode := stat.S_IMODE(os.stat(path).st_mode)) & 0o077:
        raise Invalid(f"{path} may be read by others (mode {mode:o}): chmod 600")
    return path.read_text().removesuffix("\n")
