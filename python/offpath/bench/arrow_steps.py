"""``offpath bench arrow-steps``: the cost of converting arrays to a serialised Arrow record batch, step by step.

Table I and figures 7 to 10 of the SDMS paper, on the host and under a SmartNIC's CPU quota.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..sizes import size_text
from . import control_group, figures
from .programs import ProgramError, default_cores, run_program
from .report import Claim, Report, Series

STEPS = ("1 arrays", "2 schema", "3 record batch", "4 serialise")
# Median slowdown of a BlueField-2 against its host in the paper: (API, columns) -> factor.
PAPER_SLOWDOWNS = {("C++", 1): 4.8, ("C++", 16): 4.6, ("C", 1): 4.9, ("C", 16): 5.5}


def run(out: Path, sizes_max: str, quick: bool, agent: bool, console: Console) -> Report:
    """Measures, draws figures 7 to 10 into ``out`` and prints the table. Returns the report."""
    host_core, agent_core = default_cores()
    arguments = ["--sizes-max", sizes_max, "--host-core", str(host_core), "--agent-core", str(agent_core)]
    if quick:
        arguments.append("--quick")
    report = Report("arrow-steps")
    with console.status("the four steps on the host"):
        report.absorb(run_program("bench_arrow_steps", arguments))
    with console.status("frames compressed, beside libarrow's writer"):
        report.absorb(run_program("bench_arrow_compression", arguments))
    why = "left out (--no-agent)"
    if agent:
        with console.status("the same under a BlueField-2's CPU quota"):
            why = measure_agent(report, arguments)
    add_slowdowns(report, why)
    print_steps(report, console)
    report.conclude(console, quick=quick)
    for path in figures.draw_arrow_steps(report, out):
        console.print(f"drawn: {path}")
    return report


def measure_agent(report: Report, arguments: list[str]) -> str:
    """Adds the agent's series; returns the reason for missing ones, or an empty string."""
    try:
        with control_group.bluefield_quota() as launcher:
            report.absorb(run_program("bench_arrow_steps", [*arguments, "--place", "agent"], launcher=launcher))
    except (control_group.ControlGroupError, ProgramError) as error:
        return str(error)
    return ""


def series_of(report: Report, figure: str) -> dict[tuple[str, str, int, str], Series]:
    """Series of one figure by (place, API, columns, quantity), as the program names them."""
    found = {}
    for line in report.series:
        if line.figure == figure:
            place, api, columns, quantity = line.name.split("/")
            found[place, api, int(columns), quantity] = line
    return found


def add_slowdowns(report: Report, why: str) -> None:
    """How much slower the agent is, figures 9 and 10: median over all sizes, shown beside the paper's."""
    for (api, columns), paper in PAPER_SLOWDOWNS.items():
        lines = series_of(report, "fig9" if api == "C++" else "fig10")
        host, agent = lines.get(("host", api, columns, "total")), lines.get(("agent", api, columns, "total"))
        name = f"arrow_steps.agent_slowdown ({api}, {columns} col)"
        if host is None or agent is None:
            report.claims.append(Claim(name, unit="x", peer="SDMS paper", peer_value=paper, why=why or "not measured"))
            continue
        factors = [slow / fast for slow, fast in zip(agent.y, host.y, strict=True)]
        value = statistics.median(factors)
        report.claims.append(Claim(name, value, "x", "SDMS paper, BlueField-2", paper, holds=True))


def print_steps(report: Report, console: Console) -> None:
    """Table I with its times: microseconds of each step for a few sizes."""
    for figure, api in (("fig7", "C++"), ("fig8", "C")):
        lines = series_of(report, figure)
        table = Table(title=f"{api} interface on the host, microseconds a conversion", title_justify="left")
        for column in ("columns", "bytes", *STEPS, "steps 1 and 4"):
            table.add_column(column, justify="right")
        for columns in (1, 4, 16, 512):
            steps = [lines.get(("host", api, columns, step)) for step in STEPS]
            if None in steps or not steps[0].x:
                continue
            sizes = steps[0].x
            for index in sorted({0, len(sizes) // 3, 2 * len(sizes) // 3, len(sizes) - 1}):
                times = [line.y[index] / 1e3 for line in steps]
                table.add_row(
                    str(columns),
                    size_text(sizes[index], "g"),
                    *(f"{time:,.2f}" for time in times),
                    f"{100 * (times[0] + times[3]) / sum(times):.1f} %",
                )
        console.print(table)
