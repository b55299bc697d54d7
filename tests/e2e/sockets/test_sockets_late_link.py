"""Offloaded sockets over a link that is late and slow: the program is in one network namespace, the agent with the
device in another, and between them is a path that holds frames back. Most tests are those of other files that wait for
something to cross the link."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess, agent, pages_of, until
from built import missing as missing_program
from echo_server import echo_server
from kernel_or_agent import Place
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, missing
from offloading_agents import Setup, setup_of, with_device
from offpath import sockets
from offpath.bench.network_pair import LINK_CARD_ADDRESS, CardPair, card_beyond
from offpath.bench.programs import ProgramError, find_program
from test_sockets import (  # noqa: F401
    files,
    test_a_program_learns_that_its_agent_is_gone,
    test_a_server_of_python_answers_curl,
    test_curl_asks_a_server_in_the_kernel,
)
from test_sockets_like_kernel import (  # noqa: F401
    test_a_peer_that_waits_for_room_is_reset_by_the_death_of_the_server,
    test_a_server_that_is_killed_resets_peers_whose_bytes_it_did_not_read,
    test_workers_with_listeners_of_their_own_share_a_port,
)
from test_sockets_processes import (  # noqa: F401
    peer,
    test_children_accept_from_their_parents_listener,
)
from test_sockets_waiting import test_epoll_and_its_kin  # noqa: F401

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of({"over-a-late-link": Setup(1, True)})

DELAY_US, MBIT = 200, 1000  # each way


@pytest.fixture(scope="module")
def pair() -> Iterator[CardPair]:
    try:
        path = str(find_program("bench_tcp_path"))
    except ProgramError as error:
        missing_program(str(error))
    with card_beyond(path, "--delay-us", str(DELAY_US), "--mbit", str(MBIT), "--queue-bytes", "1000000") as made:
        yield made


@pytest.fixture
def served(tmp_path: Path, pair: CardPair) -> Iterator[AgentProcess]:
    """The agent at the card. Programs connect to tmp_path/agent.sock, a relay's."""
    key, card = tmp_path / "link.key", tmp_path / "card"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    card.mkdir()
    keyed = ["--key-file", str(key)]
    listens = [
        "--listen",
        f"tcp:{LINK_CARD_ADDRESS}:0",
        "--insecure-network",
        "--http",
        f"unix:{tmp_path}/http.sock",
        *keyed,
    ]
    with agent(card, *with_device(1), *listens, http=False, launcher=pair.card_command()) as running:
        relay = ["--set", f"tcp.device=agent:{running.ready['address']}", *keyed]
        with agent(tmp_path, *relay, http=False, launcher=pair.near_command()):
            yield running


@pytest.fixture
def place(tmp_path: Path, pair: CardPair, served: AgentProcess) -> Place:
    return Place(pair, tmp_path, offloaded=True)


TIMES_ECHOES = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7900), timeout=60)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(50):
    began = time.monotonic()
    s.sendall(b"x")
    assert s.recv(1) == b"x"
    print(time.monotonic() - began)
"""


def test_an_echo_waits_for_the_link_both_ways(tmp_path: Path, pair: CardPair, served: AgentProcess) -> None:
    with echo_server(pair, "7900"):
        ran = subprocess.run(
            pair.near_command(sys.executable, "-c", TIMES_ECHOES, KERNEL_ADDRESS), capture_output=True, text=True,
            env=sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS), timeout=60, check=False,
        )  # fmt: skip
    seconds = [float(line) for line in ran.stdout.split()]
    assert len(seconds) == 50, ran.stderr
    assert min(seconds) >= 2 * DELAY_US * 1e-6
    # Two link latencies in a row each way, at most; with time for a machine on which other tests run.
    assert statistics.median(seconds) <= 4 * DELAY_US * 1e-6 + 0.02


TAKES_ALL = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7901), timeout=60)
began, left = time.monotonic(), int(sys.argv[2])
while left > 0:
    got = len(s.recv(1 << 18))
    assert got > 0
    left -= got
print(time.monotonic() - began)
"""
GIVES_ALL = """
import socket, sys
listener = socket.create_server(("0.0.0.0", 7901))
print("listening", flush=True)
c, _ = listener.accept()
c.sendall(bytes(int(sys.argv[1])))
"""


def test_a_stream_is_as_fast_as_the_link_at_most(tmp_path: Path, pair: CardPair, served: AgentProcess) -> None:
    size = 8 << 20
    server = subprocess.Popen(
        pair.far_command(sys.executable, "-c", GIVES_ALL, str(size)), stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None and server.stdout.readline() == "listening\n"
        ran = subprocess.run(
            pair.near_command(sys.executable, "-c", TAKES_ALL, KERNEL_ADDRESS, str(size)), capture_output=True,
            env=sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS), timeout=60, check=False,
        )  # fmt: skip
    finally:
        server.kill()
        server.wait()
    assert ran.returncode == 0, ran.stderr
    seconds, least = float(ran.stdout), size * 8 / (MBIT * 1e6)
    assert seconds >= least * 0.9
    print(f"{size >> 20} MiB in {seconds:.2f} s; the link alone would take {least:.2f} s")


# A ring for the bytes of one answer's time over the link at its rate: a write, two wakes and a read, 1.6 ms in all.
NEEDED_BYTES = 256 << 10
STREAMS = 8 << 20
NEAR = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7902), timeout=60)
left = int(sys.argv[2])
if sys.argv[3] == "takes":
    while left > 0:
        got = len(s.recv(1 << 18))
        assert got > 0
        left -= got
else:
    s.sendall(bytes(left))
    assert s.recv(1) == b"x"
print("moved", flush=True)
sys.stdin.readline()
"""
FAR = """
import socket, sys
listener = socket.create_server(("0.0.0.0", 7902))
print("listening", flush=True)
c, _ = listener.accept()
left = int(sys.argv[1])
if sys.argv[2] == "takes":
    c.sendall(bytes(left))
else:
    while left > 0:
        got = len(c.recv(1 << 18))
        assert got > 0
        left -= got
    c.sendall(b"x")
c.recv(1)
"""


@pytest.mark.parametrize("way", ["takes", "gives"])
def test_a_ring_grows_to_what_the_link_needs(tmp_path: Path, pair: CardPair, place: Place, way: str) -> None:
    def lent() -> int:
        return int(pages_of(tmp_path)["tcp"]["programs"][0]["lent_bytes"])

    far = subprocess.Popen(
        pair.far_command(sys.executable, "-c", FAR, str(STREAMS), way), stdout=subprocess.PIPE, text=True
    )
    try:
        assert far.stdout is not None and far.stdout.readline() == "listening\n"
        near = place.start(NEAR, KERNEL_ADDRESS, str(STREAMS), way)
        with place.ending(near):
            assert near.stdout is not None and near.stdout.readline() == "moved\n"
            assert until(lambda: lent() >= NEEDED_BYTES), lent()
            assert lent() <= 4 << 20, "the largest ring"
    finally:
        far.kill()
        far.wait()
