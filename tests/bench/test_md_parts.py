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
from offpath.bench import md
from offpath.bench.programs import ProgramError
from offpath.bench.report import Claim, Report

Runs = list[tuple[str, list[str]]]  # cores and words


def word_after(words: list[str], option: str, otherwise: str = "") -> str:
    return words[words.index(option) + 1] if option in words else otherwise


# A model's times of the host, in seconds: 10 of a step, and 16 more to make a list in every eighth one.
HOST = {"force_s": 8.0, "integrate_s": 1.0, "communicate_s": 1.0, "rebuild_s": 17.0, "communicate_wide_s": 2.0,
        "rebuild_wide_s": 26.0, "list_steps": 8.0, "bins_steps": 24.0}  # fmt: skip


def fake_runs(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[list[str]], float]) -> Runs:
    """``run_md`` reports so many seconds of a step."""
    runs: Runs = []

    def run(words: list[str], cores: str, address: str = "", launcher: tuple[str, ...] = ()) -> dict[str, Any]:
        runs.append((cores, words))
        if words[0] == "model":
            # `force` gains from 0.6 of a core on, `list` never.
            shares = {
                c: [
                    {"mode": mode, "interval": 8, "predicted_s": predicted}
                    for mode, predicted in (("none", 1.0), ("force", 1.6 - c), ("list", 2.0))
                ]
                for c in md.alone.SHARES
            }
            return {"host": HOST, "hypothetical": [{"cores": c, "rows": rows} for c, rows in shares.items()]}
        return {"seconds": seconds(words), "steps": 1}

    monkeypatch.setattr(md.alone, "run_md", run)
    return runs


def claims_of(report: Report) -> dict[str, Claim]:
    return {claim.claim: claim for claim in report.claims}


def test_divergence_is_compared_by_pairs_of_seeds(monkeypatch: pytest.MonkeyPatch):
    assert md.offloaded.TDR_SEEDS == 30
    base = {seed: 1e-3 * (1 + seed) for seed in range(30)}  # seeds differ by far more than modes do

    def rates(words: list[str], _core: str) -> dict[str, Any]:
        assert word_after(words, "--seeds") == "30"
        rows = [
            {"mode": mode, "skin": 0.2, "interval": 10, "seed": seed, "tdr": sign * rate * factor}
            for seed, rate in base.items()
            for mode, sign, factor in (("none", 1, 1.0), ("force", -1, 1.1 + 0.01 * (seed % 3)), ("list", 1, 1.0))
        ]
        exact = [{**row, "interval": 1, "tdr": 1e-18} for row in rows]  # rounding: no ratio
        return {"rates": [*rows, *exact]}

    monkeypatch.setattr(md.offloaded, "run_md", rates)
    report = Report("md")
    md.offloaded.measure_divergence(report, 0, 8, 1000, (0.2,), md.offloaded.TDR_SEEDS, (1, 10))
    claim = claims_of(report)["md.tdr_ratio"]
    assert claim.value == pytest.approx(1.11, abs=0.005) and claim.holds
    assert claim.interval is not None
    low, high = claim.interval
    assert 1.1 <= low < claim.value < high <= 1.12  # although means of 30 seeds differ by a fifth
    assert claim.detail == "the worst of all: force, skin 0.2, interval 10"


def test_the_best_mode_of_a_card_is_that_of_the_size_it_is_used_at(monkeypatch: pytest.MonkeyPatch):
    turns: Counter[str] = Counter()

    def seconds(words: list[str]) -> float:
        mode = word_after(words, "--offload")
        if word_after(words, "-s") == "20":  # there `force` is the fastest
            return {"none": 1.0, "force": 0.5, "list": 0.9, "share": 0.8}[mode] + (word_after(words, "--skin") != "0.4")
        turns[mode] += 1
        if mode == "none":
            return 1.0 + (word_after(words, "--skin") != "0.2")
        # By the mean `list` is slower than the host alone, by the median it is the fastest that auto may choose.
        return {"force": 0.1, "list": 90.0 if turns["list"] == 1 else 0.8, "share": 0.9, "auto": 0.8}[mode]

    runs = fake_runs(monkeypatch, seconds)

    @contextmanager
    def quota(share: float) -> Any:
        yield ["quota"]

    monkeypatch.setattr(md.alone, "bluefield_quota", quota)
    monkeypatch.setattr(md.alone, "agent_with_functions", lambda *_: nullcontext(SimpleNamespace(address="")))
    report = Report("md")
    md.alone.measure_card(report, (0, 1), (20, 60, 3), (10, 2000, 5))
    claims = claims_of(report)
    best = claims["md.auto_vs_best_card"]
    assert best.detail == "list; 4000 atoms; 2000 steps with the cost of finding out" and best.ratio == 1.0
    assert str(claims["md.force_vs_alone_card"].detail).startswith(
        "32000 atoms; the model says 0.714, and a gain from 0.60 of a core on"
    )
    assert claims["md.list_vs_alone_half"].detail == (
        "32000 atoms; the model says 0.500, and no gain at any share of a core"
    )
    share = claims["md.share_vs_alone_card"]
    assert (share.detail, share.target, share.ratio) == ("32000 atoms", ">= 1.03", 1.25)
    longer = [name for name, claim in claims.items() if "a step longer" in str(claim.detail)]
    assert longer == ["md.force_vs_alone_card", "md.force_vs_alone_half"]
    assert "skin 0.2, its fastest of 0.2-0.5" in str(claims["md.auto_vs_alone_card"].peer)
    assert "skin 0.4, its fastest of 0.2-0.5" in str(claims["md.force_vs_alone_card"].peer)
    compared = [words for _, words in runs if word_after(words, "--offload") in ("force", "list", "share", "auto")]
    assert {(word_after(w, "-s"), word_after(w, "--skin")) for w in compared} == {("20", "0.4"), ("10", "0.2")}


def test_auto_is_compared_with_the_best_and_with_the_host_alone_in_every_point(monkeypatch: pytest.MonkeyPatch):
    """`list` is the best; auto reaches it but at 4,000 atoms and an interval of 5, where it is slower than any."""
    runs: Counter[tuple[str, str, str]] = Counter()

    def run(words: list[str], _cores: str, _address: str) -> dict[str, Any]:
        mode, interval, steps = (word_after(words, option) for option in ("--offload", "--every", "-n"))
        runs[mode, interval, steps] += 1
        seconds = {"none": 1.0, "force": 0.95, "list": 0.8, "auto": 0.8}[mode]
        if mode == "auto" and interval == "5" and word_after(words, "-s") == "10":
            seconds = 1.25
        phases = {f"{name}_s": 0.1 for name in md.offloaded.PHASES}
        return {"seconds": seconds * int(steps), "steps": int(steps), **phases}

    monkeypatch.setattr(md.offloaded, "run_md", run)
    report = Report("md")
    md.offloaded.measure_auto(report, 0, "", ((10, 50, 2000, (1, 5)), (32, 50, 2000, (1,))))
    claims = claims_of(report)
    best, alone = claims["md.auto_vs_best"], claims["md.auto_vs_alone"]
    assert (best.value, best.holds, best.target) == (pytest.approx(0.64), False, ">= 0.95")
    assert (alone.value, alone.holds, alone.target) == (pytest.approx(0.8), False, ">= 0.97")
    assert best.detail == alone.detail == "worst of all: 4000 atoms, interval 5, 2000 steps"
    # Three turns at 4,000 atoms, one at 131,072; the host alone runs long although it is far from the best.
    assert {key: n for key, n in runs.items() if key[2] == "2000"} == {
        (mode, interval, "2000"): turns for mode in ("none", "list", "auto") for interval, turns in (("1", 4), ("5", 3))
    }
    assert all(size[2] == 2000 for size in md.offloaded.SIZES)
    assert [size[0] for size in md.offloaded.SIZES] == [10, 20, 32, 60]  # 4,000 to 864,000 atoms


@pytest.mark.parametrize("there", [{0, 1}, {0, 1, 2, 3}])
def test_two_host_cores_are_shown_where_there_are_three(monkeypatch: pytest.MonkeyPatch, there: set[int]):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: there)
    runs = fake_runs(monkeypatch, lambda words: 1.0)
    report = Report("md")
    md.alone.measure_alone(report, (0, 1), "", 8, 30, 2)
    claims = claims_of(report)
    note = "do not fit this machine"
    # 12 of a step alone: forces are hidden in one of eight steps, all lists but for one of 24 with wider bins.
    assert "an agent of any speed comes to 1.091 at most" in str(claims["md.force_vs_alone"].detail)
    assert "an agent of any speed comes to 1.000 at most" in str(claims["md.list_vs_alone"].detail)
    assert claims["md.share_vs_alone"].target == ">= 1.1"
    assert "at most" not in str(claims["md.share_vs_alone"].detail)
    if len(there) == 2:
        assert note in str(claims["md.list_vs_alone"].detail)
        assert "md.list_vs_alone_two_cores" not in claims
        return
    assert note not in str(claims["md.list_vs_alone"].detail)
    assert claims["md.list_vs_alone_two_cores"].target is None
    assert claims["md.force_vs_alone_two_cores"].pairs == 2
    assert {cores for cores, words in runs if word_after(words, "-t") == "2"} == {"0,2"}


def test_the_knee_of_the_agents_threads_is_told_and_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With half of the work parallel, `force` needs 3 threads for the work that the host waits for, `list` one."""

    def model(words: list[str], _core: str, _address: str) -> dict[str, Any]:
        assert word_after(words, "--agent-cores") == "1,2,3,4,5,6,7,8"
        assert word_after(words, "--agent-parallel") == "0.500"
        return {
            "hypothetical": [
                {"cores": n, "rows": [{"mode": "force", "predicted_s": max(0.0067, 0.01 * (0.5 + 0.5 / n))},
                                      {"mode": "list", "predicted_s": 0.005}]}
                for n in range(1, 9)
            ]
        }  # fmt: skip

    monkeypatch.setattr(md.offloaded, "run_md", model)
    report = Report("md")
    md.offloaded.add_knee(report, (10, 200), 0.5, 0, "")
    (claim,) = report.claims
    assert (claim.claim, claim.value) == ("md.agent_threads_enough", 3)
    assert str(claim.detail).startswith("force; list 1; 4000 atoms")
    assert [path.name for path in md.figures.draw(report, tmp_path)] == ["fig14_knee.png"]
    alone = Report("md")
    md.offloaded.add_knee(alone, (10, 200), None, 0, "")
    assert alone.claims[0].value is None and "no core each" in str(alone.claims[0].why)


FUNCFL = """copper
29 63.55 3.615 FCC
5 0.1 6 0.5 2.5
1 2 3 4
5 10 20 30 40
50 60 100 200 300
400 500 600
"""


def test_one_element_is_one_of_two_in_a_table_for_pairs():
    lines = md.two_elements(FUNCFL).splitlines()
    assert lines[3:6] == ["2 Cu Cu2", "4 0.1 5 0.5 2.5", "29 63.55 3.615 FCC"]
    of_one = ["1.0", "2.0", "3.0", "4.0", "100.0", "200.0", "300.0", "400.0", "500.0"]
    assert lines[6:15] == of_one and lines[16:25] == of_one
    pair = [27.2 * 0.529 * z * z for z in (10.0, 20.0, 30.0, 40.0, 50.0)]
    assert [float(line) for line in lines[25:]] == 3 * pair


def zone(folder: Path, name: str, energy_uj: int) -> None:
    folder.mkdir(exist_ok=True)
    for file, text in (("name", name), ("energy_uj", str(energy_uj)), ("max_energy_range_uj", "100000000")):
        (folder / file).write_text(f"{text}\n")


def test_energy_is_that_of_the_steps_of_all_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """7 J a run and 2 J a step, of which a second package has a half; other zones do not count; counters wrap."""
    monkeypatch.setattr(md.offloaded, "RAPL", tmp_path)
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

    monkeypatch.setattr(md.offloaded, "run_md", run)
    write()
    report = Report("md")
    md.offloaded.add_energy(report, "4000/none", (10, 20), "none", [1, 5], 0, "")
    (line,) = report.series
    assert line.y == pytest.approx([2, 2])


def test_energy_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(md.offloaded, "RAPL", tmp_path)
    report = Report("md")
    md.offloaded.add_energy(report, "4000/none", (10, 20), "none", [1], 0, "")
    zone(tmp_path / "intel-rapl:2", "psys", 0)
    md.offloaded.add_energy(report, "4000/none", (10, 20), "none", [1], 0, "")
    assert report.series == []


DUMP = """ITEM: TIMESTEP
{step}
ITEM: ATOMS id type x y z vx vy vz fx fy fz
1 1 0 0 0 1 1 1 2 2 {force}
"""


@pytest.mark.parametrize(("velocity", "force"), [(1.0, 2.000001), (1.000001, 2.0), (1.0, 2.0)])
def test_atoms_of_ranks_agree_by_velocity_and_force_of_each(tmp_path: Path, velocity: float, force: float):
    """Of two atoms at two steps, one at one step; step 0, the lattice, does not count."""
    row = "{id} 1 0 0 0 {v} 1 1 2 2 {f}\n"

    def dumped(name: str, v: float, f: float) -> dict[int, Any]:
        path = tmp_path / name
        head = DUMP.partition("1 1 0")[0]
        text = head.format(step=0) + row.format(id=1, v=9 * v, f=f) + row.format(id=2, v=1, f=2)
        text += head.format(step=50) + row.format(id=1, v=1, f=2) + row.format(id=2, v=1 + 1e-10, f=2)
        text += head.format(step=100) + row.format(id=1, v=v, f=f) + row.format(id=2, v=1, f=2)
        path.write_text(text)
        return md.ranks.atoms_of(path)

    share = md.ranks.share_alike(dumped("ranks", velocity, force), dumped("one", 1.0, 2.0))
    assert share == (1.0 if (velocity, force) == (1.0, 2.0) else 0.75)


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
        phases = {f"{phase}_s": 0.1 * steps for phase in md.exchange.PHASES}
        forces = 0 if idle and path else steps
        return {"seconds": steps * (2.0 if way == "host" else 1.0), "steps": steps, "exchange": way,
                "forces_by_agent": forces, "force_steps": {"count": steps, **phases}}  # fmt: skip

    def agent(_core: int, workers_wanted: int) -> nullcontext[SimpleNamespace]:
        workers.append(workers_wanted)
        return nullcontext(SimpleNamespace(address=""))

    monkeypatch.setattr(md.exchange, "run_md", run)
    monkeypatch.setattr(md.exchange, "find_mpirun", lambda: "mpirun")
    monkeypatch.setattr(md.exchange, "agent_with_functions", lambda core, workers: agent(core, workers))
    report = Report("md")
    if idle:  # the compared runs must be what they are named for
        with pytest.raises(ProgramError, match="forces were not exchanged"):
            md.exchange.measure_exchange(report, (0, 1), False)
        return
    md.exchange.measure_exchange(report, (0, 1), False)
    assert workers == [8]
    assert turns[:4] == ["agent", "host", "host", "agent"] and len(turns) == 42
    claims = claims_of(report)
    faster = claims["md.exchange_by_agents"]
    assert (faster.value, faster.peer_value, faster.ratio, faster.pairs) == (1e3, 2e3, 2.0, 21)
    same = claims["md.exchange_atoms_agree"]
    assert (same.value, same.holds) == ((0, False) if differs else (100, True))
    assert {line.name.partition("/")[2]: line.y for line in report.series} == dict.fromkeys(
        md.exchange.WAYS, pytest.approx([100.0] * len(md.exchange.PHASES))
    )
    assert [path.name for path in md.ranks_figures.draw(report, tmp_path)] == ["fig10_exchange.png"]


def mdbench(folder: Path, name: str, half_lists: str, full_lists: str = "") -> str:
    """A program that prints these rates, in millions a second."""
    path = folder / name
    path.write_text(
        f"#!/bin/sh\necho $0 $* >> {folder}/calls\n"
        f'case "$*" in *-half\\ 1) rate={half_lists};; *) rate={full_lists or half_lists};; esac\n'
        'echo "Performance: $rate million atom updates per second"\n'
    )
    path.chmod(0o755)
    return str(path)


def test_the_fastest_mdbench_of_each_precision_is_the_peer(tmp_path: Path):
    slow = mdbench(tmp_path, "MDBench-VL-GCC-X86-AVX2-DP", "4.00")
    fast = mdbench(tmp_path, "MDBench-CP-CLANG-X86-AVX512-DP", "5.00", "4.50")
    single = mdbench(tmp_path, "MDBench-VL-GCC-X86-AVX512-SP", "8.00", "7.00")
    report = Report("md")
    rates = {"double": 6e6, "mixed": 8e6}
    md.bench_peer.measure(report, 0, (10, 20, 21), rates.__getitem__, [slow, fast, single])
    double, mixed = report.claims
    assert (double.claim, double.value, double.peer_value) == ("md.vs_mdbench", 6e6, 5e6)
    assert (double.ratio, double.holds, double.pairs) == (1.2, True, 21)
    assert double.detail is not None
    assert double.detail.startswith("MDBench-CP-CLANG-X86-AVX512-DP -half 1")
    assert double.detail.endswith("the fastest of 4")
    assert (mixed.claim, mixed.ratio, mixed.holds) == ("md.mixed_vs_mdbench", 1.0, False)
    calls = Counter((tmp_path / "calls").read_text().splitlines())
    words = "-nx 10 -ny 10 -nz 10 -n 20"
    assert calls == {
        **{f"{each} {words} -half {half}": 3 for each in (slow, fast, single) for half in (0, 1)},
        **{f"{each} {words} -half 1": 24 for each in (fast, single)},
    }


def test_what_is_no_mdbench_is_refused(tmp_path: Path):
    report = Report("md")
    md.bench_peer.measure(report, 0, (10, 20, 1), lambda _: 1.0, [])
    assert [claim.holds for claim in report.claims] == [False, False]
    assert all("--peer-program" in (claim.why or "") for claim in report.claims)
    other = mdbench(tmp_path, "lmp", "4.00")
    silent = mdbench(tmp_path, "MDBench-VL-GCC-X86-SSE-SP", "0.00")
    for path, said in ((tmp_path / "none", "no such file"), (other, "names like"), (silent, "tells no rate")):
        with pytest.raises(ProgramError, match=said):
            md.bench_peer.measure(report, 0, (10, 20, 1), lambda _: 1.0, [str(path)])


def test_a_peer_names_its_commit_and_its_compilers_options(tmp_path: Path):
    (tmp_path / "Makefile").write_text("include make/$(TOOLCHAIN).mk\nCFLAGS = $(OPTS) -D$(DATA_TYPE)=$(OPT_SCHEME)\n")
    (tmp_path / "make").mkdir()
    (tmp_path / "make" / "GCC.mk").write_text("OPTS = -O3 -m$(SIMD)\n")
    program, _ = md.bench_peer.programs_of([mdbench(tmp_path, "MDBench-CP-GCC-X86-AVX512-SP", "1")])
    assert program.about() == "MDBench-CP-GCC-X86-AVX512-SP -half 0, -O3 -mAVX512 -DSP=clusterpair"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "--no-verify", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert program.about().startswith(f"MDBench-CP-GCC-X86-AVX512-SP -half 0, commit {commit[:7]}, -O3")
