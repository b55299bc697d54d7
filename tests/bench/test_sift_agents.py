"""`offpath bench sift --part agents` reports lost rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pyarrow as pa
import pytest
from offpath.bench import sift_agents
from offpath.bench.groups import LINKS
from offpath.bench.programs import ProgramError
from offpath.bench.report import Report
from rich.console import Console

PARTICLES, STEPS = 1000, 3


def measured_by(monkeypatch: pytest.MonkeyPatch, sift: Callable[..., sift_agents.Found]) -> Report:
    monkeypatch.setattr(sift_agents, "sift", sift)
    monkeypatch.setattr(sift_agents, "group_of", lambda *_: nullcontext((None, "")))
    report = Report("sift", "1a2b3c", "two cores")
    sift_agents.measure(report, 2, PARTICLES, STEPS)
    report.conclude(Console(quiet=True), quick=False)
    return report


def measured(monkeypatch: pytest.MonkeyPatch, rows: int, steps: list[int]) -> Report:
    """Of a pool with so many rows in tracks, each track with these steps."""
    answer = pa.table({"rows": [rows]})
    session = SimpleNamespace(pool=lambda _: SimpleNamespace(query=lambda **_: answer))
    tracks = SimpleNamespace(track=lambda _: pa.table({"step": steps}))

    def sift(_group: object, _key: str, _way: tuple[int, int], particles: int, steps: int, _programs: int):
        if (particles, steps) == (PARTICLES, STEPS):  # without the warm-up
            sift_agents.check(session, tracks, particles, steps)
        return sift_agents.Found(1.0, 2.0, 1.0, 1.0, 1.0, 10.0)

    return measured_by(monkeypatch, sift)


def test_figure_7_has_its_ways_over_each_link(monkeypatch: pytest.MonkeyPatch):
    report = measured(monkeypatch, PARTICLES * STEPS, [0, 1, 2])
    ways = ("4 splits, 4 stages", "16 splits, 2 stages", "128 splits, 1 stage")
    assert [line.name for line in report.series if line.figure == "sift_fig7_agents"] == [
        f"{link}: {way}/{part}" for link in LINKS for way in ways for part in ("stored", "flush")
    ]


def test_ways_that_fail_leave_what_was_measured_before(monkeypatch: pytest.MonkeyPatch):
    def sift(_group: object, _key: str, _way: tuple[int, int], particles: int, steps: int, _programs: int):
        if (particles, steps) == (PARTICLES, 1):
            raise ProgramError("a program that sends: no agent")
        return sift_agents.Found(1.0, 2.0, 1.0, 1.0, 1.0, 10.0)

    report = measured_by(monkeypatch, sift)
    names = [claim.claim for claim in report.claims]
    assert len(names) == len(set(names))
    unmeasured = {claim.claim: claim.why for claim in report.claims if not claim.measured}
    assert unmeasured == {f"sift.agents_ways_s ({link})": "a program that sends: no agent" for link in LINKS}


@pytest.mark.parametrize(
    ("rows", "steps", "percent", "why"),
    [
        (PARTICLES * STEPS, [0, 1, 2], 100, None),
        (PARTICLES * STEPS - 30, [0, 1, 2], 99, "2970 of 3000 rows are in tracks"),
        (PARTICLES * STEPS + 30, [0, 1, 2], 101, "3030 of 3000 rows are in tracks"),
        (PARTICLES * STEPS, [0, 2, 2], 100, "track 0 has the steps [0, 2, 2] of 3"),
    ],
)
def test_lost_rows_fail_a_claim(
    monkeypatch: pytest.MonkeyPatch, rows: int, steps: list[int], percent: float, why: str | None
):
    report = measured(monkeypatch, rows, steps)
    kept = [claim for claim in report.claims if claim.claim.startswith("sift.agents_rows_kept")]
    assert [(claim.value, claim.target, claim.holds, claim.why) for claim in kept] == [
        (percent, "100 %", why is None, why)
    ] * len(LINKS)
    rates = [claim for claim in report.claims if claim.claim.startswith("sift.agents_records_s")]
    assert len(rates) == (len(LINKS) if why is None else 0), "no rate of a run that lost rows"
    assert report.broken_rules() == []
    assert report.all_hold() is (why is None)


def test_agents_that_cannot_be_had_are_no_lost_rows(monkeypatch: pytest.MonkeyPatch):
    def sift(*_: object):
        raise ProgramError("a program that sends: no agent")

    report = measured_by(monkeypatch, sift)
    assert [(claim.measured, claim.why) for claim in report.claims] == [
        (False, "a program that sends: no agent")
    ] * len(LINKS)
