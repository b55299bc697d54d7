"""The calls that docs/guides/sockets.md lists do over the agent what they do in the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import AgentProcess
from echo_server import echo_server
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

PROGRAM = Path(__file__).with_name("socket_calls.c")
ECHO_PORT, NOBODYS_PORT, OWN_PORT = "7701", "7702", "7703"
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as connection:
    connection.send(b"hello")
    connection.recv(1)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    built = tmp_path_factory.mktemp("calls") / "socket_calls"
    words = ["-std=gnu11", "-O2", "-D_FORTIFY_SOURCE=2", "-pthread", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *words, str(PROGRAM), "-o", str(built)], check=True)
    symbols = subprocess.run(["nm", "-D", built], capture_output=True, text=True, check=True).stdout
    assert all(f"__{name}_chk" in symbols for name in ("recv", "read", "recvfrom", "poll", "ppoll"))
    return built


def said_by(pair: NetworkPair, program: Path, enter: Callable[..., list[str]], own: str, env: dict[str, str]) -> str:
    """What the program says, in the namespace of ``enter``, where it has the address ``own``."""
    command = enter(str(program), KERNEL_ADDRESS, ECHO_PORT, NOBODYS_PORT, OWN_PORT)
    running = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    client = None
    said = ""
    try:
        assert running.stdout is not None
        for line in running.stdout:
            said += line
            if line == "listening\n":
                client = subprocess.Popen(pair.far_command(sys.executable, "-c", CLIENT, own, OWN_PORT))
        assert running.wait(30) == 0
    finally:
        for each in (running, client):
            if each is not None:
                each.kill()
                each.wait()
    return said


def test_each_call_does_what_it_does_in_the_kernel(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, program: Path
) -> None:
    offloaded = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
    with echo_server(pair, ECHO_PORT):  # which nothing but the agent can reach from ``near``
        in_the_kernel = said_by(pair, program, pair.far_command, KERNEL_ADDRESS, dict(os.environ))
        assert said_by(pair, program, pair.near_command, AGENT_ADDRESS, offloaded) == in_the_kernel
    assert in_the_kernel.endswith("shutdown, no listener any more: ENOTCONN\n")  # the program's last words
