"""A terminal in which a command of a page stays until Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import Any

from page_blocks import Block, BlockFailed, check_output

SECONDS_MAX = 150
QUIET_SECONDS = 0.5
DRAWING_SECONDS = 5  # after its first output, when a continuously redrawn screen is complete
INTERRUPTED = (0, 1, 130, -signal.SIGINT)  # 1: Open MPI's launcher
LINES, COLUMNS = 50, 120
MOVEMENTS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")  # and colours


class Terminal:
    def __init__(self, block: Block, command: list[Any], directory: Path, environment: dict[str, str]) -> None:
        self.block = block
        self.said = b""
        self.said_at = time.monotonic()  # the last of it
        self.ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        with os.fdopen(its):
            self.running = subprocess.Popen(
                list(map(str, command)), cwd=directory, env={**environment, "TERM": "xterm"}, start_new_session=True,
                stdin=its, stdout=its, stderr=its,
            )  # fmt: skip
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(self.ours, 65536):
                self.said += piece
                self.said_at = time.monotonic()
        os.close(self.ours)

    def text(self) -> str:
        return MOVEMENTS.sub("", self.said.decode(errors="replace"))

    def wait_until_ready(self) -> None:
        """It stays, and has printed the output on its page. If the page shows none, it has printed anything, and then
        is quiet."""
        began = time.monotonic()
        first_said_at = float("inf")
        while True:
            ended, text, silence = self.running.poll(), self.text(), time.monotonic() - self.said_at
            waited = time.monotonic() - began
            if ended is not None:
                raise BlockFailed(f"{self.block.place}: ended with {ended} and should stay\n{text}")
            try:
                check_output(self.block, text, so_far=True)
            except BlockFailed:
                if waited > SECONDS_MAX:
                    raise
            else:
                if text.strip():
                    first_said_at = min(first_said_at, time.monotonic())
                    is_quiet = silence > QUIET_SECONDS and not self.is_busy()
                    if self.block.prints or is_quiet or time.monotonic() - first_said_at > DRAWING_SECONDS:
                        return
                if waited > SECONDS_MAX:
                    raise BlockFailed(f"{self.block.place}: stays and prints nothing")
            time.sleep(0.05)

    def is_busy(self) -> bool:
        """Whether one of its processes runs, or waits for a processor, as one that begins does on a slow machine."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
                if state == "R" and int(session) == self.running.pid:
                    return True
        return False

    def interrupt(self) -> None:
        """Ctrl-C. Raises BlockFailed unless it ends by that. The processes that it started end in any case."""
        try:
            if (ended := self.running.poll()) is not None:
                raise BlockFailed(f"{self.block.place}: ended with {ended} and should stay\n{self.text()}")
            os.killpg(self.running.pid, signal.SIGINT)
            ended = self.running.wait(SECONDS_MAX)
            if ended not in INTERRUPTED or "Traceback" in self.text():
                raise BlockFailed(f"{self.block.place}: ended with {ended} after Ctrl-C\n{self.text()}")
        except subprocess.TimeoutExpired:
            raise BlockFailed(f"{self.block.place}: does not end by Ctrl-C\n{self.text()}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            self.reader.join()
