"""Reading parts of a pool in the processes of an engine: what ``offpath.dask`` and ``offpath.ray`` have in common."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pyarrow.compute as pc

from .errors import Error, Invalid, NotFound, PeerLost
from .parts import PoolPart
from .query_text import parse_expression
from .session import Session, connect

_sessions: dict[tuple[int, str | None], Session] = {}  # by process and address
_opening = threading.Lock()


def read_part(part: PoolPart, columns: list[str] | None, filter: pc.Expression | None, agent: str | None) -> pa.Table:
    """The chosen rows in this process's own memory, through the agent at this address (None: as of ``connect``).

    Errors name the part's member; PeerLost is also raised if that agent cannot be reached.
    """
    place = f"part of member {part.member} of pool {part.pool}"
    try:
        session = session_of(agent)
    except Error as error:
        raise PeerLost(f"{place}: the agent beside this process cannot be reached: {error}") from error
    try:
        return owned(part.dataset(session).to_table(columns, filter))
    except Error as error:
        raise type(error)(f"{place}: {error}") from error


def session_of(agent: str | None) -> Session:
    """This process's session with the agent at this address, connected again if the agent was lost."""
    key = os.getpid(), agent
    with _opening:
        if (session := _sessions.get(key)) is not None:
            try:
                session.poll()
                return session
            except PeerLost:
                session.close()
        _sessions[key] = connect(agent)
        return _sessions[key]


def owned(table: pa.Table) -> pa.Table:
    """Copies a table, so that rows that an engine keeps do not hold the agent's memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def parts_to_read(
    name: str,
    columns: list[str] | None,
    filter: pc.Expression | str | None,
    rows: str | None,
    columns_glob: str | None,
    agent: str | None,
    arrow_only: bool,
) -> tuple[list[PoolPart], pa.Schema, pc.Expression | None]:
    """The parts of a pool, the schema of the columns that are read, and the filter as an expression of pyarrow.

    Raises the errors of ``Pool.parts``, and NotFound for a missing column.
    """
    pool = session_of(agent).pool(name)
    parts = pool.parts(rows, columns_glob, arrow_only=arrow_only)
    schema = parts[0].schema
    for column in columns or []:
        if schema.get_field_index(column) < 0:
            raise NotFound(f'pool {name}: there is no column "{column}"; there are {", ".join(schema.names)}')
    if isinstance(filter, str):
        filter = parse_expression(filter)
    if filter is not None:
        try:
            schema.empty_table().filter(filter)
        except pa.ArrowException as error:
            raise Invalid(f"pool {name}: the filter does not fit the columns: {error}") from None
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns], schema.metadata)
    return parts, schema, filter
