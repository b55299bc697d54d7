"""The checks of ``offpath doctor`` for ``doca:`` addresses: the driver's libraries and their card.

Everything is read from files below ``root``; each finding is (name, value, whether it is good, recommended change).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .rdma_device import Found, interfaces, look_at_devices, look_at_locked_memory, release_of_card

LIBRARIES = ("libdoca_common.so.2", "libdoca_dma.so.2")
PLACES = ("opt/mellanox/doca/lib/*", "opt/mellanox/doca/lib64", "usr/lib/*", "usr/lib64", "usr/lib")


def look(root: Path = Path("/"), wanted: bool = True, locked_bytes: int | None = None) -> Iterator[Found]:
    """``wanted``: DOCA DMA is to be used, so that a machine that cannot is wrong."""
    missing = [name for name in LIBRARIES if not any(any(root.glob(f"{place}/{name}")) for place in PLACES)]
    if not wanted:
        if not missing:
            yield "DOCA DMA", "its libraries are there", True, ""
        return
    yield ("DOCA libraries", f"{', '.join(missing)} not found" if missing else "there", not missing,
           "install DOCA's runtime (doca-sdk-dma)")  # fmt: skip
    card = release_of_card(root)
    devices = sorted(file.name for file in root.glob("sys/class/infiniband/mlx5_*"))
    yield ("DOCA device", ", ".join(devices) or "none", bool(devices),
           "the agent runs on a BlueField, the program on the host it sits in: load mlx5_ib there" if not card else
           "load the card's driver: modprobe mlx5_ib")  # fmt: skip
    if card:
        hosts = [link.name for link in interfaces(root).values() if link.is_hosts]
        value = f"DPU: {', '.join(hosts)} stands for the host's" if hosts else "not DPU mode"
        advice = "the card's engine reaches the host in DPU mode alone (docs/guides/bluefield.md, The card's mode)"
        yield "DOCA DMA's mode", value, bool(hosts), advice
    yield from (found for found in look_at_devices(root) if found[0] == "/dev/infiniband")
    yield from look_at_locked_memory(locked_bytes)
