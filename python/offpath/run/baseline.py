"""The work of a program without an agent: it converts its arrays to Arrow and serialises them itself, with pyarrow."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

METADATA_BYTES_MAX = 1 << 16  # schema and message headers of a few columns are 1-2 KiB


class HostSerialiser:
    """Serialises batches of one schema, into new memory as who keeps every frame does, or into one buffer used again.

    The second is the fastest way pyarrow offers: the buffer's pages were touched in advance.
    """

    def __init__(self, schema: pa.Schema, payload_bytes_max: int) -> None:
        self.schema = schema
        self.payload_bytes_max = 0
        self.reserve(payload_bytes_max)

    def reserve(self, payload_bytes: int) -> None:
        """Room for a batch of that size, allocated outside of the measured time."""
        if payload_bytes <= self.payload_bytes_max:
            return
        self.payload_bytes_max = payload_bytes
        self.buffer = pa.allocate_buffer(payload_bytes + METADATA_BYTES_MAX)
        np.frombuffer(self.buffer, np.uint8)[:] = 0

    def serialise(self, columns: dict[str, NDArray[Any]]) -> pa.Buffer:
        """Columns as of ``make_columns`` become an Arrow IPC stream in memory of its own, which is returned."""
        pages = pa.py_buffer(mmap.mmap(-1, self.payload_bytes_max + METADATA_BYTES_MAX))
        return pages.slice(0, self.write(columns, pages))

    def serialise_again(self, columns: dict[str, NDArray[Any]]) -> pa.Buffer:
        """The same in the one buffer: valid until the next call."""
        return self.buffer.slice(0, self.write(columns, self.buffer))

    def write(self, columns: dict[str, NDArray[Any]], target: pa.Buffer) -> int:
        arrays = [to_arrow(columns[field.name], field.type) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        with pa.FixedSizeBufferWriter(target) as sink:
            with pa.ipc.new_stream(sink, self.schema) as writer:
                writer.write_batch(batch)
            return sink.tell()


def to_arrow(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A view where Arrow allows one (dense values, three doubles a row); a strided column is copied by pyarrow."""
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=kind)
    return pa.array(values, type=kind)
