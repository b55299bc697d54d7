"""Flight SQL over pools, for clients of ADBC, JDBC and ODBC: ``offpath flight-sql``, a server beside an agent.

DuckDB computes a query as ``offpath sql`` does; agents read its columns and filter its rows. Queries, and prepared
statements without parameters, are what it serves. The server keeps nothing between two calls: tickets and handles of
statements are the text of the query.

The messages are protocol buffers of Flight SQL (arrow/format/FlightSql.proto), in an ``Any``. Those used here have
texts in their first fields alone, so they are read and written here.
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

from . import flight_tracing, telemetry
from .errors import Error, Invalid, PeerLost, Timeout
from .part_reading import session_of
from .sql import open_query

TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
QUERIES_MAX = 4  # at a time
ROWS_OF_A_BATCH = 1 << 16
TOKEN_BYTES_MIN = 16
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def fields_of(message: bytes) -> dict[int, bytes]:
    """The fields of a protocol buffer that are texts, bytes or messages, by number. Raises Invalid if it is cut off."""
    found: dict[int, bytes] = {}
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
            number()
        elif kind == 2:
            length = number()
        if length is None or at + length > len(message):
            raise Invalid(f"a message of Flight SQL of {len(message)} bytes is cut off")
        if kind == 2:
            found[field] = message[at : at + length]
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


def unpacked(message: bytes) -> tuple[str, dict[int, bytes]]:
    """The name of a message in an ``Any``, and its fields."""
    fields = fields_of(message)
    name = fields.get(1, b"").decode(errors="replace")
    if not name.startswith(TYPES):
        raise Invalid(f"'{name[:80]}' is no message of Flight SQL")
    return name.removeprefix(TYPES), fields_of(fields.get(2, b""))


def query_in(message: bytes) -> str:
    """The text of the query that a command, a ticket or an action names."""
    name, fields = unpacked(message)
    if name not in (
        "CommandStatementQuery",
        "TicketStatementQuery",
        "CommandPreparedStatementQuery",
        "ActionCreatePreparedStatementRequest",
    ):
        raise NotImplementedError(f"Flight SQL's {name}: this server has queries, and prepared ones without parameters")
    if 1 not in fields:
        raise Invalid(f"Flight SQL's {name} without a query")
    try:
        return fields[1].decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"the query is no UTF-8: {error}") from None


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
            middleware={"token": TokenCheck(token), flight_tracing.NAME: flight_tracing.ServerTracing()},
            tls_certificates=[certificate] if certificate else None,
        )

    def get_flight_info(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """The columns of a query, and the ticket for its rows."""
        with errors_told(), flight_tracing.inside(context):
            text = query_in(descriptor.command)
            with self._query(text) as answer:
                schema = answer.limit(0).to_arrow_table().schema
        ticket = fl.Ticket(packed("TicketStatementQuery", field(1, text.encode())))
        return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])])

    def get_schema(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """The schema of a query's answer."""
        return fl.SchemaResult(self.get_flight_info(context, descriptor).schema)

    def do_get(self, context: Any, ticket: fl.Ticket) -> fl.GeneratorStream:
        """The rows, computed as they are read."""
        batches = self._batches(ticket.ticket)
        with flight_tracing.inside(context):
            schema = next(batches)
        return fl.GeneratorStream(schema, batches)

    def _batches(self, ticket: bytes) -> Iterator[Any]:
        """The schema and the batches of a query's answer."""
        with errors_told(), self._query(query_in(ticket)) as answer:
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
            text = query_in(action.body.to_pybytes())
            with self._query(text) as answer:
                schema = answer.limit(0).to_arrow_table().schema
        made = field(1, text.encode()) + field(2, schema.serialize().to_pybytes())
        return [packed("ActionCreatePreparedStatementResult", made)]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """The actions for prepared statements."""
        return [("CreatePreparedStatement", "prepares a query"), ("ClosePreparedStatement", "forgets it")]

    @contextlib.contextmanager
    def _query(self, text: str) -> Iterator[duckdb.DuckDBPyRelation]:
        if not self._free.acquire(blocking=False):
            raise fl.FlightUnavailableError(f"{QUERIES_MAX} queries are under way, which is the limit; try again")
        try:
            with open_query(session_of(self._agent), text, self._settings) as answer:
                yield answer
        finally:
            self._free.release()


class TokenCheck(fl.ServerMiddlewareFactory):
    """Refuses calls without the token before their contents are read."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        """Called by Flight at the beginning of each call."""
        brought = next((values for name, values in headers.items() if name.lower() == "authorization"), [])
        if not brought:
            raise fl.FlightUnauthenticatedError("the call brings no token (authorization: Bearer …)")
        if len(brought) != 1 or not hmac.compare_digest(str(brought[0]).encode(), self._expected):
            raise fl.FlightUnauthenticatedError("the call's token is not this server's")


def read_token(path: Path) -> str:
    """Reads the token from a file that only its owner may read. Raises Invalid, OSError."""
    if (mode := stat.S_IMODE(os.stat(path).st_mode)) & 0o077:
        raise Invalid(f"{path} may be read by others (mode {mode:o}): chmod 600")
    return path.read_text().removesuffix("\n")
