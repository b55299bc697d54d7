"""Wheels have the licences of their contents, and stay wheels that pip accepts."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import wheel_notices
from building import PackageError

ROOT = Path(__file__).resolve().parent.parent
INFO = "probe-1.0.dist-info"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """One program of a package, as auditwheel leaves it."""
    made = tmp_path / "probe-1.0-py3-none-any.whl"
    files = {
        "probe/bin/program": b"#!/bin/sh\n",
        f"{INFO}/METADATA": b"Metadata-Version: 2.4\nName: probe\nVersion: 1.0\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{INFO}/licenses/LICENSE": b"its own",
    }
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(wheel_notices.entry(name, 0o755 if "bin" in name else 0o644), data)
        lines = "".join(wheel_notices.record_line(name, data) for name, data in files.items())
        archive.writestr(f"{INFO}/RECORD", f"{lines}{INFO}/RECORD,,\n")
    return made


def test_pip_installs_a_wheel_that_licences_were_added_to(wheel: Path, tmp_path: Path) -> None:
    notice = tmp_path / "copyright"
    notice.write_text("of another library")
    before = set(zipfile.ZipFile(wheel).namelist())
    wheel_notices.add(wheel, [("liba-dev/copyright.txt", notice)])
    added = f"{INFO}/licenses/liba-dev/copyright.txt"
    assert set(zipfile.ZipFile(wheel).namelist()) == before | {added}
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", target, wheel]
    installed = subprocess.run(pip, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    assert (target / added).read_text() == "of another library"
    assert (target / "probe/bin/program").stat().st_mode & 0o111
    assert f"{added},sha256=" in (target / INFO / "RECORD").read_text()


def test_a_licence_that_is_missing_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wheel_notices, "DOCUMENTATION", tmp_path)
    with pytest.raises(PackageError, match="code of libfmt-dev"):
        list(wheel_notices.of_debian(["libfmt-dev"]))
    monkeypatch.setattr(wheel_notices.metadata, "files", lambda _: [])
    with pytest.raises(PackageError, match="nanobind has no licence"):
        list(wheel_notices.of_bindings())


def test_there_is_one_for_each_library_that_the_debian_package_is_built_with() -> None:
    """Except for those of which only headers are used, and for OpenSSL, which is the system's."""
    control = (ROOT / "packaging/debian/control").read_text().partition("Build-Depends:")[2].partition("\nStandards")[0]
    built_with = set(re.findall(r"^ ([a-z][\w-]*-dev)", control, re.MULTILINE))
    of_the_system = {"libibverbs-dev", "librdmacm-dev", "libpmix-dev", "libssl-dev"}
    of_httplib = {"libbrotli-dev", "zlib1g-dev"}
    assert of_the_system < built_with
    assert set(wheel_notices.IN_THE_AGENT) == built_with - of_the_system | of_httplib


def test_the_client_has_those_of_headers_that_it_takes() -> None:
    """The links of its build name them, RDMA's apart, of which nothing is compiled in."""
    from client_wheel import HEADERS

    headers = {"fmt": "libfmt-dev", "tl": "libexpected-dev", "toml++": "libtomlplusplus-dev",
               "flatbuffers": "libflatbuffers-dev"}  # fmt: skip
    assert headers.keys() == set(HEADERS) - {"infiniband", "rdma"}
    assert set(wheel_notices.IN_THE_CLIENT) == set(headers.values())
    names = {name.partition("/")[0] for name, _ in wheel_notices.of_client()}
    assert names == {*wheel_notices.IN_THE_CLIENT, "nanobind"}
