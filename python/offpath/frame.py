"""An object that was read from an agent, mapped where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from .errors import SchemaError

if TYPE_CHECKING:
    from ._native import Frame as NativeFrame


class Frame:
    """An object read from the agent. Its memory is the agent's own pages where they can be mapped; it stays leased for
    as long as this or any buffer or table made from it lives. Supports the Arrow PyCapsule interface."""

    def __init__(self, native: NativeFrame, name: str) -> None:
        self._native = native
        self._name = name

    @property
    def nbytes(self) -> int:
        """Bytes of the object as it lies in the pool."""
        return self._native.nbytes

    @property
    def rows(self) -> int | None:
        """Rows of the object; None for plain bytes."""
        return self._native.rows if self.is_arrow else None

    @property
    def is_arrow(self) -> bool:
        """The bytes are an Arrow IPC stream."""
        return self._native.is_arrow

    @property
    def mapped(self) -> bool:
        """The memory is the agent's own, not a copy."""
        return self._native.mapped

    @property
    def address(self) -> int:
        """Where the bytes lie in this process."""
        return self._native.address

    def buffer(self) -> pa.Buffer:
        """The bytes, without a copy."""
        return pa.py_buffer(self._native)

    def __bytes__(self) -> bytes:
        return self.buffer().to_pybytes()

    def reader(self) -> pa.RecordBatchReader:
        """The bytes as Arrow. Raises SchemaError if they are not Arrow."""
        if not self.is_arrow:
            raise SchemaError(f"{self._name} is plain bytes, not Arrow; read it with get_bytes")
        return pa.ipc.open_stream(self.buffer())

    def table(self) -> pa.Table:
        """All batches as one table, without a copy. Raises SchemaError if the bytes are not Arrow."""
        return self.reader().read_all()

    def batch(self) -> pa.RecordBatch:
        """The first batch, without a copy. Raises SchemaError if the bytes are not Arrow."""
        return self.reader().read_next_batch()

    def __arrow_c_schema__(self) -> object:
        """The Arrow schema as a PyCapsule. Raises SchemaError if the bytes are not Arrow."""
        return self.reader().schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches as a PyCapsule, over the frame's own memory: ``pyarrow.table(frame)``, ``polars.from_arrow``,
        ``nanoarrow.ArrayStream``. Raises SchemaError if the bytes are not Arrow."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        rows = f", {self.rows} rows" if self.is_arrow else ""
        return f"<Frame {self._name}: {self.nbytes} bytes{rows}{', mapped' if self.mapped else ''}>"
