"""Offloaded sockets of programs here over an agent beyond a link (``tcp.device = "agent:…"``), in another network
namespace: the command line, bytes both ways, ends of either agent and of the link, and the traffic over it. The other
tests of sockets run over a link as well, see conftest.py."""

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
from agent_process import AgentProcess, agent, find_program, pages_of, run_agent, until
from built import missing as missing_program
from certificate import make_certificate
from network_pair import IPV4, IPV6, Family, missing
from offloading_agents import with_device
from offpath import sockets
from offpath.bench.network_pair import LINK_CARD_ADDRESS, CardPair, device_at_card

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


SILENCE_S = 2  # limits.silence of the agent at the card, which the relay adopts
# The statement under test: how long after an end the program's calls fail. The socket of a relay that dies closes at
# once, and so do the connections of an agent at the card; a cut link shows by the silence, which the kernel counts in
# seconds.
ENDS_WITHIN_S = {"relay": 1.0, "card": SILENCE_S, "link": SILENCE_S + 1}

# Both agents with a card in software (tests/doca_card).
AGENT_WITH_CARD = (
    Path(os.environ.get("OFFPATH_BUILD_DIR", find_program().parents[1])) / "tests/agent_with_software_card"
)


class Machines(NamedTuple):
    card: AgentProcess
    relay: AgentProcess
    keys: dict[str, str]  # variables for programs that reach the agent at the card themselves
    family: Family  # of the programs' sockets


# IPv6 differs in the addresses that cross the link, whichever it is.
WAYS_OF_ANY_AGENT = {"tcp": ("tcp", IPV4), "tls": ("tls", IPV4), "ipv6-tcp": ("tcp", IPV6)}
WAYS = {**WAYS_OF_ANY_AGENT, "doca": ("doca", IPV4)}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def machines(
    request: pytest.FixtureRequest, tmp_path: Path, pair: CardPair, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machines]:
    """The agent with the device is in ``card``, the relay in ``near``."""
    link, family = request.param
    key, card = tmp_path / "link.key", tmp_path / "card"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    keys = {"OFFPATH_KEY_FILE": str(key)}
    card.mkdir()
    listens = [
        "--listen",
        f"{link}:{LINK_CARD_ADDRESS}:0",
        "--insecure-network",
        "--key-file",
        str(key),
        "--http",
        f"unix:{tmp_path}/http.sock",
    ]
    listens += ["--set", f"limits.silence={SILENCE_S}s"]
    trusts = []
    if link == "tls":
        certificate, private = make_certificate(tmp_path, f"IP:{LINK_CARD_ADDRESS}")
        listens += ["--set", f"security.tls_certificate={certificate}", "--set", f"security.tls_key={private}"]
        trusts = ["--set", f"group.tls_ca={certificate}"]
        keys["OFFPATH_TLS_CA_FILE"] = str(certificate)
    own = []
    if link == "doca":
        if not AGENT_WITH_CARD.exists():
            missing_program(f"{AGENT_WITH_CARD} is not built")
        monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", str(AGENT_WITH_CARD))
        own = ["--set", "security.sandbox=off"]  # it would refuse the software card's calls
    device = with_device(1, family)
    with (
        device_at_card(pair),
        agent(card, *device, *listens, *own, http=False, launcher=pair.card_command()) as at_card,
    ):
        assert at_card.ready["address"].startswith(link)
        relay = ["--set", f"tcp.device=agent:{at_card.ready['address']}", "--key-file", str(key), *trusts, *own]
        with agent(tmp_path, *relay, http=False, launcher=pair.near_command()) as here:
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
def silent_server(pair: CardPair, machines: Machines) -> Iterator[None]:
    server = subprocess.Popen(pair.far_command(sys.executable, "-c", machines.family.prelude + SILENT_SERVER))
    listening = ["sh", "-c", "ss -ltn | grep -q :8009"]
    assert until(lambda: subprocess.run(pair.far_command(*listening), check=False).returncode == 0)
    yield
    server.kill()
    server.wait()


def descriptors_of(running: AgentProcess) -> int:
    return len(list(Path(f"/proc/{running.pid}/fd").iterdir()))


def address_at_card(pair: CardPair, change: str) -> None:
    """The link's address there. Without it nothing is taken from the link or sent, while the devices stay up."""
    subprocess.run(pair.card_command("ip", "addr", change, f"{LINK_CARD_ADDRESS}/24", "dev", "card"), check=True)


@pytest.mark.parametrize("end", ["relay", "card", "link"])
@pytest.mark.usefixtures("silent_server")
def test_connections_end_with_either_agent_and_with_the_link(
    tmp_path: Path, pair: CardPair, machines: Machines, end: str
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
        if end == "link":  # as by a cut behind a switch
            address_at_card(pair, "del")
        else:
            getattr(machines, end).stop(signal.SIGKILL)
        ended = time.monotonic()
        said, _ = program.communicate(timeout=60)
        error, at, more = said.split()
        assert error == "ConnectionResetError"
        assert float(at) - ended <= ENDS_WITHIN_S[end]
        assert int(more) <= 0, "descriptors of the lost connection are open"
        for each, number in zip(survivors, before, strict=True):
            assert until(lambda: descriptors_of(each) <= number), (descriptors_of(each), number)  # noqa: B023
    finally:
        address_at_card(pair, "replace")
        program.kill()
        program.wait()


# Sends what it is given in pieces of all sizes, and gives back what it gets.
TALKS = """
import hashlib, os, socket, sys, threading
s = socket.create_connection((sys.argv[1], 8012), timeout=60)
data = os.urandom(8 << 20)
def give():
    at, size = 0, 1
    while at < len(data):
        s.sendall(data[at : at + size])
        at, size = at + size, size * 3 % 262_143 + 1
giving = threading.Thread(target=give)
giving.start()
got = bytearray()
while len(got) < len(data):
    got += s.recv(1 << 18) or sys.exit(f"the end after {len(got)} bytes")
giving.join()
print("same" if got == data else "other")
"""
ECHOES_ALL = "s = socket.create_server((EVERYWHERE, 8012), family=FAMILY); print('listening', flush=True)\n" + (
    "c, _ = s.accept()\nwhile data := c.recv(1 << 18): c.sendall(data)"
)


def test_bytes_cross_every_link_both_ways(tmp_path: Path, pair: CardPair, machines: Machines) -> None:
    far = subprocess.Popen(pair.far_command(sys.executable, "-c", machines.family.prelude + ECHOES_ALL),
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert far.stdout is not None and far.stdout.readline() == "listening\n"
        ran = subprocess.run(
            pair.near_command(sys.executable, "-c", TALKS, machines.family.kernel), capture_output=True, text=True,
            env=environment(tmp_path, machines), timeout=120, check=False,
        )  # fmt: skip
    finally:
        far.kill()
        far.wait()
    assert ran.stdout == "same\n", ran


@pytest.mark.parametrize("machines", list(WAYS_OF_ANY_AGENT.values()), ids=list(WAYS_OF_ANY_AGENT), indirect=True)
def test_the_command_line_starts_a_relay_that_ends_with_the_program(
    tmp_path: Path, pair: CardPair, machines: Machines
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


def test_an_agent_that_is_not_there_is_named(tmp_path: Path, pair: CardPair, machines: Machines) -> None:
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
def test_nothing_is_read_from_a_program_that_rests(tmp_path: Path, pair: CardPair, machines: Machines) -> None:
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
