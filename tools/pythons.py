"""The Pythons of this machine that wheels can be built for, and tried with: CPython with its headers and venv."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OLDEST, STABLE = (3, 10), (3, 12)  # nanobind knows the stable ABI from 3.12 on
NEWEST_LOOKED_FOR = 20

PROBE = """
import ensurepip, json, sys, sysconfig, venv
usable = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(json.dumps([usable, *sys.version_info[:2], sysconfig.get_path("include")]))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter and the folder of its headers."""

    program: Path
    version: tuple[int, int]
    headers: Path

    @property
    def tags(self) -> str:
        """Interpreter and ABI of the wheel that serves it, as the wheel's name has them."""
        own = f"cp{self.version[0]}{self.version[1]}"
        return f"cp{STABLE[0]}{STABLE[1]}-abi3" if self.version >= STABLE else f"{own}-{own}"


def candidates() -> Iterator[str | Path]:
    """OFFPATH_PYTHONS, separated by colons; else this one, those on the PATH, and those that pyenv has installed."""
    if given := os.environ.get("OFFPATH_PYTHONS"):
        yield from given.split(":")
        return
    yield sys.executable
    for minor in range(OLDEST[1], NEWEST_LOOKED_FOR):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python3"))


def probe(program: str | Path) -> Python | None:
    """None: it does not run, is too old, is another implementation, or has no headers."""
    try:
        asked = subprocess.run([program, "-I", "-c", PROBE], capture_output=True, text=True, check=False)
    except OSError:
        return None
    if asked.returncode != 0:
        return None
    try:
        usable, major, minor, headers = json.loads(asked.stdout)
    except ValueError:  # something else speaks there as it starts
        return None
    found = Python(Path(program), (major, minor), Path(headers))
    return found if usable and found.version >= OLDEST and (found.headers / "Python.h").exists() else None


@cache
def installed() -> tuple[Python, ...]:
    """The first of each version, oldest first."""
    by_version: dict[tuple[int, int], Python] = {}
    for found in filter(None, map(probe, candidates())):
        by_version.setdefault(found.version, found)
    return tuple(python for _, python in sorted(by_version.items()))


def builders(pythons: tuple[Python, ...]) -> list[Python]:
    """One for each wheel: the oldest Python that the stable ABI's wheel serves, and every older one."""
    by_tags: dict[str, Python] = {}
    for python in sorted(pythons, key=lambda each: each.version):
        by_tags.setdefault(python.tags, python)
    return list(by_tags.values())
