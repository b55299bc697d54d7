"""The wheel that contains an agent, for aarch64: a program and the agent that it starts, both in an emulator.

Run by `./dev test --long` (tools/suite.py), after `./dev package wheel-aarch64`. An emulator of a user's processes has
no process_vm_readv, so the rows go over TCP with a key; `./dev hw --arm` runs the same wheel on an Arm kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sysroot import pyarrow_requirement

sys.path.insert(0, str(Path(__file__).parent))
from agent_modules import check_modules
from emulated_python import EMULATOR, ROOT, SYSROOT, WHY_NOT, lay_out, python_of, run

WHEELS = ROOT / "build" / "package" / "wheel-aarch64"
START_SECONDS_MAX = 120

pytestmark = pytest.mark.skipif(EMULATOR is None, reason=WHY_NOT)

PROGRAM = """
import platform, sys
import numpy as np, offpath, pyarrow as pa
key, seconds = sys.argv[1], float(sys.argv[2])
schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("x", pa.float64(), nullable=False)])
ids, x = np.arange(1000, dtype=np.int32), np.random.default_rng(1).random(1000)
with offpath.Agent.start(listen=["tcp:127.0.0.1:0"], settings={"security.key_file": key}, timeout=seconds) as agent:
    (address,) = [each for each in agent.addresses if each.startswith("tcp")]
    with offpath.connect(address, key_file=key) as session:
        session.stream("s", schema, rows_max=1000).send({"id": ids, "x": x}, "step0").wait_stored(seconds)
        pool = session.pool("local:/s")
        table = pa.table(pool.get("step0", timeout=seconds))
        assert np.array_equal(table["id"].to_numpy(), ids) and np.array_equal(table["x"].to_numpy(), x)
        assert pool.query("id >= 10", aggregates={"n": "count"}, timeout=seconds)["n"].to_pylist() == [990]
print(platform.machine(), offpath.__file__)
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    (wheel,) = WHEELS.glob("offpath-*_aarch64.whl")
    return wheel


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, version = python_of(SYSROOT)
    return lay_out(wheel, version, tmp_path_factory.mktemp("wheel"), "numpy", pyarrow_requirement())


def test_its_agent_has_what_it_loads(site: Path) -> None:
    agent = site / "offpath/bin/offpath-agent"
    check_modules(agent, site / "offpath/lib/offpath", site / "pyarrow", "aarch64-linux-gnu-nm")
    assert "AArch64" in subprocess.run(["readelf", "-h", agent], capture_output=True, text=True, check=True).stdout


def test_a_program_and_the_agent_that_it_starts(site: Path, tmp_path: Path) -> None:
    key, program = tmp_path / "key", tmp_path / "offpath-agent"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    program.write_text(f'#!/bin/sh\nexec {EMULATOR} -L {SYSROOT} {site}/offpath/bin/offpath-agent "$@"\n')
    program.chmod(0o755)
    said = run(SYSROOT, site, PROGRAM, key, str(START_SECONDS_MAX), OFFPATH_AGENT_PROGRAM=str(program))
    machine, package = said.split()
    assert machine == "aarch64" and Path(package).is_relative_to(site)
