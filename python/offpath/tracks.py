"""Tracks: particles of all time steps that a sift pool has ordered by identifier and step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from .errors import NotFound
from .pool import SHORT_S, Frame

if TYPE_CHECKING:
    from .session import Session

STEP_MIN, STEP_MAX = -(2**63), 2**63 - 1
ASKED_MAX = 512  # identifiers of one request
MASK = 2**64 - 1


class Tracks:
    """The tracks of a sift pool, spread over the pool's members and readable while sifting goes on; ``flush`` waits for
    what is still under way. ``Session.tracks`` makes one.

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
        """Into how many parts identifiers are split, by their low bits."""
        return self.session._native.sift_elements(self.name, SHORT_S)

    def track(self, identifier: int, first_step: int = STEP_MIN, last_step: int = STEP_MAX,
              timeout: float = SHORT_S) -> pa.Table:  # fmt: skip
        """One particle through time, in the order of steps. Raises NotFound."""
        return self._read(0, [identifier & MASK], first_step, last_step, timeout).table()

    def tracks(self, identifiers: Iterable[int], first_step: int = STEP_MIN, last_step: int = STEP_MAX,
               timeout: float = SHORT_S) -> pa.Table:  # fmt: skip
        """Several particles through time, ordered by identifier and step. Those that are not there have no rows.

        Raises NotFound if none is there.
        """
        elements = self.elements
        asked: dict[int, list[int]] = {}
        for identifier in sorted({each & MASK for each in identifiers}):
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
        """All tracks, ordered by identifier and step. Raises NotFound if there are none."""
        found = list(self.tables(first_step, last_step, timeout))
        if not found:
            raise NotFound(f"pool {self.name} has no tracks")
        return pa.concat_tables(found).sort_by([(self.key, "ascending"), ("step", "ascending")])

    def write(self, path: str | os.PathLike[str]) -> int:
        """Writes all tracks to a Parquet file (``.parquet``) or an Arrow file; a group or batch for each element.
        Returns rows.

        The file appears when it is whole.
        """
        import pyarrow.parquet

        place = os.fspath(path)
        part = f"{place}.{os.getpid()}.part"
        rows = 0
        writer = None
        try:
            for table in self.tables():
                if writer is None:
                    parquet = place.endswith(".parquet")
                    make = pyarrow.parquet.ParquetWriter if parquet else pa.ipc.new_file
                    writer = make(part, table.schema)
                writer.write_table(table)
                rows += table.num_rows
            if writer is None:
                raise NotFound(f"pool {self.name} has no tracks")
            writer.close()
            os.replace(part, place)
        finally:
            if os.path.exists(part):
                os.unlink(part)
        return rows

    def _read(
        self, element: int, identifiers: list[int] | None, first_step: int, last_step: int, timeout: float
    ) -> Frame:
        # The agent knows the element of identifiers.
        native = self.session._native.sift_tracks(self.name, element, identifiers, first_step, last_step, timeout)
        return Frame(native, f"tracks of {self.name}")

    def __repr__(self) -> str:
        return f"<Tracks {self.name}>"
