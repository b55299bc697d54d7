"""Programs and jars of other projects, which tests use and which are not installed.

Unpacks the packages of packages/programs.txt below build/programs, and copies the jars of packages/jars.txt to
build/jars with Maven, if there is one.

Usage: tools/programs.py. Does nothing if everything exists. Unavailable programs are printed, without failure: the
tests that need them are skipped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAMP = "stamp"


def listed(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def unpack(names: list[str], target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["apt-get", "-q", "download", *names], cwd=directory, check=True)
        for package in sorted(Path(directory).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, target], check=True)


def copy_jars(names: list[str], target: Path) -> None:
    for name in names:
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={name}", f"-DoutputDirectory={target}"]
        subprocess.run(copy, cwd=target, check=True)


def make(packages: Path, folder: Path, get: Callable[[list[str], Path], None]) -> None:
    wanted = hashlib.sha256(packages.read_bytes()).hexdigest()
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        get(listed(packages), folder)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"programs: {error}; tests that need {packages.name} will be skipped", file=sys.stderr)
        return
    stamp.write_text(wanted)


def main() -> int:
    make(ROOT / "packages/programs.txt", ROOT / "build/programs", unpack)
    make(ROOT / "packages/jars.txt", ROOT / "build/jars", copy_jars)
    return 0


if __name__ == "__main__":
    sys.exit(main())
