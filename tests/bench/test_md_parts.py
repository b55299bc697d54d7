"""Parts of ``offpath bench md``, with programs that take no time: which runs are compared, how energy is counted."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from offpath.bench import md_alone, md_bench_peer, md_exchange, md_offpath, md_ranks_figures
from offpath.bench.programs import ProgramError
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


DUMP = """ITEM: TIMESTEP
{step}
ITEM: ATOMS id type x y z vx vy vz fx fy fz
1 1 0 0 0 1 1 1 2 2 {force}
"""


@pytest.mark.parametrize(("differs", "idle"), [(False, False), (True, False), (False, True)])
def test_both_ways_to_exchange_are_compared_by_turns_and_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, differs: bool, idle: bool
):
    turns: list[str] = []
    workers: list[int] = []

    def run(words: list[str], _cores: str, _address: str, launcher: tuple[str, ...]) -> dict[str, Any]:
        way, steps = word_after(words, "--exchange"), int(word_after(words, "-n"))
        path = word_after(words, "--dump")
        if path:
            force = 2.0000000001 if differs and way == "agent" and launcher[-1] == "8" else 2
            Path(path).write_text("".join(DUMP.format(step=step, force=force) for step in (50, 100)))
        else:
            turns.append(way)
        phases = {f"{phase}_s": 0.1 * steps for phase in md_exchange.PHASES}
        forces = 0 if idle and path else steps
        return {"seconds": steps * (2.0 if way == "host" else 1.0), "steps": steps, "exchange": way,
                "forces_by_agent": forces, "force_steps": {"count": steps, **phases}}  # fmt: skip

    def agent(_core: int, workers_wanted: int) -> nullcontext[SimpleNamespace]:
        workers.append(workers_wanted)
        return nullcontext(SimpleNamespace(address=""))

    monkeypatch.setattr(md_exchange, "run_md", run)
    monkeypatch.setattr(md_exchange, "find_mpirun", lambda: "mpirun")
    monkeypatch.setattr(md_exchange, "agent_with_functions", lambda core, workers: agent(core, workers))
    report = Report("md")
    if idle:  # the compared runs must be what they are named for
        with pytest.raises(ProgramError, match="forces were not exchanged"):
            md_exchange.measure_exchange(report, (0, 1), False)
        return
    md_exchange.measure_exchange(report, (0, 1), False)
    assert workers == [8]
    assert turns[:4] == ["agent", "host", "host", "agent"] and len(turns) == 42
    claims = claims_of(report)
    faster = claims["md.exchange_by_agents"]
    assert (faster.value, faster.peer_value, faster.ratio, faster.pairs) == (1e3, 2e3, 2.0, 21)
    same = claims["md.exchange_atoms_agree"]
    assert (same.value, same.holds) == ((0, False) if differs else (100, True))
    assert {line.name.partition("/")[2]: line.y for line in report.series} == dict.fromkeys(
        md_exchange.WAYS, pytest.approx([100.0] * len(md_exchange.PHASES))
    )
    assert [path.name for path in md_ranks_figures.draw(report, tmp_path)] == ["fig10_exchange.png"]


def mdbench(folder: Path, name: str, million_a_second: str) -> str:
    path = folder / name
    path.write_text(
        f"#!/bin/sh\necho $0 $* >> {folder}/calls\n"
        f"echo 'Performance: {million_a_second} million atom updates per second'\n"
    )
    path.chmod(0o755)
    return str(path)


def test_the_fastest_mdbench_of_each_precision_is_the_peer(tmp_path: Path):
    slow = mdbench(tmp_path, "MDBench-VL-GCC-X86-AVX2-DP", "4.00")
    fast = mdbench(tmp_path, "MDBench-CP-CLANG-X86-AVX512-DP", "5.00")
    single = mdbench(tmp_path, "MDBench-VL-GCC-X86-AVX512-SP", "8.00")
    report = Report("md")
    rates = {"double": 6e6, "mixed": 8e6}
    md_bench_peer.measure(report, 0, (10, 20, 21), rates.__getitem__, [slow, fast, single])
    double, mixed = report.claims
    assert (double.claim, double.value, double.peer_value) == ("md.vs_mdbench", 6e6, 5e6)
    assert (double.ratio, double.holds, double.pairs) == (1.2, True, 21)
    assert double.detail is not None
    assert double.detail.startswith("MDBench-CP-CLANG-X86-AVX512-DP") and double.detail.endswith("the fastest of 2")
    assert (mixed.claim, mixed.ratio, mixed.holds) == ("md.mixed_vs_mdbench", 1.0, False)
    calls = Counter((tmp_path / "calls").read_text().splitlines())
    words = "-nx 10 -ny 10 -nz 10 -n 20"
    assert calls == {f"{slow} {words}": 3, f"{fast} {words}": 24, f"{single} {words}": 24}


def test_what_is_no_mdbench_is_refused(tmp_path: Path):
    report = Report("md")
    md_bench_peer.measure(report, 0, (10, 20, 1), lambda _: 1.0, [])
    assert [claim.holds for claim in report.claims] == [False, False]
    assert all("--peer-program" in (claim.why or "") for claim in report.claims)
    other = mdbench(tmp_path, "lmp", "4.00")
    silent = mdbench(tmp_path, "MDBench-VL-GCC-X86-SSE-SP", "0.00")
    for path, said in ((tmp_path / "none", "no such file"), (other, "names like"), (silent, "tells no rate")):
        with pytest.raises(ProgramError, match=said):
            md_bench_peer.measure(report, 0, (10, 20, 1), lambda _: 1.0, [str(path)])


def test_a_peer_names_its_commit_and_its_compilers_options(tmp_path: Path):
    (tmp_path / "Makefile").write_text("include make/$(TOOLCHAIN).mk\nCFLAGS = $(OPTS) -D$(DATA_TYPE)=$(OPT_SCHEME)\n")
    (tmp_path / "make").mkdir()
    (tmp_path / "make" / "GCC.mk").write_text("OPTS = -O3 -m$(SIMD)\n")
    (program,) = md_bench_peer.programs_of([mdbench(tmp_path, "MDBench-CP-GCC-X86-AVX512-SP", "1")])
    assert program.about() == "MDBench-CP-GCC-X86-AVX512-SP, -O3 -mAVX512 -DSP=clusterpair"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "--no-verify", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert program.about().startswith(f"MDBench-CP-GCC-X86-AVX512-SP, commit {commit[:7]}, -O3")
