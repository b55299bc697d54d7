"""Debian's Python for aarch64 in an emulator, with wheels where pip would put them. Nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSROOT = ROOT / "build" / "arm" / "sysroot"
EMULATOR = shutil.which("qemu-aarch64-static")
WHY_NOT = "no qemu-aarch64-static: ./dev arm installs it"
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64")


def python_of(root: Path) -> tuple[Path, str]:
    """(program, "3.11") of the Python in a system's root."""
    program = (root / "usr/bin/python3").resolve()
    return program, program.name.removeprefix("python")


def lay_out(wheel: Path, version: str, prefix: Path, *requirements: str) -> Path:
    """The folder of packages below `prefix`, with the files of a wheel and of PyPI's wheels for this Python."""
    there = [word for each in PLATFORMS for word in ("--platform", each)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *there,
         "--python-version", version, "--dest", prefix, *requirements],
        check=True,
    )  # fmt: skip
    site = prefix / f"lib/python{version}/site-packages"
    for each in (wheel, *prefix.glob("*.whl")):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(site)
            for entry in archive.infolist():  # extractall makes no file executable
                if entry.external_attr >> 16 & 0o100:
                    (site / entry.filename).chmod(0o755)
    for data in site.glob("*.data/data"):
        shutil.copytree(data, prefix, dirs_exist_ok=True)
    return site


def run(root: Path, site: Path, program: str, *arguments: str | Path, **environment: str) -> str:
    """The output of a Python program."""
    assert EMULATOR is not None
    python, _ = python_of(root)
    ran = subprocess.run(
        [EMULATOR, "-L", root, python, "-P", "-c", program, *map(str, arguments)],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"} | environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
