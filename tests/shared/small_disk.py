"""A file system that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of this size at a new directory, which no other user can enter. Mounting it takes root."""
    place.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "none", place]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
