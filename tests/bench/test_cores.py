"""The parts ``cores`` of ``offpath bench move`` and ``pool``: turns, ratios, and what a machine without cores to spare
may claim."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from built import missing
from offpath.bench import app, cores
from offpath.bench.cores import GETS, MOVES, Work
from offpath.bench.programs import ProgramError, find_program
from offpath.bench.report import Report
from typer.testing import CliRunner


def pairs(ratio: float, count: int = 21) -> list[tuple[float, float]]:
    return [(1000.0 * ratio + number, 1000.0 + number) for number in range(count)]


def test_a_claim_holds_where_each_loop_has_a_core():
    claim = cores.claim_of(MOVES, 8, "1 MiB", pairs(1.8), cores=8)
    assert claim.holds and claim.target == ">= 1.6x" and claim.pairs == 21 and claim.why is None
    assert claim.value > claim.peer_value and claim.interval[0] <= claim.ratio <= claim.interval[1]
    assert not cores.claim_of(MOVES, 8, "1 MiB", pairs(1.4), cores=8).holds


def test_two_cores_decide_nothing():
    claim = cores.claim_of(MOVES, 8, "1 MiB", pairs(1.8), cores=2)
    assert not claim.holds and claim.undecided and "share" in claim.why


def test_one_program_claims_nothing():
    claim = cores.claim_of(MOVES, 1, "64 KiB", pairs(1.0), cores=2)
    assert claim.target is None and claim.why is None and claim.holds


SPANS = """
import sys
print("ready", flush=True)
sys.stdin.readline()
print(*sys.argv[1:])
"""


def spanning(work: int, began: int, ended: int) -> list[str]:
    return [sys.executable, "-c", SPANS, str(work), str(began), str(ended)]


def test_what_was_done_one_after_the_other_is_not_added_up():
    at_once = [spanning(1000, 0, 1_000_000_000), spanning(1000, 0, 1_000_000_000)]
    assert cores.rate_together(at_once) == 2000
    one_by_one = [spanning(1000, 0, 1_000_000_000), spanning(1000, 1_000_000_000, 2_000_000_000)]
    assert cores.rate_together(one_by_one) == 1000


def test_a_program_that_fails_says_why():
    fails = [sys.executable, "-c", "import sys; sys.exit('no agent there')"]
    with pytest.raises(ProgramError, match="no agent there"):
        cores.rate_together([spanning(1, 0, 1), fails])
    ends = [sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.readline(); sys.exit(3)"]
    with pytest.raises(ProgramError, match="ended with status 3"):
        cores.rate_together([spanning(1, 0, 1), ends])


def need(*programs: str) -> None:
    for program in programs:
        try:
            find_program(program)
        except ProgramError as error:
            missing(str(error))


@pytest.mark.parametrize(("work", "program"), [(MOVES, "bench_move_rate"), (GETS, "bench_pool_rate")])
def test_both_agents_have_their_turns(work: Work, program: str):
    need("offpath-agent", program)
    asked: list[str] = []

    def measured(commands: list[list[str]]) -> float:
        asked.append(commands[0][1])
        return 1.0 + len(asked) % 2

    report = cores.measure(work, True, measured)
    assert [(claim.claim, claim.unit, claim.target) for claim in report.claims] == work.claims
    assert len(set(asked)) == 2 and len(asked) == 2 * 3 * len(work.claims)
    first = asked[0::2]
    assert first[0] != first[1], "who begins changes"


@pytest.mark.parametrize(("bench", "work", "program"),
                         [("move", MOVES, "bench_move_rate"), ("pool", GETS, "bench_pool_rate")])  # fmt: skip
def test_a_quick_run(tmp_path: Path, bench: str, work: Work, program: str):
    need("offpath-agent", program)
    path = tmp_path / "report.json"
    words = [bench, "--quick", "--part", "cores", "--out", str(tmp_path), "--json", str(path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = Report.parse(path.read_text(encoding="utf-8"))
    assert report.broken_rules(quick=True) == []
    assert {claim.claim for claim in report.claims} == {name for name, _, _ in work.claims}
    assert all(claim.value > 0 and claim.peer_value > 0 and claim.pairs == 3 for claim in report.claims)
