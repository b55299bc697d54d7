"""What programs can see of their sockets: the same test with sockets of the kernel and with offloaded ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent_process import AgentProcess
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@dataclass
class Place:
    """Where a program runs whose sockets are looked at: its address, as seen by peers in the namespace ``far``."""

    pair: NetworkPair
    tmp_path: Path
    offloaded: bool

    @property
    def address(self) -> str:
        return AGENT_ADDRESS if self.offloaded else KERNEL_ADDRESS

    def start(self, program: str, *words: str) -> subprocess.Popen[str]:
        """Python, with its input and output as pipes."""
        enter = self.pair.near_command if self.offloaded else self.pair.far_command
        agent = f"unix:{self.tmp_path}/agent.sock"
        env = sockets.environment(agent, address=AGENT_ADDRESS) if self.offloaded else dict(os.environ)
        return subprocess.Popen(enter(sys.executable, "-c", program, *words), env=env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip

    @contextmanager
    def running(self, program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Once it has written a line, "ready"."""
        started = self.start(program, *words)
        try:
            assert line_of(started) == "ready"
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    def peer(self, program: str, *words: str) -> str:
        """What a program of the kernel's sockets in ``far`` writes."""
        done = subprocess.run(self.pair.far_command(sys.executable, "-c", program, self.address, *words),
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def say(program: subprocess.Popen[str], line: str = "") -> None:
    assert program.stdin is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()


@pytest.fixture(params=["kernel", "agent"])
def place(request: pytest.FixtureRequest, tmp_path: Path, pair: NetworkPair, served: AgentProcess) -> Place:
    return Place(pair, tmp_path, request.param == "agent")


SERVER_THAT_IS_KILLED = """
import os, signal, socket, sys
listener = socket.create_server(("0.0.0.0", 7600))
print("ready", flush=True)
c, _ = listener.accept()
while len(c.recv(1 << 16, socket.MSG_PEEK)) < 8:
    pass
c.recv(int(sys.argv[1]))
c.sendall(b"x")
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
TELLS_HOW_IT_ENDS = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7600), timeout=20)
s.sendall(b"question")
assert s.recv(1) == b"x"
print("answered", flush=True)
try:
    print("FIN" if s.recv(1) == b"" else "data")
except ConnectionResetError:
    print("RST")
"""


@pytest.mark.parametrize(("reads", "ends"), [("8", "FIN"), ("3", "RST")])
def test_a_server_that_is_killed_resets_peers_whose_bytes_it_did_not_read(place: Place, reads: str, ends: str) -> None:
    with place.running(SERVER_THAT_IS_KILLED, reads) as server:
        peer = subprocess.Popen(place.pair.far_command(sys.executable, "-c", TELLS_HOW_IT_ENDS, place.address),
                                stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert line_of(peer) == "answered"
        say(server)
        assert line_of(peer) == ends
        assert peer.wait(timeout=20) == 0


STOPS_READING = """
import socket, sys
listener = socket.create_server(("0.0.0.0", 7601))
print("ready", flush=True)
c, _ = listener.accept()
sys.stdin.readline()
"""
SENDS_UNTIL_IT_FAILS = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7601), timeout=20)
print("connected", flush=True)
try:
    while True:
        s.sendall(bytes(1 << 20))
except (ConnectionResetError, BrokenPipeError) as error:
    print("reset")
"""


# Its window is closed, so that the peer only asks for room.
def test_a_peer_that_waits_for_room_is_reset_by_the_death_of_the_server(place: Place) -> None:
    with place.running(STOPS_READING) as server:
        peer = subprocess.Popen(place.pair.far_command(sys.executable, "-c", SENDS_UNTIL_IT_FAILS, place.address),
                                stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert line_of(peer) == "connected"
        with pytest.raises(subprocess.TimeoutExpired):
            peer.wait(timeout=2)
        os.kill(server.pid, signal.SIGKILL)
        assert line_of(peer) == "reset"
        assert peer.wait(timeout=20) == 0


# Writes what there is room for, and then tells how much it may write whenever it is told that it may.
POLLS_BEFORE_IT_WRITES = """
import select, socket
listener = socket.create_server(("0.0.0.0", 7602))
print("ready", flush=True)
c, _ = listener.accept()
c.setblocking(False)
waits = {"poll": select.poll(), "epoll": select.epoll()}
for each in waits.values():
    each.register(c, select.POLLOUT)


def write():
    total = 0
    try:
        while True:
            total += c.send(bytes(1 << 16))
    except BlockingIOError:
        return total


write()
for name, wait in waits.items():
    least = 1 << 30
    for _ in range(20):
        assert wait.poll(30) if name == "epoll" else wait.poll(30000)
        least = min(least, write())
    print(name, least >= 1 << 14, flush=True)
"""
READS_SLOWLY = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7602), timeout=20)
time.sleep(0.5)
while s.recv(4096):
    time.sleep(0.0002)
"""


def test_room_to_write_is_a_third_of_the_buffer(place: Place) -> None:
    with place.running(POLLS_BEFORE_IT_WRITES) as writer:
        peer = subprocess.Popen(place.pair.far_command(sys.executable, "-c", READS_SLOWLY, place.address))
        try:
            assert [line_of(writer) for _ in range(2)] == ["poll True", "epoll True"]
        finally:
            peer.kill()
            peer.wait()
