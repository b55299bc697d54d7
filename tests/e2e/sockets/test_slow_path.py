"""The slow path of the agent's TCP as a process of the host (tcp.slow_path = "host"), against Linux's own TCP: it
serves, is killed, hangs, and comes back."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, agent, find_program, pages_of, until
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

LARGE_BYTES = 64 << 20


@pytest.fixture
def leaning(tmp_path: Path, pair: NetworkPair) -> Iterator[AgentProcess]:
    """An agent at tmp_path/agent.sock that leaves its slow path to a process, if there is one."""
    settings = ["--set", "tcp.device=near", "--set", f"tcp.address={AGENT_ADDRESS}/24", "--set", "tcp.slow_path=host"]
    settings += ["--http", f"unix:{tmp_path}/http.sock"]
    with agent(tmp_path, *settings, http=False, launcher=pair.near_command()) as running:
        yield running


@contextmanager
def slow_path(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The process, once it does it."""
    program = find_program().with_name("offpath-slow-path")
    process = subprocess.Popen(
        [program, "--agent", f"unix:{tmp_path}/agent.sock", "--ready"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"slow path of {AGENT_ADDRESS}\n"
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def http_server(tmp_path: Path, pair: NetworkPair) -> Iterator[str]:
    """Offloaded, with a file of LARGE_BYTES; the digest of that."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "small").write_text("hello\n")
    large = random.Random(1).randbytes(LARGE_BYTES)
    (folder / "large").write_bytes(large)
    environment = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
    command = [sys.executable, "-m", "http.server", "8000", "--bind", AGENT_ADDRESS]
    server = subprocess.Popen(
        pair.near_command(*command), cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert until(lambda: fetch(pair) == b"hello\n")
        yield hashlib.sha256(large).hexdigest()
    finally:
        server.kill()
        server.wait()


def curl(pair: NetworkPair, path: str, *options: str) -> list[str]:
    address = f"http://{AGENT_ADDRESS}:8000/{path}"
    return pair.far_command("curl", "--silent", "--fail", "--max-time", "60", *options, address)


def fetch(pair: NetworkPair, path: str = "small") -> bytes:
    return subprocess.run(curl(pair, path), capture_output=True, timeout=90, check=False).stdout


def told(tmp_path: Path) -> dict[str, Any]:
    """The agent's status of its slow path."""
    result: dict[str, Any] = pages_of(tmp_path)["tcp"]["slow_path"]
    return result


def told_now(tmp_path: Path) -> dict[str, Any]:
    time.sleep(0.2)  # pages are up to a tenth of a second old
    return told(tmp_path)


def test_the_kernel_is_served_by_both_together(tmp_path: Path, pair: NetworkPair, leaning: AgentProcess) -> None:
    with slow_path(tmp_path), http_server(tmp_path, pair) as digest:
        assert until(lambda: told(tmp_path)["on"] == "host" and told(tmp_path)["adopted"] > 0)
        before = told_now(tmp_path)
        for _ in range(20):
            assert fetch(pair) == b"hello\n"
        assert hashlib.sha256(fetch(pair, "large")).hexdigest() == digest
        assert until(lambda: told(tmp_path)["adopted"] - before["adopted"] == 21)
        assert told(tmp_path)["frames"] > before["frames"]
        # The server mostly closes first, so TIME-WAIT is this side's.
        assert until(lambda: told(tmp_path)["handed_back"] > before["handed_back"])
        # Without a listener the process refuses.
        refused = subprocess.run(
            pair.far_command("curl", "--silent", "--max-time", "20", f"http://{AGENT_ADDRESS}:8001/"), check=False
        )
        assert refused.returncode == 7


def test_a_program_connects_by_the_process(tmp_path: Path, pair: NetworkPair, leaning: AgentProcess) -> None:
    program = (
        "import socket, sys\n"
        f"s = socket.create_connection(('{KERNEL_ADDRESS}', int(sys.argv[1])), timeout=60)\n"
        "s.sendall(b'x' * 1000); print(len(s.recv(1)))"
    )
    server = "import socket; l = socket.create_server(('', 7100)); print('listening', flush=True)\n" + (
        "while True:\n    c, _ = l.accept(); c.sendall(c.recv(10)); c.close()"
    )
    environment = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
    listening = subprocess.Popen(pair.far_command(sys.executable, "-c", server), stdout=subprocess.PIPE)
    try:
        assert listening.stdout is not None
        assert listening.stdout.readline() == b"listening\n"
        with slow_path(tmp_path):
            for port, returned in (("7100", 0), ("7101", 1)):  # and without a listener
                command = pair.near_command(sys.executable, "-c", program, port)
                done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
                assert done.returncode == returned, done.stderr
                if returned:
                    assert b"ConnectionRefusedError" in done.stderr
            assert until(lambda: told(tmp_path)["adopted"] == 1)
    finally:
        listening.kill()
        listening.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_agent_goes_on_without_the_process(
    tmp_path: Path, pair: NetworkPair, leaning: AgentProcess, number: signal.Signals
) -> None:
    with http_server(tmp_path, pair) as digest:
        with slow_path(tmp_path) as process:
            assert fetch(pair) == b"hello\n"
            slow = subprocess.Popen(curl(pair, "large", "--limit-rate", "20M"), stdout=subprocess.PIPE)
            assert slow.stdout is not None
            begun = slow.stdout.read(1 << 20)
            assert until(lambda: told(tmp_path)["adopted"] >= 2)
            process.send_signal(number)
            # New connections are served at once, or when the agent has seen that the process takes nothing.
            assert fetch(pair) == b"hello\n"
            assert until(lambda: told(tmp_path)["on"] == "agent")
            rest = slow.stdout.read()
            assert slow.wait(60) == 0
            assert hashlib.sha256(begun + rest).hexdigest() == digest
        adopted = told_now(tmp_path)["adopted"]
        assert fetch(pair) == b"hello\n"
        assert told_now(tmp_path)["adopted"] == adopted
        with slow_path(tmp_path):
            assert until(lambda: told(tmp_path)["on"] == "host")
            assert fetch(pair) == b"hello\n"
            assert until(lambda: told(tmp_path)["adopted"] == adopted + 1)


def test_one_process_at_a_time_and_only_where_it_is_wanted(
    tmp_path: Path, pair: NetworkPair, leaning: AgentProcess
) -> None:
    program = str(find_program().with_name("offpath-slow-path"))
    ask = [program, "--agent", f"unix:{tmp_path}/agent.sock"]
    with slow_path(tmp_path):
        second = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert "already" in second.stderr
    leaning.stop()
    settings = ["--set", "tcp.device=near", "--set", f"tcp.address={AGENT_ADDRESS}/24"]
    other = tmp_path / "other"
    other.mkdir()
    with agent(other, *settings, launcher=pair.near_command()):
        ask = [program, "--agent", f"unix:{other}/agent.sock"]
        unwanted = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
        assert unwanted.returncode == 1
        assert "tcp.slow_path" in unwanted.stderr


def test_nobody_works_while_nothing_happens(tmp_path: Path, pair: NetworkPair, leaning: AgentProcess) -> None:
    with slow_path(tmp_path) as process, http_server(tmp_path, pair):
        stat = Path(f"/proc/{process.pid}/stat")

        def cpu_seconds() -> float:
            words = stat.read_text().rsplit(")", 1)[1].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

        time.sleep(0.5)
        began, before, agent_before = time.monotonic(), cpu_seconds(), leaning.cpu_seconds()
        time.sleep(2)
        after, agent_after = cpu_seconds(), leaning.cpu_seconds()
        elapsed = time.monotonic() - began
        assert after - before < 0.05 * elapsed
        assert agent_after - agent_before < 0.05 * elapsed


def test_the_process_ends_with_its_agent(tmp_path: Path, leaning: AgentProcess) -> None:
    with slow_path(tmp_path) as process:
        leaning.stop(signal.SIGKILL)
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert "the agent is gone" in process.stderr.read()
