"""The client's wheel in fresh environments with several pyarrows, beside an agent that is not in it.

Run by `./dev test --long` (tools/suite.py), after `./dev package client`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import offpath
import pytest

ROOT = Path(__file__).resolve().parents[2]
GLIBC_MAX = (2, 28)

PROGRAM = """
import numpy as np, offpath, pyarrow as pa
assert pa.__version__ == "{pyarrow}"
vector = pa.list_(pa.float64(), 3)
schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("x", vector, nullable=False)])
with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
    out = session.stream("s", schema, rows_max=1000)
    ids, x = np.arange(1000, dtype=np.int32), np.random.default_rng(1).random((1000, 3))
    out.send({{"id": ids, "x": x}}, ("step0", "rank0")).wait_stored(20)
    pool = session.pool("local:/s")
    table = pa.table(pool.get("step0", "rank0", timeout=20))
    assert np.array_equal(table["id"].to_numpy(), ids)
    assert np.array_equal(np.asarray(table["x"].combine_chunks().flatten()).reshape(-1, 3), x)
    assert pool.query(aggregates={{"n": "count"}})["n"].to_pylist() == [1000]
    assert pool.dataset().to_table(["id"]).num_rows == 1000
print(offpath.__file__)
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    (wheel,) = (ROOT / "build" / "package" / "client").glob("offpath-*.whl")
    return wheel


def run(*command: str | Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OFFPATH_", "PYTHON"))}
    done = subprocess.run([str(word) for word in command], env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def test_it_runs_with_glibc_2_28(wheel: Path, tmp_path: Path) -> None:
    own = f"cp3{sys.version_info.minor}"
    python = "cp312-abi3" if sys.version_info >= (3, 12) else f"{own}-{own}"
    assert re.search(rf"-{python}-manylinux_2_28_(x86_64|aarch64)\.whl$", wheel.name), wheel.name
    zipfile.ZipFile(wheel).extractall(tmp_path)
    files = [file for file in tmp_path.rglob("*.so*") if file.read_bytes()[:4] == b"\x7fELF"]
    names = {re.match(r"\w+", file.name)[0] for file in files}  # type: ignore[index]
    assert names == {"_native", "liboffpath", "liboffpath_openssl"}
    libc = {"libc", "libm", "libdl", "libpthread", "librt", "ld-linux-x86-64", "ld-linux-aarch64"}
    for file in files:
        needed = set(re.findall(r"NEEDED.*\[([\w-]+)", run("readelf", "-d", file)))
        ours = {"liboffpath"} if file.name.startswith("_native") else set()
        assert needed <= libc | ours | ({"libssl", "libcrypto"} if "openssl" in file.name else set()), file.name
        versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "-V", file))
        assert max((int(major), int(minor)) for major, minor in versions) <= GLIBC_MAX, file.name


@pytest.mark.parametrize("pyarrow", ["16.1.0", "21.0.0", "26.0.1"])
def test_it_works_with_this_pyarrow(wheel: Path, tmp_path: Path, pyarrow: str) -> None:
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", environment)
    python = environment / "bin/python"
    if pyarrow == "16.1.0" and sys.version_info >= (3, 13):
        pytest.skip("no wheel of it for this Python")
    run(python, "-m", "pip", "install", "--quiet", wheel, f"pyarrow=={pyarrow}")
    program = PROGRAM.format(pyarrow=pyarrow)
    package = run(python, "-P", "-c", program, OFFPATH_AGENT_PROGRAM=offpath.find_agent())
    assert Path(package).is_relative_to(environment)
    assert not (environment / "bin/offpath-agent").exists()
