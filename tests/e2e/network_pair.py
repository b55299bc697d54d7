"""The benchmarks' network namespaces, for tests."""

from offpath.bench.network_pair import AGENT_ADDRESS, KERNEL_ADDRESS, NetworkPair, missing, network_pair

__all__ = ["AGENT_ADDRESS", "KERNEL_ADDRESS", "NetworkPair", "missing", "network_pair"]
