"""An agent of the benchmark's own: a process pinned to one core, ended with the block it was started for."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import control_group
from .programs import ProgramError, find_program

PR_SET_PDEATHSIG = 1
START_SECONDS_MAX = 60.0
_quota: list[str] = []  # words before an agent's command, while agents are weak


@contextmanager
def weak_agents() -> Iterator[None]:
    """Agents that start meanwhile share the speed of a core of a BlueField-2. Raises ControlGroupError."""
    with control_group.bluefield_quota() as launcher:
        _quota[:] = launcher
        try:
            yield
        finally:
            _quota.clear()


def are_weak() -> bool:
    return bool(_quota)


def quota_words() -> list[str]:
    """Words before the command of a process that does an agent's work: none where agents have a whole core."""
    return list(_quota)


class AgentUnavailableError(RuntimeError):
    """The agent did not start; the message holds the end of its log."""


@dataclass
class AgentProcess:
    """A running agent. ``network_address`` and ``key_file`` are only there with ``network``."""

    process: subprocess.Popen
    address: str
    network_address: str = ""
    key_file: Path | None = None

    @staticmethod
    @contextmanager
    def start(core: int, cache: bool = True, network: str = "", others: tuple[str, ...] = (),
              configuration: Path | None = None, launcher: tuple[str, ...] = ()) -> Iterator[AgentProcess]:  # fmt: skip
        """Starts an agent on ``core``, without its buffer cache if ``cache`` is false, that also listens at
        ``network`` (``tcp:127.0.0.1:0``), with ``others`` (KEY=VALUE) set too, with what a file says, and behind the
        words of ``launcher``, which becomes the agent. Raises AgentUnavailableError.
        """
        with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
            place = Path(directory)
            key_file = write_key(place) if network else None
            process = launch(
                place, core, [*settings(place, key_file, cache, network), *others], configuration, launcher
            )
            try:
                addresses = wait_until_ready(process, place / "agent.log")
                yield AgentProcess(process, addresses[0], addresses[-1] if network else "", key_file)
            finally:
                end(process)


def settings(place: Path, key_file: Path | None, cache: bool, network: str) -> list[str]:
    """KEY=VALUE: room and credit for frames of 1 GiB, a cache for one of each size, everything else as it comes."""
    chosen = ["memory.bytes_max=12GiB", "memory.window=3GiB", f"memory.cached_max={'4GiB' if cache else '0'}"]
    listen = f"unix:{place / 'agent.sock'}"
    if key_file is not None:
        listen += f",{network}"
        chosen.append(f"security.key_file={key_file}")
    return [f"agent.listen={listen}", *chosen]


def write_key(place: Path) -> Path:
    path = place / "key"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32) + "\n")
    return path


def launch(place: Path, core: int, chosen: list[str], configuration: Path | None = None,
           launcher: tuple[str, ...] = ()) -> subprocess.Popen:  # fmt: skip
    """Starts the process, which may not be listening yet."""
    try:
        program = find_program("offpath-agent")
    except ProgramError as error:
        raise AgentUnavailableError(str(error)) from error

    def prepare() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.sched_setaffinity(0, {core})

    arguments = [word for setting in chosen for word in ("--set", setting)]
    if configuration is not None:
        arguments += ["--config", str(configuration)]
    with open(place / "agent.log", "wb") as log:
        return subprocess.Popen(
            [*launcher, *_quota, str(program), "--ready", *arguments],
            stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=prepare,
        )  # fmt: skip


def wait_until_ready(process: subprocess.Popen, log: Path) -> list[str]:
    """The addresses the agent says it listens on, once it does."""
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
    line = process.stdout.readline() if readable else ""
    if line.startswith("{"):
        return json.loads(line)["addresses"]
    said = log.read_text(errors="replace").strip().splitlines()[-3:]
    raise AgentUnavailableError(
        f"the agent does not get ready: {' / '.join(said) or line.strip() or 'no reason given'}"
    )


def end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
