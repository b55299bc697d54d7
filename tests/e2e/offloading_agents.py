"""Agents with a device for programs' connections, as the tests of sockets have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from network_pair import AGENT_ADDRESS, AGENT_ADDRESS_6, IPV4, IPV6, Family


class Setup(NamedTuple):
    """Where programs' connections are: an agent with so many cores for them, here or beyond a relay and a link. And
    with sockets of which family a test runs there."""

    cores: int
    linked: bool
    family: Family = IPV4


SETUPS = {"1-core": Setup(1, False), "2-cores": Setup(2, False), "over-a-link": Setup(1, True)}
# IPv6 differs in addresses alone, which steer connections to cores and cross the link.
SETUPS_OF_IPV6 = {"ipv6-2-cores": Setup(2, False, IPV6), "ipv6-over-a-link": Setup(1, True, IPV6)}
SETUPS_OF_BOTH_FAMILIES = {**SETUPS, **SETUPS_OF_IPV6}


def setup_of(setups: Mapping[str, Setup]) -> Callable[..., Any]:
    """The fixture ``setup``: each test runs with each of them."""

    @pytest.fixture(params=list(setups.values()), ids=list(setups))
    def setup(request: pytest.FixtureRequest) -> Setup:
        which: Setup = request.param
        return which

    return setup


def with_device(cores: int, family: Family = IPV4) -> list[str]:
    """The agent has an address of IPv4, and for tests of IPv6 one of that, too."""
    addresses = [f"tcp.address={AGENT_ADDRESS}/24"]
    if family is IPV6:
        addresses += [f"tcp.address6={AGENT_ADDRESS_6}/64", "tcp.gateway6=none"]
    settings = ["tcp.device=near", *addresses, f"tcp.cores={cores}"]
    return [word for each in [*settings, "tcp.flows_of_program=8192"] for word in ("--set", each)]
