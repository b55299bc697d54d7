"""How much of a core processes get, by control groups of versions 1 and 2.

Two uses: a process as slow as a SmartNIC's cores, and a benchmark that goes ahead of everything else on its machine.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# A BlueField-2 core converts Arrow data at a median of 1/4.8 of a host core's speed (SDMS paper, figure 9): 20 % of
# one core. The period is short, so that benchmarks of milliseconds see the quota.
QUOTA_US = 1_000
PERIOD_US = 5_000
LEAVING_S = 30.0
V1_ROOT = Path("/sys/fs/cgroup/cpu")
V2_ROOT = Path("/sys/fs/cgroup")


class ControlGroupError(RuntimeError):
    """Control groups are not there or not permitted; the message says which file refused."""


@contextmanager
def control_group(v1: Mapping[str, int], v2: Mapping[str, str], name: str = "") -> Iterator[Path]:
    """A group with these files set, the ones of the version there is; removed at the end. Raises ControlGroupError.

    ``name`` distinguishes groups that one process has at a time.
    """
    unified = (V2_ROOT / "cgroup.controllers").exists()
    group = (V2_ROOT if unified else V1_ROOT) / f"offpath-bench-{os.getpid()}{name}"
    try:
        if unified:
            (V2_ROOT / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir()
    except OSError as error:
        raise ControlGroupError(f"no control group: {error}") from error
    try:
        try:
            for name, value in (v2 if unified else v1).items():
                (group / name).write_text(str(value))
        except OSError as error:
            raise ControlGroupError(f"no control group: {error}") from error
        yield group
    finally:
        remove(group)


def remove(group: Path) -> None:
    """Processes that were killed leave their group a moment later."""
    give_up = time.monotonic() + LEAVING_S
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


@contextmanager
def bluefield_group(name: str = "", share: float = QUOTA_US / PERIOD_US) -> Iterator[Path]:
    """A group whose processes together get the speed of a core of a BlueField-2, or another ``share`` of a core. Raises
    ControlGroupError."""
    quota = round(share * PERIOD_US)
    v1 = {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota}
    with control_group(v1, {"cpu.max": f"{quota} {PERIOD_US}"}, name) as group:
        yield group


@contextmanager
def bluefield_quota(share: float = QUOTA_US / PERIOD_US) -> Iterator[list[str]]:
    """Words before a command that start it under a BlueField-2's quota, or that of another ``share`` of a core. Raises
    ControlGroupError."""
    with bluefield_group(share=share) as group:
        # A shell joins the group and becomes the program.
        launcher = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
        done = subprocess.run([*launcher, "true"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ControlGroupError(f"no control group: {done.stderr.strip()}")
        yield launcher


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """This process and all it starts get their cores before others do. Raises ControlGroupError."""
    with control_group({"cpu.shares": 262_144}, {"cpu.weight": "10000"}) as group:
        try:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            raise ControlGroupError(f"no control group: {error}") from error
        try:
            yield
        finally:
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
