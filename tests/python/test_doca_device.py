"""The doctor's findings on machines between which DOCA DMA should work, from files as the kernel shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_files import CARD, HOST, UNLIMITED, write
from offpath import doctor
from offpath.doctor import doca_device

LIBRARIES = {f"opt/mellanox/doca/lib/aarch64-linux-gnu/{name}": "" for name in doca_device.LIBRARIES}


def findings(root: Path, files: dict[str, str], **options: Any) -> dict[str, tuple[Any, bool, str]]:
    write(root, files)
    found = doca_device.look(root, **{"wanted": True, "locked_bytes": UNLIMITED, **options})
    return {name: (value, good, advice) for name, value, good, advice in found}


@pytest.mark.parametrize("machine", [HOST, CARD])
def test_a_machine_that_has_everything_needs_nothing(tmp_path: Path, machine: dict[str, str]) -> None:
    found = findings(tmp_path, {**machine, **LIBRARIES})
    assert all(good for _, good, _ in found.values()), found
    assert "mlx5_0" in found["DOCA device"][0]


def test_what_is_missing_is_named_with_the_next_step(tmp_path: Path) -> None:
    found = findings(tmp_path, {})
    assert found["DOCA libraries"][:2] == ("libdoca_common.so.2, libdoca_dma.so.2 not found", False)
    assert "doca-sdk-dma" in found["DOCA libraries"][2]
    assert found["DOCA device"][:2] == ("none", False)
    assert not found["/dev/infiniband"][1]


def test_a_card_in_separated_host_mode_cannot(tmp_path: Path) -> None:
    found = findings(tmp_path, {**HOST, **LIBRARIES, "sys/class/dmi/id/product_name": "BlueField SoC"})
    assert found["DOCA DMA's mode"][:2] == ("not DPU mode", False)
    assert {name for name, (_, good, _) in found.items() if not good} == {"DOCA DMA's mode"}


def test_nothing_is_wrong_where_it_is_not_wanted(tmp_path: Path) -> None:
    assert findings(tmp_path, {}, wanted=False) == {}
    assert findings(tmp_path, LIBRARIES, wanted=False)["DOCA DMA"][1]


def test_the_doctor_knows_the_kind_of_address() -> None:
    diagnosis = doctor.Diagnosis("doca:192.168.100.2:7700")
    doctor.add_here(diagnosis, wanted="doca")
    assert {"DOCA libraries", "DOCA device"} <= {finding.name for finding in diagnosis.findings}
