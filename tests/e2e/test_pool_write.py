"""`Pool.write` into what nobody reads: the program waits, and nobody else does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_process import agent, until

ROWS = 100_000
SCHEMA = pa.schema([("id", pa.int64())])
PIPE_BYTES = 65_536
PATIENCE_S = 30


def bytes_in(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def fill(session: offpath.Session, pool: str) -> None:
    for step in range(3):
        session.pool(pool).put(pa.table({"id": np.arange(ROWS) + step * ROWS}, schema=SCHEMA), f"step{step}")


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    """Pipes that nobody reads."""
    made = [os.pipe() for _ in range(3)]
    yield made
    for _, writing in made:
        os.close(writing)


def test_full_pipes_hold_up_their_program_alone(tmp_path: Path, pipes: list[tuple[int, int]]) -> None:
    with agent(tmp_path) as running, contextlib.ExitStack() as kept:
        address = running.ready["address"]
        stuck = [kept.enter_context(offpath.connect(address)) for _ in pipes]
        fill(stuck[0], "local:/stuck")
        writers = kept.enter_context(ThreadPoolExecutor(len(pipes)))
        for reading, _ in pipes:
            kept.callback(os.close, reading)  # ends the writes
        written = [
            writers.submit(session._native.pool_write, "local:/stuck", writing, None)
            for session, (_, writing) in zip(stuck, pipes, strict=True)
        ]
        assert until(lambda: sum(bytes_in(reading) >= PIPE_BYTES for reading, _ in pipes) >= 2, PATIENCE_S)
        # Jobs of another program: buffers of large frames, queries, files.
        with offpath.connect(address) as other:
            rows, pool = 40 * ROWS, "local:/other"
            stream = other.stream("large", SCHEMA, rows_max=rows, destination="agent-serialise", pool=pool)
            for step in range(3):
                stream.send({"id": np.arange(rows)}, key=f"step{step}").wait_stored(PATIENCE_S)
            counted = other.pool(pool).query(pc.field("id") < 5, timeout=PATIENCE_S)
            assert counted.num_rows == 15
            file = tmp_path / "other.arrows"
            assert other.pool(pool).write(file, timeout=PATIENCE_S) == file.stat().st_size
        assert running.stop() == 0
        assert not any(each.done() for each in written)


def test_what_a_pipes_reader_takes_is_what_is_written_elsewhere(tmp_path: Path) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        fill(session, "local:/p")
        file, pipe = tmp_path / "file", tmp_path / "pipe"
        os.mkfifo(pipe)
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
        reader.start()
        written = session.pool("local:/p").write(pipe)
        reader.join(PATIENCE_S)
        assert session.pool("local:/p").write(file) == written
        assert received == [file.read_bytes()]
