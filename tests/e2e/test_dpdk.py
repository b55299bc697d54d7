"""An agent on a device of DPDK's: programs' connections over it, and its cost when it is idle. ``./dev dpdk`` builds
the agent and runs these."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess, agent, pages_of, run_agent, until
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing
from offpath import sockets

DPDK_AGENT = os.environ.get("OFFPATH_DPDK_AGENT")
EAL = ["--set", "tcp.dpdk_arguments=--no-huge,-m,64,--no-pci"]
ADDRESS = ["--set", f"tcp.address={AGENT_ADDRESS}/24"]
needs_dpdk = pytest.mark.skipif(DPDK_AGENT is None, reason="no agent with DPDK was named: ./dev dpdk builds one")
needs_namespaces = pytest.mark.skipif(missing() is not None, reason=missing() or "")

# Like `ethtool -K far tx off`: the kernel completes the checksums of its own packets.
CHECKSUMS_BY_THE_KERNEL = """
import ctypes, fcntl, socket, struct
value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP16x", b"far", ctypes.addressof(value)))
"""

ANSWERS = """
import socket
with socket.create_server(("0.0.0.0", 8000)) as listener:
    print("listening", flush=True)
    while True:
        connection, _ = listener.accept()
        said = b""
        while piece := connection.recv(1 << 20):
            said += piece
        connection.sendall(said[::-1])
        connection.close()
"""

ASKS = """
import hashlib, random, socket, sys
said = random.Random(1).randbytes(int(sys.argv[2]))
with socket.create_connection((sys.argv[1], 8000), timeout=60) as connection:
    connection.sendall(said)
    connection.shutdown(socket.SHUT_WR)
    answer = hashlib.sha256()
    while piece := connection.recv(1 << 20):
        answer.update(piece)
print(answer.hexdigest())
"""


def answer_to(size: int) -> str:
    return hashlib.sha256(random.Random(1).randbytes(size)[::-1]).hexdigest()


@pytest.fixture
def on_dpdk(tmp_path: Path, pair: NetworkPair, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentProcess]:
    assert DPDK_AGENT is not None
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", DPDK_AGENT)
    subprocess.run(pair.far_command(sys.executable, "-c", CHECKSUMS_BY_THE_KERNEL), check=True)
    device = ["--set", "tcp.device=dpdk:net_af_packet0,iface=near", *EAL, *ADDRESS]
    with agent(tmp_path, *device, http=False, launcher=pair.near_command()) as running:
        yield running


def asked(command: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def capabilities(pid: int) -> dict[str, list[int]]:
    """Of each thread by its name: permitted and effective."""
    found = {}
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        found[fields["Name"]] = [int(fields[name], 16) for name in ("CapPrm", "CapEff")]
    return found


@needs_dpdk
@needs_namespaces
def test_programs_serve_and_connect_over_dpdk(tmp_path: Path, pair: NetworkPair, on_dpdk: AgentProcess) -> None:
    env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
    assert on_dpdk.says("driver net_af_packet")
    for command, its, address, other, others in (
        (pair.near_command, env, AGENT_ADDRESS, pair.far_command, None),
        (pair.far_command, None, KERNEL_ADDRESS, pair.near_command, env),
    ):
        server = subprocess.Popen(command(sys.executable, "-c", ANSWERS), stdout=subprocess.PIPE, env=its)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            for size in (1, 100_000, 8 << 20):
                assert asked(other(sys.executable, "-c", ASKS, address, str(size)), others) == answer_to(size)
        finally:
            server.kill()
            server.wait()
    # The rights for opening the device are given up afterwards, and DPDK's own thread never had it.
    ptrace = 1 << 19
    threads = capabilities(on_dpdk.pid)
    assert threads["eal-intr-thread"] == [0, 0]
    assert [word & ~ptrace for word in threads["offpath-agent"]] == [0, 0]
    assert on_dpdk.stop() == 0


@needs_dpdk
@needs_namespaces
def test_two_cores_have_a_queue_each(tmp_path: Path, pair: NetworkPair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DPDK_AGENT is not None
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", DPDK_AGENT)
    subprocess.run(pair.far_command(sys.executable, "-c", CHECKSUMS_BY_THE_KERNEL), check=True)
    device = ["--set", "tcp.device=dpdk:net_af_packet0,iface=near,qpairs=2", "--set", "tcp.cores=2", *EAL, *ADDRESS]
    pages = ["--http", f"unix:{tmp_path}/http.sock"]
    with agent(tmp_path, *device, *pages, http=False, launcher=pair.near_command()) as running:
        assert running.says("driver net_af_packet, 2 queues")
        env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
        server = subprocess.Popen(pair.near_command(sys.executable, "-c", ANSWERS), stdout=subprocess.PIPE, env=env)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            for size in (*([1000] * 20), 8 << 20):
                command = pair.far_command(sys.executable, "-c", ASKS, AGENT_ADDRESS, str(size))
                assert asked(command) == answer_to(size)

            # Ports are as good as random: one run in 10^6 has one core for all 21 connections.
            assert until(lambda: min(each["segments_in"] for each in pages_of(tmp_path)["tcp"]["cores"]) > 0)
        finally:
            server.kill()
            server.wait()
        assert running.stop() == 0


@needs_dpdk
@needs_namespaces
def test_an_idle_agent_looks_now_and_then_and_is_still_there(
    tmp_path: Path, pair: NetworkPair, on_dpdk: AgentProcess
) -> None:
    """The device does not wake the agent, which therefore has to look. This takes little of a core."""
    env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
    server = subprocess.Popen(pair.near_command(sys.executable, "-c", ANSWERS), stdout=subprocess.PIPE, env=env)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listening\n"
        command = pair.far_command(sys.executable, "-c", ASKS, AGENT_ADDRESS, "1000")
        assert asked(command) == answer_to(1000)

        def share() -> float:
            spent, began = on_dpdk.cpu_seconds(), time.monotonic()
            time.sleep(1)
            return (on_dpdk.cpu_seconds() - spent) / (time.monotonic() - began)

        assert until(lambda: share() < 0.2)
        assert asked(command) == answer_to(1000)
    finally:
        server.kill()
        server.wait()


@needs_dpdk
def test_what_dpdk_does_not_take_is_told_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DPDK_AGENT is not None
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", DPDK_AGENT)
    listen = ["--listen", f"unix:{tmp_path}/agent.sock", *ADDRESS]
    failed = run_agent(*listen, "--set", "tcp.device=dpdk:net_nonesuch0", *EAL)
    assert failed.returncode != 0
    assert "dpdk:net_nonesuch0: rte_dev_probe: " in failed.stderr
    failed = run_agent(*listen, "--set", "tcp.device=dpdk:net_null0", "--set", "tcp.dpdk_arguments=--no-huge,--no-word")
    assert failed.returncode != 0
    assert "DPDK failed to initialize with '--no-huge --no-word': " in failed.stderr


@pytest.mark.skipif("OFFPATH_AGENT_PROGRAM" in os.environ, reason="an agent was named, which may have DPDK")
def test_an_agent_without_dpdk_says_how_to_have_it(tmp_path: Path) -> None:
    listen = ["--listen", f"unix:{tmp_path}/agent.sock", *ADDRESS]
    failed = run_agent(*listen, "--set", "tcp.device=dpdk:0000:03:00.0")
    assert failed.returncode != 0
    assert "dpdk:0000:03:00.0: this agent is built without DPDK; build it with -DOFFPATH_DPDK=ON" in failed.stderr
