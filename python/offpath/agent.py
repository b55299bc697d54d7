"""An agent of a program's own: a process beside it, with a private socket, that ends with it."""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .errors import AgentError

PROGRAM = "offpath-agent"
LOG_LINES_SHOWN = 5


def find_agent() -> str:
    """The agent's program: OFFPATH_AGENT_PROGRAM, of the build in OFFPATH_BUILD_DIR, in this package (a wheel), beside
    this Python, of the environment this package is installed in, or on the PATH. Raises AgentError naming where it was
    looked for."""
    if given := os.environ.get("OFFPATH_AGENT_PROGRAM"):
        return given
    places = []
    if build := os.environ.get("OFFPATH_BUILD_DIR"):
        places.append(Path(build) / "bin")
    package = Path(__file__).resolve().parent
    places.append(package / "bin")
    places.append(Path(sys.executable).parent)
    if len(package.parents) > 3:
        places.append(package.parents[3] / "bin")  # PREFIX/lib/pythonX.Y/site-packages/offpath
    for place in places:
        if os.access(place / PROGRAM, os.X_OK):
            return str(place / PROGRAM)
    if found := shutil.which(PROGRAM):
        return found
    raise AgentError(f"{PROGRAM} is not in {', '.join(map(str, places))}, nor on the PATH; "
                     "set OFFPATH_AGENT_PROGRAM to it")  # fmt: skip


class Agent:
    """Made by ``Agent.start``. A context manager: leaving it stops the agent and removes what it left."""

    def __init__(
        self, process: subprocess.Popen[bytes], directory: tempfile.TemporaryDirectory[str], ready: dict[str, Any]
    ):
        self._process = process
        self._directory = directory
        self.address: str = ready["address"]
        self.addresses: list[str] = ready["addresses"]
        self.http_address: str = ready["http"]
        self.flight: str | None = ready.get("flight")  # where clients of Arrow Flight connect
        atexit.register(self.stop)

    @classmethod
    def start(
        cls,
        *,
        memory: str | int | None = None,
        profile: str | None = None,
        pin: int | None = None,
        listen: list[str] | None = None,
        log_level: str = "warning",
        settings: dict[str, Any] | None = None,
        config: str | None = None,
        timeout: float = 10.0,
    ) -> Agent:
        """Starts an agent and waits until it serves.

        It listens on a Unix socket in a directory of its own that only this user may enter, and further at ``listen``.
        ``memory``: for frames, bytes or such as "8GiB". ``profile``: as slow as a device, "bluefield2". ``pin``: the
        core of its loop. ``settings``: any other keys of its configuration (docs/reference/configuration.md).
        ``config``: a configuration's text, for what has [[tables]] of its own.

        Raises AgentError with the end of its log.
        """
        directory = tempfile.TemporaryDirectory(prefix="offpath-")
        place = Path(directory.name)
        command = [find_agent(), "--listen", f"unix:{place / 'agent.sock'}", "--http", f"unix:{place / 'http.sock'}"]
        command += ["--log-level", log_level]
        if config is not None:
            (place / "agent.toml").write_text(config)
            command += ["--config", str(place / "agent.toml")]
        for address in listen or []:
            command += ["--listen", address]
        for option, value in {"--memory": memory, "--profile": profile, "--pin": pin}.items():
            if value is not None:
                command += [option, str(value)]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        read_fd, write_fd = os.pipe()
        log_path = place / "agent.log"
        try:
            with open(log_path, "wb") as log:
                process = subprocess.Popen(
                    [*command, "--ready-fd", str(write_fd)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[write_fd],
                )  # fmt: skip
            os.close(write_fd)
            write_fd = -1
            line = read_line(read_fd, timeout)
        except BaseException:
            directory.cleanup()
            raise
        finally:
            os.close(read_fd)
            if write_fd >= 0:
                os.close(write_fd)
        if not line:
            process.kill()
            process.wait()
            said = " / ".join(log_path.read_text(errors="replace").strip().splitlines()[-LOG_LINES_SHOWN:])
            directory.cleanup()
            raise AgentError(f"{command[0]} did not start within {timeout} s: {said or 'it said nothing'}")
        return cls(process, directory, json.loads(line))

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Its process has not ended."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """What the agent wrote to its log so far: a thread of it writes each line soon after what the line tells of."""
        path = Path(self._directory.name) / "agent.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self) -> None:
        """Ends the agent at once, as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self, timeout: float = 5.0) -> None:
        """Asks the agent to end and waits for it; may be called again."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        atexit.unregister(self.stop)
        self._directory.cleanup()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Agent {self.pid} at {self.address}{'' if self.running else ', ended'}>"


def read_line(fd: int, timeout: float) -> str:
    """One line, or nothing if the other end is closed or the time is over before it is complete."""
    give_up = time.monotonic() + timeout
    text = b""
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([fd], [], [], max(0.0, give_up - time.monotonic()))
        piece = os.read(fd, 4096) if readable else b""
        if not piece:
            return ""
        text += piece
    return text.decode()


def main() -> None:
    """offpath-agent of a wheel: becomes the program that lies in the package."""
    program = Path(__file__).resolve().parent / "bin" / PROGRAM
    os.execv(program, [PROGRAM, *sys.argv[1:]])
