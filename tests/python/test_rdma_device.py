"""The doctor's findings on machines with RDMA devices, from files as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from machine_files import CARD, FILES, HOST, UNLIMITED, device, interface, write
from offpath import doctor
from offpath.doctor import rdma_device


def findings(root: Path, files: dict[str, str], **options: Any) -> dict[str, tuple[Any, bool, str]]:
    write(root, files)
    found = rdma_device.look(root, **{"wanted": True, "locked_bytes": UNLIMITED, **options})
    return {name: (value, good, advice) for name, value, good, advice in found}


def test_a_host_that_has_everything_needs_nothing(tmp_path: Path) -> None:
    found = findings(tmp_path, HOST)
    assert all(good for _, good, _ in found.values()), found
    assert found["GID of mlx5_0/1"][0] == "index 1: 10.0.0.7 on ens1f0np0"
    assert "card mode" not in found


def test_a_card_whose_cores_own_the_switch(tmp_path: Path) -> None:
    found = findings(tmp_path, CARD)
    assert found["card mode"][0].startswith("embedded function")
    assert found["scalable function"][:2] == ("enp3s0f0s0", True)
    assert found["GID of mlx5_0/1"][0] == "p0 is a port of the card's switch: not for programs"
    assert found["GID of mlx5_2/1"][0] == "index 1: 10.0.0.7 on enp3s0f0s0"
    assert all(good for _, good, _ in found.values()), found


def test_a_card_in_separated_host_mode(tmp_path: Path) -> None:
    found = findings(tmp_path, {**HOST, "sys/class/dmi/id/product_name": "BlueField SoC"})
    assert found["card"][0] == "BlueField SoC"
    assert found["card mode"][0].startswith("separated host")
    assert "scalable function" not in found


def test_a_card_without_a_scalable_function(tmp_path: Path) -> None:
    files = {name: text for name, text in CARD.items() if "mlx5_2" not in name and "enp3s0f0s0" not in name}
    value, good, advice = findings(tmp_path, files)["scalable function"]
    assert (value, good) == ("none with an RDMA device", False)
    assert "docs/guides/bluefield.md" in advice


def test_a_switch_that_is_narrower_than_what_goes_through_it(tmp_path: Path) -> None:
    value, good, advice = findings(tmp_path, {**CARD, **interface("pf0hpf", 1500, "pf0")})["MTU of the switch"]
    assert (value, good) == ("pf0hpf 1500, enp3s0f0s0 9000", False)
    assert "ip link set pf0hpf mtu 9216" in advice


@pytest.mark.parametrize(
    ("changed", "name", "value", "advice"),
    [
        (interface("ens1f0np0", 1500), "MTU of ens1f0np0", "1500", "optional: RDMA packets of 4096 bytes need 4200"),
        (device("mlx5_0", "ens1f0np0", state="1: DOWN"), "port mlx5_0/1", "DOWN, Ethernet", "ip link set"),
        (device("mlx5_0", "ens1f0np0", kind="IB/RoCE v1"), "GID of mlx5_0/1", "none of RoCE v2", "cma_roce_mode"),
        ({"etc/ufw/ufw.conf": "ENABLED=yes", "etc/ufw/user.rules": "*filter"}, "firewall", "is not", "ufw allow"),
    ],
)
def test_what_is_wrong_is_named_with_the_next_step(
    tmp_path: Path, changed: dict[str, str], name: str, value: str, advice: str
) -> None:
    found = findings(tmp_path, {**HOST, **changed})
    assert value in str(found[name][0])
    assert not found[name][1]
    assert advice in found[name][2]
    assert {other for other, (_, good, _) in found.items() if not good} == {name}


def test_no_address(tmp_path: Path) -> None:
    files = {name: text for name, text in HOST.items() if "infiniband/mlx5" not in name}
    found = findings(tmp_path, {**files, **device("mlx5_0", "ens1f0np0", address="")})
    assert "ip address add ADDRESS/BITS dev ens1f0np0" in found["GID of mlx5_0/1"][2]


def test_no_device_is_wrong_only_where_one_is_wanted(tmp_path: Path) -> None:
    assert findings(tmp_path, {}, wanted=False) == {"RDMA device": ("none", True, rdma_advice(tmp_path))}
    assert not findings(tmp_path, {})["RDMA device"][1]


def rdma_advice(root: Path) -> str:
    return next(rdma_device.look(root))[3]


def test_missing_device_files_name_the_module(tmp_path: Path) -> None:
    found = findings(tmp_path, {name: text for name, text in HOST.items() if name not in FILES})
    assert "ib_uverbs" in found["/dev/infiniband"][2]
    assert "rdma_ucm" in found["/dev/infiniband/rdma_cm"][2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_device_files_of_others(tmp_path: Path) -> None:
    write(tmp_path, HOST)
    (tmp_path / "dev/infiniband/uverbs0").chmod(0)
    found = findings(tmp_path, {})
    assert found["/dev/infiniband"][0] == "closed: uverbs0"


@pytest.mark.parametrize(("locked", "good"), [(UNLIMITED, True), (64 << 20, False), (8 << 30, True)])
def test_locked_memory(tmp_path: Path, locked: int, good: bool) -> None:
    assert findings(tmp_path, HOST, locked_bytes=locked)["locked memory for RDMA"][1] == good


def test_an_open_firewall_is_fine(tmp_path: Path) -> None:
    rules = "-A ufw-user-input -p udp --dport 4791 -j ACCEPT"
    found = findings(tmp_path, {**HOST, "etc/ufw/ufw.conf": "ENABLED=yes", "etc/ufw/user.rules": rules})
    assert found["firewall"][1]


def test_the_doctor_looks_at_a_machine_without_an_agent(tmp_path: Path) -> None:
    write(tmp_path, CARD)
    diagnosis = doctor.diagnose_machine(tmp_path)
    names = [finding.name for finding in diagnosis.findings]
    assert "card mode" in names
    assert "page size" in names
    assert "link" not in names


def test_for_who_does_without_rdma_its_faults_are_optional(tmp_path: Path) -> None:
    write(tmp_path, {**HOST, **device("mlx5_0", "ens1f0np0", state="1: DOWN")})
    diagnosis = doctor.Diagnosis("unix:/somewhere")
    doctor.add_here(diagnosis, wanted="unix", root=tmp_path)
    advice = {finding.name: finding.advice for finding in diagnosis.findings}
    assert advice["port mlx5_0/1"].startswith("optional, for RDMA: ")
