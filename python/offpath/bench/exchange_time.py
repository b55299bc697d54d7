"""Exchange time, in figures: between MPI's ranks on this machine, the tree with a deadline beside the collectives of
the paper; and of 16 to 1600 members by the LogGP model, with what each of its constants does to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from . import figures
from .md_ranks import find_mpirun
from .programs import ProgramError, find_program, run_program
from .report import Claim, Report, Series

RANKS = (2, 4, 8, 16)
SIZES = {48: "48 B", 65536: "64 KiB"}
TARGET = 1.0  # times as fast as the collectives
RUN_S = 170


def measure_ranks(report: Report, quick: bool) -> None:
    mpirun = find_mpirun()
    program = find_program("bench_exchange_mpi")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for ranks in RANKS[:2] if quick else RANKS:
        rounds = 20 if quick else 1000 if ranks <= 4 else 300
        command = [mpirun, "--oversubscribe", "-n", str(ranks), str(program), str(rounds)]
        done = subprocess.run(command, env={**os.environ, **allowed}, capture_output=True, text=True, check=False,
                              timeout=RUN_S)  # fmt: skip
        if done.returncode != 0:
            raise ProgramError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
        for line in done.stdout.splitlines():
            fields = line.split(";")
            if len(fields) != 9:
                continue
            shape, size, pairs = fields[0], int(fields[1]), int(fields[5])
            tree_us, peer_us = float(fields[3]), float(fields[4])
            ratio, low, high = (float(field) for field in fields[6:])
            report.claims.append(Claim(f"exchange.time_us ({shape}, {SIZES[size]}, {ranks} ranks)", tree_us, "us",
                                       "MPI collectives", peer_us, ratio, f">= {TARGET:g}", ratio >= TARGET,
                                       [low, high], pairs))  # fmt: skip
            for name, us in ((f"{shape}, deadline", tree_us), (f"{shape}, collectives", peer_us)):
                extend(report, f"exchange_ranks_{size}", name, ranks, us)


def extend(report: Report, figure: str, name: str, x: float, y: float) -> None:
    for line in report.series:
        if (line.figure, line.name) == (figure, name):
            line.x.append(x)
            line.y.append(y)
            return
    report.series.append(Series(figure, name, "ranks", "us", [x], [y]))


def draw(report: Report, out: Path) -> Path:
    picture, axes = figures.new_figure(2, 3)
    for row, (size, text) in enumerate(SIZES.items()):
        for column, (figure, title) in enumerate((("ranks", "MPI's ranks on this machine"), ("time", "by LogGP"))):
            place = axes[row][column]
            colours: dict[str, str] = {}  # of a topology, by deadline and by collectives
            for line in figures.lines_of(report, f"exchange_{figure}_{size}"):
                shape = line.name.removesuffix(", deadline").removesuffix(", collectives")
                colour = colours.setdefault(shape, f"C{len(colours)}")
                style = "--" if "collectives" in line.name else "-"
                place.plot(line.x, line.y, style, color=colour, marker="o", markersize=3, label=line.name)
            place.set(xscale="log", yscale="log", xlabel="members", ylabel="exchange time (us)",
                      title=f"{title}, {text}")  # fmt: skip
            ticks = sorted({x for line in place.lines for x in line.get_xdata()})
            place.set_xticks(ticks, [f"{x:g}" for x in ticks])
            place.minorticks_off()
            place.yaxis.set_major_formatter("{x:g}")
            place.grid(alpha=0.3)
            if place.lines:
                place.legend(fontsize=7)
        place = axes[row][2]
        lines = figures.lines_of(report, f"exchange_sensitivity_{size}")
        for i, line in enumerate(lines):
            place.bar([x + 0.16 * i for x in line.x], line.y, 0.16, label=line.name)
        place.set_xticks([x + 0.3 for x in range(4)], ["L latency", "o overhead", "g gap", "G per byte"])
        place.set(ylim=(0.9, 2.1), ylabel="times as long with twice the constant", title=f"sensitivity, {text}")
        if lines:
            place.legend(fontsize=7)
    return figures.save(picture, out, "exchange_time")


PARTS = ("ranks", "model")


def run(report: Report, out: Path, quick: bool, console: Console, loggp: str = "",
        parts: Sequence[str] = PARTS) -> None:  # fmt: skip
    if not set(PARTS) & set(parts):
        return
    before = len(report.claims)
    if "ranks" in parts:
        with console.status("exchange time between ranks"):
            try:
                measure_ranks(report, quick)
            except ProgramError as error:
                report.add_unmeasured([("exchange.time_us (MPI)", "us", f">= {TARGET:g}")], str(error))
    if "model" in parts:
        with console.status("exchange time by LogGP"):
            arguments = [*(["--quick"] if quick else []), *(["--loggp", loggp] if loggp else [])]
            report.absorb(run_program("bench_exchange_time", arguments))
    shown = Report("exchange", claims=report.claims[before:])
    shown.conclude(console, quick=quick)
    console.print(f"drawn: {draw(report, out)}")
