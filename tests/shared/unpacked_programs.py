"""Programs of packages/programs.txt, as tests start them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# Of packages/programs.txt, which `./dev test` unpacks there.
UNPACKED = Path(__file__).resolve().parents[2] / "build" / "programs"
PLACES = [UNPACKED / "usr" / "bin", UNPACKED / "usr" / "sbin"]
LIBRARIES = next(UNPACKED.glob("usr/lib/*-linux-gnu*"), UNPACKED)


def program(name: str) -> str:
    places = os.pathsep.join([*map(str, PLACES), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found
