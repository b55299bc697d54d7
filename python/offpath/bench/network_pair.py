"""Two network namespaces of one's own, gone with the processes that hold them: ``near`` is the agent's device in one,
``far`` the kernel's, with an address, in the other. A second pair of devices has addresses at both ends, for the
kernel's own TCP between the same namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

KERNEL_ADDRESS = "10.9.0.1"
AGENT_ADDRESS = "10.9.0.2"
# Of the second pair: the end in ``far``, and that in ``near``.
PEER_CLIENT_ADDRESS = "10.9.1.1"
PEER_SERVER_ADDRESS = "10.9.1.2"


@dataclass
class NetworkPair:
    near: int  # a process in each
    far: int

    def near_command(self, *command: str) -> list[str]:
        return ["nsenter", "--net", "-t", str(self.near), "--", *command]

    def far_command(self, *command: str) -> list[str]:
        return ["nsenter", "--net", "-t", str(self.far), "--", *command]


def _hold() -> subprocess.Popen[bytes]:
    held = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE)
    assert held.stdout is not None
    held.stdout.read(1)
    return held


def missing() -> str | None:
    """Why there can be none on this machine."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    for program in (["unshare", "--net", "true"], ["ip", "-V"], ["nsenter", "--version"]):
        try:
            subprocess.run(program, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{program[0]}: {error}"
    return None


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _connect(pair: NetworkPair, near: str, far: str) -> None:
    """Devices of these names, up, without addresses."""
    _run(pair.near_command("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(pair.far)))
    _run(pair.near_command("ip", "link", "set", near, "up"))
    _run(pair.far_command("ip", "link", "set", far, "up"))


@contextlib.contextmanager
def network_pair(with_peer: bool = False) -> Iterator[NetworkPair]:
    """``with_peer``: the second pair of devices, too."""
    with contextlib.ExitStack() as stack:
        holders = []
        for _ in range(2):
            holders.append(_hold())
            stack.callback(holders[-1].wait)
            stack.callback(holders[-1].kill)
        pair = NetworkPair(holders[0].pid, holders[1].pid)
        for enter in (pair.near_command, pair.far_command):
            _run(enter("ip", "link", "set", "lo", "up"))
        _connect(pair, "near", "far")
        _run(pair.far_command("ip", "addr", "add", f"{KERNEL_ADDRESS}/24", "dev", "far"))
        if with_peer:
            _connect(pair, "near-peer", "far-peer")
            _run(pair.near_command("ip", "addr", "add", f"{PEER_SERVER_ADDRESS}/24", "dev", "near-peer"))
            _run(pair.far_command("ip", "addr", "add", f"{PEER_CLIENT_ADDRESS}/24", "dev", "far-peer"))
        yield pair
