"""The agent's wheels with the C library and the C++ library of Debian 11 (glibc 2.31), by that system's own loader;
the one for aarch64 in an emulator.

Run by `./dev test --long` (tools/suite.py), after `./dev package agent agent-aarch64`. Debian 11 has no OpenSSL 3; one
that was compiled for older systems is in a wheel of psycopg.
"""

from __future__ import annotations

import os
import shutil
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
SUITE = "bullseye"
OPENSSL = "psycopg-binary==3.3.9"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EMULATOR = shutil.which("qemu-aarch64-static")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def processor(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    if wanted != os.uname().machine and (wanted != "aarch64" or EMULATOR is None):
        pytest.skip(f"no emulator of {wanted}: ./dev arm installs that of aarch64")
    return wanted


@pytest.fixture(scope="module")
def root(processor: str) -> Path:
    architecture = ARCHITECTURES[processor]
    older = PACKAGES / f"older-system-{architecture}"
    if not (older / f"usr/lib/{processor}-linux-gnu/libstdc++.so.6").exists():
        wanted, state = listed(ROOT / "packages/older-system.txt"), PACKAGES / f"older-system-apt-{architecture}"
        unpack_packages(fetch_packages(wanted, state, architecture, suite=SUITE), older)
    return older


def download(processor: str, *arguments: str | Path) -> None:
    """The wheels that this Python's pip would install on such a machine."""
    there = [word for glibc in ("2_17", "2_28") for word in ("--platform", f"manylinux_{glibc}_{processor}")]
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet", "--no-deps", "--only-binary=:all:", *there,
                    "--platform", f"manylinux2014_{processor}"], check=True)  # fmt: skip


@pytest.fixture(scope="module")
def openssl(processor: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("openssl")
    download(processor, "download", "--dest", folder, OPENSSL)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    for name in ("libssl", "libcrypto"):
        (library,) = folder.glob(f"*.libs/{name}-*.so.3")
        (folder / f"{name}.so.3").symlink_to(library)
    return folder


def test_an_agent_end_to_end(
    processor: str, root: Path, openssl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triplet, folder = f"{processor}-linux-gnu", "agent" if processor == os.uname().machine else f"agent-{processor}"
    (wheel,) = (PACKAGES / folder).glob(f"offpath_agent-*-manylinux_2_28_{processor}.whl")
    download(processor, "install", "--target", tmp_path / "site", wheel)
    places = ":".join(map(str, (root / "lib" / triplet, root / "usr/lib" / triplet, openssl)))
    program, loader = tmp_path / "offpath-agent", root / "lib" / triplet / "ld-2.31.so"
    agents = tmp_path / "site/offpath_agent/bin/offpath-agent"
    emulated = "" if processor == os.uname().machine else f"{EMULATOR} "
    program.write_text(f'#!/bin/sh\nexec {emulated}{loader} --library-path {places} {agents} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", str(program))
    x = np.random.default_rng(1).random(1000)
    with offpath.Agent.start(timeout=60) as agent, offpath.connect(agent.address) as session:
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
