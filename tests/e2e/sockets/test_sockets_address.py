"""An address that the kernel has on the agent's interface, too: TCP to it is the agent's, the rest the kernel's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from agent_process import AgentProcess, find_program, run_agent, until
from network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing, network_pair
from offloading_agents import agent_where_it_can_be
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

DROP_IN = Path(__file__).resolve().parents[3] / "packaging/systemd/offpath-agent.service.d/tcp.conf"
# Greets every client, by TCP and by UDP.
SERVER = """
import socket, sys, threading
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], int(sys.argv[2])))
def answer():
    while True:
        udp.sendto(b"hello by udp", udp.recvfrom(100)[1])
threading.Thread(target=answer, daemon=True).start()
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
while True:
    connection, peer = listener.accept()
    connection.sendall(b"x" * 3_000_000 + b"hello by tcp to " + peer[0].encode())
    connection.close()
"""
ASK = """
import socket, sys
def by_tcp():
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as connection:
        return b"".join(iter(lambda: connection.recv(65536), b"")).lstrip(b"x")
def by_udp():
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.settimeout(20)
    udp.sendto(b"?", (sys.argv[1], int(sys.argv[2])))
    return udp.recv(100)
try:
    print({"tcp": by_tcp, "udp": by_udp}[sys.argv[3]]().decode())
except OSError as error:
    print(type(error).__name__)
"""


def ask(pair: NetworkPair, port: int, by: str) -> str:
    command = pair.far_command(sys.executable, "-c", ASK, AGENT_ADDRESS, str(port), by)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def run_near(pair: NetworkPair, *command: str) -> None:
    subprocess.run(pair.near_command(*command), check=True)


def serve(pair: NetworkPair, port: int, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = pair.near_command(sys.executable, "-c", SERVER, AGENT_ADDRESS, str(port))
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"
    return server


@contextmanager
def agent_of_near(directory: Path, launcher: list[str], device: str) -> Iterator[AgentProcess]:
    """An agent without ``tcp.address``; where the kernel cannot do its part, the test is skipped with the kernel's
    message."""
    with ExitStack() as stack:
        words = ("--set", f"tcp.device={device}")
        try:
            running = stack.enter_context(agent_where_it_can_be(directory, *words, http=False, launcher=launcher))
        except RuntimeError as error:
            if "leave TCP there alone" not in str(error):
                raise
            pytest.skip(str(error))
        yield running


@pytest.mark.parametrize("device", ["near", "xdp:near"])
def test_the_interfaces_address_is_the_agents_for_tcp_and_the_kernels_for_the_rest(tmp_path: Path, device: str) -> None:
    with network_pair() as pair:
        run_near(pair, "ip", "addr", "add", f"{AGENT_ADDRESS}/24", "dev", "near")
        run_near(pair, "ip", "route", "add", "default", "via", KERNEL_ADDRESS, "dev", "near")
        kernels = serve(pair, 7601)
        try:
            assert ask(pair, 7601, "tcp") == f"hello by tcp to {KERNEL_ADDRESS}"
            with agent_of_near(tmp_path, pair.near_command(), device) as running:
                assert running.says(f"{AGENT_ADDRESS}/24 of near by {KERNEL_ADDRESS}")
                env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
                offloaded = serve(pair, 7602, env)
                try:
                    assert ask(pair, 7602, "tcp") == f"hello by tcp to {KERNEL_ADDRESS}"
                    assert ask(pair, 7602, "udp") == "hello by udp"
                    # The kernel's own listener is not reached by TCP: the agent knows no listener there.
                    assert ask(pair, 7601, "tcp") == "ConnectionRefusedError"
                    assert ask(pair, 7601, "udp") == "hello by udp"
                finally:
                    offloaded.kill()
                    offloaded.wait()
                running.process.kill()
                running.process.wait()
                # With the agent goes all it had arranged.
                shown = pair.near_command("ip", "-details", "link", "show", "near")
                assert until(lambda: "xdp" not in subprocess.run(shown, capture_output=True, text=True).stdout)
                assert until(lambda: ask(pair, 7601, "tcp") == f"hello by tcp to {KERNEL_ADDRESS}")
        finally:
            kernels.kill()
            kernels.wait()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.parametrize("device", ["near", "xdp:near"])
def test_what_the_agent_takes_it_has_by_the_drop_in_for_systemd(open_path: Path, device: str) -> None:
    """With the capabilities of packaging/systemd/offpath-agent.service.d/tcp.conf, as another user than root."""
    words = re.findall(r"^AmbientCapabilities=(.*)$", DROP_IN.read_text(), re.MULTILINE)
    capabilities = ",".join("+" + name.removeprefix("CAP_").lower() for line in words for name in line.split())
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    become += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
    os.chown(open_path, 65534, 65534)
    with network_pair() as pair:
        run_near(pair, "ip", "addr", "add", f"{AGENT_ADDRESS}/24", "dev", "near")
        with agent_of_near(open_path, [*pair.near_command(), *become], device) as running:
            status = Path(f"/proc/{running.pid}/status").read_text()
            assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
            assert running.says(f"{AGENT_ADDRESS}/24 of near")


def test_auto_says_which_way_it_opens_the_interface_and_why(tmp_path: Path) -> None:
    """veth has no zero-copy: frames would be copied as for a packet socket, and the kernel segments for that."""
    with network_pair() as pair:
        run_near(pair, "ip", "addr", "add", f"{AGENT_ADDRESS}/24", "dev", "near")
        with agent_of_near(tmp_path, pair.near_command(), "auto:near") as running:
            assert running.says("tcp.device auto:near: AF_PACKET, because AF_XDP ")
            env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=AGENT_ADDRESS)
            offloaded = serve(pair, 7603, env)
            try:
                assert ask(pair, 7603, "tcp") == f"hello by tcp to {KERNEL_ADDRESS}"
            finally:
                offloaded.kill()
                offloaded.wait()


def test_an_agent_that_cannot_open_it_by_xdp_says_what_to_do(tmp_path: Path) -> None:
    """As with ``xdp:lo``, whose driver runs no programs, or where libxdp is not built in."""
    words = ["--listen", f"unix:{tmp_path}/a.sock", "--set", "tcp.device=xdp:lo", "--set", "tcp.address=10.9.0.2/24"]
    refused = run_agent(*words)
    assert refused.returncode != 0
    assert re.search(r"xdp:lo: .*(tcp\.device = lo|without xdp:|ip link set lo up)", refused.stderr), refused.stderr


def test_an_interface_without_an_address_wants_one_to_be_named() -> None:
    refused = run_agent("--listen", "unix:/tmp/offpath-never.sock", "--set", "tcp.device=lo:none")
    assert refused.returncode != 0
    assert "lo:none has no usable IPv4 address: set tcp.address" in refused.stderr


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.parametrize("env, where", [({}, "takes CAP_NET_RAW"), ({"INVOCATION_ID": "1"}, "a drop-in gives")])
def test_an_agent_without_the_right_says_where_it_comes_from(env: dict[str, str], where: str) -> None:
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", find_program()]
    words = ["--listen", "unix:/tmp/offpath-never.sock", "--set", "tcp.device=lo", "--set", "tcp.address=10.9.0.2/24"]
    refused = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False,
                             env={"XDG_RUNTIME_DIR": "/nonexistent", **env})  # fmt: skip
    assert refused.returncode != 0
    assert "tcp.device lo: " in refused.stderr and where in refused.stderr, refused.stderr
