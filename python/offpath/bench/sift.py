"""``offpath bench sift``: splitting particles by identifier, and sifting them through a hundred agents' services.

Figure 7 of "Extending Composable Data Services into SmartNICs": the same particles with 4, 16 and 128 splits, over the
stages each needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .programs import default_cores, run_program
from .report import Report


def run(particles: int, quick: bool, console: Console) -> Report:
    """Measures and prints the table. ``particles`` is the smaller of the two sizes of the impulse."""
    arguments = ["--host-core", str(default_cores()[0])]
    if quick:
        arguments.append("--quick")
    peers = Path(__file__).with_name("sift_peers.py")
    report = Report("sift")
    with console.status("the split, beside memcpy, pyarrow and Polars"):
        report.absorb(
            run_program("bench_sift_partition", [*arguments, "--python", sys.executable, "--peers", str(peers)])
        )
    with console.status("the impulse: a hundred agents"):
        report.absorb(run_program("bench_sift_impulse", [*arguments, "--particles", str(particles)]))
    report.print(console)
    print_impulse(report, console)
    return report


def print_impulse(report: Report, console: Console) -> None:
    """Figure 7 as a table, the best marked."""
    lines = [line for line in report.series if line.figure == "fig7"]
    if not lines:
        return
    table = Table(title="figure 7: one core for a hundred agents", title_justify="left")
    for column in ("splits", "particles", "seconds"):
        table.add_column(column, justify="right")
    best = min(line.y[0] for line in lines)
    for line in lines:
        mark = " [green]best" if line.y[0] == best else ""
        table.add_row(line.name, f"{line.x[0]:,.0f}", f"{line.y[0]:.2f}{mark}")
    console.print(table)
