"""An agent of a program's own: a process beside it, with a private socket, that ends with it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

from .agent_directory import AgentDirectory
from .errors import AgentError

PROGRAM = "offpath-agent"
AGENT_PACKAGE = "offpath_agent"  # the files of the wheel offpath-agent beside this package
LOG_LINES_SHOWN = 5


def find_agent() -> str:
    """The agent's program: OFFPATH_AGENT_PROGRAM, of the build in OFFPATH_BUILD_DIR, in this package (a wheel), in the
    wheel offpath-agent beside it, beside this Python, of the environment this package is installed in, or on the PATH.
    Raises AgentError naming where it was looked for."""
    if given := os.environ.get("OFFPATH_AGENT_PROGRAM"):
        return given
    places = []
    if build := os.environ.get("OFFPATH_BUILD_DIR"):
        places.append(Path(build) / "bin")
    package = Path(__file__).resolve().parent
    places.append(package / "bin")
    places.append(package.parent / AGENT_PACKAGE / "bin")
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
    """Made by ``Agent.start``. A context manager: leaving it stops the agent and removes its files.

    The agent also ends when the last reference to this object is gone, and when the program ends or is killed.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], directory: AgentDirectory, lifeline_fd: int, ready: dict[str, Any]
    ):
        self._process = process
        self._directory = directory
        self._lifeline_fd = lifeline_fd
        self.address: str = ready["address"]
        self.addresses: list[str] = ready["addresses"]
        self.http_address: str = ready["http"]
        self.flight: str | None = ready.get("flight")  # where clients of Arrow Flight connect
        # Called at most once, at the exit of the program at the latest.
        self._end = weakref.finalize(self, end_agent, process, directory, lifeline_fd, os.getpid())

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
        timeout: float = 60.0,
    ) -> Agent:
        """Starts an agent and waits until it serves.

        It listens on a Unix socket in a directory of its own that only this user may enter, and further at ``listen``.
        ``memory``: for frames, bytes or such as "8GiB". ``profile``: as slow as a device, "bluefield2". ``pin``: the
        core of its loop. ``settings``: any other keys of its configuration (docs/reference/configuration.md).
        ``config``: a configuration's text, for settings with [[tables]].

        Raises AgentError with the end of its log.
        """
        program = find_agent()
        with contextlib.ExitStack() as undo:
            directory = AgentDirectory()
            undo.callback(directory.remove)
            place = directory.path
            command = [program, "--listen", f"unix:{place / 'agent.sock'}", "--http", f"unix:{place / 'http.sock'}"]
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
            log_path = place / "agent.log"
            with contextlib.ExitStack() as theirs:  # descriptors that only the agent keeps open
                ready_fd, write_fd = os.pipe()
                undo.callback(os.close, ready_fd)
                theirs.callback(os.close, write_fd)
                watch_fd, lifeline_fd = os.pipe()
                undo.callback(os.close, lifeline_fd)
                theirs.callback(os.close, watch_fd)
                with open(log_path, "wb") as log:
                    process = subprocess.Popen(
                        [*command, "--ready-fd", str(write_fd)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                        pass_fds=[write_fd, watch_fd, directory.lock_fd],
                    )  # fmt: skip
                undo.callback(kill_process, process)
                end_with_program(process.pid, watch_fd)
            line = read_line(ready_fd, timeout)
            if not line:
                kill_process(process)
                said = " / ".join(log_path.read_text(errors="replace").strip().splitlines()[-LOG_LINES_SHOWN:])
                raise AgentError(f"{program} did not start within {timeout} s: {said or 'it said nothing'}")
            started = cls(process, directory, lifeline_fd, json.loads(line))
            undo.pop_all()
            os.close(ready_fd)
            return started

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
        """The agent's log so far: a thread writes each line soon after its event."""
        path = self._directory.path / "agent.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self) -> None:
        """Ends the agent immediately, as a crash would."""
        kill_process(self._process)

    def outlive(self) -> None:
        """Keeps the agent running for programs that this one executes or becomes, until the last of them ends."""
        os.set_inheritable(self._lifeline_fd, True)

    def stop(self, timeout: float = 5.0) -> None:
        """Asks the agent to end and waits for it; may be called again."""
        stop_process(self._process, timeout)
        self._end()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Agent {self.pid} at {self.address}{'' if self.running else ', ended'}>"


def stop_process(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Asks it to end, and kills it if it does not within ``timeout`` seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_process(process)


def kill_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def end_agent(process: subprocess.Popen[bytes], directory: AgentDirectory, lifeline_fd: int, starter_pid: int) -> None:
    """Stops the agent and removes its directory; does nothing in a forked child, whose parent continues to use both."""
    if os.getpid() != starter_pid:
        return
    stop_process(process, 5.0)
    os.close(lifeline_fd)
    directory.remove()


def end_with_program(agent_pid: int, watch_fd: int) -> None:
    """Has the kernel ask the agent to end when the other end of its pipe closes, so even if this program is killed.

    PR_SET_PDEATHSIG would end the agent with the thread that started it.
    """
    with contextlib.suppress(OSError):  # kernels that only resemble Linux: the agent stays after a kill
        fcntl.fcntl(watch_fd, fcntl.F_SETOWN, agent_pid)
        fcntl.fcntl(watch_fd, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(watch_fd, fcntl.F_SETFL, fcntl.fcntl(watch_fd, fcntl.F_GETFL) | os.O_ASYNC)


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
