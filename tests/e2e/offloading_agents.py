"""Agents with a device for programs' connections, as the tests of sockets have them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agent_process import AgentProcess, agent
from network_pair import AGENT_ADDRESS, AGENT_ADDRESS_6, IPV4, IPV6, Family
from offpath import sockets


class Setup(NamedTuple):
    """Where programs' connections are: an agent with so many cores for them, here or beyond a relay and a link. With
    sockets of which family a test runs there, and how the agent opens its interface (``tcp.device``)."""

    cores: int
    linked: bool
    family: Family = IPV4
    device: str = "near"


SETUPS = {"1-core": Setup(1, False), "2-cores": Setup(2, False), "over-a-link": Setup(1, True)}
# IPv6 differs in addresses alone, which steer connections to cores and cross the link.
SETUPS_OF_IPV6 = {"ipv6-2-cores": Setup(2, False, IPV6), "ipv6-over-a-link": Setup(1, True, IPV6)}
# AF_XDP differs in how segments come and go. Each family, and the division of a queue among cores.
SETUPS_OF_XDP = {
    "xdp": Setup(1, False, device="xdp:near"),
    "xdp-ipv6-2-cores": Setup(2, False, IPV6, device="xdp:near"),
}
SETUPS_AND_IPV6_ONCE = {**SETUPS, "ipv6-2-cores": SETUPS_OF_IPV6["ipv6-2-cores"]}  # where each takes its time
SETUPS_OF_BOTH_FAMILIES = {**SETUPS, **SETUPS_OF_IPV6}


def setup_of(setups: Mapping[str, Setup]) -> Callable[..., Any]:
    """The fixture ``setup``: each test runs with each of them."""

    @pytest.fixture(params=list(setups.values()), ids=list(setups))
    def setup(request: pytest.FixtureRequest) -> Setup:
        which: Setup = request.param
        return which

    return setup


def with_device(cores: int, family: Family = IPV4, device: str = "near") -> list[str]:
    """The agent has an IPv4 address, and for tests of IPv6 also an IPv6 address."""
    addresses = [f"tcp.address={AGENT_ADDRESS}/24"]
    if family is IPV6:
        addresses += [f"tcp.address6={AGENT_ADDRESS_6}/64", "tcp.gateway6=none"]
    settings = [f"tcp.device={device}", *addresses, f"tcp.cores={cores}"]
    return [word for each in [*settings, "tcp.flows_of_program=8192"] for word in ("--set", each)]


def environment(tmp_path: Path, family: Family = IPV4) -> dict[str, str]:
    """The command in front of a program that offloads its sockets to the agent at tmp_path/agent.sock."""
    return sockets.environment(f"unix:{tmp_path}/agent.sock", address=family.own)


def fetch(command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs a command that ends soon; keeps its output."""
    return subprocess.run(command, capture_output=True, timeout=120, check=False, env=env)


@contextmanager
def agent_where_it_can_be(directory: Path, *words: str, **how: Any) -> Iterator[AgentProcess]:
    """An agent of ``agent``. The test is skipped where the agent or the kernel is without AF_XDP."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(agent(directory, *words, **how))
        except RuntimeError as error:
            if "without libxdp" not in str(error) and "no AF_XDP" not in str(error):
                raise
            pytest.skip(str(error))
        yield running
