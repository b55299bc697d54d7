"""An agent of the benchmark's own: a process pinned to one core, ended with the block it was started for."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .programs import ProgramError, find_program

PR_SET_PDEATHSIG = 1
START_SECONDS_MAX = 10.0


class AgentUnavailableError(RuntimeError):
    """The agent did not start; the message holds the end of its log."""


@dataclass
class AgentProcess:
    """A running agent. ``tcp_address`` and ``key_file`` are only there with ``tcp=True``."""

    process: subprocess.Popen
    address: str
    tcp_address: str = ""
    key_file: Path | None = None

    @staticmethod
    @contextmanager
    def start(core: int, cache: bool = True, tcp: bool = False) -> Iterator[AgentProcess]:
        """Starts an agent on ``core``, without its buffer cache if ``cache`` is false. Raises AgentUnavailableError."""
        with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
            place = Path(directory)
            agent = launch(place, core, cache, tcp)
            try:
                wait_until_listening(agent, place / "agent.sock", place / "agent.log")
                yield agent
            finally:
                agent.process.terminate()
                try:
                    agent.process.wait(5)
                except subprocess.TimeoutExpired:
                    agent.process.kill()
                    agent.process.wait()


def launch(place: Path, core: int, cache: bool, tcp: bool) -> AgentProcess:
    """Starts the process; it may not listen yet."""
    try:
        program = find_program("offpath-agent")
    except ProgramError as error:
        raise AgentUnavailableError(str(error)) from error
    address = f"unix:{place / 'agent.sock'}"
    listen, tcp_address, key_file = [address], "", None
    if tcp:
        tcp_address = f"tcp:127.0.0.1:{free_port()}"
        listen.append(tcp_address)
        key_file = place / "key"
        key_file.write_text(secrets.token_hex(32) + "\n")
        key_file.chmod(0o600)
    config = place / "agent.toml"
    config.write_text(configuration(listen, key_file, cache))

    def prepare() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.sched_setaffinity(0, {core})

    with open(place / "agent.log", "wb") as log:
        process = subprocess.Popen([str(program), "--config", str(config)], stdout=log, stderr=log, preexec_fn=prepare)
    return AgentProcess(process, address, tcp_address, key_file)


def configuration(listen: list[str], key_file: Path | None, cache: bool) -> str:
    lines = [f"listen = [{', '.join(f'{address!r}' for address in listen)}]"]
    if key_file is not None:
        lines.append(f"key_file = '{key_file}'")
    if not cache:
        lines += ["[cache]", "bytes_max = 0"]
    return "\n".join(lines) + "\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(agent: AgentProcess, path: Path, log: Path) -> None:
    """Returns once the agent accepts connections on its Unix socket."""
    give_up = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < give_up:
        if agent.process.poll() is not None:
            break
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
                return
            except OSError:
                time.sleep(0.02)
    said = log.read_text(errors="replace").strip().splitlines()[-3:]
    raise AgentUnavailableError(f"the agent does not listen on {path}: {' / '.join(said)}")
