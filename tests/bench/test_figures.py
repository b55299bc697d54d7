"""Figures are drawn from all existing series, and only from these."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from offpath.bench import everything, figures, md
from offpath.bench.report import Claim, Report, Series

PNG = b"\x89PNG\r\n"


def line(figure: str, name: str, unit: str = "GB/s") -> Series:
    return Series(figure, name, "bytes", unit, [4096.0, 2.0**20, 2.0**30], [1.0, 8.0, 9.0])


def names(paths: list[Path]) -> set[str]:
    assert all(path.read_bytes().startswith(PNG) for path in paths)
    return {path.name for path in paths}


def test_move_draws_figures_2_3_4_and_11(tmp_path: Path):
    series = [line("fig2", name, "ns") for name in ("minimum", "mean", "median", "maximum")]
    series += [line("fig3", f"{who}, {count} outstanding") for who in ("Offpath", "process_vm_readv", "UCX ucp_get")
               for count in (1, 16)]  # fmt: skip
    series += [
        line(figure, f"source {kind}, cache on") for figure in ("fig4a", "fig4b") for kind in ("malloc", "aligned")
    ]
    series += [line(f"fig11_{panel}_{count}", way) for panel in ("overhead", "throughput") for count in (1, 4, 16)
               for way in figures.WAYS]  # fmt: skip
    drawn = figures.draw_move(Report("move", series=series), tmp_path / "new")
    assert names(drawn) == {"fig2_post.png", "fig3_bandwidth.png", "fig4_buffers.png", "fig11_ways.png"}


def test_what_was_not_measured_is_not_drawn(tmp_path: Path):
    report = Report("move", series=[line("fig3", "Offpath, 1 outstanding")])
    assert names(figures.draw_move(report, tmp_path)) == {"fig3_bandwidth.png"}


def test_arrow_steps_draws_figures_7_to_10(tmp_path: Path):
    steps = ("1 arrays", "2 schema", "3 record batch", "4 serialise")
    series = []
    for api, stacked, totals in (("C++", "fig7", "fig9"), ("C", "fig8", "fig10")):
        series += [line(stacked, f"host/{api}/{count}/{step}", "ns") for count in (1, 512) for step in steps]
        series += [line(totals, f"{place}/{api}/1/{part}", "ns") for place in ("host", "agent")
                   for part in ("total", "deviation")]  # fmt: skip
    drawn = figures.draw_arrow_steps(Report("arrow-steps", series=series), tmp_path)
    assert names(drawn) == {
        "fig7_steps.png", "fig8_steps.png", "fig9_host_and_agent.png", "fig10_host_and_agent.png"
    }  # fmt: skip


def test_link_draws_a_figure_for_each_link_that_was_measured(tmp_path: Path):
    series = [line(f"link_{name}_{link}", f"{place}, {who}", unit)
              for link in ("local", "verbs") for name, unit, _ in figures.LINK_PANELS
              for place in figures.PLACE_COLOURS for who in ("Offpath", "ib_read_lat")]  # fmt: skip
    assert names(figures.draw_link(Report("link", series=series), tmp_path)) == {"link_local.png", "link_verbs.png"}


def test_sift_draws_what_was_measured_of_figures_6_to_9(tmp_path: Path):
    stages = [Series(f"sift_fig6_{size}", stage, "particles", "s", [2.0**20], [1.0]) for size in (1, 64)
              for stage in ("post", "pull", "store")]  # fmt: skip
    assert names(figures.draw_sift(Report("sift", series=stages), tmp_path)) == {"fig6_injection.png"}
    splits = [Series("sift_fig7", f"{name}/{part}", "particles", "s", [1e8], [2.0])
              for name in ("4 splits, 4 stages", "16 splits, 2 stages") for part in ("jobs", "publish")]  # fmt: skip
    others = [Series("sift_fig8", "Offpath", "splits", "s", [2.0, 4.0], [1.0, 1.5]),
              Series("sift_fig9", "Offpath", "particles", "s", [1e7, 1e8], [1.0, 10.0])]  # fmt: skip
    drawn = names(figures.draw_sift(Report("sift", series=splits + others), tmp_path))
    assert drawn == {"fig7_splits.png", "fig8_first_stage.png", "fig9_impulse.png"}


def test_pool_draws_figure_3_without_queries(tmp_path: Path):
    lines = [Series("pool_fig3", name, "threads", "M/s", [1.0, 2.0], [2.0, 4.0])
             for name in ("Offpath, keys apart", "map behind a mutex, keys collide")]  # fmt: skip
    assert names(figures.draw_pool(Report("pool", series=lines), tmp_path)) == {"fig3_objects.png"}


def test_task_draws_what_was_measured(tmp_path: Path):
    claims = [
        Claim(f"task.copy_vs_memcpy ({size})", 2.0, "us", "memcpy", 1.0, 0.5, holds=True) for size in ("1 MiB", "3 MiB")
    ]
    assert names([figures.draw_task(Report("task", claims=claims), tmp_path)]) == {"task_copies.png"}
    assert figures.draw_task(Report("task", claims=[Claim("task.empty_us_p50")]), tmp_path) is None


def test_sift_draws_figure_7_over_each_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The best way is marked for each: 4 splits over unix, 16 over tcp."""
    texts: list[tuple[str, list[str]]] = []

    def save(figure: Any, out: Path, name: str) -> Path:
        texts.extend((panel.get_title(), [text.get_text() for text in panel.texts]) for panel in figure.axes)
        return out / name

    monkeypatch.setattr(figures, "save", save)
    lines = [Series("sift_fig7_agents", f"{link}: {way}/{part}", "particles", "s", [1e7], [seconds])
             for link, way, seconds in (("unix", "4 splits, 4 stages", 1.0), ("unix", "16 splits, 2 stages", 2.0),
                                        ("tcp", "4 splits, 4 stages", 4.0), ("tcp", "16 splits, 2 stages", 3.0))
             for part in ("stored", "flush")]  # fmt: skip
    figures.draw_agents(Report("sift", series=lines), tmp_path)
    through = "10 M particles through real agents on one machine, over"
    assert texts == [(f"{through} unix", ["2 s, best", "4 s"]), (f"{through} tcp", ["8 s", "6 s, best"])]


@pytest.mark.parametrize(("group", "is_kept"), [("md", True), ("sift", True), ("exchange", True), ("move", False)])
def test_a_kept_run_has_series_if_its_figures_are_a_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, is_kept: bool
):
    series = [Series("fig1", "one", "members", "us", [2.0, 4.0], [1.5, 2.5])]
    measured = Report(group, "1a2b3c", "two cores", series=series, date="2026-11-30")

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        measured.write(Path(words[words.index("--json") + 1]))
        return subprocess.CompletedProcess(words, 0, "")

    monkeypatch.setattr(everything.subprocess, "run", run)
    kept = tmp_path / "kept.json"
    everything.run_part(everything.Part(f"{group}.part", 1.0, (group,)), kept, tmp_path, quick=True)
    assert Report.parse(kept.read_text(encoding="utf-8")).series == (series if is_kept else [])


def test_figures_of_molecular_dynamics_are_drawn_again_from_a_kept_run(tmp_path: Path):
    series = [
        Series("md_fig7", f"4000 atoms, interval {n}", "phase", "%", [*range(6)], [62.123456789, 20, 10, 5, 2, 1])
        for n in (1, 5)
    ]
    series.append(Series("md_fig14_knee", "4000/force", "agent threads", "ms a step", [1, 2, 3], [3, 2, 2]))
    report = Report("md", "1a2b3c", "two cores", series=series, date="2026-11-30", command="offpath bench md")
    kept = Report.parse(report.to_result(with_series=True))
    assert kept.series[0].y[0] == 62.1235 and len(kept.series) == 3
    assert names(md.figures.draw(kept, tmp_path)) == {"fig7_phases.png", "fig14_knee.png"}
    assert Report.parse(report.to_result()).series == []
