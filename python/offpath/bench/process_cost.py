"""Starts a peer's process on a core, and measures its cost: processor time and memory."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1


def on_core(core: int):
    def prepare() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, {core})

    return prepare


def cpu_seconds(pid: int) -> float:
    """Of the whole process, to a microsecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_kib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])
