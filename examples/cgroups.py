"""Cgroups for the processes of an example, where they can be made: by root, or in a delegation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Limits(NamedTuple):
    """The files of a limit in one version of cgroups."""

    root: str
    controller: str  # of version 2: to be enabled for children; empty: version 1 has a directory for it
    files: Mapping[str, str]  # names and contents


def make_cgroups(purpose: str, names: Sequence[str], versions: Sequence[Limits]) -> list[Path]:
    """A cgroup for each name, with the limits of the first version that this machine allows; none if it allows none."""
    for limits in versions:
        own = Path(limits.root) / f"offpath-{purpose}-{os.getpid()}"
        if not Path(limits.root, "cgroup.procs").exists():
            continue
        made: list[Path] = []
        try:
            own.mkdir()
            made.append(own)
            if limits.controller:
                (own / "cgroup.subtree_control").write_text(f"+{limits.controller}")
            for name in names:
                (own / name).mkdir()
                made.append(own / name)
                for file, contents in limits.files.items():
                    (own / name / file).write_text(contents)
            return made[1:]
        except OSError:
            remove_all(made)
    return []


def remove_cgroups(made: Sequence[Path]) -> None:
    """Those that ``make_cgroups`` returned, whose processes have ended."""
    if made:
        remove_all([made[0].parent, *made])


def remove_all(directories: Sequence[Path]) -> None:
    for each in reversed(directories):
        each.rmdir()
