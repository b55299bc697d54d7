"""All objects of a pool in one file: an Arrow IPC stream."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from .errors import NotFound, SchemaError, Timeout

if TYPE_CHECKING:
    from .pool import Pool


def write_pool(pool: Pool, path: str | os.PathLike[str], timeout: float | None, arrow_only: bool) -> int:
    """``Pool.write``. Returns the file's bytes; raises as that does."""
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):
        return _write_to(pool, place, os.O_WRONLY, timeout, arrow_only)
    part = f"{place}.{os.getpid()}.part"
    try:
        written = _write_to(pool, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, timeout, arrow_only)
        os.replace(part, place)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return written


def _write_to(pool: Pool, path: str, flags: int, timeout: float | None, arrow_only: bool) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        if arrow_only:
            return _write_arrow(pool, fd, timeout)
        return pool.session._native.pool_write(pool.name, fd, timeout)
    finally:
        os.close(fd)


def _write_arrow(pool: Pool, fd: int, timeout: float | None) -> int:
    deadline = None if timeout is None else time.monotonic() + timeout
    frames = (frame for frame in pool.frames() if frame.is_arrow)
    first = next(frames, None)
    if first is None:
        raise NotFound(f"pool {pool.name} has no Arrow objects to write")
    schema = first.reader().schema
    with os.fdopen(fd, "wb", closefd=False) as file:
        sink = pa.PythonFile(file, "w")
        with pa.ipc.new_stream(sink, schema) as writer:
            for frame in itertools.chain([first], frames):
                if deadline is not None and time.monotonic() >= deadline:
                    raise Timeout(f"pool {pool.name}: {sink.tell()} bytes were written in time")
                if frame.reader().schema != schema:
                    raise SchemaError(f"{frame._name} has another schema than {first._name}")
                for batch in frame.reader():
                    writer.write_batch(batch)
        return sink.tell()
