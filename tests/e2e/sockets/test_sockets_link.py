"""Offloaded sockets of programs here over an agent beyond a link (``tcp.device = "agent:…"``): the command line, ends
of either agent and of the link, and the traffic over it. The other tests of sockets run over a link as well, see
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
from network_pair import IPV4, IPV6, Family, NetworkPair, missing
from offloading_agents import with_device
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


SILENCE_S = 2  # limits.silence of the agent at the card, which the relay adopts
# Connections end at once with the relay, whose socket closes, and with the agent at the card, whose machine closes its
# connections; with the link after the silence. A busy machine may report it late, but not as late as the kernel's own
# limits, which are minutes.
ENDS_WITHIN_S = 10.0


class Machines(NamedTuple):
    card: AgentProcess
    relay: AgentProcess
    keys: dict[str, str]  # variables for programs that reach the agent at the card themselves
    family: Family  # of the programs' sockets


# IPv6 differs in the addresses that cross the link, whichever it is.
WAYS = {"tcp": ("tcp", IPV4), "tls": ("tls", IPV4), "ipv6-tcp": ("tcp", IPV6)}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def machines(request: pytest.FixtureRequest, tmp_path: Path, pair: NetworkPair) -> Iterator[Machines]:
    link, family = request.param
    key, card = tmp_path / "link.key", tmp_path / "card"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    keys = {"OFFPATH_KEY_FILE": str(key)}
    card.mkdir()
    listens = [
        "--listen",
        f"{link}:127.0.0.1:0",
        "--key-file",
        str(key),
        "--http",
        f"unix:{tmp_path}/http.sock",
    ]
    listens += ["--set", f"limits.silence={SILENCE_S}s"]
    trusts = []
    if link == "tls":
        certificate, private = make_certificate(tmp_path)
        listens += ["--set", f"security.tls_certificate={certificate}", "--set", f"security.tls_key={private}"]
        trusts = ["--set", f"group.tls_ca={certificate}"]
        keys["OFFPATH_TLS_CA_FILE"] = str(certificate)
    near = pair.near_command()
    with agent(card, *with_device(1, family), *listens, http=False, launcher=near) as at_card:
        assert at_card.ready["address"].startswith(link)
        relay = ["--set", f"tcp.device=agent:{at_card.ready['address']}", "--key-file", str(key), *trusts]
        with agent(tmp_path, *relay, http=False, launcher=near) as here:
            yield Machines(at_card, here, keys, family)


def environment(tmp_path: Path, machines: Machines) -> dict[str, str]:
    return sockets.environment(f"unix:{tmp_path}/agent.sock", address=machines.family.own)


# Connects, reports that, and waits for bytes that never come. Reports the end, and how many descriptors it has more
# than before. The first connection opens the descriptors that the library keeps.
WAITING = """
import os, socket, sys, time
def descriptors():
    return len(os.listdir("/proc/self/fd"))
socket.create_connection((sys.argv[1], 8009)).close()
before = descriptors()
s = socket.create_connection((sys.argv[1], 8009))
assert descriptors() > before
print("connected", flush=True)
try:
    print("received", s.recv(1))
except OSError as error:
    print(type(error).__name__, time.monotonic())
s.close()
until = time.monotonic() + 30  # the library's thread closes its descriptors
while descriptors() > before and time.monotonic() < until:
    time.sleep(0.01)
print(descriptors() - before)
"""
SILENT_SERVER = (
    "import time; s = socket.create_server((EVERYWHERE, 8009), family=FAMILY); c = s.accept(); time.sleep(600)"
)


@pytest.fixture
def silent_server(pair: NetworkPair, machines: Machines) -> Iterator[None]:
    server = subprocess.Popen(pair.far_command(sys.executable, "-c", machines.family.prelude + SILENT_SERVER))
    listening = ["sh", "-c", "ss -ltn | grep -q :8009"]
    assert until(lambda: subprocess.run(pair.far_command(*listening), check=False).returncode == 0)
    yield
    server.kill()
    server.wait()


def descriptors_of(running: AgentProcess) -> int:
    return len(list(Path(f"/proc/{running.pid}/fd").iterdir()))


@pytest.mark.parametrize("end", ["relay", "card", "link"])
@pytest.mark.usefixtures("silent_server")
def test_connections_end_with_either_agent_and_with_the_link(
    tmp_path: Path, pair: NetworkPair, machines: Machines, end: str
) -> None:
    survivors = [each for name, each in (("card", machines.card), ("relay", machines.relay)) if name != end]
    before = [descriptors_of(each) for each in survivors]
    program = subprocess.Popen(
        pair.near_command(sys.executable, "-c", WAITING, machines.family.kernel),
        env=environment(tmp_path, machines), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "connected\n"
        began = time.monotonic()
        if end == "link":  # both agents are in this namespace
            subprocess.run(pair.near_command("ip", "link", "set", "lo", "down"), check=True)
        else:
            getattr(machines, end).process.send_signal(signal.SIGKILL)
        said, _ = program.communicate(timeout=60)
        error, at, more = said.split()
        assert error == "ConnectionResetError"
        assert float(at) - began < ENDS_WITHIN_S
        assert int(more) <= 0, "descriptors of the lost connection are open"
        for each, number in zip(survivors, before, strict=True):
            assert until(lambda: descriptors_of(each) <= number), (descriptors_of(each), number)  # noqa: B023
    finally:
        subprocess.run(pair.near_command("ip", "link", "set", "lo", "up"), check=True)
        program.kill()
        program.wait()


def test_the_command_line_starts_a_relay_that_ends_with_the_program(
    tmp_path: Path, pair: NetworkPair, machines: Machines
) -> None:
    server = (
        "s = socket.create_server((EVERYWHERE, 8010), family=FAMILY); print('listening', flush=True);"
        "c, _ = s.accept(); c.sendall(c.recv(9)[::-1])"
    )
    far = subprocess.Popen(pair.far_command(sys.executable, "-c", machines.family.prelude + server),
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert far.stdout is not None and far.stdout.readline() == "listening\n"
    client = (
        "import os, socket, sys; s = socket.create_connection((sys.argv[1], 8010)); s.sendall(b'over a li');"
        "print(s.recv(9), os.environ['OFFPATH_AGENT'])"
    )
    words = ["-m", "offpath", "sockets", "--agent", machines.card.ready["address"], "--", sys.executable, "-c", client]
    try:
        ran = subprocess.run(
            pair.near_command(sys.executable, *words, machines.family.kernel), capture_output=True, text=True,
            timeout=60, env={**os.environ, **machines.keys}, check=False,
        )  # fmt: skip
    finally:
        far.kill()
        far.wait()
    assert ran.stdout.startswith("b'il a revo' unix:"), ran
    socket_file = Path(ran.stdout.split("unix:")[1].strip())
    assert until(lambda: not socket_file.exists()), "the relay has ended"


def test_an_agent_that_is_not_there_is_named(tmp_path: Path, pair: NetworkPair, machines: Machines) -> None:
    machines.card.stop(signal.SIGKILL)
    program = f"{machines.family.prelude}s = socket.socket(FAMILY); s.bind((EVERYWHERE, 8011)); s.listen()"
    ran = subprocess.run(
        pair.near_command(sys.executable, "-c", program), env=environment(tmp_path, machines), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Network is down" in ran.stderr, ran


# Connects, and does nothing for as long as its input is open.
IDLE = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], 8009)); print('up', flush=True); sys.stdin.read()"
)


@pytest.mark.usefixtures("silent_server")
def test_nothing_is_read_from_a_program_that_rests(tmp_path: Path, pair: NetworkPair, machines: Machines) -> None:
    program = subprocess.Popen(
        pair.near_command(sys.executable, "-c", IDLE, machines.family.kernel),
        env=environment(tmp_path, machines), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
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

        assert until(rests)
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
