"""``offpath bench task``: the cost of a task beyond its bytes, and of its bytes beside memcpy."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from . import figures
from .agent_process import AgentProcess, AgentUnavailableError
from .programs import ProgramError, default_cores, find_program, run_program
from .report import Report

CLAIMS = {
    "calls": (("task.empty_us_p50", "us", "<= 50 us"), ("task.step_us_p50 (24 KiB)", "us", "<= 80 us")),
    "bytes": (
        ("task.copy_vs_memcpy (1 MiB)", "us", ">= 0.5"),
        ("task.copy_vs_memcpy (3 MiB)", "us", ">= 0.5"),
        ("task.copy_vs_memcpy (16 MiB)", "us", ">= 0.5"),
    ),
}


def run(out: Path, quick: bool, parts: list[str], console: Console) -> Report:
    """Measures the parts, draws the figure into ``out`` and prints the table. Returns the report."""
    report = Report("task", commit="", machine="")
    host_core, agent_core = default_cores()
    try:
        with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
            functions = find_program("bench_task").resolve().with_name("bench_task_functions.so")
            configuration = Path(directory) / "agent.toml"
            configuration.write_text(f'[[plugin]]\nname = "bench"\npath = "{functions}"\n', encoding="utf-8")
            with AgentProcess.start(core=agent_core, configuration=configuration) as agent:
                arguments = ["--agent", agent.address, "--host-core", str(host_core), "--agent-core", str(agent_core)]
                for part in parts:
                    asked = [*arguments, "--part", part, *(["--quick"] if quick else [])]
                    with console.status(f"task: {part}"):
                        report.absorb(run_program("bench_task", asked))
    except (AgentUnavailableError, ProgramError) as error:
        measured = {claim.claim for claim in report.claims}
        missing = [claim for part in parts for claim in CLAIMS[part] if claim[0] not in measured]
        report.add_unmeasured(missing, str(error))
    report.conclude(console, quick=quick)
    if path := figures.draw_task(report, out):
        console.print(f"drawn: {path}")
    return report
