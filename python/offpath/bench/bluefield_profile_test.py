"""The CPU quota: what runs in the group gets no more than its share, and the group goes away."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from offpath.bench import bluefield_profile as profile

# Spins for half a second of wall time, prints the CPU time it got for it.
SPIN = """
import json, time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() - begin < 0.5:
    pass
print(json.dumps([time.monotonic() - begin, time.process_time() - used]))
"""


def test_a_process_in_the_group_gets_its_share_and_the_group_is_removed():
    try:
        with profile.quota_group() as group:
            profile.check_quota(group)
            done = subprocess.run(
                [*profile.quota_launcher(group), sys.executable, "-c", SPIN], capture_output=True, text=True, check=True
            )
    except profile.QuotaError as error:
        pytest.skip(str(error))
    wall, cpu = json.loads(done.stdout)
    assert 0 < cpu / wall <= 1.5 * profile.QUOTA_US / profile.PERIOD_US
    assert not group.exists()


def test_where_groups_cannot_be_made_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "V1_ROOT", tmp_path / "absent")
    monkeypatch.setattr(profile, "V2_ROOT", tmp_path)
    with pytest.raises(profile.QuotaError, match=r"no CPU quota: .*absent"), profile.quota_group():
        pytest.fail("there is no group to be in")
