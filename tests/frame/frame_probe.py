"""The frame layer's test library (frame_probe.cc) for Python: data of pyarrow in, frames out."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

PAGE = 4096


def _find_library() -> Path:
    named = os.environ.get("OFFPATH_FRAME_PROBE")
    if named:
        return Path(named)
    root = Path(__file__).resolve().parents[2]
    for preset in ("release", "dev"):  # a sanitized one cannot be loaded into a plain Python
        built = root / "build" / preset / "tests" / "frame_probe.so"
        if built.exists():
            return built
    raise FileNotFoundError("frame_probe.so is not built: run ./dev build, or set OFFPATH_FRAME_PROBE")


class CStruct:
    """An ArrowSchema or ArrowArray that this object owns until a consumer has moved it out."""

    BYTES = 80  # of the larger one, ArrowArray

    def __init__(self, release: Callable[[int], None]) -> None:
        self.memory = ctypes.create_string_buffer(self.BYTES)
        self.address = ctypes.addressof(self.memory)
        self._release = release

    def __del__(self) -> None:
        self._release(self.address)


class PlainColumn(ctypes.Structure):
    """offpath::frame::PlainColumn."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("stride_bytes", ctypes.c_uint32),
        ("validity", ctypes.c_uint64),
        ("null_count", ctypes.c_int64),
        ("memory", ctypes.c_uint32),
        ("data", ctypes.c_uint64),
        ("data_bytes", ctypes.c_uint64),
    ]


_library = ctypes.CDLL(str(_find_library()))
_library.probe_error.restype = ctypes.c_char_p
_library.probe_owners.restype = ctypes.c_long
for _name, _arguments in {
    "probe_open": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p],
    "probe_close": [ctypes.c_void_p],
    "probe_build": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    "probe_compress": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    "probe_build_plain": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    "probe_free": [ctypes.c_void_p],
    "probe_look": [ctypes.c_void_p, ctypes.c_void_p],
    "probe_export": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    "probe_owners": [ctypes.c_void_p],
    "probe_read": [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p],
    "probe_release_schema": [ctypes.c_void_p],
    "probe_release_array": [ctypes.c_void_p],
    "probe_stitch": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32],
}.items():
    getattr(_library, _name).argtypes = _arguments


class FrameError(Exception):
    """The frame layer's answer: "<name of the error>: <message>"."""


def _check(code: int) -> None:
    if code != 0:
        raise FrameError(_library.probe_error().decode())


def _schema() -> CStruct:
    return CStruct(_library.probe_release_schema)


def _array() -> CStruct:
    return CStruct(_library.probe_release_array)


class Look(NamedTuple):
    """Where a frame lies and how it was made: address and sizes in bytes, then counts of the plan."""

    address: int
    bytes: int
    pulls: int
    blocks: int
    steps: int
    body: int


class Frame:
    """One frame in memory that the test library owns; page-aligned."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __del__(self) -> None:
        _library.probe_free(self.handle)

    @property
    def look(self) -> Look:
        numbers = (ctypes.c_uint64 * 6)()
        _library.probe_look(self.handle, numbers)
        return Look(*numbers)

    @property
    def owners(self) -> int:
        """How many hold the memory: this object and every C array exported from it."""
        return _library.probe_owners(self.handle)

    def buffer(self) -> pa.Buffer:
        """The frame's bytes, not copied; the frame must outlive them."""
        look = self.look
        return pa.foreign_buffer(look.address, look.bytes, self)

    def read(self) -> pa.RecordBatch:
        """The frame's batch as pyarrow's stream reader sees it, checked in full."""
        with pa.ipc.open_stream(self.buffer()) as reader:
            batch = reader.read_next_batch()
            assert next(iter(reader), None) is None, "a frame has one batch"
        batch.validate(full=True)
        return batch

    def export(self) -> pa.RecordBatch:
        """The frame's batch through the C data interface."""
        return _import(lambda schema, array: _library.probe_export(self.handle, schema, array))


def _import(fill: Callable[[int, int], int]) -> pa.RecordBatch:
    schema, array = _schema(), _array()
    _check(fill(schema.address, array.address))
    batch = pa.RecordBatch._import_from_c(array.address, schema.address)
    batch.validate(full=True)
    return batch


class Stream:
    """A schema and an alignment, from which the agent builds a template."""

    def __init__(self, schema: pa.Schema, alignment: int = PAGE) -> None:
        self.schema = schema
        self.handle = ctypes.c_void_p()
        struct = _schema()
        schema._export_to_c(struct.address)
        _check(_library.probe_open(struct.address, alignment, ctypes.byref(self.handle)))

    def __del__(self) -> None:
        _library.probe_close(self.handle)

    def frame(self, batch: pa.RecordBatch) -> Frame:
        """Build the frame of one batch (which may be a slice)."""
        struct = _array()
        batch._export_to_c(struct.address)
        made = ctypes.c_void_p()
        _check(_library.probe_build(self.handle, struct.address, ctypes.byref(made)))
        return Frame(made.value)

    def compressed(self, frame: Frame, codec: str) -> Frame:
        """The same frame with its bodies compressed: "lz4" or "zstd"."""
        made = ctypes.c_void_p()
        _check(_library.probe_compress(self.handle, frame.handle, codec.encode(), ctypes.byref(made)))
        return Frame(made.value)

    def frame_of_arrays(self, rows: int, columns: Sequence[np.ndarray]) -> Frame:
        """Build a frame from plain arrays: 1-d with any positive stride, or C-contiguous [rows, n] for lists."""
        plain = (PlainColumn * len(columns))()
        for to, array in zip(plain, columns, strict=True):
            to.address = array.ctypes.data
            contiguous = array.flags.c_contiguous and array.dtype != np.bool_
            to.stride_bytes = 0 if contiguous else array.strides[0]
        made = ctypes.c_void_p()
        _check(_library.probe_build_plain(self.handle, rows, plain, len(columns), ctypes.byref(made)))
        return Frame(made.value)


def read_stream(data: bytes) -> pa.RecordBatch:
    """A one-batch stream another library wrote, read by the frame layer and given back as C structs."""
    return _import(lambda schema, array: _library.probe_read(data, len(data), schema, array))


def stitch(path: Path, frames: Sequence[Frame], alignment: int = PAGE) -> None:
    """Write the frames as one Arrow stream file."""
    handles = (ctypes.c_void_p * len(frames))(*(frame.handle for frame in frames))
    _check(_library.probe_stitch(str(path).encode(), handles, len(frames), alignment))
