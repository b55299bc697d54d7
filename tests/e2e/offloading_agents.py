"""Agents with a device for programs' connections, as the tests of sockets have them."""

from __future__ import annotations

from typing import NamedTuple

from network_pair import AGENT_ADDRESS


class Setup(NamedTuple):
    """Where programs' connections are: an agent with so many cores for them, here or beyond a relay and a link."""

    cores: int
    linked: bool


SETUPS = {"1-core": Setup(1, False), "2-cores": Setup(2, False), "over-a-link": Setup(1, True)}


def with_device(cores: int) -> list[str]:
    settings = ["tcp.device=near", f"tcp.address={AGENT_ADDRESS}/24", f"tcp.cores={cores}"]
    return [word for each in [*settings, "tcp.flows_of_program=8192"] for word in ("--set", each)]
