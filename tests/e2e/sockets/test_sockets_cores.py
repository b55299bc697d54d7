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
from network_pair import AGENT_ADDRESS, IPV6, Family, NetworkPair, missing
from offloading_agents import Setup, setup_of
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

PORT = 7600


SETUPS = {"2-cores": Setup(2, False), "3-cores": Setup(3, False), "ipv6-3-cores": Setup(3, False, IPV6)}
setup = setup_of({**SETUPS, "xdp-3-cores": Setup(3, False, device="xdp:near")})


# Echoes all data, on any number of connections, in one thread.
SERVER = """
import selectors, socket, sys
listener = socket.socket(FAMILY)
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

# Opens so many connections, sends different data on each, reads it back, and then follows commands.
CLIENT = """
import socket, sys
made = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) for _ in range(int(sys.argv[3]))]
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

    def __init__(self, tmp_path: Path, pair: NetworkPair, family: Family) -> None:
        self.tmp_path, self.pair, self.family = tmp_path, pair, family

    @contextmanager
    def run(self, offloaded: bool, program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        enter = self.pair.near_command if offloaded else self.pair.far_command
        command = enter(sys.executable, "-c", self.family.prelude + program, *words)
        env = dict(os.environ)
        if offloaded:
            env = sockets.environment(f"unix:{self.tmp_path}/agent.sock", address=self.family.own, most=4096)
        started = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   start_new_session=True)  # fmt: skip
        try:
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


@pytest.fixture
def sides(tmp_path: Path, pair: NetworkPair, family: Family) -> Sides:
    return Sides(tmp_path, pair, family)


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
    address = sides.family.agent if serves else sides.family.kernel
    with sides.run(serves, SERVER, address, str(PORT)) as server:
        assert line(server) == b"listening"
        with sides.run(not serves, CLIENT, address, str(PORT), str(connections)) as client:
            assert line(client) == b"all"
            yield server, client


def tcp_of(tmp_path: Path) -> dict[str, Any]:
    """The agent's status of connections."""
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
        shown = subprocess.run(asked, capture_output=True, timeout=60, check=True)
        rows = [each.split() for each in shown.stdout.decode().splitlines()]
        assert rows[0][-1] == "Core"
        assert {each[-1] for each in rows if each and each[0] == "ESTABLISHED"} == set(map(str, range(cores)))
        assert b'"core"' in connections_of(tmp_path)


def test_idle_cores_sleep_and_wake(tmp_path: Path, served: AgentProcess, cores: int, sides: Sides) -> None:
    """Between events every core sleeps; afterwards every connection is answered, whichever core has it."""
    with sides.run(False, SERVER, sides.family.kernel, str(PORT)) as server:
        assert line(server) == b"listening"
        idle = """
import socket, sys, time
made = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) for _ in range(64)]
print("connected", flush=True)
for _ in range(20):
    sys.stdin.readline()
    for each in made:
        each.sendall(b"again")
        assert each.recv(5) == b"again"
    print("answered", flush=True)
"""
        with sides.run(True, idle, sides.family.kernel, str(PORT)) as client:
            assert line(client) == b"connected"
            time.sleep(0.2)
            before = {each["core"]: each["sleeps"] for each in tcp_of(tmp_path)["cores"]}
            for _ in range(20):
                say(client, b"go")
                assert line(client) == b"answered"
                time.sleep(0.02)
            for each in tcp_of(tmp_path)["cores"]:
                assert each["sleeps"] > before[each["core"]]


# Answers a byte on each of these descriptors, once the cores that have them sleep, with no acknowledgement to send. Its
# end would wake them, too.
ANSWERS = """
import os, sys, time
connections = [int(word) for word in sys.argv[1:]]
assert all(os.read(each, 1) == b"x" for each in connections)
time.sleep(0.3)
for each in connections:
    os.write(each, b"y")
assert all(os.read(each, 1) == b"" for each in connections)
"""
# Accepts so many connections, which another process has from then on.
HANDS_OVER = f"""
import os, socket, sys
answers = {ANSWERS!r}
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=FAMILY, backlog=64)
print("listening", flush=True)
made = [listener.accept()[0] for _ in range(int(sys.argv[3]))]
for each in made:
    each.set_inheritable(True)
words = [sys.executable, "-c", answers, *(str(each.fileno()) for each in made)]
if sys.argv[4] == "exec":
    os.execv(words[0], words)
elif sys.argv[4] == "spawn":
    child = os.posix_spawn(words[0], words, os.environ)
elif (child := os.fork()) == 0:
    sys.argv = words[2:]
    exec(answers)
    os._exit(0)
for each in made:
    each.close()
os.waitpid(child, 0)
"""
ASKS_EACH = """
import socket, sys
made = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) for _ in range(int(sys.argv[3]))]
for each in made:  # first all: connections may be accepted in another order
    each.sendall(b"x")
for each in made:
    assert each.recv(1) == b"y"
print("answered", flush=True)
sys.stdin.readline()
"""


def shared_eventfds(program: int, agent: int) -> set[str]:
    """The identities of eventfds that both processes have open; in the program each closes with exec."""

    def of(pid: int) -> dict[str, int]:
        infos = [each.read_text() for each in Path(f"/proc/{pid}/fdinfo").iterdir()]
        words = [dict(line.split(":", 1) for line in each.splitlines()) for each in infos if "eventfd-id:" in each]
        return {each["eventfd-id"]: int(each["flags"], 8) for each in words}

    open_there = of(agent)
    shared = {name: flags for name, flags in of(program).items() if name in open_there}
    assert all(flags & os.O_CLOEXEC for flags in shared.values())
    return set(shared)


@pytest.mark.parametrize("way", ["fork", "exec", "spawn"])
def test_another_process_wakes_every_core(
    tmp_path: Path, served: AgentProcess, cores: int, sides: Sides, way: str
) -> None:
    connections = "32"  # one run in 10^5 has a core without any
    with sides.run(True, HANDS_OVER, sides.family.agent, str(PORT), connections, way) as server:
        assert line(server) == b"listening"
        with sides.run(False, ASKS_EACH, sides.family.agent, str(PORT), connections) as client:
            assert line(client) == b"answered"
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            answers = server.pid if way == "exec" else int(children[0])
            # The first process also has the channel's own.
            assert len(shared_eventfds(answers, served.pid)) == cores - 1 + (way == "fork")
            if way != "exec":
                assert len(shared_eventfds(server.pid, served.pid)) == cores


def test_programs_executed_without_a_connection_have_no_doorbell(
    tmp_path: Path, served: AgentProcess, cores: int, sides: Sides
) -> None:
    executes = """
import socket, subprocess, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=FAMILY)
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
child.wait()
"""
    with sides.run(True, executes, sides.family.agent, str(PORT)) as program:
        child = int(line(program))
        assert until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        assert len(shared_eventfds(program.pid, served.pid)) == cores
        assert shared_eventfds(child, served.pid) == set()


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
