"""Several agents of one machine that form a group: ``offpath agent --group N``, for a laptop, trials and tests."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from .agent import end_with_program, find_agent, read_line, stop_process
from .agent_http import default_sockets, pages_beside
from .errors import AgentError

AGENTS_MAX = 1000
MEMORY_BYTES = 8 << 30  # of all together, as of one agent by default
START_S = 60.0
STOP_S = 10.0
STARTED_AT_ONCE = 16


class AgentGroup:
    """``count`` agents with names and sockets of their own. They end with this object, and with the program.

    ``options`` are offpath-agent's; ``{index}`` in them stands for the number of the agent, from 0. Agent 0 listens
    where a single agent does, so tools find it; ``agent-1.sock`` and so on are beside it.
    """

    def __init__(self, count: int, options: list[str]) -> None:
        if not 1 <= count <= AGENTS_MAX:
            raise AgentError(f"--group {count}: 1 to {AGENTS_MAX} agents form a group of one machine")
        self.names: list[str] = []
        self.ready: list[dict[str, Any]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[int] = []  # ends of pipes: of the agents' logs, and those whose closing ends the agents
        self._partial: list[bytes] = []
        self._selector = selectors.DefaultSelector()
        self._told_ends: set[int] = set()
        try:
            waiting: list[int] = []
            for index in range(count):
                waiting.append(self._start(index, count, options))
                if len(waiting) == STARTED_AT_ONCE or index in (0, count - 1):  # the others join the first
                    self._await(waiting)
                    waiting = []
        except BaseException:
            self.stop()
            raise

    def _start(self, index: int, count: int, options: list[str]) -> int:
        """Returns the descriptor at which the agent says that it is ready."""
        ready_fd, write_fd = os.pipe()
        log_fd, their_log_fd = os.pipe()
        watch_fd, lifeline_fd = os.pipe()  # a pipe tells one process
        self._pipes += [log_fd, lifeline_fd]
        command = [find_agent(), *options_of(index, count, options), "--ready-fd", str(write_fd)]
        if index > 0 and not joins(options):
            command += ["--join", self.ready[0]["address"]]
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=their_log_fd, stderr=their_log_fd,
                                       pass_fds=[write_fd, watch_fd], start_new_session=True)  # fmt: skip
            end_with_program(process.pid, watch_fd)
        except BaseException:
            os.close(ready_fd)
            raise
        finally:
            for fd in (write_fd, their_log_fd, watch_fd):
                os.close(fd)
        self._processes.append(process)
        self._partial.append(b"")
        self.names.append(f"agent {index}")
        os.set_blocking(log_fd, False)
        self._selector.register(log_fd, selectors.EVENT_READ, index)
        return ready_fd

    def _await(self, ready_fds: list[int]) -> None:
        first = len(self.ready)
        deadline = time.monotonic() + START_S
        for index, ready_fd in enumerate(ready_fds, first):
            line = ""
            while not line and time.monotonic() < deadline and self._processes[index].poll() is None:
                self.show_logs(0.0)  # an agent whose pipe is full would not get ready
                line = read_line(ready_fd, 0.1)
            line = line or read_line(ready_fd, 0.1)
            os.close(ready_fd)
            if not line:
                code = self._processes[index].poll()
                self.show_logs(0.1)
                for late in ready_fds[index - first + 1 :]:
                    os.close(late)
                why = f"did not start within {START_S:.0f} s" if code is None else f"ended with status {code}"
                raise AgentError(f"agent {index} of the group {why}; the lines above say why")
            self.ready.append(json.loads(line))
            self.names[index] = self.ready[-1]["name"]

    def show_logs(self, wait_s: float) -> bool:
        """Prints what the agents have written, each line with its agent's name. False: no agent has its log open."""
        if not self._selector.get_map():
            return False
        width = max(map(len, self.names))
        for key, _ in self._selector.select(wait_s):
            try:
                piece = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            *lines, rest = (self._partial[key.data] + piece).split(b"\n")
            if not piece:
                lines, rest = [rest] if rest else [], b""
                self._selector.unregister(key.fd)
            self._partial[key.data] = rest
            for line in lines:
                print(f"{self.names[key.data]:{width}} | {line.decode(errors='replace')}", file=sys.stderr, flush=True)
        return True

    def ends(self) -> list[tuple[str, int]]:
        """Agents that have ended since the last call, and their status: that of ``Popen.returncode``."""
        ended = []
        for index, process in enumerate(self._processes):
            if index not in self._told_ends and process.poll() is not None:
                self._told_ends.add(index)
                ended.append((self.names[index], process.returncode))
        return ended

    @property
    def running(self) -> int:
        """The number of agents that have not ended."""
        return sum(process.poll() is None for process in self._processes)

    @property
    def pids(self) -> list[int]:
        """The agents' processes, in their order."""
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """Asks all agents to end, at the same time, and waits for them; may be called again."""
        deadline = time.monotonic() + STOP_S
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        while self.running and time.monotonic() < deadline:
            self.show_logs(0.05)
        for process in self._processes:
            stop_process(process, 0.0)
        self.show_logs(0.0)
        while self._pipes:
            os.close(self._pipes.pop())
        self._selector.close()


def options_of(index: int, count: int, options: list[str]) -> list[str]:
    """The options of one agent of a group: those given, and others so that no two agents conflict."""
    given = {option.partition("=")[0] for option in options}
    given |= {option.partition("=")[0] for option in values_of(options, "--set")}
    for option, key in {"--listen": "agent.listen", "--http": "agent.http", "--name": "agent.name"}.items():
        values = [*values_of(options, option), *values_of(options, "--set", key)]
        if count > 1 and values and not any("{index}" in value or value.endswith(":0") for value in values):
            raise AgentError(f"--group {count}: every agent needs {option} of its own; write {{index}} where its "
                             f"number belongs: {option} '{values[0]}-{{index}}'")  # fmt: skip
    own = [*options, "--set", f"group.index={index}"]
    first = default_sockets()[0]
    if not given & {"--listen", "agent.listen"}:
        make_directory(first.parent)
        own += ["--listen", f"unix:{beside(first, index)}"]
    if not given & {"--http", "agent.http"}:
        make_directory(first.parent)
        own += ["--http", f"unix:{pages_beside(beside(first, index))}"]
    if not given & {"--name", "agent.name"}:
        own += ["--name", f"{os.uname().nodename}-{index}"]
    if not given & {"--memory", "memory.bytes_max", "--config"}:
        own += ["--memory", f"{max(MEMORY_BYTES // count, 64 << 20) >> 20}MiB"]
    return own


def joins(options: list[str]) -> bool:
    """The options say whom an agent joins."""
    return bool(values_of(options, "--join") or "--mpi" in options) or any(
        values_of(options, "--set", key) for key in ("group.members", "group.join", "group.from_launcher")
    )


def values_of(options: list[str], option: str, key: str = "") -> list[str]:
    """The values of an option that may be repeated; with ``key``, those of ``--set key=…``."""
    values = []
    for at, each in enumerate(options):
        if each == option and at + 1 < len(options):
            values.append(options[at + 1])
        elif each.startswith(f"{option}="):
            values.append(each.partition("=")[2])
    if key:
        return [value.partition("=")[2] for value in values if value.startswith(f"{key}=")]
    return values


def beside(path: Path, index: int) -> Path:
    return path if index == 0 else path.with_name(f"{path.stem}-{index}{path.suffix}")


def make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def run_group(count: int, options: list[str]) -> int:
    """Runs until SIGINT or SIGTERM, or until the last agent has ended. The exit status."""
    asked = [False]

    def end(_number: int, _frame: FrameType | None) -> None:
        asked[0] = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    group = AgentGroup(count, options)
    worst = 0
    try:
        print(f"offpath: {count} agents form a group: {group.names[0]} to {group.names[-1]}; programs connect to "
              f"{group.ready[0]['address']}, or to another one's", file=sys.stderr, flush=True)  # fmt: skip
        while not asked[0] and group.running:
            group.show_logs(0.2)
            for name, status in group.ends():
                how = f"by signal {-status}" if status < 0 else f"with status {status}"
                print(f"offpath: {name} ended {how}; {group.running} continue", file=sys.stderr, flush=True)
                worst = max(worst, 1 if status < 0 else status)
    finally:
        group.stop()
    return 0 if asked[0] else worst


def group_asked(arguments: list[str]) -> tuple[int | None, list[str]]:
    """The number behind ``--group``, if it is given, and the other arguments."""
    for at, each in enumerate(arguments):
        option, separator, number = each.partition("=")
        if option != "--group":
            continue
        rest = arguments[:at] + arguments[at + (1 if separator else 2) :]
        number = number if separator else "".join(arguments[at + 1 : at + 2])
        if not number.isdecimal():
            raise AgentError(f"--group takes the number of agents, not '{number}'")
        return int(number), rest
    return None, arguments
