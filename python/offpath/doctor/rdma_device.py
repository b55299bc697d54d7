"""The checks of ``offpath doctor`` on a machine with an RDMA device, a BlueField above all (docs/guides/bluefield.md).

Everything is read from files below ``root``, so files of another machine can be checked. Each finding is (name, value,
whether it is good, recommended change).
"""

from __future__ import annotations

import ipaddress
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Found = tuple[str, Any, bool, str]

ROCE_PORT = 4791  # UDP, RoCE version 2
MTU_BYTES = 4200  # the least that lets RoCE use packets of 4096 bytes
BIG_MTU_BYTES = 9000
LOCKED_BYTES_MIN = 1 << 30
HOST_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(hpf)?")  # phys_port_name of a host's function, or its interface's name
UPLINK = re.compile(r"p\d+")


def text_of(path: Path) -> str:
    """A file's text; empty if it is missing or the kernel has no answer."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Interface:
    """A network interface as the card's switch knows it."""

    name: str
    mtu: int
    port_name: str  # empty: not a port of a switch

    @property
    def is_uplink(self) -> bool:
        return UPLINK.fullmatch(self.port_name) is not None

    @property
    def is_representor(self) -> bool:
        """It belongs to the virtual switch; programs' packets use another interface."""
        return bool(self.port_name)

    @property
    def is_hosts(self) -> bool:
        return HOST_REPRESENTOR.fullmatch(self.port_name or self.name) is not None


@dataclass(frozen=True)
class Gid:
    index: int
    kind: str
    address: str  # IPv4; empty if it is not
    interface: str


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: str
    number: str
    state: str
    layer: str  # Ethernet or InfiniBand
    gids: tuple[Gid, ...]

    @property
    def name(self) -> str:
        return f"{self.device}/{self.number}"

    @property
    def usable(self) -> Gid | None:
        """The GIDs that the link can use: RoCE version 2 over IPv4."""
        return next((gid for gid in self.gids if gid.kind == "RoCE v2" and gid.address), None)


def interfaces(root: Path) -> dict[str, Interface]:
    found = {}
    for folder in sorted(root.glob("sys/class/net/*")):
        if not folder.is_dir():  # bonding_masters is a file
            continue
        # A port's name without a switch is a card's that has two ports and no switch.
        port_name = text_of(folder / "phys_port_name") if text_of(folder / "phys_switch_id") else ""
        mtu = text_of(folder / "mtu")
        found[folder.name] = Interface(folder.name, int(mtu) if mtu.isdigit() else 0, port_name)
    return found


def gids(port: Path) -> Iterator[Gid]:
    for file in sorted(port.glob("gids/*"), key=lambda each: int(each.name)):
        kind = text_of(port / "gid_attrs/types" / file.name)
        if not kind:  # an empty row of the table
            continue
        mapped = ipaddress.IPv6Address(text_of(file) or "::").ipv4_mapped
        yield Gid(int(file.name), kind, str(mapped or ""), text_of(port / "gid_attrs/ndevs" / file.name))


def ports(root: Path) -> list[Port]:
    return [
        Port(
            port.parents[1].name, port.name, text_of(port / "state").rpartition(":")[2].strip() or "unknown",
            text_of(port / "link_layer"), tuple(gids(port)),
        )
        for port in sorted(root.glob("sys/class/infiniband/*/ports/*"))
    ]  # fmt: skip


def release_of_card(root: Path) -> str:
    """The model of a BlueField's own system; empty on any other machine."""
    product = text_of(root / "sys/class/dmi/id/product_name")
    return text_of(root / "etc/mlnx-release") or (product if "bluefield" in product.lower() else "")


def look(root: Path = Path("/"), wanted: bool = False, locked_bytes: int | None = None) -> Iterator[Found]:
    """All findings. ``wanted``: RDMA is required, so a machine without it is wrong. ``locked_bytes``: overrides the
    system's limit of locked memory; -1: without limit."""
    card = release_of_card(root)
    there = ports(root)
    links = interfaces(root)
    if card:
        yield "card", card, True, ""
        yield from look_at_mode(there, links)
    if not there:
        missing = "none" if not list(root.glob("sys/class/infiniband/*")) else "no port"
        yield ("RDMA device", missing, not (wanted or card),
               "no card was found: load its driver (mlx5_ib; without a card: modprobe rdma_rxe, "
               "rdma link add)")  # fmt: skip
        return
    for port in there:
        yield from look_at_port(port, links)
    yield from look_at_devices(root)
    yield from look_at_locked_memory(locked_bytes)
    yield from look_at_firewall(root)


def look_at_mode(there: list[Port], links: dict[str, Interface]) -> Iterator[Found]:
    """The owner of the card's switch: its Arm cores (embedded function), or none (separated host)."""
    hosts = [link for link in links.values() if link.is_hosts]
    if not hosts:
        yield "card mode", "separated host, or NIC: no interface stands for the host's", True, ""
        return
    names = ", ".join(link.name for link in hosts)
    yield "card mode", f"embedded function (DPU): {names} stands for the host's", True, ""
    own = [gid.interface for port in there for gid in port.gids if gid.interface in links]
    free = sorted({name for name in own if not links[name].is_representor})
    yield ("scalable function", ", ".join(free) or "none with an RDMA device", bool(free),
           "the ports of the switch are not for programs: make a scalable function with RoCE and give it an address "
           "(docs/guides/bluefield.md, Interfaces)")  # fmt: skip
    # The switch drops larger packets, without a message to the sender.
    narrow = min((link for link in links.values() if link.is_uplink or link.is_hosts), key=lambda link: link.mtu)
    wide = max((links[name] for name in free), key=lambda link: link.mtu, default=None)
    if wide is not None:
        yield ("MTU of the switch", f"{narrow.name} {narrow.mtu}, {wide.name} {wide.mtu}", narrow.mtu >= wide.mtu,
               f"packets of {wide.name} do not fit through {narrow.name}: ip link set {narrow.name} mtu "
               f"{wide.mtu + 216}, and likewise each port of the switch on the way")  # fmt: skip


def look_at_port(port: Port, links: dict[str, Interface]) -> Iterator[Found]:
    yield (f"port {port.name}", f"{port.state}, {port.layer or 'unknown'}", port.state == "ACTIVE",
           "bring its interface up (ip link set … up), and look at the cable: rdma link")  # fmt: skip
    if port.layer == "InfiniBand":
        yield f"GID of {port.name}", "InfiniBand", True, ""
        return
    gid = port.usable
    names = sorted({each.interface for each in port.gids if each.interface})
    if any(links[name].is_representor for name in names if name in links):
        switched = f"{', '.join(names)} is a port of the card's switch: not for programs"
        yield f"GID of {port.name}", switched, True, ""
        return
    name = gid.interface if gid else (names or ["its interface"])[0]
    if gid is None:
        older = any(each.kind != "RoCE v2" and each.address for each in port.gids)
        advice = (
            "only RoCE v1, which other networks do not carry: set the card to RoCE v2 (cma_roce_mode)"
            if older
            else f"give the interface an IPv4 address: ip address add ADDRESS/BITS dev {name}"
        )
        yield f"GID of {port.name}", "none of RoCE v2 with an IPv4 address", False, advice
    else:
        yield f"GID of {port.name}", f"index {gid.index}: {gid.address} on {gid.interface}", True, ""
    mtu = links[name].mtu if name in links else 0
    if mtu:
        yield (f"MTU of {name}", mtu, mtu >= MTU_BYTES,
               f"optional: RDMA packets of 4096 bytes need {MTU_BYTES}: ip link set {name} mtu {BIG_MTU_BYTES}, at "
               "both ends and at the switches between")  # fmt: skip


def look_at_devices(root: Path) -> Iterator[Found]:
    """The files by which a program reaches the card without the kernel, and asks for connections."""
    folder = root / "dev/infiniband"
    verbs = sorted(folder.glob("uverbs*"))
    closed = [file.name for file in verbs if not os.access(file, os.R_OK | os.W_OK)]
    value = "closed: " + ", ".join(closed) if closed else ", ".join(file.name for file in verbs) or "none"
    yield ("/dev/infiniband", value, bool(verbs) and not closed,
           "this user may not open them: rdma-core's udev rules give mode 666" if closed else
           "modprobe ib_uverbs; in a container or a unit with PrivateDevices= let them in")  # fmt: skip
    there = (folder / "rdma_cm").exists()
    yield "/dev/infiniband/rdma_cm", "there" if there else "not there", there, "modprobe rdma_ucm"


def look_at_locked_memory(locked_bytes: int | None) -> Iterator[Found]:
    if locked_bytes is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        locked_bytes = -1 if soft == resource.RLIM_INFINITY else soft
    yield ("locked memory for RDMA", "unlimited" if locked_bytes < 0 else f"{locked_bytes >> 10} KiB",
           locked_bytes < 0 or locked_bytes >= LOCKED_BYTES_MIN,
           "announced memory is locked: ulimit -l unlimited (/etc/security/limits.d), in a unit "
           "LimitMEMLOCK=infinity")  # fmt: skip


def look_at_firewall(root: Path) -> Iterator[Found]:
    """Ubuntu's own. It accepts answers, but RoCE's packets are not answers."""
    enabled = re.search(r"^\s*ENABLED\s*=\s*yes", text_of(root / "etc/ufw/ufw.conf"), re.MULTILINE | re.IGNORECASE)
    if not enabled:
        return
    rules = text_of(root / "etc/ufw/user.rules")
    if not rules:
        yield "firewall", "ufw is on; its rules are root's to read", True, ""
        return
    let_in = re.search(rf"^-A .*--dport {ROCE_PORT}\b.*-j ACCEPT", rules, re.MULTILINE) is not None
    yield ("firewall", f"ufw is on, UDP port {ROCE_PORT} (RoCE) is {'open' if let_in else 'not'}", let_in,
           f"ufw allow {ROCE_PORT}/udp, and ufw allow 7700/tcp for the agent's own port")  # fmt: skip
