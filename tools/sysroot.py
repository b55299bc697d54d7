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
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "arm"
SYSROOT, WHEEL, KERNEL, STAMP = FOLDER / "sysroot", FOLDER / "wheel", FOLDER / "kernel", FOLDER / "stamp"
PACKAGES, PYTHON_PACKAGES = ROOT / "packages" / "arm-sysroot.txt", ROOT / "packages" / "python.txt"
PLATFORM = "manylinux_2_28_aarch64"
MERGED = ("bin", "sbin", "lib")  # since Debian 12 these are links into usr; packages still use the names


class SysrootError(RuntimeError):
    """The package that could not be fetched or unpacked, and the reason."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SysrootError(f"{' '.join(map(str, command[:3]))} …: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def listed(path: Path) -> list[str]:
    """The names in a file of packages/, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def pyarrow_requirement() -> str:
    """Exactly the version in .venv, so that both sides of a link use the same library."""
    return next(line for line in listed(PYTHON_PACKAGES) if line.startswith("pyarrow=="))


def stamp() -> str:
    """A fingerprint of everything from which the sysroot is made."""
    made_from = PACKAGES.read_bytes() + pyarrow_requirement().encode() + Path(__file__).read_bytes()
    return hashlib.sha256(made_from).hexdigest()


def apt(program: str, state: Path) -> list[str | Path]:
    """apt-get or apt-cache for arm64, as on a machine without installed packages."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",  # apt's own user may have no access here
        "Dir::State": state / "state",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Acquire::Retries": "3",
    }
    return [program, "-q", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]


def fetch_packages(names: list[str], state: Path) -> list[Path]:
    """The .deb files of the packages and of their dependencies."""
    get = apt("apt-get", state)
    run(*get, "update")
    archives = state / "cache" / "archives"
    for old in archives.glob("*.deb"):
        old.unlink()
    # Debian's container images remove downloads after each installation; here they are needed.
    keep = ("-o", "APT::Keep-Downloaded-Packages=true", "-o", "DPkg::Post-Invoke=", "-o", "APT::Update::Post-Invoke=")
    run(*get, *keep, "install", "-y", "--no-install-recommends", "--download-only", *names)
    return sorted(archives.glob("*.deb"))


def unpack(package: Path, target: Path) -> None:
    """Keeps links into usr: dpkg-deb -x would replace them by folders."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as archive:
        done = subprocess.run(
            ["tar", "-x", "-C", target, "--keep-directory-symlink", "--no-same-owner", "--exclude=./usr/share/doc",
             "--exclude=./usr/share/man", "--exclude=./usr/share/locale"],
            stdin=archive.stdout, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0 or archive.returncode != 0:
        raise SysrootError(f"{package.name} cannot be unpacked: {done.stderr.strip()}")


def make_links_relative(tree: Path) -> None:
    """A link to /etc would lead out of the tree."""
    for folder, names, files in os.walk(tree):
        for name in names + files:
            link = Path(folder) / name
            if link.is_symlink() and (target := os.readlink(link)).startswith("/"):
                link.unlink()
                link.symlink_to(os.path.relpath(tree / target[1:], folder))


def unpack_packages(packages: list[Path], target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in MERGED:
        (target / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (target / name).is_symlink():
            (target / name).symlink_to(f"usr/{name}")
    for package in packages:
        unpack(package, target)
    make_links_relative(target)


def unpack_wheel(target: Path) -> None:
    download = target.with_name("download")
    shutil.rmtree(download, ignore_errors=True)
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--platform", PLATFORM,
        "--dest", download, pyarrow_requirement())  # fmt: skip
    shutil.unpack_archive(next(download.glob("*.whl")), target, "zip")
    shutil.rmtree(download)


def unpack_kernel(target: Path, state: Path) -> None:
    """Without its dependencies, which only matter where it is installed."""
    run(*apt("apt-get", state), "update")
    depends = run(*apt("apt-cache", state), "depends", "linux-image-arm64")
    package = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line)
    download = target.with_name("download")
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir(parents=True)
    run(*apt("apt-get", state), "download", package, cwd=download)
    run("dpkg-deb", "-x", next(download.glob("*.deb")), target)
    shutil.rmtree(download)


def make() -> None:
    for old in (SYSROOT, WHEEL):
        shutil.rmtree(old, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    unpack_wheel(WHEEL)
    unpack_packages(fetch_packages(listed(PACKAGES), FOLDER / "apt"), SYSROOT)
    # The mount points of a guest whose root this is, and which may not write to it (tests/hw).
    for name in ("proc", "sys", "dev", "tmp", "run", "var/tmp", "mnt"):
        (SYSROOT / name).mkdir(parents=True, exist_ok=True)


def main() -> int:
    try:
        if not STAMP.exists() or STAMP.read_text() != stamp():
            make()
            STAMP.write_text(stamp())
        if "--kernel" in sys.argv[1:] and not any(KERNEL.glob("boot/vmlinuz-*")):
            unpack_kernel(KERNEL, FOLDER / "apt")
    except (SysrootError, OSError) as error:
        print(f"sysroot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
