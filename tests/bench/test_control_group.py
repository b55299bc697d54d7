"""The CPU quota: processes in the group get no more than its share, and the group is removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from offpath.bench import control_group

# Spins for half a second of wall time, prints the CPU time it got for it.
SPIN = """
import json, time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() - begin < 0.5:
    pass
print(json.dumps([time.monotonic() - begin, time.process_time() - used]))
"""


def groups_left() -> list[str]:
    roots = [root for root in (control_group.V1_ROOT, control_group.V2_ROOT) if root.exists()]
    return [str(path) for root in roots for path in root.glob(f"offpath-bench-{os.getpid()}")]


def test_a_process_under_the_quota_gets_its_share_and_the_group_is_removed():
    try:
        with control_group.bluefield_quota() as launcher:
            command = [*launcher, sys.executable, "-c", SPIN]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
    except control_group.ControlGroupError as error:
        pytest.skip(str(error))
    wall, cpu = json.loads(done.stdout)
    assert 0 < cpu / wall <= 1.5 * control_group.QUOTA_US / control_group.PERIOD_US
    assert groups_left() == []


def test_ahead_of_others_takes_this_process_in_and_lets_it_out():
    before = control_group.Path("/proc/self/cgroup").read_text()
    try:
        with control_group.ahead_of_others():
            assert f"offpath-bench-{os.getpid()}" in control_group.Path("/proc/self/cgroup").read_text()
    except control_group.ControlGroupError as error:
        pytest.skip(str(error))
    assert control_group.Path("/proc/self/cgroup").read_text() == before
    assert groups_left() == []


def test_where_groups_cannot_be_made_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(control_group, "V1_ROOT", tmp_path / "absent")
    monkeypatch.setattr(control_group, "V2_ROOT", tmp_path)
    with pytest.raises(control_group.ControlGroupError, match=r"no control group: .*absent"):
        with control_group.bluefield_quota():
            pytest.fail("there is no group to be in")
