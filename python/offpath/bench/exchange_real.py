"""The parts of ``offpath bench exchange`` that run groups of real agents and programs of MPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ..errors import Error
from . import exchange_agents, exchange_impact, figures, group_cost
from .agent_process import AgentUnavailableError
from .groups import LINKS
from .programs import ProgramError, default_cores
from .report import Report

# The rows that a part leaves out when it cannot run: name, unit, target.
CLAIMS = {
    "agents": ("exchange.agents_complete (100 agents, unix)", "% of views", ">= 95 %"),
    "group": ("exchange.group_cpu (100 agents, unix)", "% of a core", "<= 10 %"),
    "load": ("exchange.group_suspicions (100 agents, tcp, 50 % load)", "suspicions", "<= 0 suspicions"),
    "impact": ("exchange.mpi_overhead", "%", None),
}
PARTS = tuple(CLAIMS)


def run(report: Report, out: Path, quick: bool, console: Console, chosen: Sequence[str] = PARTS,
        links: Sequence[str] = LINKS) -> None:  # fmt: skip
    """Measures, draws the time of a round over the number of agents into ``out``, and prints the table. ``links``:
    between the agents."""
    parts: dict[str, Callable[[Report], None]] = {
        "agents": lambda to: exchange_agents.measure(to, quick, links),
        "group": lambda to: group_cost.measure(to, quick),
        "load": lambda to: group_cost.measure_load(to, quick),
        "impact": lambda to: exchange_impact.measure(to, default_cores(), quick),
    }
    found = Report("exchange", report.commit, report.machine)
    for name in [each for each in PARTS if each in chosen]:
        try:
            with console.status(name):
                parts[name](found)
        except (AgentUnavailableError, ProgramError, Error) as error:
            found.add_unmeasured([CLAIMS[name]], str(error))
    if not found.claims:
        return
    found.conclude(console, quick=quick)
    if (path := figures.draw_exchange_agents(found, out)) is not None:
        console.print(f"drawn: {path}")
    report.absorb(found)
