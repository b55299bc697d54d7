"""What an agent is worth to molecular dynamics: the claims of ``offpath bench md`` on its modes, and the series of the
figures of "Smarter NICs for faster molecular dynamics" (2022).

The host program has one core, the agent another one of the same kind: the paper's "auxiliary node". A gain is its
equation (2), (baseline - off-path) / baseline.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import mean, median, quantiles, stdev
from typing import Any

from .md_run import run_md
from .pool import median_interval
from .report import Claim, Report, Series

INTERVALS = (1, 5, 10, 20)
MODES = ("none", "force", "list")
# Cells, steps that rank the modes, steps of the best of them and of auto.
SIZES = ((10, 300, 1500), (20, 100, 600), (32, 60, 400), (60, 20, 200))
QUICK_SIZES = ((6, 20, 60), (8, 20, 60))
TDR_SKINS, TDR_SEEDS = (0.2, 0.3, 0.4), 5
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
            )
        )


def measure_auto(report: Report, core: int, address: str, sizes: tuple[tuple[int, int, int], ...]) -> None:
    """Short runs rank the modes; the best two (those within a tenth of the best) and auto run long, in turns."""
    worst: list[float] = []  # of each turn, at the worst point
    worst_at, phases = "", []
    for cells, short, long in sizes:
        atoms = 4 * cells**3
        found: dict[tuple[str, int], float] = {}
        for interval in INTERVALS:
            words = ["-s", str(cells), "--every", str(interval), "--thermo", "0"]
            for mode in MODES:
                one = run_md([*words, "-n", str(short), "--offload", mode], str(core), address)
                found[mode, interval] = seconds_of(one)
                if mode == "none":
                    phases.append((atoms, interval, one))
            best = min(found[mode, interval] for mode in MODES)
            near = [mode for mode in MODES if found[mode, interval] < 1.1 * best]
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(3 if cells <= 20 else 1):
                for mode in (*near, "auto"):
                    one = run_md([*words, "-n", str(long), "--offload", mode], str(core), address)
                    times[mode].append(seconds_of(one))
            ratios = [min(times[mode][turn] for mode in near) / seconds for turn, seconds in enumerate(times["auto"])]
            ratio = median(ratios)
            report.series.append(Series("md_auto", f"{atoms} atoms", "interval", "best / auto", [interval], [ratio]))
            if not worst or ratio < median(worst):
                worst, worst_at = ratios, f"{atoms} atoms, interval {interval}"
        for mode in ("force", "list"):
            gains = [gain(found["none", interval], found[mode, interval]) for interval in INTERVALS]
            report.series.append(Series("md_fig11", f"{mode}, {atoms} atoms", "interval", "%", [*INTERVALS], gains))
    report.claims.append(
        Claim(
            "md.auto_vs_best",
            median(worst),
            "",
            "the best mode",
            None,
            median(worst),
            ">= 0.95",
            median(worst) >= 0.95,
            median_interval(worst),
            len(worst),
            detail=f"worst of all: {worst_at}",
        )
    )
    add_phases(report, phases)


def add_phases(report: Report, phases: list[tuple[int, int, dict[str, Any]]]) -> None:
    """Figures 7 (where the time of the host alone goes) and 12 (what hiding all communication would win)."""
    for atoms, interval, one in phases:
        parts = {name: one[f"{name}_s"] for name in ("force", "neighbour", "sort", "communicate", "integrate")}
        total = max(one["seconds"], sum(parts.values()))
        name = f"{atoms} atoms, interval {interval}"
        values = [100 * part / total for part in parts.values()]
        report.series.append(Series("md_fig7", name, "phase", "%", [*range(len(values))], values))
        report.series.append(
            Series("md_fig12", f"{atoms} atoms", "interval", "%", [interval], [100 * parts["communicate"] / total])
        )


def measure_model(report: Report, core: int, address: str, sizes: tuple[tuple[int, int], ...]) -> None:
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
            joules = [row["joules"] for row in rows]
            report.series.append(Series("md_energy", f"{atoms}/{mode}", "interval", "J a step", x, joules))
            if mode != "none":
                errors += [100 * abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]
        # Another agent: its cores half, a quarter as fast as this one's, and 80 % of its work in parallel.
        for speed in (1, 0.5, 0.25):
            other = run_md(
                [*words, "--measure", "0", "--agent-speed", str(speed), "--agent-parallel", "0.8"], str(core), address
            )
            for mode in ("force", "list"):
                y = [
                    1e3 * next(r["predicted_s"] for r in one["rows"] if r["mode"] == mode and r["interval"] == 1)
                    for one in other["hypothetical"]
                ]
                x = [one["cores"] for one in other["hypothetical"]]
                name = f"{atoms}/{mode}, cores of {speed:g}"
                report.series.append(Series("md_fig15", name, "agent's cores", "ms a step", x, y))
    report.claims.append(
        Claim("md.model_error", median(errors), "%", target="<= 10 %", holds=median(errors) <= 10, pairs=len(errors))
    )
    p90 = quantiles(errors, n=10)[-1]
    report.claims.append(Claim("md.model_error_p90", p90, "%", target="<= 20 %", holds=p90 <= 20, pairs=len(errors)))


def measure_divergence(report: Report, core: int, cells: int, steps: int, skins: tuple[float, ...], seeds: int) -> None:
    """Off-path / baseline where their magnitudes over the seeds are apart by more than these vary."""
    words = ["tdr", "-s", str(cells), "-n", str(steps), "--skins", ",".join(map(str, skins)), "--seeds", str(seeds)]
    rates: dict[tuple[str, float, float], list[float]] = defaultdict(list)
    for one in run_md(words, str(core))["rates"]:
        rates[one["mode"], one["skin"], one["interval"]].append(abs(one["tdr"]))
    for mode, skin in sorted({(mode, skin) for mode, skin, _ in rates}):
        points = sorted((interval, mean(of)) for (m, s, interval), of in rates.items() if (m, s) == (mode, skin))
        x, y = [point[0] for point in points], [point[1] for point in points]
        report.series.append(Series("md_fig13", f"{mode}, skin {skin:g}", "interval", "|TDR|", x, y))
    worst, place, beyond = 0.0, "", []
    for (mode, skin, interval), ours in rates.items():
        base = rates["none", skin, interval]
        if mode == "none" or max(*ours, *base) < ROUNDING:
            continue
        ratio = mean(ours) / max(mean(base), ROUNDING)
        where = f"{mode}, skin {skin:g}, interval {interval:g}"
        if ratio > worst:
            worst, place = ratio, where
        spread = (stdev(ours) + stdev(base)) if seeds > 1 else 0.0
        if ratio > 1.2 and mean(ours) - mean(base) > spread:
            beyond.append(f"{where}: {ratio:.3g}")
    report.claims.append(
        Claim(
            "md.tdr_ratio",
            worst,
            "",
            f"the host alone; worst: {place}",
            None,
            worst,
            "<= 1.2, or within the seeds' spread",
            not beyond,
            pairs=seeds,
            why="; ".join(beyond) or None,
        )
    )
