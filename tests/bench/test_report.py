"""The JSON of benchmarks: its form, refused input, and how claims that do not hold end a command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import offpath.bench as bench
import pytest
import typer
from offpath.bench import command_of, control_group, finish, link, md
from offpath.bench.move import CLAIMS, add_missing
from offpath.bench.report import CLAIM_KEYS, PAIRS_MIN, UNKNOWN, Claim, Report, ReportError, Series
from rich.console import Console


def holding(name: str = "move.post_ns_p50") -> Claim:
    return Claim(
        name, 120.0, "ns", "SDMS paper", 300e3, 2500.0, "<= 400 ns", holds=True, interval=[2400.0, 2600.0], pairs=21
    )


def sample() -> Report:
    line = Series("fig2", "mean", "bytes", "ns", [4096.0, 8192.0], [120.0, 121.0])
    return Report("move", "1a2b3c", "two cores", [holding()], [line])


def test_json_has_the_published_form_and_comes_back_equal():
    text = sample().to_json()
    loaded = json.loads(text)
    assert set(loaded) == {"bench", "commit", "machine", "claims", "series"}
    assert all(set(CLAIM_KEYS) <= set(claim) for claim in loaded["claims"])
    assert Report.parse(text) == sample()


def test_a_claim_that_could_not_run_has_every_key_and_says_why():
    report = Report("move")
    report.add_unmeasured([("move.x", "us", ">= 2x")], "UCX is not installed")
    (entry,) = json.loads(report.to_json())["claims"]
    assert entry == {
        "claim": "move.x", "value": None, "unit": "us", "peer": None, "peer_value": None, "ratio": None,
        "target": ">= 2x", "holds": False, "why": "UCX is not installed",
    }  # fmt: skip


def test_a_claim_that_was_not_measured_cannot_hold():
    with pytest.raises(ValueError, match="neither a value nor a ratio was measured"):
        Claim("move.x", unit="us", holds=True, why="left out")
    loaded = json.loads(sample().to_json())
    loaded["claims"][0] |= {"value": None, "ratio": None}
    with pytest.raises(ReportError, match=r"claims\[0\]: claim .* neither a value nor a ratio was measured"):
        Report.parse(json.dumps(loaded))


@pytest.mark.parametrize(
    ("pairs", "interval", "why"),
    [
        (20, [2.1, 2.3], "measured in 20 pairs"),
        (None, [2.1, 2.3], "measured in no pairs"),
        (21, None, "interval"),
        (21, [2.1, 2.3], None),
    ],
)
@pytest.mark.parametrize("target", [">= 2x", ">= 0.95", "<= 2.5"])
def test_a_claim_about_a_ratio_takes_21_pairs_and_an_interval(pairs, interval, why, target):
    claim = Claim("move.x", 3.0, "us", "UCX", 6.6, 2.2, target, holds=True, interval=interval, pairs=pairs)
    for quick in (True, False):
        Report("move", claims=[claim]).conclude(Console(quiet=True), quick)
        assert claim.holds == (quick or why is None)
    assert (why or "") in (claim.why or "") and bool(claim.why) == bool(why)


def test_a_ratio_that_decides_nothing_is_told_apart_from_a_miss():
    missed = Claim("move.x", 3.0, "us", "UCX", 3.3, 1.1, ">= 2x", interval=[1.0, 1.2], pairs=21)
    open_ones = [
        Claim("move.y", -1.0, "us", "UCX", 0.1, None, ">= 2x", pairs=21, why="the turns differ by more than UCX costs"),
        Claim("move.z", 3.0, "us", "UCX", 6.6, 2.2, ">= 2x", interval=[1.9, 2.3], pairs=21, why="the interval"),
    ]
    console = Console(record=True, width=200)
    shown = Claim("move.s", -1.0, "us", "UCX", 0.1, why="the turns differ by more than UCX costs")
    loaded = Claim("move.v", 9.0, "us", target="<= 1 us", why="loaded: m")
    report = Report("move", "1a2b3c", "two cores", [missed, *open_ones, shown, loaded])
    report.conclude(console, quick=False)
    assert [claim.undecided for claim in report.claims] == [False, True, True, False, False]
    assert console.export_text().count("not decided") == 3 and not report.all_hold()
    assert report.broken_rules() == []


def test_what_has_no_target_is_shown_and_a_value_needs_no_pairs():
    value = Claim("move.post_ns_p50", 90.0, "ns", target="<= 400 ns", holds=True)
    figure = Claim("move.read_to_frame", 7.8, "GB/s", holds=True)
    report = Report("move", claims=[value, figure])
    console = Console(record=True, width=200)
    report.conclude(console, quick=False)
    assert value.holds and value.shown is None and figure.shown
    assert "shown" in console.export_text()
    assert [entry.get("shown") for entry in json.loads(report.to_json())["claims"]] == [None, True]


def test_a_link_that_could_not_be_limited_has_claims_that_do_not_hold(monkeypatch):
    def no_group(name):
        raise control_group.ControlGroupError("control groups may not be made here")

    monkeypatch.setattr(link.control_group, "bluefield_group", no_group)
    report = Report("link")
    link.measure(report, "local", "host-agent", "4KiB", quick=True)
    expected = [f"link.{name} (local, host-agent)" for name, _ in link.QUANTITIES]
    assert [claim.claim for claim in report.claims] == expected
    assert not any(claim.holds for claim in report.claims)
    assert all("may not be made here" in claim.why for claim in report.claims)


RULES = [
    ({"target": None}, "no target, not marked shown"),
    ({"shown": True}, "a target, marked shown"),
    ({"value": None, "ratio": None, "holds": False, "why": None}, "not measured, and does not say why"),
    ({"why": "the agent was awake"}, "holds, and says why it does not"),
    ({"target": ">= 2x", "pairs": None}, "a ratio without pairs"),
    ({"target": ">= 2x", "interval": None}, "a ratio without interval"),
    ({"target": ">= 2x", "pairs": 20}, "holds over 20 pairs of 21"),
    ({"peer_waits": "asleep"}, "none that spins is beside it"),
    ({"claim": "move.host_cpu_ratio"}, "processor time of the host without the total"),
    ({"claim": "tcp.threads_host_cpu_vs_kernel (1 threads)"}, "processor time of the host without the total"),
    ({"target": ">= 2500x", "by_interval": True}, "holds, though not its whole interval meets the target"),
    ({"target": ">= 3000x", "by_interval": True}, "holds, though not its whole interval meets the target"),
    ({"target": ">= 2550x", "by_interval": True, "holds": False}, "decides nothing, and it is a miss"),
]


@pytest.mark.parametrize(("changes", "broken"), RULES)
def test_each_rule_is_checked_of_what_a_report_says(changes, broken):
    report = sample()
    assert report.broken_rules() == []
    for key, value in changes.items():
        setattr(report.claims[0], key, value)
    assert [broken in each for each in report.broken_rules()] == [True]
    if changes.get("pairs") == 20:
        assert report.broken_rules(quick=True) == []


@pytest.mark.parametrize("changes", [{"commit": UNKNOWN}, {"machine": UNKNOWN}, {"commit": ""}])
def test_a_report_names_commit_and_machine(changes):
    report = sample()
    for key, value in changes.items():
        setattr(report, key, value)
    assert report.broken_rules() == ["its commit or machine is not known"]


def test_a_run_of_python_alone_is_kept_with_commit_and_machine(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(bench, "empty_report", lambda name: Report(name, "1a2b3c", "two cores"))
    finish(Report("sift", claims=[holding("sift.track_ms_p99")]), tmp_path / "report.json", check=False)
    assert Report.parse((tmp_path / "report.json").read_text()).broken_rules() == []


def test_processor_time_of_the_host_needs_the_total_of_the_same():
    report = sample()
    report.claims.append(holding("tcp.threads_host_cpu_vs_kernel (to the server, 1 threads)"))
    report.claims.append(holding("tcp.stream_total_cpu (to the server, agent included)"))
    assert len(report.broken_rules()) == 1
    report.claims[2].claim = "tcp.threads_total_cpu (to the server, 1 threads, agent included)"
    assert report.broken_rules() == []
    report.claims[2] = Claim("tcp.threads_total_cpu", target="<= 1 us", why="left out")
    assert len(report.broken_rules()) == 1
    report.claims[1] = Claim("tcp.threads_host_cpu_vs_kernel", target="<= 1 us", why="left out")
    assert report.broken_rules() == []


@pytest.mark.parametrize(
    ("target", "holds", "undecided"),
    [
        (">= 2x", True, False),
        (">= 2.1x", True, False),
        (">= 2.2", False, True),
        (">= 2.4x", False, False),
        ("<= 2.4x", True, False),
        ("<= 2.2", False, True),
        ("<= 2x", False, False),
    ],
)
def test_a_target_inside_of_the_interval_is_not_decided_where_the_interval_judges(target, holds, undecided):
    claim = Claim("lammps.x", 3.0, "ms", "compute", 6.6, 2.2, target, interval=[2.1, 2.3], pairs=21)
    claim.judge_by_interval()
    assert (claim.holds, claim.undecided) == (holds, undecided)
    report = Report("lammps", "1a2b3c", "two cores", [claim])
    report.conclude(Console(quiet=True), quick=False)
    assert claim.holds == holds and report.broken_rules() == []
    assert json.loads(report.to_json())["claims"][0]["by_interval"] is True


def test_a_peer_that_sleeps_needs_one_that_spins_for_the_same_figure():
    report = sample()
    report.claims[0].peer_waits = "asleep"
    report.claims.append(holding("move.post_ns_p50 (peer spins)"))
    report.claims[1].peer_waits = "spinning"
    assert report.broken_rules() == []
    report.claims[1].claim = "move.other (peer spins)"
    assert len(report.broken_rules()) == 1


def test_no_claim_is_a_size_that_the_compiler_knows():
    """Static sizes are asserted, not measured."""
    sources = Path(__file__).parents[2] / "bench"
    found = [
        f"{path.name}: {line.strip()}"
        for path in sources.rglob("*.cc")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\.value = [^,]*(sizeof|bytes_per_)", line)
    ]
    assert found == []


def test_every_benchmark_plans_as_many_pairs_as_a_claim_takes():
    """The C++ programs' plan is 21 pairs; those of Python say it themselves."""
    package = Path(md.__file__).parent
    planned = {
        (path.name, int(number))
        for path in package.glob("*.py")
        for number in re.findall(r"3 if quick else (\d+)", path.read_text(encoding="utf-8"))
    }
    assert md.ROUNDS >= PAIRS_MIN and {number for _, number in planned if number < PAIRS_MIN} == set(), planned


@pytest.mark.parametrize("key", CLAIM_KEYS)
def test_a_claim_without_a_key_is_refused_by_name(key):
    loaded = json.loads(sample().to_json())
    del loaded["claims"][0][key]
    with pytest.raises(ReportError, match=rf"claims\[0\]: key '{key}' is missing"):
        Report.parse(json.dumps(loaded))


@pytest.mark.parametrize(
    ("broken", "message"),
    [("{", "not JSON"), ("[]", "an object is expected"), ('{"bench": "x"}', "key 'commit' is missing")],
)
def test_what_is_no_report_is_refused(broken, message):
    with pytest.raises(ReportError, match=message):
        Report.parse(broken)


def test_holds_is_a_boolean_and_series_are_even():
    loaded = json.loads(sample().to_json())
    loaded["claims"][0]["holds"] = "yes"
    with pytest.raises(ReportError, match=r"claims\[0\]\.holds"):
        Report.parse(json.dumps(loaded))
    loaded["claims"][0]["holds"] = True
    loaded["series"][0]["y"].pop()
    with pytest.raises(ReportError, match="2 x and 1 y"):
        Report.parse(json.dumps(loaded))


def test_check_ends_with_one_only_when_a_claim_fails(tmp_path: Path):
    report = sample()
    finish(report, tmp_path / "deep" / "report.json", check=True)
    assert Report.parse((tmp_path / "deep" / "report.json").read_text()) == report
    report.claims.append(Claim("move.slow", 9.0, "us", target="<= 1 us", holds=False))
    finish(report, None, check=False)
    with pytest.raises(typer.Exit) as exit_info:
        finish(report, None, check=True)
    assert exit_info.value.exit_code == 1


def test_every_claim_of_the_table_is_emitted_even_if_no_part_ran():
    report = Report("move", claims=[holding()])
    add_missing(report, ["bandwidth: no agent"])
    assert [claim.claim for claim in report.claims] == [name for name, _, _ in CLAIMS]
    assert [claim.claim for claim in report.claims if claim.holds] == ["move.post_ns_p50"]
    assert all("no agent" in (claim.why or "") for claim in report.claims[1:])


def test_absorb_keeps_commit_and_machine_of_those_that_know_them():
    report = Report("move", "", "")
    report.absorb(sample())
    report.absorb(Report("move", "", "", [holding("move.other")]))
    assert (report.commit, report.machine) == ("1a2b3c", "two cores")
    assert len(report.claims) == 2


def test_a_run_is_kept_with_its_command():
    typed = ["bench", "md", "--part", "alone", "--json", "run.json", "--out=figures", "--check", "--quick"]
    assert command_of(typed) == "offpath bench md --part alone --quick"
