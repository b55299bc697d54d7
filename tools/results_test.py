"""The tables of the documentation: their contents, and errors in runs and pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import results

PAGE = "# Results\n\n<!-- results: move -->\n<!-- end of results -->\n"
README = "# Offpath\n\n<!-- results: README -->\n<!-- end of results -->\n\nafter\n"


def claim(name: str = "move.columns_vs_ucx (16 x 4 KiB)", **others) -> dict:
    return {
        "claim": name, "value": 10.0, "unit": "us", "peer": "UCX, 16 gets", "peer_value": 24.0, "ratio": 2.4,
        "target": ">= 2x", "holds": True, "interval": [2.3, 2.5], "pairs": 21, **others,
    }  # fmt: skip


def keep(root: Path, machine: str, file: str, *claims: dict, **others: str) -> None:
    report = {"bench": "move", "commit": "1a2b3c", "machine": machine, "date": "2026-11-27",
              "command": "offpath bench move --part bandwidth", **others, "claims": claims}  # fmt: skip
    path = root / results.RUNS / machine / f"{file}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report), encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for page, text in ((results.PAGES[0], PAGE), (results.PAGES[1], README)):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text(text, encoding="utf-8")
    keep(tmp_path, "xeon", "move.bandwidth", claim())
    return tmp_path


def row_of(root: Path, page: str = results.PAGES[0]) -> list[str]:
    results.write(root)
    lines = [line for line in (root / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(lines) == 2  # the head, and one claim
    return [word.strip() for word in lines[1].strip("| ").split(" | ")]


def test_a_claim_that_holds_on_one_machine_only_is_a_miss(root: Path):
    assert row_of(root)[-1] == "no: not measured on AMD"
    keep(root, "epyc-zen4", "move.bandwidth", claim(holds=False, ratio=1.8, interval=[1.7, 1.9]))
    assert row_of(root)[-1] == "no: missed on AMD EPYC (Zen 4)"
    keep(root, "epyc-zen4", "move.bandwidth", claim(value=None, ratio=None, holds=False, why="no UCX"))
    assert row_of(root)[-1] == "no: not measured on AMD"
    keep(root, "epyc-zen4", "move.bandwidth", claim(value=9.0))
    assert row_of(root) == [
        "`move.columns_vs_ucx (16 x 4 KiB)`", "10 us; peer 24 us; 2.4 [2.3, 2.5]", "9 us; peer 24 us; 2.4 [2.3, 2.5]",
        "UCX", ">= 2x", "yes",
    ]  # fmt: skip
    page = root / results.PAGES[0]
    assert "Zen 4" in page.read_text(encoding="utf-8") and "Zen 5" not in page.read_text(encoding="utf-8")
    keep(root, "epyc-zen5", "move.bandwidth", claim(holds=False, ratio=1.8, interval=[1.7, 1.9]))
    assert row_of(root)[-1] == "no: missed on AMD EPYC (Zen 5)"


def test_what_the_turns_do_not_decide_is_no_miss_and_says_why(root: Path):
    why = "the turns differ by more than UCX costs"
    keep(root, "epyc-zen4", "move.bandwidth", claim(value=-1.0, ratio=None, interval=None, holds=False, why=why))
    assert row_of(root)[-1] == "no: not decided on AMD EPYC (Zen 4)"
    assert row_of(root)[2] == f"not decided: {why}"
    why = "the interval reaches beyond the target"
    keep(root, "epyc-zen4", "move.bandwidth", claim(interval=[1.9, 2.5], holds=False, why=why))
    assert row_of(root)[2] == "10 us; peer 24 us; 2.4 [1.9, 2.5]"
    assert row_of(root)[-1] == "no: not decided on AMD EPYC (Zen 4)"
    keep(root, "epyc-zen5", "move.bandwidth", claim(ratio=1.8, interval=[1.7, 1.9], holds=False))
    assert row_of(root)[-1] == "no: missed on AMD EPYC (Zen 5), not decided on AMD EPYC (Zen 4)"


def test_a_figure_that_does_not_exist_says_why(root: Path):
    none = {"value": None, "peer_value": None, "ratio": None, "interval": None, "holds": False}
    keep(root, "xeon", "move.bandwidth", claim(target=None, shown=True, why="no gain at any share of a core", **none))
    assert row_of(root)[1] == "no gain at any share of a core"
    assert row_of(root)[-1] == "shown"


def test_the_readme_has_the_cells_of_the_page(root: Path):
    keep(root, "epyc-zen4", "move.bandwidth", claim())
    name, *cells = row_of(root)
    assert row_of(root, "README.md") == ["reading 16 columns of 4 KiB", *cells]
    assert name.startswith("`move.") and (root / "README.md").read_text(encoding="utf-8").endswith("\n\nafter\n")
    assert results.check(root) == []


def test_what_has_no_target_is_shown(root: Path):
    shown = claim(target=None, shown=True)
    keep(root, "xeon", "move.bandwidth", shown)
    assert row_of(root)[-2:] == ["-", "shown"]


def test_a_run_from_before_a_rule_is_marked_and_holds_nothing(root: Path, monkeypatch: pytest.MonkeyPatch):
    keep(root, "epyc-zen4", "move.bandwidth", claim(value=12.0), commit="unknown")
    results.write(root)
    broken = ["bench/results/epyc-zen4/move.bandwidth.json: its commit or machine is not known"]
    assert results.check(root) == broken
    monkeypatch.setattr(results, "BEFORE_RULES", {"epyc-zen4/move.bandwidth": results.reports.UNTRACED})
    _, xeon, epyc, *_, holds = row_of(root)
    assert xeon.startswith("10 us") and "†" not in xeon and epyc.startswith("12 us") and epyc.endswith(" †")
    assert holds == "no: to be measured again on AMD EPYC (Zen 4)"
    assert "† of a run from before a rule" in (root / results.PAGES[0]).read_text(encoding="utf-8")
    assert results.check(root) == []
    keep(root, "epyc-zen4", "move.bandwidth", claim(value=12.0, pairs=20), commit="unknown")
    assert "holds over 20 pairs" in results.check(root)[0], "one rule is excused, and no other"
    keep(root, "epyc-zen4", "move.bandwidth", claim(value=12.0))
    assert row_of(root)[-1] == "yes"
    assert "keeps the rule now" in results.check(root)[0]


def test_a_run_from_before_there_was_a_target_holds_nothing(root: Path):
    keep(root, "epyc-zen4", "move.bandwidth", claim(target=None, shown=True))
    assert row_of(root)[-1] == "no: to be measured again on AMD EPYC (Zen 4)"
    keep(root, "epyc-zen4", "move.bandwidth", claim(target=None, shown=True), date="2026-11-28")
    assert row_of(root)[-2:] == ["-", "shown"], "the newest run has no target any more"


def test_only_the_figure_that_breaks_a_rule_is_marked(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "BEFORE_RULES", {"epyc-zen4/move.cpu": results.reports.WITHOUT_TOTAL})
    keep(root, "epyc-zen4", "move.cpu", claim("move.stream_host_cpu"), claim("move.host_library_rss"))
    runs, problems = results.read_runs(root)
    assert problems == []
    assert runs["move.stream_host_cpu"]["epyc-zen4"].again and not runs["move.host_library_rss"]["epyc-zen4"].again


def test_runs_from_before_a_rule_are_there():
    assert [name for name in results.BEFORE_RULES if not (results.ROOT / results.RUNS / f"{name}.json").exists()] == []


def test_a_machine_without_a_run_is_named(root: Path):
    said = "No run of this table on AMD is kept yet, so no claim holds yet.\nIntel Xeon: 1a2b3c on 2026-11-27."
    results.write(root)
    assert all(said in (root / page).read_text(encoding="utf-8") for page in results.PAGES)
    keep(root, "epyc-zen4", "move.bandwidth", claim())
    results.write(root)
    assert not any("No run" in (root / page).read_text(encoding="utf-8") for page in results.PAGES)


def test_the_readme_leaves_out_no_miss(root: Path):
    kept = claim("move.new", interval=[1.8, 2.0], ratio=1.9)
    keep(root, "xeon", "move.new", kept)
    results.write(root)
    assert results.check(root) == []
    keep(root, "xeon", "move.new", {**kept, "holds": False})
    results.write(root)
    assert results.check(root) == ["README.md:1: its table leaves out move.new, which was missed"]


def test_a_way_of_offpaths_own_is_named_as_a_peer(root: Path):
    keep(root, "xeon", "move.bandwidth", claim(peer="Offpath, Acero alone"))
    assert row_of(root)[-3] == "Acero"


def test_every_machine_has_one_maker():
    assert sorted(results.MACHINES) == sorted(name for names in results.MAKERS.values() for name in names)


def test_rows_of_the_readme_are_understood_alone():
    assert [name for name in results.README.values() if re.search(r"^(the same|its)\b", name)] == []
    assert len(set(results.README.values())) == len(results.README)


def test_a_page_that_is_not_made_from_its_runs_is_a_problem(root: Path):
    results.write(root)
    assert results.check(root) == []
    keep(root, "xeon", "move.bandwidth", claim(value=11.0))
    assert [problem.partition(":")[0] for problem in results.check(root)] == list(results.PAGES)
    results.write(root)
    page = root / "README.md"
    page.write_text(page.read_text(encoding="utf-8").replace("11 us", "9 us"), encoding="utf-8")
    assert results.check(root) == ["README.md:1: its tables are not those of bench/results: "
                                   "run tools/results.py --write"]  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "about", "said"),
    [
        ([claim(pairs=20)], {}, "holds over 20 pairs of 21"),
        ([claim(target=None)], {}, "no target, not marked shown"),
        ([claim(holds="yes")], {}, "claims[0].holds"),
        ([claim()], {"date": ""}, "no date"),
        ([claim()], {"command": "offpath bench move --quick"}, "whose figures mean nothing"),
    ],
)
def test_a_run_that_breaks_a_rule_is_named(root: Path, claims, about, said):
    keep(root, "xeon", "move.bandwidth", *claims, **about)
    problems = [problem for problem in results.check(root) if "run tools/results.py" not in problem]
    assert len(problems) == 1 and problems[0].startswith("bench/results/xeon/move.bandwidth.json: ")
    assert said in problems[0]


def test_two_runs_of_one_claim_and_unknown_machines_are_named(root: Path):
    keep(root, "xeon", "move.again", claim())
    keep(root, "arm", "move.bandwidth", claim())
    results.write(root)
    problems = results.check(root)
    assert problems == ["bench/results/arm: is no machine of tools/results.py",
                        "bench/results/xeon/move.bandwidth.json: move.columns_vs_ucx (16 x 4 KiB) is in another "
                        "file, too"]  # fmt: skip


@pytest.mark.parametrize("figure", ["0.22 us", "5.1 GB/s", "269x", "3 M/s"])
def test_readme_has_no_figure_outside_of_its_table(root: Path, figure: str):
    results.write(root)
    page = root / "README.md"
    page.write_text(page.read_text(encoding="utf-8").replace("after", f"a post takes {figure}"), encoding="utf-8")
    assert results.check(root) == [f"README.md:1: '{figure}' is a figure outside of its table"]


def test_a_bench_without_a_table_is_named(root: Path):
    keep(root, "xeon", "pool.objects", claim("pool.x"))
    results.write(root)
    assert results.check(root) == ["docs/results/benchmarks.md:1: has no table of pool"]
