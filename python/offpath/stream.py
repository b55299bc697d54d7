"""Streams: batches of one schema on their way to the agent, and the tickets that tell how far they are."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from . import columns
from ._native import Stream as NativeStream
from .errors import Error, SchemaError, Timeout
from .layouts import stored_schema

if TYPE_CHECKING:
    from .session import Session

Key = str | tuple[str, str]
How = tuple[bool, bool, float | None]  # snapshot, wait, timeout
# Destinations whose frames are the sent bytes.
BYTES_AS_THEY_ARE = ("native", "serialised")


class Ticket:
    """One batch under way. ``await ticket`` waits until it is pulled, in an asyncio program."""

    __slots__ = ("number", "stream")

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream = stream
        self.number = number

    @property
    def pulled(self) -> bool:
        """The arrays are the program's again. Two loads; failures show in ``wait_pulled``."""
        return self.stream._native.pulled >= self.number

    @property
    def stored(self) -> bool:
        """The agent has taken responsibility for the batch."""
        return self.stream._native.stored >= self.number

    def wait_pulled(self, timeout: float | None = None) -> None:
        """Waits until the arrays may be changed again. ``timeout`` in seconds; None: forever.

        Raises Timeout, PeerLost, or the batch's own error if it failed.
        """
        self.stream._native.wait_pulled(self.number, timeout)

    def wait_stored(self, timeout: float | None = None) -> None:
        """Waits until the frame is in its pool; after a second a warning on standard error says for which members.
        Raises like ``wait_pulled``."""
        self.stream._native.wait_stored(self.number, timeout)

    def __await__(self) -> Generator[Any, None, Ticket]:
        return self.stream.session._waits.wait(self, stored=False).__await__()

    async def when_stored(self) -> Ticket:
        """``await ticket.when_stored()``: like ``wait_stored``, without blocking the event loop."""
        return await self.stream.session._waits.wait(self, stored=True)

    def __repr__(self) -> str:
        state = "stored" if self.stored else "pulled" if self.pulled else "posted"
        return f"<Ticket {self.number} of {self.stream.name!r}, {state}>"


class Stream:
    """Made by ``Session.stream``. Sends batches; keeps their arrays alive until they are pulled."""

    def __init__(
        self,
        session: Session,
        name: str,
        schema: pa.Schema | None,
        *,
        rows_max: int,
        destination: str,
        pool: str | None,
        keep: int,
        ranks: int,
        rank: int,
        compression: str | None,
    ) -> None:
        self.session = session
        self.name = name
        self.schema = schema = stored_schema(schema) if schema is not None else None
        self.pool_name = pool or f"local:/{name}"
        self.destination = destination
        self._steps = itertools.count()
        self.compression = compression
        specs = columns.plain_columns(schema) if schema is not None else columns.BYTES
        capsule = schema.__arrow_c_schema__() if schema is not None else None
        self._native = NativeStream(
            session._native, name, capsule, specs, destination, rows_max, pool, keep, ranks, rank, compression
        )  # fmt: skip

    def send(
        self,
        data: Any,
        key: Key | None = None,
        *,
        snapshot: bool = False,
        wait: bool = True,
        timeout: float | None = None,
        cast: bool = False,
    ) -> Ticket:
        """Posts one batch and returns immediately; until it is pulled its arrays must not change.

        ``data`` is a dict of arrays by column name, a record batch or table, anything that exports Arrow data, a
        structured array, or an object with the columns as attributes. NumPy arrays are sent from where they lie:
        one value a row (also strided, as ``x[:, 0]``), or shape (rows, n) for a fixed-size list of n. Without a schema
        (destinations ``native`` and ``serialised``) it is one contiguous buffer.

        ``key`` is (row, column), or the row alone; None numbers this stream's sends: ``step0``, ``step1`` and so on,
        where a send that fails leaves its number out. ``snapshot`` copies into staging memory instead: the arrays may
        change immediately. ``wait`` waits for room in the ring and credit, at most ``timeout`` seconds; None: forever;
        a send that waits longer than a second writes a warning to standard error. Without it WouldBlock is raised.

        Nothing is converted silently: types, units and byte orders that differ from the schema's are refused, and
        ``cast`` converts them, unless values do not survive it. Masked values of NumPy and NaT are sent as nulls.

        Raises SchemaError (with the expected and the given type), TooLarge (more than ``rows_max`` rows: ``grow``),
        WouldBlock, Timeout.
        """
        key = self._next_key() if key is None else key
        how = (snapshot, wait, timeout)
        try:
            number = self._native.send(data, key, *how)
            if number < 0:
                number = self._send_other(data, key, how, cast)
        except Timeout as error:
            raise Timeout(f"stream '{self.name}' has waited {timeout} s: {error}") from None
        return Ticket(self, number)

    def grow(self, rows_max: int, timeout: float | None = None) -> None:
        """Lets later batches have ``rows_max`` rows; fewer than before has no effect. Batches under way are not
        affected. Waits until the agent has agreed, at most ``timeout`` seconds; None: forever.

        Raises TooLarge (a column of more than 2**43 bytes), Timeout, PeerLost.
        """
        self._native.grow(rows_max, timeout)

    def _next_key(self) -> str:
        """The key of a send that names none."""
        return f"step{next(self._steps)}"

    def _send_other(self, data: Any, key: Key, how: How, cast: bool) -> int:
        """Sends data other than a dict of plain memory of the columns' types."""
        if self.schema is None:
            return self._send_bytes(data, key, how)
        data = columns.as_mapping(data, self.schema.names)
        if isinstance(data, dict):
            data = columns.whole_dates(data, self.schema)
            number = self._native.send(data, key, *how)
            if number >= 0:
                return number
        batch = columns.as_batch(data, self.schema, cast)
        return self._native.send_arrow(batch.__arrow_c_array__()[1], key, *how)

    def _send_bytes(self, data: Any, key: Key, how: How) -> int:
        if self.destination == "serialised" and isinstance(data, pa.RecordBatch | pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, data.schema) as writer:
                writer.write(data)
            return self._native.send(sink.getvalue(), key, *how)
        masked = ", whose mask bytes have no place for: send filled(…)" if hasattr(data, "mask") else ""
        raise SchemaError(f"stream '{self.name}': expected a contiguous buffer, given {type(data).__name__}{masked}")

    def move(
        self,
        pieces: Iterable[tuple[Any, int]],
        key: Key,
        *,
        object_bytes: int = 0,
        update: bool = False,
        snapshot: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Ticket:
        """Gathers buffers into one object of the pool, or changes one that a move created (``update``) in place.

        ``pieces`` are (contiguous buffer, offset in the object in bytes). A new object has ``object_bytes``, 0: up to
        the end of the last piece; bytes no piece covers are zero. The stream's destination has to be ``native``.
        ``snapshot``, ``wait`` and ``timeout`` are as for ``send``.
        """
        pieces = list(pieces)
        if not update and object_bytes == 0:
            object_bytes = max((memoryview(buffer).nbytes + offset for buffer, offset in pieces), default=0)
        return Ticket(self, self._native.move(pieces, object_bytes, key, update, snapshot, wait, timeout))

    def step_end(self, row: str) -> Ticket:
        """This rank has sent everything of step ``row``; readers see it when all ranks have said so."""
        return Ticket(self, self._native.step_end(row))

    @property
    def pulled(self) -> int:
        """The newest ticket number that is pulled."""
        return self._native.pulled

    @property
    def stored(self) -> int:
        """The newest ticket number that is stored."""
        return self._native.stored

    @property
    def credit_bytes(self) -> int:
        """Bytes that may be sent before a send would block."""
        return self._native.credit_bytes

    def close(self, timeout: float = 1.0) -> None:
        """Ends the stream; frames stay in their pool. Waits for its leases, at most ``timeout`` seconds."""
        self._native.close(timeout)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        try:
            self.close()
        except Error:
            if kind is None:
                raise

    def __repr__(self) -> str:
        closed = ", closed" if self._native.closed else ""
        compression = f", {self.compression}" if self.compression else ""
        return f"<Stream {self.name!r} to {self.pool_name}, {self.destination}{compression}{closed}>"
