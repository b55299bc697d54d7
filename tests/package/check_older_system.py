"""The agent's wheel with the C library and the C++ library of Debian 11 (glibc 2.31), by that system's own loader.

Run by `./dev test --long` (tools/suite.py), after `./dev package agent`. Debian 11 has no OpenSSL 3; one that was
compiled for older systems is in a wheel of psycopg.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from debian_packages import fetch_packages, listed, unpack_packages

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "build" / "package"
OLDER, SUITE = PACKAGES / "older-system", "bullseye"
OPENSSL = "psycopg-binary==3.3.9"
TRIPLET = f"{os.uname().machine}-linux-gnu"

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="its loader is named for x86-64")


@pytest.fixture(scope="module")
def root() -> Path:
    if not (OLDER / "usr/lib" / TRIPLET / "libstdc++.so.6").exists():
        wanted = listed(ROOT / "packages/older-system.txt")
        unpack_packages(fetch_packages(wanted, PACKAGES / "older-system-apt", "amd64", suite=SUITE), OLDER)
    return OLDER


@pytest.fixture(scope="module")
def openssl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("openssl")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*download, "--dest", folder, OPENSSL], check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    for name in ("libssl", "libcrypto"):
        (library,) = folder.glob(f"*.libs/{name}-*.so.3")
        (folder / f"{name}.so.3").symlink_to(library)
    return folder


def test_an_agent_end_to_end(root: Path, openssl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel,) = (PACKAGES / "agent").glob("offpath_agent-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--target", tmp_path / "site", wheel], check=True)
    places = ":".join(map(str, (root / "lib" / TRIPLET, root / "usr/lib" / TRIPLET, openssl)))
    program, loader = tmp_path / "offpath-agent", root / "lib" / TRIPLET / "ld-2.31.so"
    agents = tmp_path / "site/offpath_agent/bin/offpath-agent"
    program.write_text(f'#!/bin/sh\nexec {loader} --library-path {places} {agents} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", str(program))
    x = np.random.default_rng(1).random(1000)
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        out = session.stream("s", pa.schema([("x", pa.float64())]), rows_max=1000)
        for step in range(3):
            out.send({"x": x + step}, f"step{step}").wait_stored(60)
        pool = session.pool("local:/s")
        assert np.array_equal(pool.get("step2")["x"].to_numpy(), x + 2)
        assert pool.query("x > 1", aggregates={"n": "count"})["n"].to_pylist() == [2000]
        with pytest.raises(offpath.Error, match="absent"):
            pool.query("absent > 1")
        maps = {line.split()[-1] for line in Path(f"/proc/{agent.pid}/maps").read_text().splitlines() if ".so" in line}
    libraries = {Path(each).name: Path(each) for each in maps}
    assert libraries["libc-2.31.so"].is_relative_to(root)
    assert all(each.is_relative_to(root) or each.is_relative_to(tmp_path) or each.is_relative_to(openssl)
               for each in map(Path, maps)), maps  # fmt: skip
