"""Exchanges between real agents, a process each, over real links: whether views are complete when a round begins every
100 ms, and how long a round takes, beside MPI's allgather over the same transport.

All agents share the cores there are, and so do MPI's ranks. A program publishes the record of each agent, as on each
host, and one reads the views.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ..agent_group import AgentGroup
from ..agent_http import fetch_status
from ..errors import Error
from ..exchange import Exchange
from . import exchange_time
from .agent_process import AgentUnavailableError
from .groups import LINKS, PATIENCE_S, connect, cpu_seconds, group_of
from .programs import ProgramError
from .report import Claim, Report, Series

AGENTS = (2, 8, 32, 100)
AGENTS_OVER_VERBS = (2, 8)  # their memory is pinned
MPI_RANKS_MAX = 32  # more, on a few cores, mostly wait for their turn
INTERVAL_S = 0.1
COMPLETE_MIN = 95
MEMORY_MIB = 64
SETTLE_S = 5.0
# Six values, of 48 bytes together: a record of the paper's size.
CONFIGURATION = """
[[exchange]]
name = "rounds"
topology = "{topology}"
interval = "100ms"
deadline = "90ms"
fields = [{fields}]
"""
FIELDS = [f"value{i}" for i in range(6)]
MPI_TRANSPORTS = {"unix": ("vader,self", "shared memory"), "tcp": ("tcp,self", "TCP")}


def topology_of(agents: int) -> str:
    """Groups of as many members as there are groups."""
    return f"neighbourhoods({max(2, math.isqrt(agents))})"


def measure(report: Report, quick: bool, links: Sequence[str] = LINKS) -> None:
    """Adds the rows ``exchange.agents_*`` for each link."""
    for link in links:
        try:
            for agents in (2, 4) if quick else AGENTS_OVER_VERBS if link == "verbs" else AGENTS:
                measure_agents(report, agents, link, quick)
        except (AgentUnavailableError, ProgramError, Error) as error:
            claim = (f"exchange.agents_complete ({link})", "% of views", f">= {COMPLETE_MIN} %")
            report.add_unmeasured([claim], str(error))


def measure_agents(report: Report, agents: int, link: str, quick: bool) -> None:
    mpi_us, why = mpi_of(link, agents, quick)
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        file = Path(folder) / "agent.toml"
        fields = ", ".join(f'"{name}:f64"' for name in FIELDS)
        file.write_text(CONFIGURATION.format(topology=topology_of(agents), fields=fields))
        with group_of(agents, link, MEMORY_MIB, others=["--config", str(file)]) as (group, key):
            add_rounds(report, group, link, key, 2.0 if quick else 30.0, mpi_us, why)


def mpi_of(link: str, ranks: int, quick: bool) -> tuple[float | None, str]:
    """The median of MPI's allgather of 48 bytes in us, or the reason why it is missing."""
    if ranks > MPI_RANKS_MAX:
        return None, f"MPI is measured with up to {MPI_RANKS_MAX} ranks"
    if link not in MPI_TRANSPORTS:
        return None, "MPI is measured over shared memory and TCP"
    transport, _ = MPI_TRANSPORTS[link]
    options = ["--mca", "pml", "ob1", "--mca", "btl", transport]
    try:
        row, *_ = exchange_time.run_ranks(ranks, 20 if quick or ranks > 8 else 300, options, ["allgather", "48"])
    except ProgramError as error:
        return None, str(error)
    return row.collectives_us, ""


def counted(group: AgentGroup) -> tuple[int, int, float]:
    """Complete and partial views of all agents so far, and the longest interval that one of them could hold."""
    told = [fetch_status(each["http"])["exchanges"][0] for each in group.ready]
    held_s = max(each["interval_held_s"] for each in told)
    return sum(each["complete"] for each in told), sum(each["partial"] for each in told), held_s


def views_of(exchange: Exchange, seconds: float) -> list[float]:
    """How long each round took until this agent had its view."""
    until_s = time.monotonic() + seconds
    took = []
    while time.monotonic() < until_s:
        took.append(exchange.view(timeout=PATIENCE_S).took)
    return took


def add_rounds(report: Report, group: AgentGroup, link: str, key: str, seconds: float, mpi_us: float | None,
               why: str) -> None:  # fmt: skip
    agents = len(group.ready)
    with ExitStack() as sessions:
        parts = []
        for index in range(agents):
            session = sessions.enter_context(connect(group, index, key))
            parts.append(sessions.enter_context(session.exchange("rounds", publish=True)))
            parts[-1].publish(**dict.fromkeys(FIELDS, float(index)))
        await_complete(parts[0], agents)
        views_of(parts[0], min(seconds, SETTLE_S))
        complete, partial, _ = counted(group)
        cpu_before, began = sum(map(cpu_seconds, group.pids)), time.monotonic()
        took = views_of(parts[0], seconds)
        cpu = (sum(map(cpu_seconds, group.pids)) - cpu_before) / (time.monotonic() - began)
        complete_after, partial_after, held_s = counted(group)
    complete, partial = complete_after - complete, partial_after - partial
    share = 100 * complete / max(complete + partial, 1)
    of = f"({agents} agents, {link})"
    named = f"; the agents name an interval of {held_s * 1e3:.3g} ms" if held_s else ""
    report.claims.append(
        Claim(f"exchange.agents_complete {of}", share, "% of views", target=f">= {COMPLETE_MIN} %",
              holds=share >= COMPLETE_MIN,
              detail=f"{complete + partial} views, a round every {INTERVAL_S * 1e3:.0f} ms, {topology_of(agents)}, "
                     f"on {len(os.sched_getaffinity(0))} cores{named}")
    )  # fmt: skip
    p50, p99 = statistics.median(took) * 1e6, statistics.quantiles(took, n=100)[98] * 1e6
    peer = f"MPI_Allgather over {MPI_TRANSPORTS.get(link, (link, link))[1]}"
    report.claims.append(Claim(f"exchange.agents_us_p50 {of}", p50, "us", peer if mpi_us is not None else None, mpi_us,
                               holds=True, detail=why or None))  # fmt: skip
    report.claims.append(Claim(f"exchange.agents_us_p99 {of}", p99, "us", holds=True))
    report.claims.append(Claim(f"exchange.agents_cpu {of}", 100 * cpu, "% of a core", holds=True))
    for name, us in ((f"agents over {link}", p50), (peer, mpi_us)):
        if us is not None:
            report.series.append(Series("exchange_agents", name, "members", "us", [float(agents)], [us]))


def await_complete(exchange: Exchange, agents: int) -> None:
    """Until all agents take part, and their records are in a view."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        view = exchange.view(timeout=PATIENCE_S)
        if view.expected == agents and view.complete and all(entry.has_value for entry in view.entries.values()):
            return
        if time.monotonic() > deadline:
            raise ProgramError(f"no complete view of {agents} agents: {view}")
