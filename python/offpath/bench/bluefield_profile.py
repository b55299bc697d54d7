"""A process made as slow as a SmartNIC's cores, by a CPU quota of a control group.

A BlueField-2 core converts Arrow data at a median of 1/4.8 of a host core's speed (SDMS paper, figure 9), so the
profile grants 20 % of one core. The period is short, so that benchmarks of milliseconds see the quota.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QUOTA_US = 1_000
PERIOD_US = 5_000
V1_ROOT = Path("/sys/fs/cgroup/cpu")
V2_ROOT = Path("/sys/fs/cgroup")


class QuotaError(RuntimeError):
    """Control groups are not there or not permitted; the message says which file refused."""


@contextmanager
def quota_group() -> Iterator[Path]:
    """A control group with the profile's quota, version 1 or 2; it is removed at the end. Raises QuotaError."""
    name = f"offpath-bench-{os.getpid()}"
    v2 = (V2_ROOT / "cgroup.controllers").exists()
    group = (V2_ROOT if v2 else V1_ROOT) / name
    try:
        if v2:
            (V2_ROOT / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir()
    except OSError as error:
        raise QuotaError(f"no CPU quota: {error}") from error
    try:
        try:
            if v2:
                (group / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        except OSError as error:
            raise QuotaError(f"no CPU quota: {error}") from error
        yield group
    finally:
        group.rmdir()


def quota_launcher(group: Path) -> list[str]:
    """Words before a command that start it inside the group: a shell joins it and becomes the program."""
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]


def check_quota(group: Path) -> None:
    """Raises QuotaError if a process cannot be put into the group."""
    done = subprocess.run([*quota_launcher(group), "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise QuotaError(f"no CPU quota: {done.stderr.strip()}")
