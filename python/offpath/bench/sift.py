"""``offpath bench sift``: splitting particles by identifier, injecting them, sifting them through a hundred agents'
services and through a hundred agents, and reading tracks meanwhile.

Figures 6 to 9 of "Extending Composable Data Services into SmartNICs".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ..errors import Error
from . import figures, sift_agents, sift_inject, sift_tracks
from .agent_process import AgentUnavailableError
from .programs import ProgramError, default_cores, empty_report, run_program
from .report import Report

# The rows that a part leaves out when it cannot run: name, unit, target.
CLAIMS = {
    "split": ("sift.partition_vs_memcpy (16 ways)", "GB/s", ">= 0.5"),
    "impulse": ("sift.impulse_linear", "", "<= 1.15"),
    "injection": ("sift.inject_gbps_vs_move", "GB/s", ">= 0.85"),
    "tracks": ("sift.track_ms_p99", "ms", "<= 5 ms"),
    "agents": ("sift.agents_records_s (unix)", "M/s", None),
}
AGENTS, STEPS = 100, 5


def run(out: Path, particles: int, quick: bool, console: Console, chosen: Sequence[str] = tuple(CLAIMS),
        agents: int = AGENTS, steps: int = STEPS) -> Report:  # fmt: skip
    """Measures, draws figures 6 to 9 into ``out`` and prints the table. ``particles``: of the smaller impulse, and of
    each of the ``steps`` that go through ``agents`` agents."""
    host_core, agent_core = default_cores()
    arguments = ["--host-core", str(host_core), *(["--quick"] if quick else [])]
    peers = Path(__file__).with_name("sift_peers.py")
    report = empty_report("sift")

    def programs(name: str, *others: str) -> None:
        report.absorb(run_program(name, [*arguments, *others]))

    parts: dict[str, Callable[[], None]] = {
        "split": lambda: programs("bench_sift_partition", "--python", sys.executable, "--peers", str(peers)),
        "impulse": lambda: programs("bench_sift_impulse", "--particles", str(particles)),
        "injection": lambda: sift_inject.measure(report, agent_core, quick),
        "tracks": lambda: sift_tracks.measure(report, host_core, agent_core, quick),
        "agents": lambda: sift_agents.measure(report, agents, particles, steps),
    }
    for name in chosen:
        try:
            with console.status(name):
                parts[name]()
        except (AgentUnavailableError, ProgramError, Error) as error:
            report.add_unmeasured([CLAIMS[name]], str(error))
    report.conclude(console, quick=quick)
    for path in figures.draw_sift(report, out):
        console.print(f"drawn: {path}")
    return report
