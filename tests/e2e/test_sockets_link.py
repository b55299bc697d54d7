"""Offloaded sockets of programs here over an agent beyond a link (``tcp.device = "agent:…"``): the command line, ends
of either agent and of the link, and what crosses it. The other tests of sockets run over a link as well, see
conftest.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from agent_process import AgentProcess, agent, pages_of, run_agent, until
from certificate import make_certificate
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing
from offloading_agents import with_device
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


class Machines(NamedTuple):
    card: AgentProcess
    relay: AgentProcess
    keys: dict[str, str]  # variables for programs that reach the agent at the card themselves


@pytest.fixture(params=["tcp", "tls"])
def machines(request: pytest.FixtureRequest, tmp_path: Path, pair: NetworkPair) -> Iterator[Machines]:
    key, card = tmp_path / "link.key", tmp_path / "card"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    keys = {"OFFPATH_KEY_FILE": str(key)}
    card.mkdir()
    listens = [
        "--listen",
        f"{request.param}:127.0.0.1:0",
        "--key-file",
        str(key),
        "--http",
        f"unix:{tmp_path}/http.sock",
    ]
    listens += ["--set", "limits.silence=2s"]
    trusts = []
    if request.param == "tls":
        certificate, private = make_certificate(tmp_path)
        listens += ["--set", f"security.tls_certificate={certificate}", "--set", f"security.tls_key={private}"]
        trusts = ["--set", f"group.tls_ca={certificate}"]
        keys["OFFPATH_TLS_CA_FILE"] = str(certificate)
    near = pair.near_command()
    with agent(card, *with_device(1), *listens, http=False, launcher=near) as at_card:
        assert at_card.ready["address"].startswith(request.param)
        relay = ["--set", f"tcp.device=agent:{at_card.ready['address']}", "--key-file", str(key), *trusts]
        with agent(tmp_path, *relay, http=False, launcher=near) as here:
            yield Machines(at_card, here, keys)


def environment(tmp_path: Path) -> dict[str, str]:
    return sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)


# Connects, says so, and waits for bytes that never come.
WAITING = """
import socket, sys
s = socket.create_connection((sys.argv[1], 8009))
print("connected", flush=True)
try:
    print("received", s.recv(1))
except OSError as error:
    print(type(error).__name__)
"""
SILENT_SERVER = "import socket, time; s = socket.create_server(('0.0.0.0', 8009)); c = s.accept(); time.sleep(60)"


@pytest.fixture
def silent_server(pair: NetworkPair) -> Iterator[None]:
    server = subprocess.Popen(pair.far_command(sys.executable, "-c", SILENT_SERVER))
    listening = ["sh", "-c", "ss -ltn | grep -q :8009"]
    assert until(lambda: subprocess.run(pair.far_command(*listening), check=False).returncode == 0)
    yield
    server.kill()
    server.wait()


@pytest.mark.parametrize("end", ["card", "relay", "link"])
@pytest.mark.usefixtures("silent_server")
def test_connections_end_with_either_agent_and_with_the_link(
    tmp_path: Path, pair: NetworkPair, machines: Machines, end: str
) -> None:
    program = subprocess.Popen(
        pair.near_command(sys.executable, "-c", WAITING, KERNEL_ADDRESS),
        env=environment(tmp_path), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "connected\n"
        if end == "link":  # both agents are in this namespace
            subprocess.run(pair.near_command("ip", "link", "set", "lo", "down"), check=True)
        else:
            getattr(machines, end).process.send_signal(signal.SIGKILL)
        said, _ = program.communicate(timeout=20)
        assert said == "ConnectionResetError\n"
    finally:
        subprocess.run(pair.near_command("ip", "link", "set", "lo", "up"), check=True)
        program.kill()
        program.wait()


def test_the_command_line_starts_a_relay_that_ends_with_the_program(
    tmp_path: Path, pair: NetworkPair, machines: Machines
) -> None:
    server = "import socket; s = socket.create_server(('0.0.0.0', 8010)); c, _ = s.accept(); c.sendall(c.recv(9)[::-1])"
    far = subprocess.Popen(pair.far_command(sys.executable, "-c", server))
    client = (
        "import os, socket, sys; s = socket.create_connection((sys.argv[1], 8010)); s.sendall(b'over a li');"
        "print(s.recv(9), os.environ['OFFPATH_AGENT'])"
    )
    words = ["-m", "offpath", "sockets", "--agent", machines.card.ready["address"], "--", sys.executable, "-c", client]
    try:
        ran = subprocess.run(
            pair.near_command(sys.executable, *words, KERNEL_ADDRESS), capture_output=True, text=True, timeout=60,
            env={**os.environ, **machines.keys}, check=False,
        )  # fmt: skip
    finally:
        far.kill()
        far.wait()
    assert ran.stdout.startswith("b'il a revo' unix:"), ran
    socket_file = Path(ran.stdout.split("unix:")[1].strip())
    assert until(lambda: not socket_file.exists()), "the relay has ended"


def test_an_agent_that_is_not_there_is_named(tmp_path: Path, pair: NetworkPair, machines: Machines) -> None:
    machines.card.stop(signal.SIGKILL)
    program = "import socket; s = socket.socket(); s.bind(('0.0.0.0', 8011)); s.listen()"
    ran = subprocess.run(
        pair.near_command(sys.executable, "-c", program), env=environment(tmp_path), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "Network is down" in ran.stderr, ran


# Connects, and does nothing for as long as its input is open.
IDLE = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], 8009)); print('up', flush=True); sys.stdin.read()"
)


@pytest.mark.usefixtures("silent_server")
def test_nothing_is_read_from_a_program_that_rests(tmp_path: Path, pair: NetworkPair, machines: Machines) -> None:
    program = subprocess.Popen(
        pair.near_command(sys.executable, "-c", IDLE, KERNEL_ADDRESS),
        env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "up\n"

        def operations() -> tuple[int, int]:
            linked = pages_of(tmp_path)["tcp"]["linked"]
            return linked["looks"], linked["chains"]

        def rests() -> bool:
            before = operations()
            time.sleep(0.3)
            return operations() == before

        assert until(rests, 30)
        assert operations()[0] > 0
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["tcp.device=agent:nowhere"], "tcp.device"),
        (["tcp.device=agent:unix:/run/a.sock"], "is on this machine"),
        (["tcp.device=agent:tcp:127.0.0.1:7700", "tcp.address=10.0.0.1/24"], "tcp.address"),
    ],
)
def test_impossible_relays_are_refused(tmp_path: Path, settings: list[str], why: str) -> None:
    words = [word for each in settings for word in ("--set", each)]
    ended = run_agent(*words, "--listen", f"unix:{tmp_path}/a.sock")
    assert ended.returncode != 0 and why in ended.stderr, ended.stderr
