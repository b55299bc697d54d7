"""Tracks: particles of all time steps that a sift pool has ordered by identifier and step."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

import pyarrow as pa
import pyarrow.compute as pc

from .errors import Error, NotFound, Timeout, Unsupported, WouldBlock
from .expression import Aggregates, Columns, Part, encode_query
from .pool import SHORT_S, Frame

if TYPE_CHECKING:
    from .dataset import AgentDataset
    from .session import Session

STEP_MIN, STEP_MAX = -(2**63), 2**63 - 1
ASKED_MAX = 512  # identifiers of one request
WHOLE_MAX = 4000  # whole tracks at a time; an expression has at most 4096 values
MASK = 2**64 - 1
TOLD_S = 0.25  # how often a write reports its progress


class Written(NamedTuple):
    """How far a write to a directory is: ``members_over`` of its ``members`` have written their part."""

    over: bool
    members: int
    members_over: int
    files: int
    rows: int
    bytes: int


def array_of(values: list) -> pa.Array:
    """The values, of which some may need 64 bits without a sign. UUIDs are their bytes."""
    values = [each.bytes if isinstance(each, uuid.UUID) else each for each in values]
    try:
        return pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())


def distinct(values: Iterable[object]) -> list:
    """Each value once: NaN too, which equals nothing."""
    return list({"NaN" if isinstance(each, float) and math.isnan(each) else (each,): each for each in values}.values())


class Tracks:
    """The tracks of a sift pool, spread over the pool's members and readable during sifting; ``flush`` waits for rows
    under way. ``Session.tracks`` makes one.

    Tables have the column ``step`` (int64) first, then the columns of the pool's streams.
    """

    def __init__(self, session: Session, name: str, key: str | None = None) -> None:
        options = dict(option.split("=", 1) for option in name.partition("?")[2].split("&") if "=" in option)
        self.session = session
        self.name = name
        self.key = key or options.get("key", "id")  # the column with identifiers

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was stored, by any program at any member, is in its track. Raises Timeout."""
        self.session._native.sift_flush(self.name, timeout)

    def drop(self, timeout: float = SHORT_S) -> None:
        """Removes the pool with all its tracks, on all members."""
        self.session._native.pool_drop(self.name, None, None, timeout)

    @property
    def elements(self) -> int:
        """Into how many parts identifiers are split, by their low bits or as the pool's ``by=`` says."""
        return self.session._native.sift_elements(self.name, SHORT_S)

    def track(self, identifier: object, first_step: int = STEP_MIN, last_step: int = STEP_MAX,
              timeout: float = SHORT_S) -> pa.Table:  # fmt: skip
        """One particle through time, in the order of steps. ``identifier`` is a value of the identifiers' column: a
        number, a time in a form that pyarrow accepts, text, bytes or a UUID. Raises NotFound."""
        if isinstance(identifier, SupportsIndex):
            with contextlib.suppress(Unsupported):  # the pool's by= is not bits
                return self._read(0, [operator.index(identifier) & MASK], first_step, last_step, timeout).table()
        return self._tracks_with([identifier], first_step, last_step, timeout)

    def tracks(
        self,
        which: Iterable[object] | pc.Expression | str,
        first_step: int = STEP_MIN,
        last_step: int = STEP_MAX,
        timeout: float | None = None,
        *,
        columns: Columns | None = None,
        whole: bool = False,
    ) -> pa.Table:
        """Several particles through time, ordered by identifier and step.

        ``which`` are identifiers; absent ones have no rows, and NotFound is raised if all are absent. Or an expression
        over the rows (``step`` among their columns), of pyarrow or as text, as in ``select``.

        >>> tracks.tracks([1, 2, 3])
        >>> tracks.tracks((pc.field("x") < 0.5) & (pc.field("type") == 2), 100, 200, columns=["x"])
        >>> tracks.tracks("x < 0.5", whole=True)
        """
        if not isinstance(which, pc.Expression | str):
            which = list(which)
            if columns is None:
                return self._tracks_of(which, first_step, last_step, SHORT_S if timeout is None else timeout)
            which = self._is_any_of(which)
        found = self.select(which, first_step, last_step, timeout or 60.0, columns=columns, whole=whole)
        return pa.concat_tables(found)

    def select(
        self,
        filter: pc.Expression | str | None,
        first_step: int = STEP_MIN,
        last_step: int = STEP_MAX,
        timeout: float | None = 60.0,
        *,
        columns: Columns | None = None,
        whole: bool = False,
    ) -> Iterator[pa.Table]:
        """The rows of all tracks for which an expression holds, table by table, ordered by identifier and step over all
        of them, at least one table. It reads rows that were stored before and have reached their track.

        ``filter`` is an expression as for ``Pool.query``, or a text (``"0 <= x < 1 and type == 2"``). ``columns`` are
        names, or a dict of names to names and expressions; all are the default. ``whole``: all rows of every identifier
        for which it holds in at least one of these steps. ``timeout`` holds for all of it.

        Members continue to compute as tables are taken. Raises NotFound for a pool or column that is not there,
        SchemaError, Timeout, PeerLost with the member's name.
        """
        if isinstance(filter, str):
            from .query_text import parse_expression

            filter = parse_expression(filter)
        deadline = None if timeout is None else time.monotonic() + timeout
        filter = within(filter, first_step, last_step)
        if not whole:
            yield from self._answer(filter, columns, timeout)
            return
        found = [table[0].unique() for table in self._answer(filter, {"id": self.key}, timeout)]
        identifiers = pc.unique(pa.chunked_array(found)).sort()
        for at in range(0, max(len(identifiers), 1), WHOLE_MAX):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Timeout(f"not all of {len(identifiers)} tracks had arrived after {timeout} seconds")
            yield from self._answer(self._is_any_of(identifiers[at : at + WHOLE_MAX]), columns, left)

    def dataset(self, *, timeout: float | None = None) -> AgentDataset:
        """The rows of all tracks as a ``pyarrow.dataset.Dataset``, as of ``Pool.dataset``, with the column ``step``
        first. Rows are ordered by identifier and step. ``timeout`` holds for each scan; None: no limit.

        >>> tracks = session.tracks("sift:/tracks").dataset()
        >>> duckdb.sql("SELECT id, max(x) FROM tracks WHERE step >= 100 GROUP BY id")

        Raises NotFound, and the errors of ``select``; so do scans.
        """
        from .dataset import AgentDataset  # pyarrow.dataset only when it is asked for

        def ask(filter: Part | None, columns: list[str] | None, aggregates: Aggregates | None) -> Iterator[pa.Table]:
            return self._answer(filter, columns, timeout, aggregates)

        nothing = self._answer(pc.field("step") < STEP_MIN, None, SHORT_S)  # agents read no row for it
        return AgentDataset(f"tracks of {self.name}", next(nothing).schema, ask)

    def _answer(
        self,
        filter: pc.Expression | Part | None,
        columns: Columns | None,
        timeout: float | None,
        aggregates: Aggregates | None = None,
    ) -> Iterator[pa.Table]:
        asked = encode_query(filter, columns, aggregates)
        answer = self.session._native.pool_query(self.name, None, None, asked, timeout)
        while (native := answer.next()) is not None:
            yield Frame(native, f"tracks of {self.name}").table()

    def _is_any_of(self, identifiers: list | pa.Array) -> pc.Expression:
        """A condition for their rows. A list of values would find neither 0.0 by -0.0 nor NaN, which equals nothing."""
        values = identifiers if isinstance(identifiers, pa.Array) else array_of(distinct(identifiers))
        key = pc.field(self.key)
        if not pa.types.is_floating(values.type):
            return key.isin(values)
        chosen = key.isin(pc.add(values, pa.scalar(0.0, values.type)))
        return chosen | pc.is_nan(key) if pc.any(pc.is_nan(values)).as_py() else chosen

    def _tracks_with(self, identifiers: list, first_step: int, last_step: int, timeout: float) -> pa.Table:
        """Of any type that identifiers have: the members find them by a query."""
        values = distinct(identifiers)
        found: list[pa.Table] = []
        for at in range(0, len(values), WHOLE_MAX):
            found += self.select(self._is_any_of(values[at : at + WHOLE_MAX]), first_step, last_step, timeout)
        table = pa.concat_tables(found) if found else None
        if table is None or table.num_rows == 0:
            raise NotFound(f"pool {self.name} has none of these tracks")
        if len(values) <= WHOLE_MAX:
            return table
        return table.sort_by([(self.key, "ascending"), ("step", "ascending")])

    def _tracks_of(self, identifiers: list, first_step: int, last_step: int, timeout: float) -> pa.Table:
        if all(isinstance(each, SupportsIndex) for each in identifiers):
            with contextlib.suppress(Unsupported):  # the pool's by= is not bits
                return self._tracks_of_numbers(identifiers, first_step, last_step, timeout)
        return self._tracks_with(identifiers, first_step, last_step, timeout)

    def _tracks_of_numbers(self, identifiers: list, first_step: int, last_step: int, timeout: float) -> pa.Table:
        elements = self.elements
        asked: dict[int, list[int]] = {}
        for identifier in sorted({operator.index(each) & MASK for each in identifiers}):
            asked.setdefault(identifier & (elements - 1), []).append(identifier)
        found = []
        for element, ours in asked.items():
            for at in range(0, len(ours), ASKED_MAX):
                try:
                    frame = self._read(element, ours[at : at + ASKED_MAX], first_step, last_step, timeout)
                except NotFound:
                    continue
                found.append(frame.table())
        if not found:
            raise NotFound(f"pool {self.name} has none of these tracks")
        table = pa.concat_tables(found)
        return table.sort_by([(self.key, "ascending"), ("step", "ascending")]) if len(found) > 1 else table

    def tables(
        self, first_step: int = STEP_MIN, last_step: int = STEP_MAX, timeout: float = 60.0
    ) -> Iterator[pa.Table]:
        """All tracks, element by element; each table ordered by identifier and step."""
        for element in range(self.elements):
            try:
                yield self._read(element, None, first_step, last_step, timeout).table()
            except NotFound:
                continue

    def table(self, first_step: int = STEP_MIN, last_step: int = STEP_MAX, timeout: float = 60.0) -> pa.Table:
        """All tracks, ordered by identifier and step. Raises NotFound without tracks."""
        found = list(self.tables(first_step, last_step, timeout))
        if not found:
            raise NotFound(f"pool {self.name} has no tracks")
        return pa.concat_tables(found).sort_by([(self.key, "ascending"), ("step", "ascending")])

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float | None = None,
        progress: Callable[[Written], object] | None = None,
    ) -> int:
        """Writes all tracks, and returns how many rows. Raises NotFound.

        A name without a suffix, or of an existing directory, is a directory. Each member writes the tracks that it
        keeps to it, as Parquet files (``part-MEMBER-NNNN.parquet``), all at the same time; no row comes here. All rows
        of an identifier are in one file, and files are ordered by identifier and step. The directory has to have this
        path on the members' machines. It is made if it is missing; an existing one has to be empty and to belong to the
        agents' user, who has to be this program's. The files appear when all are complete. ``progress`` is called a few
        times a second; ``timeout`` is for all of it. Raises Exists, Denied, OSError, Timeout or PeerLost, with the
        member's name; then nothing is left of the write.

        Any other name is a file, which this program writes: Parquet (``.parquet``), text (``.csv``), an Arrow stream
        (``.arrows``) or an Arrow file; a group or batch for each element. It appears when it is whole.
        """
        if not Path(path).suffix or Path(path).is_dir():
            return self._write_directory(Path(path).absolute(), timeout, progress)
        from .object_file import write_tables

        found = self.tables()
        first = next(found, None)
        if first is None:
            raise NotFound(f"pool {self.name} has no tracks")
        return write_tables(itertools.chain([first], found), Path(path))

    def _write_directory(self, path: Path, timeout: float | None, progress: Callable[[Written], object] | None) -> int:
        native = self.session._native
        deadline = None if timeout is None else time.monotonic() + timeout
        number = native.sift_write(self.name, str(path), timeout)
        try:
            while True:
                try:
                    written = Written._make(native.sift_written(number, TOLD_S))
                except WouldBlock as slow:  # the agent, which is asked again
                    if deadline is not None and time.monotonic() >= deadline:
                        raise Timeout(str(slow)) from None
                    continue
                if progress is not None:
                    progress(written)
                if written.over:
                    return written.rows
        except BaseException:
            with contextlib.suppress(Error):  # a write that has failed is over
                native.sift_write_cancel(number)
            raise

    def _read(
        self, element: int, identifiers: list[int] | None, first_step: int, last_step: int, timeout: float
    ) -> Frame:
        # The agent knows the element of identifiers.
        native = self.session._native.sift_tracks(self.name, element, identifiers, first_step, last_step, timeout)
        return Frame(native, f"tracks of {self.name}")

    def __repr__(self) -> str:
        return f"<Tracks {self.name}>"


def within(filter: pc.Expression | None, first_step: int, last_step: int) -> pc.Expression | None:
    """The same for these steps only. Agents see the bounds, and read nothing else."""
    parts = [] if filter is None else [filter]
    if first_step > STEP_MIN:
        parts.append(pc.field("step") >= first_step)
    if last_step < STEP_MAX:
        parts.append(pc.field("step") <= last_step)
    made = None
    for part in parts:
        made = part if made is None else made & part
    return made
