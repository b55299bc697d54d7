#!/usr/bin/env python3
"""Unpacks the libraries for building and running programs for the DPU (aarch64) below build/arm.

Usage: tools/sysroot.py [--kernel]. Prints nothing if everything exists. Debian's packages for arm64
(packages/arm-sysroot.txt) come with their dependencies from this machine's package sources, by an apt with a
state of its own: neither the packages nor the architecture become known to the machine. libarrow comes from the aarch64
wheel of the pyarrow in packages/python.txt. Nothing of it runs on this machine.

    build/arm/sysroot   /usr, /etc and so on, as on a machine with these packages
    build/arm/wheel     pyarrow
    build/arm/kernel    with --kernel: Debian's kernel, for guests (tests/hw)
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from debian_packages import PackagesError, apt, fetch_packages, listed, run, unpack_packages

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "arm"
SYSROOT, WHEEL, KERNEL, STAMP = FOLDER / "sysroot", FOLDER / "wheel", FOLDER / "kernel", FOLDER / "stamp"
PACKAGES, PYTHON_PACKAGES = ROOT / "packages" / "arm-sysroot.txt", ROOT / "packages" / "python.txt"
PLATFORM, ARCHITECTURE = "manylinux_2_28_aarch64", "arm64"


def pyarrow_requirement() -> str:
    """Exactly the version in .venv, so that both sides of a link use the same library."""
    return next(line for line in listed(PYTHON_PACKAGES) if line.startswith("pyarrow=="))


def stamp() -> str:
    """A fingerprint of everything from which the sysroot is made."""
    sources = (PACKAGES, Path(__file__), ROOT / "tools" / "debian_packages.py")
    made_from = pyarrow_requirement().encode() + b"".join(each.read_bytes() for each in sources)
    return hashlib.sha256(made_from).hexdigest()


def unpack_wheel(target: Path) -> None:
    download = target.with_name("download")
    shutil.rmtree(download, ignore_errors=True)
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--platform", PLATFORM,
        "--dest", download, pyarrow_requirement())  # fmt: skip
    shutil.unpack_archive(next(download.glob("*.whl")), target, "zip")
    shutil.rmtree(download)


def unpack_kernel(target: Path, state: Path) -> None:
    """Without its dependencies, which only matter where it is installed."""
    run(*apt("apt-get", state, ARCHITECTURE), "update")
    depends = run(*apt("apt-cache", state, ARCHITECTURE), "depends", "linux-image-arm64")
    package = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line)
    download = target.with_name("download")
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir(parents=True)
    run(*apt("apt-get", state, ARCHITECTURE), "download", package, cwd=download)
    run("dpkg-deb", "-x", next(download.glob("*.deb")), target)
    shutil.rmtree(download)


def make() -> None:
    for old in (SYSROOT, WHEEL):
        shutil.rmtree(old, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    unpack_wheel(WHEEL)
    unpack_packages(fetch_packages(listed(PACKAGES), FOLDER / "apt", ARCHITECTURE), SYSROOT)
    # The mount points of a guest that uses this as its read-only root (tests/hw).
    for name in ("proc", "sys", "dev", "tmp", "run", "var/tmp", "mnt"):
        (SYSROOT / name).mkdir(parents=True, exist_ok=True)


def main() -> int:
    try:
        if not STAMP.exists() or STAMP.read_text() != stamp():
            make()
            STAMP.write_text(stamp())
        if "--kernel" in sys.argv[1:] and not any(KERNEL.glob("boot/vmlinuz-*")):
            unpack_kernel(KERNEL, FOLDER / "apt")
    except (PackagesError, OSError) as error:
        print(f"sysroot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
