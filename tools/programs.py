"""Unpacks the packages of packages/programs.txt below build/programs, where tests look for their programs.

Usage: tools/programs.py. Does nothing if everything exists. If packages are not available, it prints that and succeeds:
the tests that need them are then skipped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES, FOLDER = ROOT / "packages" / "programs.txt", ROOT / "build" / "programs"
STAMP = FOLDER / "stamp"


def listed(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def unpack(names: list[str], target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["apt-get", "-q", "download", *names], cwd=directory, check=True)
        for package in sorted(Path(directory).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, target], check=True)


def main() -> int:
    wanted = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return 0
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        unpack(listed(PACKAGES), FOLDER)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"programs: {error}; tests of programs that are not installed will be skipped", file=sys.stderr)
        return 0
    STAMP.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
