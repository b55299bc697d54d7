"""Stores records of an exchange as Parquet files, as LDMS stores samples. Each file has a period; the oldest go first.

Records are appended to an Arrow IPC stream (``.part``), which is readable after a crash up to its last whole batch.
When the period is over, or the next store begins, it becomes a Parquet file and is then removed.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet

from .errors import Exists, Invalid
from .exchange import Exchange, Field, View

ARROW_TYPES = {"u64": pa.uint64(), "i64": pa.int64(), "f64": pa.float64()}
STARTED = "%Y%m%dT%H%M%S.%fZ"


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    """The columns of a store: time, round and member of a record, and its fields, or its bytes if it has no fields."""
    columns = [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("epoch", pa.uint64(), nullable=False),
        pa.field("member", pa.string(), nullable=False),
    ]
    for field in fields:
        columns.append(pa.field(field.name, ARROW_TYPES[field.type], metadata={"unit": field.unit}))
    return pa.schema(columns if fields else [*columns, pa.field("record", pa.binary())])


class ExchangeStore:
    """The records of one exchange in a directory, in files named for the exchange and the time of their first record.

    A file has the records of ``period``. Files go when all of their records are older than ``keep``, and the oldest
    ones when all together have more than ``bytes_max``; None: never. Times are arguments, in UTC.

    Raises Exists if another program stores this exchange there.

    >>> with ExchangeStore(exchange, "power", keep=timedelta(days=7)) as store:
    ...     while True:
    ...         store.add(exchange.view(), datetime.now(timezone.utc))
    """

    def __init__(
        self,
        exchange: Exchange,
        directory: str | os.PathLike[str],
        *,
        period: timedelta = timedelta(minutes=10),
        keep: timedelta | None = None,
        bytes_max: int | None = None,
    ) -> None:
        if period <= timedelta(0) or (keep is not None and keep < period):
            raise Invalid(f"a store with files of {period} that keeps them for {keep}: it must keep at least one file")
        self.directory = Path(directory)
        self._exchange = exchange
        self._prefix = quote(exchange.name, safe="")
        self._period, self._keep, self._bytes_max = period, keep, bytes_max
        self._newest: dict[str, int] = {}  # round of the newest record that is stored, by member
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._file: pa.OSFile | None = None
        self._schema: pa.Schema | None = None
        self._until = datetime.max.replace(tzinfo=timezone.utc)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.directory / f"{self._prefix}.lock", "w")  # until this object goes
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Exists(f"another program stores exchange {exchange.name} in {self.directory}") from None
        self._finish_parts()

    def add(self, view: View, now: datetime) -> int:
        """Stores the records of a view that are not stored yet; returns how many. Raises OSError, as when the disk is
        full: earlier records stay, and the next call tries again."""
        new = [
            entry
            for entry in view.entries.values()
            if entry.has_value and entry.epoch > self._newest.get(entry.member, -1)
        ]
        schema = schema_of(self._exchange.fields)
        if self._writer is not None and (now >= self._until or schema != self._schema):
            self.close()
        if not new:
            return 0
        if self._writer is None:
            self._open(schema, now)
            self._prune(now)
        assert self._writer is not None
        columns: dict[str, list[object]] = {
            "time": [now - timedelta(seconds=entry.age) for entry in new],
            "epoch": [entry.epoch for entry in new],
            "member": [entry.member for entry in new],
        }
        for field in self._exchange.fields:
            columns[field.name] = [entry.values.get(field.name) for entry in new]
        if not self._exchange.fields:
            columns["record"] = [entry.record for entry in new]
        try:
            self._writer.write_batch(pa.record_batch(columns, schema=schema))
        except OSError:  # nothing that follows half a batch could be read
            self._writer = None
            raise
        self._newest.update((entry.member, entry.epoch) for entry in new)
        return len(new)

    def close(self) -> None:
        """Ends the file that records are appended to; the next record begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._finish_parts()

    def files(self) -> list[Path]:
        """The finished files, the oldest first."""
        return sorted(self.directory.glob(f"{self._prefix}-*.parquet"))

    def _open(self, schema: pa.Schema, now: datetime) -> None:
        self._finish_parts()
        self._file = pa.OSFile(str(self.directory / f"{self._prefix}-{now.strftime(STARTED)}.part"), "wb")
        self._writer = pa.ipc.new_stream(self._file, schema)
        self._schema, self._until = schema, now + self._period

    def _finish_parts(self) -> None:
        """Ends all files that are not finished; afterwards none is being written."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for part in sorted(self.directory.glob(f"{self._prefix}-*.part")):
            finish(part)

    def _prune(self, now: datetime) -> None:
        files = self.files()
        total = sum(file.stat().st_size for file in files)
        for file in files:
            is_old = self._keep is not None and started(file) + self._period < now - self._keep
            if not is_old and (self._bytes_max is None or total <= self._bytes_max):
                continue
            total -= file.stat().st_size
            file.unlink()

    def __enter__(self) -> ExchangeStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._lock.close()


def started(file: Path) -> datetime:
    """The time of a file's first record; now, if its name is not a store's."""
    match = re.fullmatch(r".*-(\d{8}T\d{6}\.\d{6}Z)", file.stem)
    return datetime.strptime(match[1], STARTED).replace(tzinfo=timezone.utc) if match else datetime.now(timezone.utc)


def finish(part: Path) -> None:
    """Writes a Parquet file with the appended records that are complete."""
    batches = list(whole_batches(part))
    if batches:
        made = part.with_suffix(".tmp")
        pyarrow.parquet.write_table(pa.Table.from_batches(batches).combine_chunks(), made, compression="zstd")
        os.replace(made, part.with_suffix(".parquet"))
    part.unlink()


def whole_batches(part: Path) -> Iterator[pa.RecordBatch]:
    """Yields batches up to the point where the file was truncated."""
    try:
        with pa.OSFile(str(part)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader
    except (OSError, pa.ArrowException) as error:
        if getattr(error, "errno", None) is not None:  # the disk's: the file stays
            raise
