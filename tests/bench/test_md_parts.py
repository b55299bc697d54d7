"""Parts of ``offpath bench md``, with programs that take no time: which runs are compared, how energy is counted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from offpath.bench import md_alone, md_offpath
from offpath.bench.report import Claim, Report

Runs = list[tuple[str, list[str]]]  # cores and words


def word_after(words: list[str], option: str, otherwise: str = "") -> str:
    return words[words.index(option) + 1] if option in words else otherwise


def fake_runs(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[list[str]], float]) -> Runs:
    """``run_md`` reports so many seconds of a step."""
    runs: Runs = []

    def run(words: list[str], cores: str, address: str = "", launcher: tuple[str, ...] = ()) -> dict[str, Any]:
        runs.append((cores, words))
        if words[0] == "model":
            rows = [{"mode": m, "interval": 8, "predicted_s": 1.0} for m in ("none", "force", "list")]
            return {"host": {"list_steps": 8}, "hypothetical": [{"cores": c, "rows": rows} for c in md_alone.SHARES]}
        return {"seconds": seconds(words), "steps": 1}

    monkeypatch.setattr(md_alone, "run_md", run)
    return runs


def claims_of(report: Report) -> dict[str, Claim]:
    return {claim.claim: claim for claim in report.claims}


def test_the_best_mode_of_a_card_is_that_of_the_size_it_is_used_at(monkeypatch: pytest.MonkeyPatch):
    turns: Counter[str] = Counter()

    def seconds(words: list[str]) -> float:
        mode = word_after(words, "--offload")
        if word_after(words, "-s") == "20":  # there `force` is the fastest
            return {"none": 1.0, "force": 0.5, "list": 0.9}[mode] + (word_after(words, "--skin") != "0.4")
        turns[mode] += 1
        if mode == "none":
            return 1.0 + (word_after(words, "--skin") != "0.2")
        # By the mean `list` is slower than the host alone, by the median it is the fastest.
        return {"force": 1.5, "list": 90.0 if turns["list"] == 1 else 0.8, "auto": 0.8}[mode]

    runs = fake_runs(monkeypatch, seconds)

    @contextmanager
    def quota(share: float) -> Any:
        yield ["quota"]

    monkeypatch.setattr(md_alone, "bluefield_quota", quota)
    monkeypatch.setattr(md_alone, "agent_with_functions", lambda *_: nullcontext(SimpleNamespace(address="")))
    report = Report("md")
    md_alone.measure_card(report, (0, 1), (20, 60, 3), (10, 2000, 5))
    claims = claims_of(report)
    best = claims["md.auto_vs_best_card"]
    assert best.detail == "list; 2000 steps with the cost of finding out" and best.ratio == 1.0
    assert "skin 0.2, its fastest of 0.2-0.5" in str(claims["md.auto_vs_alone_card"].peer)
    assert "skin 0.4, its fastest of 0.2-0.5" in str(claims["md.force_vs_alone_card"].peer)
    compared = [words for _, words in runs if word_after(words, "--offload") in ("force", "list", "auto")]
    assert {(word_after(w, "-s"), word_after(w, "--skin")) for w in compared} == {("20", "0.4"), ("10", "0.2")}


@pytest.mark.parametrize("there", [{0, 1}, {0, 1, 2, 3}])
def test_two_host_cores_are_shown_where_there_are_three(monkeypatch: pytest.MonkeyPatch, there: set[int]):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: there)
    runs = fake_runs(monkeypatch, lambda words: 1.0)
    report = Report("md")
    md_alone.measure_alone(report, (0, 1), "", 8, 30, 2)
    claims = claims_of(report)
    note = "do not fit this machine"
    if len(there) == 2:
        assert note in str(claims["md.list_vs_alone"].detail)
        assert "md.list_vs_alone_two_cores" not in claims
        return
    assert note not in str(claims["md.list_vs_alone"].detail)
    assert claims["md.list_vs_alone_two_cores"].target is None
    assert claims["md.force_vs_alone_two_cores"].pairs == 2
    assert {cores for cores, words in runs if word_after(words, "-t") == "2"} == {"0,2"}


def zone(folder: Path, name: str, energy_uj: int) -> None:
    folder.mkdir(exist_ok=True)
    for file, text in (("name", name), ("energy_uj", str(energy_uj)), ("max_energy_range_uj", "100000000")):
        (folder / file).write_text(f"{text}\n")


def test_energy_is_that_of_the_steps_of_all_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """7 J a run and 2 J a step, of which a second package has a half; other zones do not count; counters wrap."""
    monkeypatch.setattr(md_offpath, "RAPL", tmp_path)
    used = {"intel-rapl:0": 20.0, "intel-rapl:1": 99.0, "intel-rapl:0:0": 0.0, "intel-rapl:2": 0.0}
    names = {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1", "intel-rapl:0:0": "core", "intel-rapl:2": "psys"}

    def write() -> None:
        for folder, joules in used.items():
            zone(tmp_path / folder, names[folder], round(1e6 * joules) % 100_000_000)

    def run(words: list[str], cores: str, address: str = "") -> dict[str, Any]:
        spent = 7 + 2.0 * int(word_after(words, "-n"))
        for folder in used:
            used[folder] += spent / 2 if names[folder].startswith("package") else spent
        write()
        return {}

    monkeypatch.setattr(md_offpath, "run_md", run)
    write()
    report = Report("md")
    md_offpath.add_energy(report, "4000/none", (10, 20), "none", [1, 5], 0, "")
    (line,) = report.series
    assert line.y == pytest.approx([2, 2])


def test_energy_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(md_offpath, "RAPL", tmp_path)
    report = Report("md")
    md_offpath.add_energy(report, "4000/none", (10, 20), "none", [1], 0, "")
    zone(tmp_path / "intel-rapl:2", "psys", 0)
    md_offpath.add_energy(report, "4000/none", (10, 20), "none", [1], 0, "")
    assert report.series == []
