"""The calls in docs/guides/sockets.md have the same effect over the agent as in the kernel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import AgentProcess
from echo_server import echo_server
from kernel_or_agent import Place
from network_pair import Family, NetworkPair, missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)

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


def said_by(place: Place, program: Path) -> str:
    """The program's output there."""
    running = place.start_command(str(program), place.peers_address, ECHO_PORT, NOBODYS_PORT, OWN_PORT)
    client = None
    said = ""
    try:
        assert running.stdout is not None
        for line in running.stdout:
            said += line
            if line == "listening\n":
                ask = place.pair.far_command(sys.executable, "-c", CLIENT, place.address, OWN_PORT)
                client = subprocess.Popen(ask)
        assert running.wait(60) == 0
    finally:
        for each in (running, client):
            if each is not None:
                each.kill()
                each.wait()
    return said


def test_each_call_does_what_it_does_in_the_kernel(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, program: Path
) -> None:
    with echo_server(pair, ECHO_PORT, family):  # which nothing but the agent can reach from ``near``
        in_the_kernel, offloaded = (said_by(Place(pair, tmp_path, it, family=family), program) for it in (False, True))
        assert offloaded == in_the_kernel
    assert in_the_kernel.endswith("shutdown, no listener any more: ENOTCONN\n")  # the program's last words
