"""The cost of an idle group: bounds that do not depend on the machine. ``offpath bench exchange --part group`` measures
the rest.

``./dev test --long`` runs it, and so does ``OFFPATH_LONG=1 pytest tests/e2e/group/test_group_cost.py``.
"""

from __future__ import annotations

import os
import time

import pytest
from offpath.bench.group_cost import SETTLE_S, idle_cost, statuses
from offpath.bench.groups import group_of
from waiting import until

AGENTS = 32
DEAD_AFTER_S = 5
BEATS_PER_S = 10 / DEAD_AFTER_S  # Membership::beats_of_death
TABLE_BYTES_MAX = 160  # of a beat: the sender's entry, whose name and addresses are short here
MEMORY_MIB = 64


@pytest.mark.skipif("OFFPATH_LONG" not in os.environ, reason="starts 32 agents: ./dev test --long")
@pytest.mark.parametrize("link", ["unix", "tcp"])
def test_an_idle_member_posts_a_few_small_tables_and_has_few_threads(link: str) -> None:
    with group_of(AGENTS, link, MEMORY_MIB, f"{DEAD_AFTER_S}s") as (group, _):
        time.sleep(SETTLE_S)  # threads that had work to do while the group was formed have ended
        measured = idle_cost(group, 10)
        rates = measured["per_agent_and_second"]
        # On one machine beats wake only their sender. Over TCP each of three tables wakes its receiver, and with its
        # answer a thread of its sender.
        wakes = BEATS_PER_S * (1 if link == "unix" else 1 + 3)
        assert rates["loop.sleeps"] <= 2 * wakes, measured
        assert rates["wakes"] <= 2 * (wakes if link == "unix" else wakes + BEATS_PER_S * 3), measured
        # A busy machine may make a member ask a neighbour that was quiet, or refute a suspicion.
        assert rates["group.tables_posted"] <= 2 * 3 * BEATS_PER_S, measured
        assert rates["group.table_bytes_posted"] <= 2 * 3 * BEATS_PER_S * TABLE_BYTES_MAX, measured
        assert measured["threads_max"] <= 12, measured
        assert measured["channels_max"] <= 8, measured  # of three that post to it, and of a change that came just now
        assert measured["private_mib_max"] <= 4.5, measured  # 2.5 to 3.2 are usual
        assert measured["deaths"] == 0, measured


def test_channels_of_slow_beats_stay_between_two() -> None:
    """Other idle channels end before 5.5 s, the time between beats: a beat must not connect again each time."""
    with group_of(2, "unix", MEMORY_MIB, "55s") as (group, _):

        def counted(name: str) -> list[int]:
            return [status["group"][name] for status in statuses(group)]

        connects, posted = counted("connects"), counted("tables_posted")
        assert until(
            lambda: all(now >= then + 3 for now, then in zip(counted("tables_posted"), posted, strict=True)), 60
        )
        assert counted("connects") == connects
