"""Reads of memory whose pages the program should supply itself, and does not: no other program waits."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import shutil
import signal
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_process import agent, until

ROWS = 100_000
SCHEMA = pa.schema([("id", pa.int64())])
USER = 54321  # of no account
PATIENCE_S = 60

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts a program of another user, which needs root")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users reach."""
    path = Path(tempfile.mkdtemp(prefix="offpath-held-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def held_memory(length: int) -> tuple[mmap.mmap, int]:
    """Memory whose pages no process supplies (ioctl_userfaultfd(2)), and the descriptor that they wait for."""
    libc = ctypes.CDLL(None, use_errno=True)
    faults = libc.syscall({"x86_64": 323, "aarch64": 282}[platform.machine()], os.O_CLOEXEC)
    if faults < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    fcntl.ioctl(faults, 0xC018AA3F, bytearray(struct.pack("3Q", 0xAA, 0, 0)))
    memory = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(faults, 0xC020AA00, bytearray(struct.pack("4Q", at, length, 1, 0)))
    return memory, faults


def send_held(address: str) -> None:
    """A program of another user; it ends by a signal."""
    memory, _faults = held_memory(-(-8 * ROWS // mmap.PAGESIZE) * mmap.PAGESIZE)
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
    session = offpath.connect(address)
    stream = session.stream("held", SCHEMA, rows_max=ROWS, pool="local:/held")
    stream.send({"id": np.frombuffer(memory, np.int64, ROWS)}, key="held")
    while True:
        signal.pause()


@contextlib.contextmanager
def program(address: str) -> Iterator[int]:
    child = os.fork()
    if child == 0:
        try:
            send_held(address)
        finally:
            os._exit(1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def reader_states(pid: int) -> list[str]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            comm, state = (thread / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            found += [state.split()[0]] if comm == "offpath-read" else []
    return found


def test_a_program_that_supplies_no_pages_holds_nobody_up(open_path: Path) -> None:
    try:
        os.close(held_memory(mmap.PAGESIZE)[1])
    except OSError as error:
        pytest.skip(f"{error}")
    with agent(open_path, "--allow-uid", str(USER)) as running, program(running.ready["address"]):
        assert until(lambda: reader_states(running.pid) == ["D"], PATIENCE_S), running.log()
        with offpath.connect(running.ready["address"]) as session:
            stream = session.stream("free", SCHEMA, rows_max=ROWS, pool="local:/free")
            for step in range(3):
                stream.send({"id": np.arange(ROWS)}, key=f"step{step}").wait_stored(PATIENCE_S)
            assert session.pool("local:/free").query(pc.field("id") < 5, timeout=PATIENCE_S).num_rows == 15
            assert reader_states(running.pid) == ["D"]
        assert running.stop() == 0
