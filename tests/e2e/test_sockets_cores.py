"""Offloaded sockets over an agent with several cores: every core has its part, and ends with the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, agent, connections_of, pages_of, run_agent, until
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing
from offloading_agents import Setup
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

PORT = 7600


@pytest.fixture(params=[2, 3])
def setup(request: pytest.FixtureRequest) -> Setup:
    return Setup(int(request.param), False)


# Sends back whatever comes, on any number of connections, in one thread.
SERVER = """
import selectors, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen(512)
listener.setblocking(False)
waits = selectors.DefaultSelector()
waits.register(listener, selectors.EVENT_READ)
print("listening", flush=True)
while True:
    for key, _ in waits.select():
        if key.fileobj is listener:
            try:
                made, _ = listener.accept()
            except BlockingIOError:
                continue
            waits.register(made, selectors.EVENT_READ)
            continue
        try:
            said = key.fileobj.recv(65536)
            if said:
                key.fileobj.sendall(said)
                continue
        except ConnectionResetError:
            pass
        waits.unregister(key.fileobj)
        key.fileobj.close()
"""

# Opens so many connections, says something different on each, reads it back, and then does what it is told.
CLIENT = """
import socket, sys
made = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) for _ in range(int(sys.argv[3]))]
for number, each in enumerate(made):
    each.sendall(b"%06d" % number * 500)
for number, each in enumerate(made):
    want, got = b"%06d" % number * 500, b""
    while len(got) < len(want):
        got += each.recv(len(want) - len(got)) or sys.exit(f"connection {number} ended")
    if got != want:
        sys.exit(f"connection {number} said something else")
print("all", flush=True)
if sys.stdin.readline().strip() == "watch":
    ends = []
    for each in made:
        try:
            ends.append("end" if each.recv(1) == b"" else "bytes")
        except ConnectionResetError:
            ends.append("reset")
    print(" ".join(ends), flush=True)
"""


class Sides:
    """Programs of Python on either side: offloaded ones are in ``near``."""

    def __init__(self, tmp_path: Path, pair: NetworkPair) -> None:
        self.tmp_path, self.pair = tmp_path, pair

    @contextmanager
    def run(self, offloaded: bool, program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        enter = self.pair.near_command if offloaded else self.pair.far_command
        command = enter(sys.executable, "-c", program, *words)
        env = dict(os.environ)
        if offloaded:
            env = sockets.environment(f"unix:{self.tmp_path}/agent.sock", address=AGENT_ADDRESS, most=4096)
        started = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   start_new_session=True)  # fmt: skip
        try:
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


@pytest.fixture
def sides(tmp_path: Path, pair: NetworkPair) -> Sides:
    return Sides(tmp_path, pair)


def line(program: subprocess.Popen[bytes]) -> bytes:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def say(program: subprocess.Popen[bytes], what: bytes) -> None:
    assert program.stdin is not None
    program.stdin.write(what + b"\n")
    program.stdin.flush()


@contextmanager
def connected(
    sides: Sides, connections: int, *, serves: bool
) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A server, offloaded where the agent ``serves``, and a client on the other side. Each connection was answered."""
    address = AGENT_ADDRESS if serves else KERNEL_ADDRESS
    with sides.run(serves, SERVER, address, str(PORT)) as server:
        assert line(server) == b"listening"
        with sides.run(not serves, CLIENT, address, str(PORT), str(connections)) as client:
            assert line(client) == b"all"
            yield server, client


def tcp_of(tmp_path: Path) -> dict[str, Any]:
    """What the agent says of connections."""
    tcp: dict[str, Any] = pages_of(tmp_path)["tcp"]
    return tcp


def flows_of_cores(tmp_path: Path) -> Counter[int]:
    return Counter(each["core"] for each in tcp_of(tmp_path)["connections"] if each["state"] == "ESTABLISHED")


@pytest.mark.parametrize("connections", [1, 2, 64, 512])
@pytest.mark.parametrize("offloaded", ["server", "client"])
def test_connections_are_spread_over_cores_and_whole(
    tmp_path: Path, served: AgentProcess, cores: int, sides: Sides, offloaded: str, connections: int
) -> None:
    with connected(sides, connections, serves=offloaded == "server"):
        spread = flows_of_cores(tmp_path)
        assert spread.total() == connections
        assert set(spread) <= set(range(cores))
        # Ports are as good as random: one run in 10^11 has a core without any of 64.
        if connections >= 64:
            fewest = connections / cores / 2 if connections == 512 else 1
            assert min(spread[core] for core in range(cores)) >= fewest, spread


def test_a_program_that_is_killed_is_told_to_peers_of_all_cores(
    tmp_path: Path, served: AgentProcess, cores: int, sides: Sides
) -> None:
    with connected(sides, 64, serves=True) as (server, client):
        assert len(flows_of_cores(tmp_path)) == cores
        os.killpg(server.pid, signal.SIGKILL)
        say(client, b"watch")
        ends = Counter(line(client).split())
        assert ends.total() == 64
        assert ends[b"end"] + ends[b"reset"] == 64, ends
    assert until(lambda: tcp_of(tmp_path)["programs"] == []), served.log()
    with connected(sides, 64, serves=True):  # the port is free on every core
        assert until(lambda: len(flows_of_cores(tmp_path)) == cores)  # a page is as old as a tenth of a second


def test_a_program_learns_that_all_cores_are_gone(
    tmp_path: Path, served: AgentProcess, cores: int, sides: Sides
) -> None:
    with connected(sides, 64, serves=False) as (_, client):
        assert len(flows_of_cores(tmp_path)) == cores
        served.process.kill()
        say(client, b"watch")
        assert Counter(line(client).split()) == {b"reset": 64}


def test_pages_and_ss_have_the_flows_of_all_cores(
    tmp_path: Path, served: AgentProcess, cores: int, sides: Sides
) -> None:
    with connected(sides, 64, serves=True):
        tcp = tcp_of(tmp_path)
        assert [each["core"] for each in tcp["cores"]] == list(range(cores))
        assert sum(each["flows"] for each in tcp["cores"]) == tcp["flows"]
        assert tcp["programs"][0]["flows"] == 64
        assert tcp["programs"][0]["listeners"] == 1
        assert tcp["programs"][0]["accept_slots"] >= 512
        listed = [each for each in tcp["connections"] if each["state"] == "LISTEN"]
        assert len(listed) == 1
        words = ["sockets", "ss", "--agent", f"unix:{tmp_path}/agent.sock"]
        asked = [sys.executable, "-m", "offpath", *words]
        shown = subprocess.run(asked, capture_output=True, timeout=30, check=True)
        rows = [each.split() for each in shown.stdout.decode().splitlines()]
        assert rows[0][-1] == "Core"
        assert {each[-1] for each in rows if each and each[0] == "ESTABLISHED"} == set(map(str, range(cores)))
        assert b'"core"' in connections_of(tmp_path)


def test_idle_cores_sleep_and_wake(tmp_path: Path, served: AgentProcess, cores: int, sides: Sides) -> None:
    """Between what happens every core sleeps; then every connection, whichever core has it, is answered."""
    with sides.run(False, SERVER, KERNEL_ADDRESS, str(PORT)) as server:
        assert line(server) == b"listening"
        idle = """
import socket, sys, time
made = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) for _ in range(64)]
print("connected", flush=True)
for _ in range(20):
    sys.stdin.readline()
    for each in made:
        each.sendall(b"again")
        assert each.recv(5) == b"again"
    print("answered", flush=True)
"""
        with sides.run(True, idle, KERNEL_ADDRESS, str(PORT)) as client:
            assert line(client) == b"connected"
            time.sleep(0.2)
            before = {each["core"]: each["sleeps"] for each in tcp_of(tmp_path)["cores"]}
            for _ in range(20):
                say(client, b"go")
                assert line(client) == b"answered"
                time.sleep(0.02)
            for each in tcp_of(tmp_path)["cores"]:
                assert each["sleeps"] > before[each["core"]]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    for keys, why in (
        (["tcp.device=tap:offpath0", "tcp.cores=2"], "tap:offpath0 serves 1"),
        (["tcp.device=near", "tcp.cores=3", "tcp.pin=2"], "1 cores for the 2 loops"),
        (["tcp.device=near", "tcp.cores=17"], "tcp.cores"),
        (["tcp.device=near", "tcp.cores=2", f"tcp.trace_file={tmp_path}/trace"], "tcp.cores is 1"),
    ):
        words = [word for key in ["tcp.address=10.9.0.2/24", *keys] for word in ("--set", key)]
        ended = run_agent(*words, "--listen", f"unix:{tmp_path}/a.sock")
        assert ended.returncode != 0
        assert why in ended.stderr, ended.stderr


def test_pinned_loops_run_where_they_are_told(tmp_path: Path, pair: NetworkPair) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    settings = ["tcp.device=near", f"tcp.address={AGENT_ADDRESS}/24", "tcp.cores=2", f"tcp.pin={allowed[-1]}"]
    words = [word for key in settings for word in ("--set", key)]
    with agent(tmp_path, *words, http=False, launcher=pair.near_command()) as running:
        threads = {}
        for each in Path(f"/proc/{running.pid}/task").iterdir():
            threads[(each / "comm").read_text().strip()] = os.sched_getaffinity(int(each.name))
        assert threads["offpath-tcp-1"] == {allowed[-1]}
        assert threads["offpath-agent"] == set(allowed)
