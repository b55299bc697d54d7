"""Two network namespaces of one's own, gone with the processes that hold them: ``near`` is the agent's device in one,
``far`` the kernel's, with an address, in the other. A second pair of devices has addresses at both ends, for the
kernel's own TCP between the same namespaces. Or a bad network lies between them, for both stacks the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

KERNEL_ADDRESS = "10.9.0.1"
AGENT_ADDRESS = "10.9.0.2"
KERNEL_ADDRESS_6 = "fd09::1"
AGENT_ADDRESS_6 = "fd09::2"
# The kernel's in ``near``, over the bad network.
NEAR_KERNEL_ADDRESS = "10.9.0.3"
# Of the second pair: the end in ``far``, and that in ``near``.
PEER_CLIENT_ADDRESS = "10.9.1.1"
PEER_SERVER_ADDRESS = "10.9.1.2"
# Of a third pair: the kernel's end in ``far``, and that of another agent.
SECOND_KERNEL_ADDRESS = "10.9.2.1"
SECOND_AGENT_ADDRESS = "10.9.2.2"
# Of a link through a bad network: the end in ``near``, and that in ``card``.
LINK_HOST_ADDRESS = "10.9.3.1"
LINK_CARD_ADDRESS = "10.9.3.2"


@dataclass
class NetworkPair:
    near: int  # a process in each
    far: int

    def near_command(self, *command: str) -> list[str]:
        return _enter(self.near, *command)

    def far_command(self, *command: str) -> list[str]:
        return _enter(self.far, *command)


@dataclass
class CardPair(NetworkPair):
    card: int  # where the device is that ``near`` has otherwise

    def card_command(self, *command: str) -> list[str]:
        return _enter(self.card, *command)


def _hold() -> subprocess.Popen[bytes]:
    held = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE)
    assert held.stdout is not None
    held.stdout.read(1)
    return held


def missing() -> str | None:
    """The reason why this machine cannot have them."""
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


def _enter(process: int, *command: str) -> list[str]:
    return ["nsenter", "--net", "-t", str(process), "--", *command]


def _set(namespace: int, setting: str, value: str) -> None:
    """A setting below /proc/sys, if there is one."""
    path = f"/proc/sys/{setting}"
    _run(_enter(namespace, "sh", "-c", f"[ ! -e {path} ] || echo {value} > {path}"))


def _connect(one: int, device: str, other: int, other_device: str) -> None:
    """Devices of these names, up, without addresses, each in the namespace of a process."""
    peer = ("peer", "name", other_device, "netns", str(other))
    _run(_enter(one, "ip", "link", "add", device, "type", "veth", *peer))
    _run(_enter(one, "ip", "link", "set", device, "up"))
    _run(_enter(other, "ip", "link", "set", other_device, "up"))


def _connect_agents_device(namespace: int, far: int) -> None:
    """The agent's device is ``near``. The kernel at ``far`` has its addresses."""
    _connect(namespace, "near", far, "far")
    _keep_for_agent(namespace, "near")
    _run(_enter(far, "ip", "addr", "add", f"{KERNEL_ADDRESS}/24", "dev", "far"))
    with contextlib.suppress(subprocess.CalledProcessError):  # of a kernel without IPv6
        _run(_enter(far, "ip", "addr", "add", f"{KERNEL_ADDRESS_6}/64", "dev", "far", "nodad"))


def _keep_for_agent(namespace: int, device: str) -> None:
    _set(namespace, f"net/ipv6/conf/{device}/disable_ipv6", "1")  # IPv6 there is the agent's alone


def _move(one: int, device: str, other: int) -> None:
    _run(_enter(one, "ip", "link", "set", device, "netns", str(other)))
    _keep_for_agent(other, device)
    _run(_enter(other, "ip", "link", "set", device, "up"))


def _namespaces(stack: contextlib.ExitStack, count: int) -> list[int]:
    """A process in each."""
    holders = []
    for _ in range(count):
        holders.append(_hold())
        stack.callback(holders[-1].wait)
        stack.callback(holders[-1].kill)
    for holder in holders:
        _run(_enter(holder.pid, "ip", "link", "set", "lo", "up"))
        _set(holder.pid, "net/ipv6/conf/default/accept_dad", "0")  # the kernel's addresses are there at once
    return [holder.pid for holder in holders]


def _start_path(stack: contextlib.ExitStack, namespace: int, program: str, *arguments: str) -> None:
    command = _enter(namespace, program, *arguments)
    path = subprocess.Popen(command, stdout=subprocess.PIPE)
    stack.callback(path.wait)
    stack.callback(path.kill)
    assert path.stdout is not None
    if path.stdout.readline() != b"ready\n":
        raise RuntimeError(f"{' '.join(command)} did not start")


@contextlib.contextmanager
def network_pair(with_peer: bool = False, with_second: bool = False) -> Iterator[NetworkPair]:
    """``with_peer``: also the second pair of devices. ``with_second``: ``second``, a device for another agent."""
    with contextlib.ExitStack() as stack:
        pair = NetworkPair(*_namespaces(stack, 2))
        _connect_agents_device(pair.near, pair.far)
        if with_peer:
            _connect(pair.near, "near-peer", pair.far, "far-peer")
            _run(pair.near_command("ip", "addr", "add", f"{PEER_SERVER_ADDRESS}/24", "dev", "near-peer"))
            _run(pair.far_command("ip", "addr", "add", f"{PEER_CLIENT_ADDRESS}/24", "dev", "far-peer"))
        if with_second:
            _connect(pair.near, "second", pair.far, "far-second")
            _run(pair.far_command("ip", "addr", "add", f"{SECOND_KERNEL_ADDRESS}/24", "dev", "far-second"))
        yield pair


@contextlib.contextmanager
def network_pair_with_card() -> Iterator[CardPair]:
    """The same, and a link without delay from ``near`` to ``card``, where the agent's device may go."""
    with contextlib.ExitStack() as stack:
        near, far, card = _namespaces(stack, 3)
        _connect_agents_device(near, far)
        _connect(near, "host", card, "card")
        for namespace, device, address in ((near, "host", LINK_HOST_ADDRESS), (card, "card", LINK_CARD_ADDRESS)):
            _run(_enter(namespace, "ip", "addr", "add", f"{address}/24", "dev", device))
        yield CardPair(near, far, card)


@contextlib.contextmanager
def device_at_card(pair: CardPair) -> Iterator[None]:
    """The agent's device is in ``card`` instead of ``near``."""
    _move(pair.near, "near", pair.card)
    try:
        yield
    finally:
        _move(pair.card, "near", pair.near)


@contextlib.contextmanager
def bad_network(path_program: str, *impairments: str) -> Iterator[NetworkPair]:
    """``near`` is the agent's device and ``kernel`` the kernel's, at NEAR_KERNEL_ADDRESS; both reach ``far`` through
    ``path_program`` (bench_tcp_path) in a third namespace. Devices cut segments, so that it sees the packets of a wire.
    """
    with contextlib.ExitStack() as stack:
        near, far, path = _namespaces(stack, 3)
        pair = NetworkPair(near, far)
        for namespace, device in ((near, "near"), (near, "kernel"), (far, "far")):
            _connect(namespace, device, path, f"{device}-path")
            # Frames of the kernel's own sockets count their segments; those of a packet socket have only a size.
            cut = ("gso_max_size", "1000") if device == "near" else ("gso_max_segs", "1")
            _run(_enter(namespace, "ip", "link", "set", device, *cut))
        # Of two devices in one network the kernel answers for its address on that which has it.
        _set(pair.near, "net/ipv4/conf/all/arp_ignore", "1")
        _run(pair.near_command("ip", "addr", "add", f"{NEAR_KERNEL_ADDRESS}/24", "dev", "kernel"))
        _run(pair.far_command("ip", "addr", "add", f"{KERNEL_ADDRESS}/24", "dev", "far"))
        _start_path(stack, path, path_program, "near-path,kernel-path", "far-path", *impairments)
        yield pair


@contextlib.contextmanager
def card_beyond(path_program: str, *impairments: str) -> Iterator[CardPair]:
    """``near`` has no device but its end of a link to ``card``, which has the agent's. Between them is ``path_program``
    in a fourth namespace."""
    with contextlib.ExitStack() as stack:
        near, far, card, path = _namespaces(stack, 4)
        pair = CardPair(near, far, card)
        _connect_agents_device(card, far)
        for namespace, device, address in ((near, "host", LINK_HOST_ADDRESS), (card, "card", LINK_CARD_ADDRESS)):
            _connect(namespace, device, path, f"{device}-path")
            _run(_enter(namespace, "ip", "link", "set", device, "gso_max_segs", "1"))
            _run(_enter(namespace, "ip", "addr", "add", f"{address}/24", "dev", device))
        _start_path(stack, path, path_program, "host-path", "card-path", *impairments)
        yield pair
