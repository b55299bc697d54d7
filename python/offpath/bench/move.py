"""``offpath bench move``: the claims of the data movement service, each beside its peer.

An agent of its own runs on one core, the host programs on another. Figures 2, 3, 4 and 11 of the SDMS paper are drawn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import cores, figures
from .agent_process import AgentProcess, AgentUnavailableError
from .programs import ProgramError, default_cores, run_program
from .report import Claim, Report

# Every claim of the table by its part: name, unit, target. A claim that its part does not report is shown as not
# holding, with the reason.
CLAIMS_OF: dict[str, list[tuple[str, str, str | None]]] = {
    "posts": [
        ("move.post_ns_p50", "ns", "<= 400 ns"),
        ("move.post_asleep_us_p50", "us", ">= 0.83"),
        ("move.post_rhythm_us_p50", "us", "<= 10 us"),
        ("move.post_cold_us_p50 (in a rhythm)", "us", "<= 20 us"),
        ("move.post_cold_us_p50 (irregular)", "us", ">= 0.83"),
        ("move.rhythm_agent_cpu", "%", "<= 5 %"),
        ("move.idle_agent_cpu", "%", "<= 1 %"),
        ("move.post_size_spread", "x", "<= 1.5 x"),
        ("move.post_to_seen_ns_p50", "ns", "<= 250 ns"),
        ("move.post_python_us_p50", "us", "<= 15 us"),
    ],
    "bandwidth": [
        ("move.bandwidth_vs_raw_one (from 256 KiB)", "GB/s", ">= 0.95"),
        ("move.bandwidth_vs_raw_one (64-128 KiB)", "GB/s", ">= 0.85"),
        ("move.bandwidth_vs_raw_many", "GB/s", ">= 0.95"),
        ("move.columns_vs_ucx (16 x 4 KiB)", "us", ">= 2x"),
        ("move.columns_vs_ucx (16 x 64 KiB)", "us", ">= 1.2x"),
    ],
    "placement": [
        ("move.ipc_page_vs_host_serialised_1col (from 128 KiB)", "GB/s", ">= 0.95"),
        ("move.ipc_page_vs_host_serialised_1col (from 1 MiB)", "GB/s", ">= 0.98"),
        ("move.ipc_page_vs_host_serialised_4col (from 1 MiB)", "GB/s", ">= 0.95"),
        ("move.ipc_page_vs_host_serialised_16col (from 4 MiB)", "GB/s", ">= 0.95"),
        ("move.host_cpu_ratio", "us", ">= 100x"),
    ],
    "flight": [
        ("move.vs_flight_doput", "GB/s", ">= 2x"),
        ("move.tcp_vs_flight_doput", "GB/s", ">= 1x"),
    ],
    "memory": [
        ("move.agent_rss_over_payload", "MiB", "<= 64 MiB + 5 %"),
        ("move.host_library_rss", "MiB", "<= 4 MiB"),
        ("move.host_library_threads", "threads", "<= 0 threads"),
        ("move.host_library_libraries", "libraries", "<= 0 libraries"),
    ],
    "cores": cores.MOVES.claims,
    "buffers": [],  # figure 4
}
CLAIMS = [claim for claims in CLAIMS_OF.values() for claim in claims]


@dataclass
class Setting:
    """The options of every part of the benchmark."""

    host_core: int
    agent_core: int
    sizes_max: str
    quick: bool

    def arguments(self, *others: str) -> list[str]:
        quick = ["--quick"] if self.quick else []
        cores = ["--host-core", str(self.host_core), "--agent-core", str(self.agent_core)]
        return [*cores, "--sizes-max", self.sizes_max, *quick, *others]


# The programs of each part.
PARTS: dict[str, list[Callable[[Setting], Report]]] = {
    "posts": [lambda s: with_agent(s, "bench_move_post"), lambda s: measure_python(s)],
    "bandwidth": [lambda s: with_agent(s, "bench_move_bandwidth")],
    "placement": [lambda s: with_agent(s, "bench_move_arrow")],
    "flight": [lambda s: measure_flight(s)],
    "memory": [lambda s: with_agent(s, "bench_move_memory")],
    "cores": [lambda s: cores.measure(cores.MOVES, s.quick)],
    "buffers": [
        lambda s: with_agent(s, "bench_move_bandwidth", "--part", "buffers"),
        lambda s: measure_without_cache(s),
    ],
}


def run(out: Path, sizes_max: str, quick: bool, console: Console, parts: Sequence[str] = tuple(PARTS)) -> Report:
    """Runs the parts, prints the table and draws the figures into ``out``. Returns the report."""
    host_core, agent_core = default_cores()
    setting = Setting(host_core, agent_core, sizes_max, quick)
    report = Report("move")
    failures: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(parts))
        for part in parts:
            progress.update(task, description=part)
            for measure in PARTS[part]:
                try:
                    report.absorb(measure(setting))
                except (AgentUnavailableError, ProgramError) as error:
                    failures.append(f"{part}: {error}")
            progress.advance(task)
    add_missing(report, failures, parts)
    report.conclude(console, quick=quick)
    for path in figures.draw_move(report, out):
        console.print(f"drawn: {path}")
    return report


def add_missing(report: Report, failures: list[str], parts: Sequence[str] = tuple(PARTS)) -> None:
    """Adds the claims that their part did not report, with the error."""
    reported = {claim.claim for claim in report.claims}
    missing = [entry for part in parts for entry in CLAIMS_OF[part] if entry[0] not in reported]
    report.add_unmeasured(missing, "; ".join(failures) or "no part reported it")
    order = {name: index for index, (name, _, _) in enumerate(CLAIMS)}
    report.claims.sort(key=lambda claim: order.get(claim.claim, len(order)))


def with_agent(setting: Setting, program: str, *arguments: str) -> Report:
    """Runs a program against a fresh agent."""
    with AgentProcess.start(core=setting.agent_core) as agent:
        return run_program(program, setting.arguments("--agent", agent.address, *arguments))


def measure_without_cache(setting: Setting) -> Report:
    with AgentProcess.start(core=setting.agent_core, cache=False) as agent:
        arguments = setting.arguments("--agent", agent.address, "--part", "buffers", "--cache", "off")
        return run_program("bench_move_bandwidth", arguments)


def measure_python(setting: Setting) -> Report:
    """The post from NumPy arrays, in a Python of its own."""
    count = 50 if setting.quick else 5000
    with AgentProcess.start(core=setting.agent_core) as agent:
        done = subprocess.run(
            [sys.executable, "-m", "offpath.bench.post_python", str(count), str(setting.host_core)],
            env={**os.environ, "OFFPATH_AGENT": agent.address},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise ProgramError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return python_report(float(done.stdout))


def python_report(post_us: float) -> Report:
    report = Report("move", commit="", machine="")  # known by the programs
    report.claims.append(
        Claim("move.post_python_us_p50", post_us, "us", "SDMS paper, 250-350 us", 300.0, 300.0 / post_us, "<= 15 us",
              holds=post_us <= 15)
    )  # fmt: skip
    return report


@contextmanager
def python_flight_server(core: int) -> Iterator[str]:
    """Address of a Python Flight server on ``core``; empty where pyarrow has no Flight."""
    command = [sys.executable, "-m", "offpath.bench.flight_server", str(core)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = server.stdout.readline().strip() if server.stdout else ""
            yield f"grpc://127.0.0.1:{port}" if port else ""
        finally:
            server.terminate()


def measure_flight(setting: Setting) -> Report:
    """Flight against the local link and against our TCP link."""
    with (
        AgentProcess.start(core=setting.agent_core, network="tcp:127.0.0.1:0") as agent,
        python_flight_server(setting.agent_core) as server,
    ):
        others = ["--agent", agent.address, "--tcp-agent", agent.network_address]
        if server:
            others += ["--python-server", server]
        environment = {"OFFPATH_KEY_FILE": str(agent.key_file)}
        return run_program("bench_move_flight", setting.arguments(*others), environment)
