"""The gain of molecular dynamics from an agent: the claims of ``offpath bench md`` on its modes, and the series of the
figures of "Smarter NICs for faster molecular dynamics" (2022).

The host program has one core, the agent another one of the same kind: the paper's "auxiliary node". A gain is its
equation (2), (baseline - off-path) / baseline.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles
from typing import Any

from ..intervals import median_interval
from ..report import Claim, Report, Series
from .run import run_md

INTERVALS = (1, 5, 10, 20)
MODES = ("none", "force", "list")
PHASES = ("force", "neighbour", "sort", "communicate", "integrate")
SHARES = (*PHASES, "other")  # other: set-up of a run, its output, and the time another program had the core
# Cells, steps that rank the modes, steps of the best of them, the host alone and auto (2,000, with the cost of finding
# out), intervals at which auto is compared. 864,000 atoms take half an hour so.
AutoSize = tuple[int, int, int, tuple[int, ...]]
SIZES: tuple[AutoSize, ...] = (
    (10, 300, 2000, INTERVALS),
    (20, 100, 2000, INTERVALS),
    (32, 60, 2000, INTERVALS),
    (60, 20, 2000, (INTERVALS[0], INTERVALS[-1])),
)
QUICK_SIZES: tuple[AutoSize, ...] = ((6, 20, 60, INTERVALS), (8, 20, 60, INTERVALS))
TDR_SKINS, TDR_SEEDS, TDR_INTERVALS = (0.2, 0.3, 0.4), 30, (1, 10, 20)
RESAMPLED = 2000
# alone.py has the peers that one would run.
PAPERS = "the paper's peers: one core with lists at every step, and others that it names"
THREADS = (1, 2)  # of host and agent
AGENT_THREADS = tuple(range(1, 9))  # for which the model predicts the knee
ENOUGH = 1.01  # the knee: more threads win less than this
RAPL = Path("/sys/class/powercap")
ROUNDING = 1e-9  # temperature a step: sums in another order come to less in 1000 steps


def gain(baseline_s: float, seconds: float) -> float:
    """The paper's equation (2), in percent."""
    return 100 * (baseline_s - seconds) / baseline_s


def seconds_of(report: dict[str, Any]) -> float:
    """Of a step."""
    return report["seconds"] / report["steps"]


def measure_gains(report: Report, cores: tuple[int, int], address: str, cells: int, steps: int, rounds: int) -> None:
    host, agent = cores
    size = ["-s", str(cells), "-n", str(steps), "--thermo", "0"]
    runs: dict[str, tuple[list[str], str]] = {
        "none": (["--every", "1"], str(host)),
        "force": (["--every", "1", "--offload", "force"], str(host)),
        "list": (["--offload", "list"], str(host)),
        "interval 20": (["--every", "20"], str(host)),
        "displacement": (["--every", "1", "--trigger", "displacement"], str(host)),
        "two cores": (["--every", "1", "-t", "2"], f"{host},{agent}"),
    }
    times: dict[str, list[float]] = defaultdict(list)
    bounds: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for name in list(runs) if number % 2 else reversed(list(runs)):
            words, where = runs[name]
            times[name].append(seconds_of(run_md([*size, *words], where, address)))
        model = run_md(["model", *size, "--intervals", "1", "--measure", "0"], str(host), address)
        predicted = {row["mode"]: row["predicted_s"] for row in model["rows"]}
        for mode in ("force", "list"):
            bounds[mode].append(gain(predicted["none"], predicted[mode]))
    for mode, name in (("force", "formula (3)"), ("list", "its counterpart for lists")):
        gains = [gain(alone, seconds) for alone, seconds in zip(times["none"], times[mode], strict=True)]
        # Where the bound says that there is nothing to gain, nothing can be held to it.
        ratios = [reached / bound if bound > 0 else 0.0 for reached, bound in zip(gains, bounds[mode], strict=True)]
        ratio = median(ratios)
        report.claims.append(
            Claim(
                f"md.{mode}_mode_gain",
                median(gains),
                "%",
                name,
                median(bounds[mode]),
                ratio,
                ">= 0.8",
                ratio >= 0.8,
                median_interval(ratios),
                rounds,
                detail=PAPERS,
            )
        )
    for peer in ("interval 20", "displacement", "two cores"):
        ratios = [other / ours for other, ours in zip(times[peer], times["list"], strict=True)]
        ratio = median(ratios)
        report.claims.append(
            Claim(
                f"md.list_mode_vs_{peer.replace(' ', '_')}",
                1e3 * median(times["list"]),
                "ms a step",
                peer,
                1e3 * median(times[peer]),
                ratio,
                holds=True,
                interval=median_interval(ratios),
                pairs=rounds,
                detail=PAPERS,
            )
        )


def measure_auto(report: Report, core: int, address: str, sizes: tuple[AutoSize, ...]) -> None:
    """Short runs rank the modes; the best (those within a tenth of the best), the host alone and auto run long, in
    turns."""
    worst: dict[str, tuple[list[float], str]] = {}  # against what -> ratios of the turns at the worst point, and where
    phases = []
    for cells, short, long, compared in sizes:
        atoms = 4 * cells**3
        found: dict[tuple[str, int], float] = {}
        for interval in INTERVALS:
            words = ["-s", str(cells), "--every", str(interval), "--thermo", "0"]
            for mode in MODES:
                one = run_md([*words, "-n", str(short), "--offload", mode], str(core), address)
                found[mode, interval] = seconds_of(one)
                if mode == "none":
                    phases.append((atoms, interval, one))
            if interval not in compared:
                continue
            best = min(found[mode, interval] for mode in MODES)
            near = [mode for mode in MODES if found[mode, interval] < 1.1 * best]
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(3 if cells <= 20 else 1):
                for mode in dict.fromkeys((*near, "none", "auto")):
                    one = run_md([*words, "-n", str(long), "--offload", mode], str(core), address)
                    times[mode].append(seconds_of(one))
            ratios = [min(times[mode][turn] for mode in near) / seconds for turn, seconds in enumerate(times["auto"])]
            beside = {
                "best": ratios,
                "alone": [one / auto for one, auto in zip(times["none"], times["auto"], strict=True)],
            }
            report.series.append(
                Series("md_auto", f"{atoms} atoms", "interval", "best / auto", [interval], [median(ratios)])
            )
            for peer, each in beside.items():
                if peer not in worst or median(each) < median(worst[peer][0]):
                    worst[peer] = each, f"{atoms} atoms, interval {interval}, {long} steps"
        for mode in ("force", "list"):
            gains = [gain(found["none", interval], found[mode, interval]) for interval in INTERVALS]
            report.series.append(Series("md_fig11", f"{mode}, {atoms} atoms", "interval", "%", [*INTERVALS], gains))
    for name, peer, against, target in (
        ("md.auto_vs_best", "best", "the best mode", 0.95),
        ("md.auto_vs_alone", "alone", "the host alone", 0.97),
    ):
        ratios, at = worst[peer]
        ratio = median(ratios)
        report.claims.append(
            Claim(name, ratio, "", against, None, ratio, f">= {target:g}", ratio >= target, median_interval(ratios),
                  len(ratios), detail=f"worst of all: {at}")
        )  # fmt: skip
    add_phases(report, phases)


def phase_shares(one: dict[str, Any]) -> dict[str, float]:
    """Percent of a run's time, of the host alone: each phase, and ``other``, which no phase counts. 100 in all."""
    parts = {name: one[f"{name}_s"] for name in PHASES}
    parts["other"] = max(0.0, one["seconds"] - sum(parts.values()))
    total = sum(parts.values())
    return {name: 100 * part / total for name, part in parts.items()}


def add_phases(report: Report, phases: list[tuple[int, int, dict[str, Any]]]) -> None:
    """Figures 7 (where the time of the host alone goes) and 12 (the gain if all communication were hidden)."""
    for atoms, interval, one in phases:
        shares = phase_shares(one)
        name = f"{atoms} atoms, interval {interval}"
        report.series.append(Series("md_fig7", name, "phase", "%", [*range(len(shares))], [*shares.values()]))
        hidden = Series("md_fig12", f"{atoms} atoms", "interval", "%", [interval], [shares["communicate"]])
        report.series.append(hidden)


def package_counters() -> dict[Path, float] | None:
    """The energy counters of the processor packages, in joules; None where they are not readable."""
    try:
        zones = [
            each for each in sorted(RAPL.glob("intel-rapl:*")) if (each / "name").read_text().startswith("package")
        ]
        return {zone: int((zone / "energy_uj").read_text()) / 1e6 for zone in zones} or None
    except (OSError, ValueError):
        return None


def joules_between(before: dict[Path, float], after: dict[Path, float]) -> float:
    """Of all packages; a counter that begins again does so at most once between."""
    spent = 0.0
    for zone, joules in after.items():
        used = joules - before[zone]
        spent += used if used >= 0 else used + int((zone / "max_energy_range_uj").read_text()) / 1e6
    return spent


def joules_of(words: list[str], core: int, address: str) -> float | None:
    """The energy of the machine during a run; None if it is not readable."""
    before = package_counters()
    run_md(words, str(core), address)
    after = package_counters()
    return None if before is None or after is None else joules_between(before, after)


def add_energy(
    report: Report, name: str, size: tuple[int, int], mode: str, intervals: list[float], core: int, address: str
) -> None:
    """Joules of a step of the whole machine, as measured; nothing where that cannot be. Start and end of a program are
    the same for twice as many steps, so the difference is that of the steps."""
    if package_counters() is None:
        return
    cells, steps = size
    joules = []
    for interval in intervals:
        words = ["-s", str(cells), "--thermo", "0", "--every", f"{interval:g}", "--offload", mode]
        once, twice = (joules_of([*words, "-n", str(n)], core, address) for n in (steps, 2 * steps))
        if once is None or twice is None:
            return
        joules.append((twice - once) / steps)
    report.series.append(Series("md_energy", name, "interval", "J a step", intervals, joules))


def add_threads(report: Report, size: tuple[int, int], cores: tuple[int, int], address: str) -> None:
    """Figure 14 of the paper: host threads times agent threads, lists at every step. Threads may be more than cores."""
    words = ["model", "-s", str(size[0]), "-n", str(size[1]), "--intervals", "1"]
    both = ",".join(map(str, dict.fromkeys(cores)))
    rows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for agent_threads in THREADS:
        for threads in THREADS:
            shape = ["-t", str(threads), "--agent_threads", str(agent_threads)]
            found = run_md([*words, *shape], both if threads > 1 else str(cores[0]), address)
            for row in found["rows"]:
                if row["mode"] != "none" or agent_threads == THREADS[0]:
                    rows[row["mode"], agent_threads].append(row)
    for (mode, agent_threads), of in rows.items():
        who = mode if mode == "none" else f"{mode}, {agent_threads} of the agent"
        for kind in ("measured", "predicted"):
            y = [1e3 * row[f"{kind}_s"] for row in of]
            name = f"{4 * size[0] ** 3}/{who}/{kind}"
            report.series.append(Series("md_fig14_threads", name, "host threads", "ms a step", [*THREADS], y))


def knee(threads: list[float], ms: list[float]) -> float:
    """The fewest threads with which a step is as fast as with any number of them, but for ENOUGH."""
    return next(n for n, each in zip(threads, ms, strict=True) if each <= ENOUGH * min(ms))


def add_knee(report: Report, size: tuple[int, int], share: float | None, core: int, address: str) -> None:
    """Figure 14 by threads of the agent, lists at every step, by the model. From the knee on a step waits for nothing
    of the agent's: it has forces before the host has made lists, or lists before they are due. ``share``: of the
    agent's work, the part that its threads divide."""
    name = "md.agent_threads_enough"
    if share is None:
        report.add_unmeasured([(name, "threads", None)], "two threads have no core each, which the model is fitted to")
        return
    words = ["model", "-s", str(size[0]), "-n", str(size[1]), "--intervals", "1", "--measure", "0",
             "--agent-cores", ",".join(map(str, AGENT_THREADS)), "--agent-parallel", f"{share:.3f}"]  # fmt: skip
    found = run_md(words, str(core), address)["hypothetical"]
    knees = {}
    for mode in ("force", "list"):
        y = [1e3 * next(row["predicted_s"] for row in one["rows"] if row["mode"] == mode) for one in found]
        x = [float(one["cores"]) for one in found]
        atoms = 4 * size[0] ** 3
        report.series.append(Series("md_fig14_knee", f"{atoms}/{mode}", "agent threads", "ms a step", x, y))
        knees[mode] = knee(x, y)
    told = f"force; list {knees['list']:g}; {atoms} atoms, by the model, {share:.2f} of the agent's work is parallel"
    report.claims.append(Claim(name, knees["force"], "threads", holds=True, detail=told))


def parallel_share(cells: int, steps: int, cores: tuple[int, int]) -> float | None:
    """By Amdahl's law, of forces and lists by one thread and by two; None where two have no cores."""
    if cores[0] == cores[1]:
        return None
    words = ["-s", str(cells), "-n", str(steps), "--every", "1", "--thermo", "0"]
    one, two = (
        sum(run_md([*words, "-t", str(n)], where)[f"{part}_s"] for part in ("force", "neighbour"))
        for n, where in ((1, str(cores[0])), (2, f"{cores[0]},{cores[1]}"))
    )
    return min(1.0, max(0.01, 2 * (1 - two / one)))


def measure_model(report: Report, cores: tuple[int, int], address: str, sizes: tuple[tuple[int, int], ...]) -> None:
    core = cores[0]
    errors = []
    for cells, steps in sizes:
        words = ["model", "-s", str(cells), "-n", str(steps), "--agent-cores", "1,2,4,8"]
        found = run_md(words, str(core), address)
        atoms = 4 * cells**3
        for mode in MODES:
            rows = [row for row in found["rows"] if row["mode"] == mode]
            x = [row["interval"] for row in rows]
            for kind in ("measured", "predicted"):
                y = [1e3 * row[f"{kind}_s"] for row in rows]
                report.series.append(Series("md_fig14", f"{atoms}/{mode}/{kind}", "interval", "ms a step", x, y))
            add_energy(report, f"{atoms}/{mode}", (cells, steps), mode, x, core, address)
            if mode != "none":
                errors += [100 * abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]
        # Another agent: its cores half, a quarter as fast as this one's; the share of its work that is parallel is
        # that of the host's threads.
        share = parallel_share(cells, steps, cores)
        for speed in (1, 0.5, 0.25) if share is not None else ():
            other = run_md(
                [*words, "--measure", "0", "--agent-speed", str(speed), "--agent-parallel", f"{share:.3f}"],
                str(core),
                address,
            )
            for mode in ("force", "list"):
                y = [
                    1e3 * next(r["predicted_s"] for r in one["rows"] if r["mode"] == mode and r["interval"] == 1)
                    for one in other["hypothetical"]
                ]
                x = [one["cores"] for one in other["hypothetical"]]
                name = f"{atoms}/{mode}, cores of {speed:g}"
                report.series.append(Series("md_fig15", name, "agent's cores", "ms a step", x, y))
    add_threads(report, sizes[-1], cores, address)
    add_knee(report, sizes[-1], share, core, address)
    report.claims.append(
        Claim("md.model_error", median(errors), "%", target="<= 10 %", holds=median(errors) <= 10, pairs=len(errors))
    )
    p90 = quantiles(errors, n=10)[-1]
    report.claims.append(Claim("md.model_error_p90", p90, "%", target="<= 20 %", holds=p90 <= 20, pairs=len(errors)))


def ratio_of_means(ours: list[float], base: list[float]) -> tuple[float, list[float]]:
    """The ratio, and its 95 % interval by resampling the pairs of seeds."""
    pairs = list(zip(ours, base, strict=True))
    resampling = Random(1)
    ratios = []
    for _ in range(RESAMPLED):
        drawn = resampling.choices(pairs, k=len(pairs))
        ratios.append(sum(mine for mine, _ in drawn) / max(sum(other for _, other in drawn), ROUNDING))
    ratios.sort()
    interval = [ratios[round(share * (RESAMPLED - 1))] for share in (0.025, 0.975)]
    return sum(ours) / max(sum(base), ROUNDING), interval


def measure_divergence(
    report: Report, core: int, cells: int, steps: int, skins: tuple[float, ...], seeds: int, intervals: tuple[int, ...]
) -> None:
    """Off-path / baseline, of the mean magnitudes over the same seeds; where both are rounding there is no ratio."""
    words = ["tdr", "-s", str(cells), "-n", str(steps), "--skins", ",".join(map(str, skins)), "--seeds", str(seeds)]
    words += ["--intervals", ",".join(map(str, intervals))]
    rates: dict[tuple[str, float, float], dict[int, float]] = defaultdict(dict)
    for one in run_md(words, str(core))["rates"]:
        rates[one["mode"], one["skin"], one["interval"]][one["seed"]] = abs(one["tdr"])
    for mode, skin in sorted({(mode, skin) for mode, skin, _ in rates}):
        points = sorted(
            (interval, mean(of.values())) for (m, s, interval), of in rates.items() if (m, s) == (mode, skin)
        )
        x, y = [point[0] for point in points], [point[1] for point in points]
        report.series.append(Series("md_fig13", f"{mode}, skin {skin:g}", "interval", "|TDR|", x, y))
    worst, interval_of_worst, place = 0.0, [0.0, 0.0], ""
    for (mode, skin, interval), ours in rates.items():
        base = rates["none", skin, interval]
        if mode == "none" or max(*ours.values(), *base.values()) < ROUNDING:
            continue
        ratio, spread = ratio_of_means([ours[seed] for seed in sorted(ours)], [base[seed] for seed in sorted(ours)])
        if ratio > worst:
            worst, interval_of_worst, place = ratio, spread, f"{mode}, skin {skin:g}, interval {interval:g}"
    report.claims.append(
        Claim("md.tdr_ratio", worst, "", "the host alone", None, worst, "<= 1.2", worst <= 1.2, interval_of_worst,
              seeds, detail=f"the worst of all: {place}" if place else None)
    )  # fmt: skip
