"""Independent readers of Arrow streams: each takes the bytes of a stream and gives a table that has equals()."""

from __future__ import annotations

import io
from typing import Any

import duckdb
import nanoarrow
import nanoarrow.ipc
import polars
import pyarrow as pa
from nanoarrow._utils import NanoarrowException

# The exceptions of a reader for a type that it does not know.
UNREADABLE = (
    polars.exceptions.PolarsError,
    polars.exceptions.PanicException,
    NanoarrowException,
    duckdb.Error,
    pa.ArrowException,
)


def by_pyarrow(stream: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()


def by_polars(stream: pa.Buffer) -> polars.DataFrame:
    return polars.read_ipc_stream(io.BytesIO(stream), use_pyarrow=False)


def by_nanoarrow(stream: pa.Buffer) -> pa.Table:
    with nanoarrow.ipc.InputStream.from_readable(io.BytesIO(stream)) as opened:
        table = pa.RecordBatchReader.from_stream(nanoarrow.c_array_stream(opened)).read_all()
    table.validate(full=True)
    return table


def by_duckdb(table: pa.Table) -> pa.Table:
    # A connection for each, because some types it does not know invalidate the one in use.
    with duckdb.connect() as connection:
        return connection.from_arrow(table).to_arrow_table()


def written_by_pyarrow(batch: pa.RecordBatch, codec: str | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def same(first: Any, second: Any) -> bool:
    return first.equals(second) if hasattr(first, "equals") else first == second
