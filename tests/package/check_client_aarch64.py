"""The client's wheels for aarch64, in an emulator of it: rows to an agent on this machine, over TCP with a key.

Run by `./dev test --long` (tools/suite.py), after `./dev package client-aarch64 agent`. Each wheel runs in a Python of
Debian's: that of tools/sysroot.py, and a newer one for the stable ABI. Nothing of them is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import offpath
import pytest
from debian_packages import fetch_packages, listed, unpack_packages
from pythons import builders, installed

sys.path.insert(0, str(Path(__file__).parent))
from emulated_python import EMULATOR, ROOT, SYSROOT, WHY_NOT, lay_out, python_of, run

PACKAGES = ROOT / "build" / "package"
NEWER, NEWER_SUITE = PACKAGES / "newer-python", "trixie"

pytestmark = pytest.mark.skipif(EMULATOR is None, reason=WHY_NOT)

PROGRAM = """
import platform, sys
import numpy as np, offpath, pyarrow as pa
address, key = sys.argv[1:]
vector = pa.list_(pa.float64(), 3)
schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("x", vector, nullable=False)])
ids, x = np.arange(1000, dtype=np.int32), np.random.default_rng(1).random((1000, 3))
with offpath.connect(address, key_file=key) as session:
    out = session.stream("s", schema, rows_max=1000)
    out.send({"id": ids, "x": x}, ("step0", "rank0")).wait_stored(60)
    pool = session.pool("local:/s")
    table = pa.table(pool.get("step0", "rank0", timeout=60))
    assert np.array_equal(table["id"].to_numpy(), ids)
    assert np.array_equal(np.asarray(table["x"].combine_chunks().flatten()).reshape(-1, 3), x)
    assert pool.query(aggregates={"n": "count"})["n"].to_pylist() == [1000]
print(platform.machine(), *sys.version_info[:2], offpath.__file__, pa.__version__)
"""


@pytest.fixture(scope="module")
def newer_root() -> Path:
    if not (NEWER / "usr/bin/python3").exists():
        packages = fetch_packages(
            listed(ROOT / "packages/newer-python.txt"), PACKAGES / "newer-python-apt", "arm64", suite=NEWER_SUITE
        )
        unpack_packages(packages, NEWER)
    return NEWER


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """(address, key) of the agent in its wheel."""
    folder = tmp_path_factory.mktemp("agent")
    (wheel,) = (PACKAGES / "agent").glob("offpath_agent-*.whl")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, wheel], check=True
    )
    key = folder / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPATH_AGENT_PROGRAM", str(folder / "offpath_agent/bin/offpath-agent"))
        with offpath.Agent.start(listen=["tcp:127.0.0.1:0"], settings={"security.key_file": key}) as started:
            yield next(each for each in started.addresses if each.startswith("tcp")), key


@pytest.mark.parametrize("kind", ["the system's", "newer"])
def test_rows_to_an_agent_over_tcp(kind: str, agent: tuple[str, Path], tmp_path: Path, request: pytest.FixtureRequest
                                   ) -> None:  # fmt: skip
    root = SYSROOT if kind == "the system's" else request.getfixturevalue("newer_root")
    _, version = python_of(root)
    own = f"cp{version.replace('.', '')}"
    tags = f"{own}-{own}" if version == "3.11" else "cp312-abi3"
    if tags not in {each.tags for each in builders(installed())}:
        pytest.skip(f"this machine has no Python that builds {tags}")
    (client,) = (PACKAGES / "client-aarch64").glob(f"offpath-*-{tags}-*.whl")
    site = lay_out(client, version, tmp_path, "numpy", "pyarrow")
    machine, major, minor, package, _ = run(root, site, PROGRAM, *agent).split()
    assert (machine, f"{major}.{minor}") == ("aarch64", version)
    assert Path(package).is_relative_to(site)
