"""Exchange time, in figures: between MPI's ranks on this machine, the tree with a deadline beside the collectives of
the paper, for records of known and of unknown sizes; and of 16 to 1600 members by the LogGP model, with the influence
of each of its constants, with a card for each member and with cards that members share. Both also by the size of a
record, 48 B to 1 MiB."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..sizes import size_text
from . import figures
from .md.ranks import find_mpirun
from .programs import ProgramError, find_program, run_program
from .report import Claim, Report, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RANKS = (2, 4, 8, 16)
SIZES = {48: "48 B", 65536: "64 KiB"}
TARGET = 1.0  # times as fast as the collectives
RUN_S = 400
SHAPES = ("allgather", "neighbourhoods(2)", "grouped_allgather(2)", "hybrid(2, 3)")
SWEEP_RANKS = 8
SWEEP = (48, *(4**power for power in range(4, 11)))
SWEEP_ROUNDS = 100


@dataclass
class Row:
    """One topology and size between ranks: medians of the tree with a deadline, of the collectives, and of those for
    records whose sizes are not known, by turns. Both ratios are the collectives' time to that of another one."""

    shape: str
    size: int
    tree_us: float
    collectives_us: float
    pairs: int
    ratio: float
    interval: list[float]
    variable_us: float
    variable_ratio: float
    variable_interval: list[float]


def run_ranks(ranks: int, rounds: int, options: Sequence[str] = (), only: Sequence[str] = ()) -> list[Row]:
    """Of all topologies and sizes, or one: ``only`` is (topology, bytes). ``options`` are mpirun's.

    Raises ProgramError.
    """
    program = find_program("bench_exchange_mpi")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [find_mpirun(), "--oversubscribe", "-n", str(ranks), *options, str(program), str(rounds), *only]
    try:
        done = subprocess.run(command, env={**os.environ, **allowed}, capture_output=True, text=True, check=False,
                              timeout=RUN_S)  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{' '.join(command)} did not end within {RUN_S} s") from error
    if done.returncode != 0:
        raise ProgramError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    rows = []
    for line in done.stdout.splitlines():
        fields = line.split(";")
        if len(fields) == 13:
            size, _, tree_us, collectives_us, pairs, ratio, *others = (float(field) for field in fields[1:])
            rows.append(Row(fields[0], int(size), tree_us, collectives_us, int(pairs), ratio, others[:2], others[2],
                            others[3], others[4:]))  # fmt: skip
    return rows


def measure_ranks(report: Report, quick: bool) -> None:
    for ranks in RANKS[:2] if quick else RANKS:
        for row in run_ranks(ranks, 20 if quick else 1000 if ranks <= 4 else 300):
            report.claims.append(Claim(f"exchange.time_us ({row.shape}, {SIZES[row.size]}, {ranks} ranks)", row.tree_us,
                                       "us", "MPI collectives", row.collectives_us, row.ratio, f">= {TARGET:g}",
                                       row.ratio >= TARGET, row.interval, row.pairs))  # fmt: skip
            report.claims.append(Claim(f"exchange.variable_us ({row.shape}, {SIZES[row.size]}, {ranks} ranks)",
                                       row.variable_us, "us", "MPI collectives of known sizes", row.collectives_us,
                                       row.variable_ratio, holds=True, interval=row.variable_interval,
                                       pairs=row.pairs))  # fmt: skip
            for name, us in ((f"{row.shape}, deadline", row.tree_us),
                             (f"{row.shape}, collectives", row.collectives_us)):  # fmt: skip
                extend(report, f"exchange_ranks_{row.size}", name, ranks, us)


def measure_sizes(report: Report, quick: bool) -> None:
    """The paper's sweep over sizes, in which hybrid had a dip."""
    ranks, rounds = (2, 21) if quick else (SWEEP_RANKS, SWEEP_ROUNDS)
    for shape in SHAPES[::3] if quick else SHAPES:
        for size in SWEEP[::3] if quick else SWEEP:
            row, *_ = run_ranks(ranks, rounds, only=[shape, str(size)])
            name = f"exchange.sizes_us ({shape}, {size_text(size, 'g')}, {ranks} ranks)"
            report.claims.append(Claim(name, row.tree_us, "us", "MPI collectives", row.collectives_us, row.ratio,
                                       holds=True, interval=row.interval, pairs=row.pairs))  # fmt: skip
            for name, us in ((f"{shape}, deadline", row.tree_us), (f"{shape}, collectives", row.collectives_us)):
                extend(report, "exchange_sizes_ranks", name, size, us, "bytes of a record")


def extend(report: Report, figure: str, name: str, x: float, y: float, what: str = "ranks") -> None:
    for line in report.series:
        if (line.figure, line.name) == (figure, name):
            line.x.append(x)
            line.y.append(y)
            return
    report.series.append(Series(figure, name, what, "us", [x], [y]))


def draw_lines(place: Axes, lines: list[Series], title: str) -> None:
    """Solid by deadline, dashed the collectives; a topology has one colour in both."""
    colours: dict[str, str] = {}
    for line in lines:
        shape = line.name.removesuffix(", deadline").removesuffix(", collectives")
        colour = colours.setdefault(shape, f"C{len(colours)}")
        style = "--" if "collectives" in line.name else "-"
        place.plot(line.x, line.y, style, color=colour, marker="o", markersize=3, label=line.name)
    place.set(xscale="log", yscale="log", ylabel="exchange time (us)", title=title)
    place.yaxis.set_major_formatter("{x:g}")
    place.grid(alpha=0.3)
    if place.lines:
        place.legend(fontsize=7)


def draw(report: Report, out: Path) -> Path:
    picture, axes = figures.new_figure(2, 4)
    titles = (("ranks", "MPI's ranks on this machine"), ("time", "by LogGP"), ("cards", "by LogGP, on √n cards"))
    for row, (size, text) in enumerate(SIZES.items()):
        for column, (figure, title) in enumerate(titles):
            place = axes[row][column]
            draw_lines(place, figures.lines_of(report, f"exchange_{figure}_{size}"), f"{title}, {text}")
            ticks = sorted({x for line in place.lines for x in line.get_xdata()})
            place.set_xticks(ticks, [f"{x:g}" for x in ticks])
            place.minorticks_off()
            place.set(xlabel="members")
        place = axes[row][3]
        lines = figures.lines_of(report, f"exchange_sensitivity_{size}")
        for i, line in enumerate(lines):
            place.bar([x + 0.16 * i for x in line.x], line.y, 0.16, label=line.name)
        place.set_xticks([x + 0.3 for x in range(4)], ["L latency", "o overhead", "g gap", "G per byte"])
        place.set(ylim=(0.9, 2.1), ylabel="times as long with twice the constant", title=f"sensitivity, {text}")
        if lines:
            place.legend(fontsize=7)
    return figures.save(picture, out, "exchange_time")


def draw_sizes(report: Report, out: Path) -> Path | None:
    """The paper's sweep over sizes: between ranks here, and where members share cards."""
    panels = {"ranks": "MPI's ranks on this machine", "cards": "by LogGP, members that share cards"}
    found = {name: figures.lines_of(report, f"exchange_sizes_{name}") for name in panels}
    shown = [name for name, lines in found.items() if lines]
    if not shown:
        return None
    picture, axes = figures.new_figure(1, len(shown))
    for place, name in zip(axes[0], shown, strict=True):
        draw_lines(place, found[name], panels[name])
        figures.label_sizes(place)
    return figures.save(picture, out, "exchange_sizes")


PARTS = ("ranks", "sizes", "model")


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
                report.add_unmeasured([("exchange.time_us (MPI)", "us", f">= {TARGET:g}"),
                                       ("exchange.variable_us (MPI)", "us", None)], str(error))  # fmt: skip
    if "sizes" in parts:
        with console.status("exchange time by size"):
            try:
                measure_sizes(report, quick)
            except ProgramError as error:
                report.add_unmeasured([("exchange.sizes_us (MPI)", "us", None)], str(error))
    if "model" in parts:
        with console.status("exchange time by LogGP"):
            arguments = [*(["--quick"] if quick else []), *(["--loggp", loggp] if loggp else [])]
            report.absorb(run_program("bench_exchange_time", arguments))
    shown = Report("exchange", claims=report.claims[before:])
    shown.conclude(console, quick=quick)
    for path in (draw(report, out), draw_sizes(report, out)):
        if path is not None:
            console.print(f"drawn: {path}")
