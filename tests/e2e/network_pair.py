"""The benchmarks' network namespaces, for tests, with addresses of both IP versions."""

from __future__ import annotations

from typing import NamedTuple

from offpath.bench.network_pair import (
    AGENT_ADDRESS,
    AGENT_ADDRESS_6,
    KERNEL_ADDRESS,
    KERNEL_ADDRESS_6,
    NetworkPair,
    missing,
    network_pair,
)

__all__ = ["AGENT_ADDRESS", "AGENT_ADDRESS_6", "IPV4", "IPV6", "KERNEL_ADDRESS", "KERNEL_ADDRESS_6", "Family",
           "NetworkPair", "missing", "network_pair"]  # fmt: skip


class Family(NamedTuple):
    """Addresses of one family of sockets, and its name in Python's ``socket``."""

    name: str
    kernel: str  # the kernel's in ``far``
    agent: str
    everywhere: str

    @property
    def own(self) -> str:
        """The agent's addresses, as offloaded programs see them."""
        return f"{AGENT_ADDRESS},{AGENT_ADDRESS_6}" if self.agent == AGENT_ADDRESS_6 else AGENT_ADDRESS

    def url(self, address: str) -> str:
        """An address as it stands before ``:PORT``."""
        return f"[{address}]" if ":" in address else address

    @property
    def prelude(self) -> str:
        """The lines before a Python program that runs with sockets of either family."""
        return f"import socket\nFAMILY, EVERYWHERE = socket.{self.name}, {self.everywhere!r}\n"


IPV4 = Family("AF_INET", KERNEL_ADDRESS, AGENT_ADDRESS, "0.0.0.0")
IPV6 = Family("AF_INET6", KERNEL_ADDRESS_6, AGENT_ADDRESS_6, "::")
