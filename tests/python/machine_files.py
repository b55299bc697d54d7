"""A host and a card as their kernels show them in files."""

from __future__ import annotations

from pathlib import Path

UNLIMITED = -1  # locked memory


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def interface(name: str, mtu: int = 9000, port_name: str = "") -> dict[str, str]:
    """As below /sys/class/net; with a port's name it is one of a switch."""
    place = f"sys/class/net/{name}"
    of_switch = {f"{place}/phys_port_name": port_name, f"{place}/phys_switch_id": "b8cef6"} if port_name else {}
    return {f"{place}/mtu": str(mtu), **of_switch}


def device(
    name: str, netdev: str, address: str = "10.0.0.7", kind: str = "RoCE v2", state: str = "4: ACTIVE"
) -> dict[str, str]:
    """As below /sys/class/infiniband, with the GID of the link's own address before that of `address`."""
    place = f"sys/class/infiniband/{name}/ports/1"
    files = {f"{place}/state": state, f"{place}/link_layer": "Ethernet"}
    words = "".join(f"{int(part):02x}" for part in address.split(".")) if address else ""
    rows = ["fe80:0000:0000:0000:5054:00ff:fe00:0001"]
    if address:
        rows.append(f"0000:0000:0000:0000:0000:ffff:{words[:4]}:{words[4:]}")
    for index, gid in enumerate(rows):
        files |= {f"{place}/gids/{index}": gid, f"{place}/gid_attrs/types/{index}": kind,
                  f"{place}/gid_attrs/ndevs/{index}": netdev}  # fmt: skip
    files |= {f"{place}/gids/{len(rows)}": "0000:0000:0000:0000:0000:0000:0000:0000"}  # the rest of the table is empty
    return files


FILES = {"dev/infiniband/uverbs0": "", "dev/infiniband/rdma_cm": ""}
HOST = {**FILES, **interface("ens1f0np0"), **device("mlx5_0", "ens1f0np0")}
# Embedded function: the switch's ports p0 and pf0hpf, a scalable function for programs.
CARD = {
    **FILES, "etc/mlnx-release": "DOCA_2.9.1_BSP_4.9.1_Ubuntu_22.04-4.24-11.prod",
    **interface("p0", 9216, "p0"), **interface("pf0hpf", 9216, "pf0"), **interface("en3f0pf0sf0", 9216, "pf0sf0"),
    **interface("enp3s0f0s0", 9000), **device("mlx5_0", "p0", ""), **device("mlx5_2", "enp3s0f0s0"),
}  # fmt: skip
