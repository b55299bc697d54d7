"""``offpath bench lammps``: the costs of its turns decide which claims hold."""

from __future__ import annotations

import pytest
from offpath.bench import lammps_fixes, lammps_melt

AROUND = [0.9 + 0.01 * n for n in range(21)]  # its median is 1, the interval of that about 0.95 to 1.05


def costs(of: float) -> list[float]:
    return [of * each for each in AROUND]


@pytest.mark.parametrize(
    ("ours", "holds", "why"),
    [
        (0.08, True, None),
        (0.15, False, None),
        (0.0985, False, "the interval lies on both sides of the target"),  # though its ratio would do
        (-0.01, True, None),
    ],
)
def test_a_target_is_judged_by_the_intervals_ends(ours: float, holds: bool, why: str | None):
    claim = lammps_fixes.compared("lammps.msd_cpu", costs(ours), "compute msd", costs(1.0), "<= 0.1x")
    assert (claim.holds, claim.why) == (holds, why)
    assert claim.ratio == pytest.approx(ours)
    assert claim.interval is not None
    assert claim.interval[0] < claim.ratio < claim.interval[1]
    assert claim.undecided == (why is not None) and claim.by_interval


def test_a_peer_whose_cost_is_not_seen_decides_nothing():
    claim = lammps_fixes.compared("lammps.msd_cpu", costs(0.0), "compute msd", [-1.0, 1.0] * 11, "<= 0.1x")
    assert claim.ratio is None and claim.undecided
    assert claim.why == "the turns differ by more than compute msd costs"


def test_a_cost_is_that_of_a_hand_over_beyond_its_own_plain_run():
    spent = {}
    for way, (problem, _) in lammps_melt.WAYS.items():
        plain = 1e3 * (problem.every + problem.hand_overs)  # seconds of a turn
        beyond = 0.0 if way.startswith("plain") else 2.0 if way in lammps_fixes.PEERS else 50.0
        spent[way] = [(plain + beyond * problem.hand_overs,) * 3] * 3
    claims = {claim.claim: claim for claim in lammps_fixes.claims_from(spent)}
    assert list(claims) == [name for name, _, _ in lammps_fixes.CLAIMS]
    assert all(claim.holds and claim.ratio == pytest.approx(0.04) for claim in claims.values())


def test_ways_that_are_compared_have_one_course():
    for ours, (peer, _, plain) in lammps_fixes.PEERS.items():
        assert len({lammps_melt.WAYS[way][0] for way in (ours, peer, plain)}) == 1
