"""Reading back: pools of objects on the agent."""

from __future__ import annotations

import builtins
import contextlib
import glob
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .agent_http import find_http, without_members
from .errors import Error, Invalid, NoMembersWarning, NotFound
from .expression import Aggregates, Columns, Part, encode_query
from .frame import Frame
from .histograms import Ask, Range, count_rows
from .layouts import stored_table
from .pool_file import write_pool
from .query_text import with_texts
from .snapshot import Progress, restore_snapshot, write_snapshot
from .waits import Step

if TYPE_CHECKING:
    from ._native import Frame as NativeFrame
    from ._native import Query, Request
    from .dataset import AgentDataset
    from .parts import PoolPart
    from .session import Session

SHORT_S = 10.0  # for requests that an agent answers at once
SCHEMA_TRIES = 4  # an object may go between the list and the query


class Entry(NamedTuple):
    """One object of a pool. ``rows`` is None for plain bytes; ``sequence`` is the order of storing; ``member`` is the
    agent that answers for the object in queries: the first living owner of its row."""

    row: str
    column: str
    nbytes: int
    rows: int | None
    sequence: int
    member: str


def _there(native: NativeFrame | None) -> NativeFrame:
    assert native is not None  # a get that ends well has its object
    return native


def _object_of(data: Any) -> tuple[Any, bool]:
    """The bytes of an object, and whether they are an Arrow IPC stream."""
    if isinstance(data, bytes | bytearray | memoryview | pa.Buffer):
        return data, False
    table = stored_table(pa.table(data)).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue(), True


def _next_frame(answer: Query, frames: list[Frame], name: str) -> Step:
    """Requests the next frame; returns the table of all frames at the end."""

    def take(request: Request) -> Any:
        native = request.frame()
        if native is None:
            return pa.concat_tables([frame.table() for frame in frames])
        return _next_frame(answer, [*frames, Frame(native, name)], name)

    return Step(answer.start_next(), take)


class Pool:
    """A named place on the agent where objects lie by (row, column). ``Session.pool`` makes one; no request is sent
    until something is read."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name

    def __arrow_c_schema__(self) -> object:
        """The schema of the pool's first object as a PyCapsule. Raises as ``__arrow_c_stream__``."""
        return self.reader().schema.__arrow_c_schema__()

    def get_frame(self, row: str, column: str = "", timeout: float | None = 0.0) -> Frame:
        """The object's frame. Waits up to ``timeout`` seconds for the object; None: forever.

        Raises NotFound (``timeout`` 0), Timeout, Denied.
        """
        native = self.session._native.pool_get(self.name, row, column, timeout)
        return Frame(native, f"object ({row}, {column}) of pool {self.name}")

    def want(
        self,
        row: str,
        column: str = "",
        callback: Callable[[Future[Frame]], object] | None = None,
        timeout: float | None = None,
    ) -> Future[Frame]:
        """Requests the object and returns immediately, whether it exists or not; any number may be wanted at the same
        time.

        The future has the frame when it has arrived, or Timeout, with what is missing, after ``timeout`` seconds. The
        ``callback`` is then called with the future, in a thread of the session, so it should be short. In asyncio:
        ``await asyncio.wrap_future(pool.want("step7"))``. Cancelling it, and closing the session, ends the want.
        """
        return self._start(
            lambda: self.session._native.pool_want(self.name, row, column, timeout),
            lambda request: Frame(_there(request.frame()), f"object ({row}, {column}) of pool {self.name}"),
            callback,
            timeout,
        )

    def _start(
        self,
        post: Callable[[], Request],
        finish: Callable[[Request], Any],
        callback: Callable[[Future[Any]], object] | None,
        timeout: float | None,
    ) -> Future[Any]:
        future = self.session._waits.start(post, finish, timeout)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def get(self, row: str, column: str = "", timeout: float | None = 0.0) -> pa.Table:
        """The object as a table over the agent's pages. Raises like ``get_frame``; SchemaError if it is not Arrow."""
        return self.get_frame(row, column, timeout).table()

    def get_batch(self, row: str, column: str = "", timeout: float | None = 0.0) -> pa.RecordBatch:
        """The same as one record batch."""
        return self.get_frame(row, column, timeout).batch()

    def get_bytes(self, row: str, column: str = "", timeout: float | None = 0.0) -> pa.Buffer:
        """The object's bytes, without a copy on one machine."""
        return self.get_frame(row, column, timeout).buffer()

    def create(self) -> Pool:
        """Makes the pool, on all members, if it does not exist. The policy, members and copies in its name then hold
        for all users. Storing makes it too.

        Warns with NoMembersWarning if its ``members`` match no member of the agent's group, as far as the agent's
        status pages are found. Raises Invalid (the mistake in the name), Exists (it exists with other options), Denied.
        """
        if self.name.startswith("sift:/"):  # an agent that takes no rows of the pool can also make it
            self.session._native.sift_elements(self.name, SHORT_S)
        else:
            self.session._bytes_stream(self.name, arrow=False)
        if "members=" in self.name:
            with contextlib.suppress(Error):  # an agent without status pages
                where = find_http(None, self.session._address)
                if wrong := without_members(where, self.name, self.session.info.agent_name):
                    warnings.warn(f"pool {self.name}: {wrong}", NoMembersWarning, stacklevel=2)
        return self

    def put(self, data: Any, row: str, column: str = "", timeout: float | None = None) -> None:
        """Stores one object and waits until all its owners have it: bytes unchanged, or anything that is or exports
        Arrow data as an Arrow IPC stream. For occasional objects; use a stream for frequent ones.

        Raises Timeout, Exists (the pool has ``overwrite=no``), TooLarge, Denied.
        """
        data, arrow = _object_of(data)
        self.put_object(data, row, column, arrow=arrow, timeout=timeout)

    def put_async(
        self,
        data: Any,
        row: str,
        column: str = "",
        callback: Callable[[Future[None]], object] | None = None,
        timeout: float | None = None,
    ) -> Future[None]:
        """The same without waiting until it is stored: ``data`` must not change until then. The future is like that of
        ``want``; cancelling it does not undo a put under way. The first put to a pool waits for the agent to open a
        stream. Raises WouldBlock when ring or memory are full; nothing was sent then."""
        data, arrow = _object_of(data)
        ticket = self.session._bytes_stream(self.name, arrow=arrow).send(data, (row, column), wait=False)
        future = self.session._waits.stored(ticket, timeout)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def put_object(self, data: Any, row: str, column: str = "", *, arrow: bool, timeout: float | None = None) -> None:
        """The same of bytes that are an Arrow IPC stream already (``arrow``), or plain."""
        self.session._bytes_stream(self.name, arrow=arrow).send(data, (row, column)).wait_stored(timeout)

    def snapshot(self, directory: str | os.PathLike[str], progress: Progress | None = None) -> dict[str, Any]:
        """Writes all objects, of all members, into a new directory of Arrow files and plain ones with a manifest,
        which it returns. Each object is whole, but together they do not show one moment. ``progress`` is called with
        the bytes that are done and the total.

        Raises FileExistsError, NotFound, OSError; then nothing is left of the directory.
        """
        return write_snapshot(self, directory, progress)

    def restore(self, directory: str | os.PathLike[str], progress: Progress | None = None) -> int:
        """Puts the objects of such a directory into this pool, replacing those with the same keys. Returns how many.

        Raises Invalid, which names the missing or corrupt part; an incomplete directory is refused before anything is
        put.
        """
        return restore_snapshot(self, directory, progress)

    def list(self, row: str | None = None, column: str | None = None, timeout: float = SHORT_S) -> list[Entry]:
        """Objects whose keys match the patterns (``*`` and ``?``), in the order of storing. Raises NotFound if there is
        no such pool, as ``len`` does."""
        return self._listed(self.session._native.pool_list(self.name, row, column, timeout))[0]

    def _listed(self, listing: tuple[Any, int]) -> tuple[builtins.list[Entry], int]:
        """Its entries, and the number that identifies the pool's members."""
        entries, view = listing
        own = self.session.info.agent_name
        return [Entry._make((*each[:-1], each[-1] or own)) for each in entries], view

    def list_async(
        self,
        row: str | None = None,
        column: str | None = None,
        callback: Callable[[Future[builtins.list[Entry]]], object] | None = None,
        timeout: float | None = SHORT_S,
    ) -> Future[builtins.list[Entry]]:
        """Like ``list``, without waiting; the future is as of ``want``."""
        return self._start(
            lambda: self.session._native.start_list(self.name, row, column, timeout),
            lambda request: self._listed(request.listing())[0],
            callback,
            timeout,
        )

    def keys(self) -> builtins.list[tuple[str, str]]:
        """(row, column) of every object, in storing order; empty if there is no such pool."""
        try:
            return [(entry.row, entry.column) for entry in self.list()]
        except NotFound:
            return []

    def drop(self, row: str | None = None, column: str | None = None, timeout: float = SHORT_S) -> int:
        """Removes matching objects; returns how many. Frames that are held stay readable."""
        return self.session._native.pool_drop(self.name, row, column, timeout)

    def drop_async(
        self,
        row: str | None = None,
        column: str | None = None,
        callback: Callable[[Future[int]], object] | None = None,
        timeout: float | None = SHORT_S,
    ) -> Future[int]:
        """Like ``drop``, without waiting; the future is like that of ``want``. A cancelled drop may still happen."""
        return self._start(
            lambda: self.session._native.start_drop(self.name, row, column, timeout),
            lambda request: request.dropped(),
            callback,
            timeout,
        )

    def query(
        self,
        filter: pc.Expression | str | None = None,
        columns: Columns | None = None,
        aggregates: Aggregates | str | None = None,
        *,
        rows: str | None = None,
        columns_glob: str | None = None,
        timeout: float | None = 60.0,
        partial: bool = False,
        arrow_only: bool = False,
    ) -> pa.Table:
        """Queries the pool's objects: the rows chosen by the filter, or figures over them.

        Rows come in the order of storing; of a pool on several members by member, in the order of their names.

        ``filter`` is an expression of pyarrow over the objects' columns; ``columns`` are names, or a dict of names to
        names and expressions; ``aggregates`` a dict of names to (sum, min, max, mean or count; name or expression), or
        to "count" for all rows (``histogram`` and ``histogram2d`` count by bins). ``rows`` and ``columns_glob`` are
        patterns of the objects' keys. ``timeout`` holds for all of it. ``partial``: if members were lost with rows that
        no other has, the remaining rows are answered. ``arrow_only``: objects that are not Arrow are left out;
        otherwise the first of them is a SchemaError.

        Filter and aggregate may be texts, as on the command line; an aggregate may also be given in the filter's place.

        >>> pool.query("x < 0.5", ["id", "x"])
        >>> pool.query("max(x)"), pool.query("x < 0.5", aggregates="n=count")
        >>> pool.query(pc.field("x") < 0.5, ["id", "x"])
        >>> pool.query(aggregates={"fastest": ("max", pc.field("v") * pc.field("v")), "n": "count"})

        Raises NotFound for a pool, object or column that is not there, SchemaError, Unsupported, Timeout, and PeerLost,
        with the names of members that are lost with their rows.
        """
        frames = self.query_frames(
            filter,
            columns,
            aggregates,
            rows=rows,
            columns_glob=columns_glob,
            timeout=timeout,
            partial=partial,
            arrow_only=arrow_only,
        )
        return pa.concat_tables([frame.table() for frame in frames])

    def histogram(
        self,
        of: pc.Expression | str,
        bins: int = 10,
        range: Range | None = None,
        *,
        filter: pc.Expression | str | None = None,
        rows: str | None = None,
        columns_glob: str | None = None,
        timeout: float | None = 60.0,
        partial: bool = False,
        arrow_only: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Counts of a column or expression in bins of equal width, and the edges of the bins: (bins,) and (bins + 1,),
        as ``numpy.histogram`` has them of float64. The agents count, so only counts are sent.

        ``range``: the lowest and the highest edge; None: those of the values, which a first query finds. Values
        that are null, NaN or beyond the range are not counted. The other parameters and errors are those of ``query``.

        >>> counts, edges = pool.histogram("x", 64, rows="step10")
        >>> counts, edges = pool.histogram(pc.field("v") * pc.field("v"), 64, (0.0, 4.0), filter="x < 0.5")
        """
        ask = self._ask_of(filter, rows=rows, columns_glob=columns_glob, partial=partial, arrow_only=arrow_only)
        counts, edges = count_rows(ask, [of], [bins], None if range is None else [range], timeout)
        return counts, edges[0]

    def histogram2d(
        self,
        x: pc.Expression | str,
        y: pc.Expression | str,
        bins: int | tuple[int, int] = 10,
        range: tuple[Range, Range] | None = None,
        *,
        filter: pc.Expression | str | None = None,
        rows: str | None = None,
        columns_glob: str | None = None,
        timeout: float | None = 60.0,
        partial: bool = False,
        arrow_only: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """The same over two columns or expressions, as ``numpy.histogram2d`` has it: counts (bins of x, bins of y), the
        edges of x, the edges of y. At most 1,048,576 bins together.

        >>> counts, x_edges, y_edges = pool.histogram2d("x", "y", 256, rows="step10")
        """
        ask = self._ask_of(filter, rows=rows, columns_glob=columns_glob, partial=partial, arrow_only=arrow_only)
        numbers = [bins, bins] if isinstance(bins, int) else [*bins]
        counts, edges = count_rows(ask, [x, y], numbers, None if range is None else [*range], timeout)
        return counts, edges[0], edges[1]

    def _ask_of(self, filter: pc.Expression | str | None, **asked: Any) -> Ask:
        return lambda aggregates, timeout: self.query(filter, None, aggregates, timeout=timeout, **asked)

    def query_async(
        self,
        filter: pc.Expression | str | None = None,
        columns: Columns | None = None,
        aggregates: Aggregates | str | None = None,
        *,
        rows: str | None = None,
        columns_glob: str | None = None,
        callback: Callable[[Future[pa.Table]], object] | None = None,
        timeout: float | None = 60.0,
        partial: bool = False,
        arrow_only: bool = False,
    ) -> Future[pa.Table]:
        """Like ``query``, without waiting; the future is as of ``want``."""
        asked = encode_query(*with_texts(filter, columns, aggregates), without_lost=partial, arrow_only=arrow_only)
        return self._start(
            lambda: self.session._native.start_query(self.name, rows, columns_glob, asked, timeout),
            lambda request: _next_frame(request.query(), [], f"answer from pool {self.name}"),
            callback,
            timeout,
        )

    def query_frames(
        self,
        filter: pc.Expression | str | None = None,
        columns: Columns | None = None,
        aggregates: Aggregates | str | None = None,
        *,
        rows: str | None = None,
        columns_glob: str | None = None,
        timeout: float | None = 60.0,
        partial: bool = False,
        arrow_only: bool = False,
    ) -> Iterator[Frame]:
        """The same frame by frame, at least one: the agent continues to compute as they are taken."""
        asked = encode_query(*with_texts(filter, columns, aggregates), without_lost=partial, arrow_only=arrow_only)
        return self._answer(asked, rows, columns_glob, timeout)

    def _answer(
        self, asked: bytes, rows: str | None, columns_glob: str | None, timeout: float | None
    ) -> Iterator[Frame]:
        answer = self.session._native.pool_query(self.name, rows, columns_glob, asked, timeout)
        while (native := answer.next()) is not None:
            yield Frame(native, f"answer from pool {self.name}")

    def dataset(
        self,
        rows: str | None = None,
        columns_glob: str | None = None,
        *,
        timeout: float | None = None,
        partial: bool = False,
        arrow_only: bool = False,
    ) -> AgentDataset:
        """The objects as a ``pyarrow.dataset.Dataset``, for programs that hand columns and a filter down to it: DuckDB,
        Polars (``scan_pyarrow_dataset``), DataFusion, pandas. Agents read the named columns, compute the filter, and
        send the chosen rows (docs/guides/readers.md). All objects have one schema, which is read here.

        ``rows`` and ``columns_glob`` are patterns of the objects' keys. ``timeout`` holds for each scan, from its first
        row to its last, including its reader's work; None: no limit. ``partial`` and ``arrow_only`` are as in
        ``query``.

        >>> particles = session.pool("local:/particles").dataset(rows="step*")
        >>> duckdb.sql("SELECT avg(v) FROM particles WHERE x < 0.5").show()
        >>> polars.scan_pyarrow_dataset(particles).filter(polars.col("x") < 0.5).select("v").collect()

        Raises NotFound if no object matches, and the errors of ``query``; so do scans.
        """
        from .dataset import AgentDataset  # pyarrow.dataset only when it is asked for

        def ask(
            filter: Part | None, columns: builtins.list[str] | None, aggregates: Aggregates | None
        ) -> Iterator[pa.Table]:
            asked = encode_query(filter, columns, aggregates, without_lost=partial, arrow_only=arrow_only)
            for frame in self._answer(asked, rows, columns_glob, timeout):
                yield frame.table()

        return AgentDataset(f"pool {self.name}", self._newest_schema(rows, columns_glob, arrow_only), ask)

    def parts(
        self, rows: str | None = None, columns_glob: str | None = None, *, arrow_only: bool = False
    ) -> builtins.list[PoolPart]:
        """The objects divided by the member that answers for them, in the order of members, for Dask, Ray and others,
        which read each part beside its member. Together the parts have each row once. If members change after this,
        reading a part raises Stale. A pool of one agent has one part.

        >>> for part in session.pool("hash:/particles").parts(rows="step*"):
        ...     print(part.member, part.rows, part.dataset(session).to_table(["id"], pc.field("x") < 0.5))

        Raises NotFound if no object matches, Denied, SchemaError.
        """
        from .parts import PoolPart  # with pyarrow.dataset

        listing = self.session._native.pool_list(self.name, rows, columns_glob, SHORT_S)
        entries, view = self._listed(listing)
        schema = self._newest_schema(rows, columns_glob, arrow_only)
        by_member: dict[str, builtins.list[Entry]] = {}
        for entry in entries:
            if entry.rows is not None or not arrow_only:
                by_member.setdefault(entry.member, []).append(entry)
        return [
            PoolPart(
                self.name,
                member,
                view,
                schema,
                objects=len(each),
                rows=sum(entry.rows or 0 for entry in each),
                nbytes=sum(entry.nbytes for entry in each),
                row_glob=rows,
                columns_glob=columns_glob,
                arrow_only=arrow_only,
            )
            for member, each in sorted(by_member.items())
        ]

    def _newest_schema(self, rows: str | None, columns_glob: str | None, arrow_only: bool) -> pa.Schema:
        """The schema of the newest object whose keys match, without its rows. Raises NotFound, SchemaError."""
        for _ in range(SCHEMA_TRIES):
            entries = [each for each in self.list(rows, columns_glob) if each.rows is not None or not arrow_only]
            if not entries:
                break
            row, column = glob.escape(entries[-1].row), glob.escape(entries[-1].column)
            with contextlib.suppress(NotFound):  # dropped meanwhile, as pools drop the oldest
                return self.query(pc.scalar(False), rows=row, columns_glob=column, timeout=SHORT_S).schema
        raise NotFound(f"pool {self.name} has no objects whose keys match ({rows or '*'}, {columns_glob or '*'})")

    def compute(
        self,
        function: str,
        row: str,
        column: str = "",
        arguments: bytes = b"",
        result: str | tuple[str, str] | None = None,
        timeout: float | None = 60.0,
    ) -> Frame | None:
        """Calls a function of a plug-in, "plugin/function", where the object lies: with that object, or with all of
        the row, by column, if ``column`` is empty.

        Without ``result`` the function's one output is returned, or None. ``result`` is the column, or row and column,
        under which outputs are put into the pool instead; several outputs get ``.`` and their own names appended, and
        an empty column stands for these names alone. ``timeout`` is the time that the objects may take to appear and
        the function to run, together; 0: the objects must exist, and the function has its plug-in's time; None:
        forever.

        >>> pool.compute("particles/mean", "step7", "x").buffer()
        >>> pool.compute("particles/bounding_box", "step7", arguments=box.tobytes(), result="inside")

        Raises FunctionFailed with the function's message, Timeout, NotFound, TooLarge.
        """
        native = self.session._native.pool_compute(
            *self._computation(function, row, column, arguments, result), timeout
        )
        return None if native is None else Frame(native, f"output of {function} from pool {self.name}")

    def compute_async(
        self,
        function: str,
        row: str,
        column: str = "",
        arguments: bytes = b"",
        result: str | tuple[str, str] | None = None,
        callback: Callable[[Future[Frame | None]], object] | None = None,
        timeout: float | None = 60.0,
    ) -> Future[Frame | None]:
        """Like ``compute``, without waiting; the future is as of ``want``. Cancelled, the function is stopped."""
        asked = self._computation(function, row, column, arguments, result)

        def finish(request: Request) -> Frame | None:
            native = request.frame()
            return None if native is None else Frame(native, f"output of {function} from pool {self.name}")

        return self._start(lambda: self.session._native.start_compute(*asked, timeout), finish, callback, timeout)

    def _computation(
        self, function: str, row: str, column: str, arguments: bytes, result: str | tuple[str, str] | None
    ) -> tuple[str, str, str, str, str, bytes, str | None, str | None]:
        # A dot is the old form, which no page shows.
        plugin, mark, name = function.partition("/") if "/" in function else function.rpartition(".")
        if not mark:
            raise Invalid(f"function {function!r}: it is named plugin/function")
        keys = (row, result) if isinstance(result, str) else result or (None, None)
        return self.name, row, column, plugin, name, bytes(arguments), keys[0], keys[1]

    def write(self, path: str | os.PathLike[str], timeout: float | None = None, *, arrow_only: bool = False) -> int:
        """Writes all objects, in the order of storing, as one Arrow IPC stream file; returns its bytes.

        With ``arrow_only`` objects that are not Arrow are left out, and this program writes; otherwise the first of
        them is a SchemaError.

        On one machine the agent does the writing, unless its file system is of a network or FUSE. The file appears
        when it is complete. An existing file stays unchanged until then, and permanently if there is no room for the
        new one. An existing pipe or device is written to directly, by the calling thread.
        """
        return write_pool(self, path, timeout, arrow_only)

    def frames(self) -> Iterator[Frame]:
        """All objects, in the order of storing. One that was dropped meanwhile is left out."""
        for row, column in self.keys():
            try:
                yield self.get_frame(row, column)
            except NotFound:
                continue

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (frame.batch() for frame in self.frames() if frame.is_arrow)

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, key: Any) -> bool:
        return (key if isinstance(key, tuple) else (key, "")) in self.keys()

    def reader(self) -> pa.RecordBatchReader:
        """All objects as one stream of batches. Raises NotFound for an empty pool."""
        frames = self.frames()
        first = next(frames, None)
        if first is None:
            raise NotFound(f"pool {self.name} has no objects")
        head = first.batch()

        def batches() -> Iterator[pa.RecordBatch]:
            yield head
            for frame in frames:
                yield frame.batch()

        return pa.RecordBatchReader.from_batches(head.schema, batches())

    def table(self) -> pa.Table:
        """All objects as one table, over the agent's pages."""
        return self.reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All batches of the pool as a PyCapsule, over the agent's pages: ``pyarrow.table(pool)``,
        ``polars.DataFrame(pool)``. Raises NotFound for an empty pool, SchemaError where objects are not Arrow."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<Pool {self.name}>"
