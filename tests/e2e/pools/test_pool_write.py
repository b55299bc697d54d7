"""`Pool.write` into a pipe without a reader: the program waits, and no other program does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
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
PATIENCE_S = 60


def bytes_in(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def fill(session: offpath.Session, pool: str) -> None:
    for step in range(3):
        session.pool(pool).put(pa.table({"id": np.arange(ROWS) + step * ROWS}, schema=SCHEMA), f"step{step}")


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    """Pipes without readers."""
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


# Holds the lock of a file: a write from a page that is never filled (userfaultfd, ioctl_userfaultfd(2)).
HOLDER = """
import ctypes, fcntl, mmap, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
faults = libc.syscall({"x86_64": 323, "aarch64": 282}[platform.machine()], os.O_CLOEXEC)
if faults < 0:
    sys.exit("no userfaultfd")
fcntl.ioctl(faults, 0xC018AA3F, bytearray(struct.pack("3Q", 0xAA, 0, 0)))
page = mmap.mmap(-1, mmap.PAGESIZE)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
fcntl.ioctl(faults, 0xC020AA00, bytearray(struct.pack("4Q", at, mmap.PAGESIZE, 1, 0)))
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("writes", flush=True)
libc.write(file, ctypes.c_void_p(at), mmap.PAGESIZE)
"""


def states(pid: int, name: str) -> list[str]:
    """Of the process's threads with this name, as ps has them."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            comm, state = (thread / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            found += [state.split()[0]] if comm == name else []
    return found


def test_a_file_whose_lock_is_held_keeps_the_agent_from_nothing(tmp_path: Path) -> None:
    file = tmp_path / "held"
    with agent(tmp_path) as running, contextlib.ExitStack() as kept:
        holder = kept.enter_context(
            subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdout=subprocess.PIPE, text=True)
        )
        kept.callback(holder.kill)
        if holder.stdout is None or holder.stdout.readline() != "writes\n":
            pytest.skip("no userfaultfd here")
        session = kept.enter_context(offpath.connect(running.ready["address"]))
        fill(session, "local:/p")
        writers = kept.enter_context(ThreadPoolExecutor(1))
        opened = os.open(file, os.O_WRONLY)
        kept.callback(os.close, opened)
        written = writers.submit(session._native.pool_write, "local:/p", opened, None)
        assert until(lambda: "D" in states(running.pid, "offpath-job"), PATIENCE_S)
        assert session.pool("local:/p").query(pc.field("id") < 5, timeout=PATIENCE_S).num_rows == 5
        # Its loop and its own end wait for no other process. The kernel keeps the process as long as the thread waits.
        running.process.terminate()
        assert until(lambda: running.process.poll() is not None or states(running.pid, "offpath-agent") == ["Z"])
        with pytest.raises(offpath.Error):
            written.result(PATIENCE_S)
        holder.kill()
        assert running.process.wait(PATIENCE_S) == 0


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
