"""Rings of offloaded sockets: small where little is said or nothing for a while, larger where much is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, pages_of, until
from network_pair import Family, NetworkPair, missing
from offloading_agents import SETUPS_AND_IPV6_ONCE, Setup, setup_of
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_AND_IPV6_ONCE)

IDLE, FIRST, FIRST_TO_SEND, MOVED = 60, 16 << 10, 64 << 10, 64 << 20

# Takes MOVED bytes from one of its connections, and sends them back.
SERVER = """
import hashlib, socket, sys
moved, idle = int(sys.argv[1]), int(sys.argv[2])
listener = socket.create_server((EVERYWHERE, 7610), family=FAMILY, backlog=100)
print("ready", flush=True)
kept = []
for _ in range(idle):
    kept.append(listener.accept()[0])
    kept[-1].sendall(b"x")
print("idle", flush=True)
c, _ = listener.accept()
got = bytearray()
while len(got) < moved:
    got += c.recv(1 << 20)
print("received", hashlib.sha256(got).hexdigest(), flush=True)
sys.stdin.readline()
c.sendall(got)
sys.stdin.readline()
c.shutdown(socket.SHUT_WR)
assert c.recv(1) == b""
c.close()
print("sent", flush=True)
sys.stdin.readline()
"""
CLIENT = """
import hashlib, os, socket, sys
address, moved, idle = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kept = [socket.create_connection((address, 7610), timeout=60) for _ in range(idle)]
for each in kept:
    assert each.recv(1) == b"x"
c = socket.create_connection((address, 7610), timeout=60)
bytes_ = os.urandom(moved)
print(hashlib.sha256(bytes_).hexdigest(), flush=True)
sys.stdin.readline()
c.sendall(bytes_)
got = bytearray()
while len(got) < moved and (some := c.recv(1 << 20)):
    got += some
print("same" if got == bytes_ else "other", flush=True)
assert c.recv(1) == b""
c.close()
sys.stdin.readline()
"""


def test_rings_grow_with_need_and_shrink_when_idle(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, setup: Setup, family: Family
) -> None:
    def line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def go(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    def program() -> dict[str, Any]:
        row: dict[str, Any] = pages_of(tmp_path)["tcp"]["programs"][0]
        return row

    def start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    words = [str(MOVED), str(IDLE)]
    env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=family.own)
    server = start(pair.near_command(sys.executable, "-c", family.prelude + SERVER, *words), env)
    client = None
    try:
        assert line(server) == "ready"
        client = start(pair.far_command(sys.executable, "-c", CLIENT, family.agent, *words), dict(os.environ))
        assert line(server) == "idle"
        digest = line(client)
        # Over a link the agent has rings for both directions of its own.
        at_first = FIRST + (FIRST_TO_SEND if setup.linked else 0)
        assert program()["receive_bytes"] <= (IDLE + 1) * at_first
        assert program()["lent_bytes"] == 0
        assert pages_of(tmp_path)["tcp"]["rings_grown"] == 0
        go(client)
        assert line(server) == f"received {digest}"
        assert until(lambda: program()["lent_bytes"] > 0)
        assert until(lambda: program()["receive_bytes"] >= IDLE * at_first + (64 << 10))
        time.sleep(0.2)  # longer than a status is reused
        grown = pages_of(tmp_path)["tcp"]["rings_grown"]
        assert grown > 0
        # The connection is idle, and has its first rings again; then larger ones again.
        assert until(lambda: program()["lent_bytes"] == 0, 60)
        shrunk = pages_of(tmp_path)["tcp"]["rings_shrunk"]
        assert shrunk > 0
        go(server)
        assert line(client) == "same"
        assert until(lambda: pages_of(tmp_path)["tcp"]["rings_grown"] > grown)
        assert until(lambda: program()["lent_bytes"] == 0, 60)
        assert until(lambda: pages_of(tmp_path)["tcp"]["rings_shrunk"] > shrunk)
        assert program()["flows"] == IDLE + 1
        go(server)
        assert line(server) == "sent"
    finally:
        for process in (server, client):
            if process is not None:
                process.kill()
                process.wait()
