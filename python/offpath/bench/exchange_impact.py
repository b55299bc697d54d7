"""The loss of an MPI program to sampling: ``offpath-md`` on two ranks, each beside the sampler of its core, which an
agent asks or does not ask, by turns. Molecular dynamics waits for its slowest rank in each step.

An agent that is stopped (SIGSTOP) asks nothing. Without a third core the agent runs on one of the ranks', and its time
is in the figures too.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .agent_process import AgentProcess, write_key
from .groups import cpu_seconds
from .intervals import median_interval
from .md.alone import third_core
from .md.offloaded import seconds_of
from .md.ranks import find_mpirun
from .md.run import run_md
from .report import Claim, Report
from .sampling import sampler_with_key

RANKS = 2
RATES_HZ = (10, 100, 1000)
TARGET_PERCENT, TARGET_HZ = 0.5, 100  # of an agent with a core of its own
CELLS, STEPS, PAIRS = 20, 150, 21
QUICK_CELLS, QUICK_STEPS, QUICK_PAIRS = 6, 20, 3
SETTLE_S = 0.2  # after the agent was stopped or goes on
HOST = """
[[host]]
name = "rank{index}"
address = "{address}"
"""


@dataclass
class Turns:
    """Seconds of a step by turns, and processor time of the samplers while they are asked."""

    alone: list[float] = field(default_factory=list)
    sampled: list[float] = field(default_factory=list)
    samplers_cpu_s: float = 0.0
    sampled_s: float = 0.0


def measure(report: Report, cores: tuple[int, int], quick: bool) -> None:
    """Adds the rows ``exchange.mpi_*``. Raises ProgramError, AgentUnavailableError."""
    own = third_core(cores)
    where = "all on two cores" if own is None else "a core for the agent"
    for hz in RATES_HZ[1:2] if quick else RATES_HZ:
        with ExitStack() as running:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="offpath-bench-")))
            key = write_key(folder)
            samplers = [running.enter_context(sampler_with_key(folder, key, core)) for core in dict.fromkeys(cores)]
            text = f'[sampling]\ninterval = "{1_000_000 // hz}us"\nkey_file = "{key}"\n'
            text += "".join(HOST.format(index=i, address=address) for i, (address, _) in enumerate(samplers))
            (folder / "agent.toml").write_text(text, encoding="utf-8")
            core = cores[1] if own is None else own
            agent = running.enter_context(AgentProcess.start(core, configuration=folder / "agent.toml"))
            found = take_turns(agent.process.pid, [pid for _, pid in samplers], cores, quick)
        has_target = own is not None and hz == TARGET_HZ
        add_rows(report, f"({hz} a second, {where})", found, has_target)


def take_turns(agent: int, samplers: list[int], cores: tuple[int, int], quick: bool) -> Turns:
    cells, steps, pairs = (QUICK_CELLS, QUICK_STEPS, QUICK_PAIRS) if quick else (CELLS, STEPS, PAIRS)
    words = ["-s", str(cells), "-n", str(steps), "--thermo", "0"]
    launcher = (find_mpirun(), "--oversubscribe", "--bind-to", "none", "-n", str(RANKS))
    where = ",".join(map(str, dict.fromkeys(cores)))
    found = Turns()
    try:
        for number in range(-1, pairs):  # the first pair only warms up
            for is_sampled in (True, False) if number % 2 else (False, True):
                os.kill(agent, signal.SIGCONT if is_sampled else signal.SIGSTOP)
                time.sleep(SETTLE_S)
                cpu, began = sum(map(cpu_seconds, samplers)), time.monotonic()
                seconds = seconds_of(run_md(words, where, launcher=launcher))
                if number < 0:
                    continue
                if is_sampled:
                    found.samplers_cpu_s += sum(map(cpu_seconds, samplers)) - cpu
                    found.sampled_s += time.monotonic() - began
                (found.sampled if is_sampled else found.alone).append(seconds)
    finally:
        os.kill(agent, signal.SIGCONT)
    return found


def spread(seconds: list[float]) -> float:
    """The distance of the quartiles in per cent of the median."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return 100 * (high - low) / middle


def add_rows(report: Report, of: str, found: Turns, has_target: bool) -> None:
    ratios = [sampled / alone for sampled, alone in zip(found.sampled, found.alone, strict=True)]
    slower = 100 * (statistics.median(ratios) - 1)
    alone_ms, sampled_ms = (1e3 * statistics.median(each) for each in (found.alone, found.sampled))
    report.claims.append(
        Claim(f"exchange.mpi_overhead {of}", slower, "%", ratio=statistics.median(ratios),
              target=f"<= {TARGET_PERCENT:g} %" if has_target else None,
              holds=not has_target or slower <= TARGET_PERCENT, interval=median_interval(ratios), pairs=len(ratios),
              detail=f"a step of {RANKS} ranks takes {sampled_ms:.3f} ms, without samples {alone_ms:.3f} ms")
    )  # fmt: skip
    for name, value in (
        ("mpi_step_spread", spread(found.sampled)),
        ("mpi_step_spread_without", spread(found.alone)),
        ("mpi_overhead_cpu", 100 * found.samplers_cpu_s / found.sampled_s / RANKS),
    ):
        unit = "% of each rank's core" if name == "mpi_overhead_cpu" else "% between quartiles"
        report.claims.append(Claim(f"exchange.{name} {of}", value, unit, holds=True))
