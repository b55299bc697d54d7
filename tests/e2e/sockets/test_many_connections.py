"""Very many connections between a program under one agent and a program under another: all exist, idle ones cost
little, calls take no longer among many, and both sides learn of their ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from agent_process import AgentProcess, agent, find_program, pages_of
from built import needs_built
from network_pair import AGENT_ADDRESS, AGENT_ADDRESS_6, IPV4, IPV6, Family, NetworkPair, missing
from offpath import sockets

PROGRAM = Path(os.environ.get("OFFPATH_BUILD_DIR", find_program().parents[1])) / "tests" / "many_connections"
pytestmark = [pytest.mark.skipif(missing() is not None, reason=missing() or ""), needs_built(PROGRAM)]

# Addresses of the other agent, which differ from the kernel's on that device.
FAR_AGENT_ADDRESS, FAR_AGENT_ADDRESS_6 = "10.9.0.4", "fd09::4"
FIRST_PORT, FEW = 7700, 1000
OF_A_PORT = 12_500  # a client has some 28,000 local ports for each port of a peer
BACKLOG = 512
IDLE_BYTES_MAX = 20 << 10  # of a connection: its part of the area, and of all memory of program and agent
# A call among many connections may take so much longer than among FEW: caches are missed. A search through all of them
# would take ten times as long or a hundred.
LONGER_MAX = 5.0


class Side(NamedTuple):
    directory: Path
    agent: AgentProcess
    program: subprocess.Popen[bytes]


def private_bytes(process: int) -> int:
    line = next(each for each in Path(f"/proc/{process}/status").read_text().splitlines() if "RssAnon" in each)
    return int(line.split()[1]) << 10


def area_bytes(process: int) -> int:
    """Pages of the shared memory that the process has open."""
    areas = {}
    for entry in Path(f"/proc/{process}/fd").iterdir():
        if "memfd:" in os.readlink(entry):
            status = entry.stat()
            areas[status.st_ino] = status.st_blocks * 512
    return sum(areas.values())


def bytes_of(side: Side) -> int:
    return private_bytes(side.agent.pid) + private_bytes(side.program.pid) + area_bytes(side.program.pid)


def answer(program: subprocess.Popen[bytes]) -> dict[str, list[float]]:
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, "the program has ended"
    told: dict[str, list[float]] = json.loads(line)
    return told


@contextmanager
def sides(directory: Path, pair: NetworkPair, family: Family, many: int, cores: int) -> Iterator[tuple[Side, Side]]:
    """A server under one agent, and a client under another one that has opened all its connections."""
    ports = -(-many // OF_A_PORT)
    most = 1 << (many + ports * (BACKLOG + BACKLOG // 2 * cores) + FEW).bit_length()
    words = [str(FIRST_PORT), str(ports)]
    with ExitStack() as stack:
        agents = []
        for name, address, address_6, enter in (
            ("near", AGENT_ADDRESS, AGENT_ADDRESS_6, pair.near_command()),
            ("far", FAR_AGENT_ADDRESS, FAR_AGENT_ADDRESS_6, pair.far_command()),
        ):
            (directory / name).mkdir()
            settings = [f"tcp.device={name}", f"tcp.address={address}/24", f"tcp.cores={cores}"]
            if family is IPV6:
                settings += [f"tcp.address6={address_6}/64", "tcp.gateway6=none"]
            settings += [f"tcp.flows_of_program={most}", f"tcp.flows_max={2 * most}", "tcp.memory_of_program=64GiB"]
            given = [word for each in settings for word in ("--set", each)]
            given += ["--http", f"unix:{directory}/{name}/http.sock"]
            agents.append(stack.enter_context(agent(directory / name, *given, launcher=enter)))

        def start(name: str, enter: list[str], *given: str) -> subprocess.Popen[bytes]:
            env = sockets.environment(f"unix:{directory}/{name}/agent.sock", address=family.own, most=most)
            if name == "far":
                own = f"{FAR_AGENT_ADDRESS},{FAR_AGENT_ADDRESS_6}" if family is IPV6 else FAR_AGENT_ADDRESS
                env["OFFPATH_SOCKETS_ADDRESS"] = own
            running = subprocess.Popen([*enter, str(PROGRAM), *given], env=env, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)  # fmt: skip
            stack.callback(running.wait)
            stack.callback(running.kill)
            return running

        server = start("near", pair.near_command(), "server", family.agent, *words, str(many))
        assert server.stdout is not None
        assert server.stdout.readline() == b"listening\n"
        client = start("far", pair.far_command(), "client", family.agent, *words, str(FEW), str(many))
        yield Side(directory / "near", agents[0], server), Side(directory / "far", agents[1], client)


def check_times(name: str, times: list[float]) -> None:
    among_few, among_many = times
    print(f"{name}: {among_few / 1000:.1f} us among few, {among_many / 1000:.1f} us among many")
    assert among_many <= LONGER_MAX * among_few, name


def check_many(directory: Path, pair: NetworkPair, many: int, cores: int, killed: bool, family: Family = IPV4) -> None:
    with sides(directory, pair, family, many, cores) as (near, far):
        echo, opened = answer(far.program), answer(near.program)
        for name in ("accept", "add"):
            check_times(name, opened[name])
        check_times("echo", echo["echo"])
        for name, side in (("server", near), ("client", far)):
            idle = bytes_of(side) / many
            print(f"{name}: {idle:.0f} bytes for each connection")
            assert idle <= IDLE_BYTES_MAX, name
            assert pages_of(side.directory)["tcp"]["programs"][0]["flows"] >= many
        if many > 1 << 16:
            assert opened["highest"] > 1 << 16, "no descriptor was so high"  # type: ignore[operator]
        if killed:
            far.program.send_signal(signal.SIGKILL)
        else:
            assert far.program.stdin is not None
            far.program.stdin.write(b"\n")
            far.program.stdin.flush()
            check_times("close of the client", answer(far.program)["close"])
        # Each of its connections has ended for the server.
        check_times("close of the server", answer(near.program)["close"])
        assert near.program.wait(60) == 0


def descriptors_allowed() -> int:
    """Of one process, at most; root may have more than its limit, where it has all rights."""
    for most in (1 << 20, 1 << 18, 1 << 15):
        command = ["prlimit", f"--nofile={most}", "true"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return most
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.parametrize(
    ("killed", "among"), [(False, IPV4), (True, IPV4), (False, IPV6)], ids=["closed", "killed", "ipv6"]
)
def test_ten_thousand_connections(tmp_path: Path, pair: NetworkPair, killed: bool, among: Family) -> None:
    """Or nearly so many where a process may have no more descriptors, because the library also has one for each."""
    many = min(10_000, (descriptors_allowed() - 200) // 2)
    if many < 5 * FEW:
        pytest.skip(f"{many} connections are all that the limit of descriptors allows")
    check_many(tmp_path, pair, many, 1, killed, among)


@pytest.mark.skipif("OFFPATH_LONG" not in os.environ, reason="takes minutes and 4 GiB: ./dev test --long")
@pytest.mark.parametrize(("cores", "killed"), [(1, False), (1, True), (2, False)])
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_connections(tmp_path: Path, pair: NetworkPair, cores: int, killed: bool) -> None:
    if descriptors_allowed() < 200_200:
        pytest.skip("a process may not have 200,200 descriptors here")
    check_many(tmp_path, pair, 100_000, cores, killed)
