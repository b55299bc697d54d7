"""``offpath bench``: every claim of this project, measured beside its peer on this machine.

``app`` is the command group; ``offpath.cli`` mounts it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .programs import check_installed, empty_report
from .report import UNKNOWN, Report

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Measure claims against their peers, on this machine.")

LINKS = ("local", "tcp", "verbs")
TCP_LINKS = ("tcp", "verbs")  # between a program's machine and the agent's
EXCHANGE_LINKS = ("unix", "tcp", "verbs")  # between agents
TCP_PARTS = (
    *("echo", "busy", "stream", "threads", "connections", "sparse", "posts", "idle", "redis"),
    *("goodput", "sharing", "slow-path", "breakdown", "devices"),  # bad networks; handshakes; stages; AF_XDP
    "cores",  # simulated: a core for each process
)
TASK_PARTS = ("calls", "bytes")
RUN_PARTS = ("handover",)
# As in the modules, which are imported only when they are needed.
MOVE_PARTS = ("posts", "bandwidth", "placement", "flight", "memory", "cores", "buffers")
POOL_PARTS = ("objects", "queries", "cores", "histogram")
SIFT_PARTS = ("split", "impulse", "injection", "tracks", "agents")
EXCHANGE_PARTS = (
    *("samples", "peers", "overhead", "region", "ranks", "sizes", "model"),
    *("agents", "group", "load", "impact"),  # real agents; load takes an hour
)
GROWTH_PARTS = ("streams", "objects", "frames", "columns", "programs")
MD_PARTS = ("rates", "mdbench", "machine", "memory", "alone", "card", "gains", "auto", "model", "agree", "ranks", "tdr")

OutOption = Annotated[Path, typer.Option(help="Directory for the figures (PNG).")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write claims and series as JSON.")]
CheckOption = Annotated[bool, typer.Option("--check", help="Exit with 1 when a claim does not hold.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Only prove that it runs; the figures mean nothing.")]
SizesOption = Annotated[str, typer.Option("--sizes-max", help="Largest size: 64K, 16M, 1G.")]


@app.callback()
def all_benchmarks(
    context: typer.Context,
    weak_agent: Annotated[
        bool,
        typer.Option("--weak-agent", help="Agents share 20 % of a core, as slow as a BlueField-2's (control groups)."),
    ] = False,
) -> None:
    """Measure claims against their peers, on this machine."""
    if "--help" not in sys.argv:
        check_installed()
    if weak_agent:
        from . import agent_process, control_group

        try:
            context.with_resource(agent_process.weak_agents())
        except control_group.ControlGroupError as error:
            raise typer.BadParameter(str(error), param_hint="--weak-agent") from error


def part_option(parts: tuple[str, ...]) -> object:
    return typer.Option("--part", help=f"Which: {', '.join(parts)}; all of them.")


def chosen(asked: list[str] | None, parts: tuple[str, ...]) -> list[str]:
    """The parts asked for, or all of them. Raises BadParameter for one that there is not."""
    if unknown := [each for each in asked or () if each not in parts]:
        raise typer.BadParameter(f"'{unknown[0]}' is not one of {', '.join(parts)}", param_hint="--part")
    return asked or list(parts)


def check_links(asked: Sequence[str], links: tuple[str, ...]) -> None:
    """Raises BadParameter for one that there is not."""
    if unknown := [each for each in asked if each not in links]:
        raise typer.BadParameter(f"'{unknown[0]}' is not one of {', '.join(links)}", param_hint="--link")


def make_console() -> Console:
    """The terminal, or wide lines without a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def command_of(arguments: Sequence[str]) -> str:
    """The options of the measurement, without the places of its results."""
    words = iter(arguments)
    kept = ["offpath"]
    for word in words:
        if word in ("--out", "--json"):
            next(words, None)
        elif word != "--check" and not word.startswith(("--out=", "--json=")):
            kept.append(word)
    return " ".join(kept)


def finish(report: Report, json_path: Path | None, check: bool) -> None:
    """Writes the JSON and ends the command with its status."""
    from . import agent_process

    if agent_process.are_weak():
        report.be_of_weak_agents()
    if json_path is not None:
        if UNKNOWN in (report.commit, report.machine):  # measured by Python alone
            about = empty_report(report.bench)
            report.commit, report.machine = about.commit, about.machine
        report.date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
        report.command = command_of(sys.argv[1:])
        report.write(json_path)
    if check and not report.all_hold():
        raise typer.Exit(1)


@app.command("move")
def move_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    sizes_max: SizesOption = "1G",
    part: Annotated[list[str] | None, part_option(MOVE_PARTS)] = None,
    ahead: Annotated[
        bool, typer.Option("--ahead", help="Ahead of everything else, for a machine that is not idle (control groups).")
    ] = False,
) -> None:
    """The data movement service: posting, bandwidth, placement, memory; figures 2, 3, 4 and 11 of the SDMS paper."""
    from . import control_group, move

    try:
        with control_group.ahead_of_others() if ahead else nullcontext():
            parts = chosen(part, MOVE_PARTS)
            report = move.run(out, "1M" if quick else sizes_max, quick, make_console(), parts)
    except control_group.ControlGroupError as error:
        raise typer.BadParameter(str(error), param_hint="--ahead") from error
    finish(report, json_path, check)


@app.command("arrow-steps")
def arrow_steps_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    sizes_max: SizesOption = "1G",
    agent: Annotated[bool, typer.Option(help="Also under a BlueField-2's CPU quota (needs control groups).")] = True,
) -> None:
    """The cost of converting arrays to serialised Arrow, step by step; table I and figures 7 to 10 of the SDMS
    paper."""
    from . import arrow_steps

    report = arrow_steps.run(out, "1M" if quick else sizes_max, quick, agent, make_console())
    finish(report, json_path, check)


@app.command("link")
def link_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    sizes_max: SizesOption = "1M",
    link: Annotated[
        list[str] | None, typer.Option("--link", help=f"Which: {', '.join(LINKS)}; all there are on this machine.")
    ] = None,
) -> None:
    """The links themselves: latency, bandwidth, message rate, all-gather, with program and agent placed in turn."""
    from . import link as link_bench

    check_links(link or (), LINKS)
    try:
        report = link_bench.run(out, link or link_bench.links_here(), sizes_max, quick, make_console())
    except link_bench.NoDevice as error:
        raise typer.BadParameter(str(error), param_hint="--link") from error
    finish(report, json_path, check)


@app.command("pool")
def pool_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    part: Annotated[list[str] | None, part_option(POOL_PARTS)] = None,
) -> None:
    """Small objects, queries and a histogram where the data lies; figures 3 and 4 of the paper on data services."""
    from . import pool

    finish(pool.run(out, quick, make_console(), chosen(part, POOL_PARTS)), json_path, check)


@app.command("adios2")
def adios2_command(json_path: JsonOption = None, check: CheckOption = False, quick: QuickOption = False) -> None:
    """The engine for ADIOS2 against SST and BP5 of the same wheel: time of a step in the writer, memory, reading."""
    from . import adios2_engines

    finish(adios2_engines.run(quick, make_console()), json_path, check)


@app.command("lammps")
def lammps_command(json_path: JsonOption = None, check: CheckOption = False, quick: QuickOption = False) -> None:
    """The fixes for LAMMPS: a hand-over against a dump, an analysis on the agent against LAMMPS's own."""
    from . import lammps_fixes

    finish(lammps_fixes.run(quick, make_console()), json_path, check)


@app.command("run")
def run_command(
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    part: Annotated[list[str] | None, part_option(RUN_PARTS)] = None,
) -> None:
    """Hand-overs of a live simulation, as offpath run measures them, with a core to spare and on one core."""
    from . import live_run

    chosen(part, RUN_PARTS)
    finish(live_run.run(quick, make_console()), json_path, check)


@app.command("exchange")
def exchange_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    loggp: Annotated[
        str, typer.Option(help="L,o,g,G of the network, in ns and ns a byte; without: InfiniBand HDR.")
    ] = "",
    part: Annotated[list[str] | None, part_option(EXCHANGE_PARTS)] = None,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", help=f"Only rounds between real agents over a link: {', '.join(EXCHANGE_LINKS)}."),
    ] = None,
    peer_program: Annotated[
        str, typer.Option("--peer-program", help="Path of LDMS's ldmsd, built outside; without: of the PATH.")
    ] = "",
) -> None:
    """Sampling hosts: latency, rate, processor time and memory on the host, against node_exporter and LDMS. Exchange
    time between MPI's ranks, between up to 100 real agents, and of up to 1600 members by LogGP (--loggp). The cost of a
    group of 100 agents, and the loss of an MPI program to samplers."""
    from . import exchange_real, exchange_time, sampling

    if link:
        if part:
            raise typer.BadParameter("goes without --part", param_hint="--link")
        check_links(link, EXCHANGE_LINKS)
        report = empty_report("exchange")
        exchange_real.run(report, out, quick, make_console(), ["agents"], link)
        return finish(report, json_path, check)
    parts = chosen(part, EXCHANGE_PARTS)
    report = sampling.run(out, quick, make_console(), parts, peer_program)
    exchange_time.run(report, out, quick, make_console(), loggp, parts)
    exchange_real.run(report, out, quick, make_console(), parts)
    finish(report, json_path, check)


@app.command("md")
def md_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    part: Annotated[list[str] | None, part_option(MD_PARTS)] = None,
    peer_program: Annotated[
        list[str] | None,
        typer.Option("--peer-program", help="Path of a program of MD-Bench, built outside; repeatable."),
    ] = None,
) -> None:
    """Molecular dynamics (offpath-md) against LAMMPS's lj/cut and MD-Bench, double against mixed precision, memory; its
    gain from an agent, against the host alone and its model; figures 6 to 8 and 11 to 15 of the paper on molecular
    dynamics."""
    from . import md

    finish(md.run(out, quick, chosen(part, MD_PARTS), make_console(), peer_program or []), json_path, check)


@app.command("sift")
def sift_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    particles: Annotated[
        int, typer.Option(help="The smaller of the two sizes of the impulse; of a step through real agents.")
    ] = 10_000_000,
    agents: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Only through so many real agents, over unix and TCP.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that go through real agents.")] = 5,
    part: Annotated[list[str] | None, part_option(SIFT_PARTS)] = None,
) -> None:
    """Particles into tracks: split, injection, impulse, reading, a hundred real agents; figures 6 to 9 of the paper on
    data services."""
    from . import sift

    parts = ["agents"] if agents is not None and not part else chosen(part, SIFT_PARTS)
    if agents is None:
        agents = 4 if quick else sift.AGENTS
    report = sift.run(out, 100_000 if quick else particles, quick, make_console(), parts, agents, steps)
    finish(report, json_path, check)


@app.command("growth")
def growth_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    part: Annotated[list[str] | None, part_option(GROWTH_PARTS)] = None,
) -> None:
    """The cost of a service as its load grows: programs, streams, objects, size and columns of frames; slopes."""
    from . import growth

    finish(growth.run(out, quick, chosen(part, GROWTH_PARTS), make_console()), json_path, check)


@app.command("all")
def all_command(
    folder: Annotated[Path, typer.Option("--json", help="Directory for a JSON file of each part's claims.")],
    out: OutOption = Path("offpath-bench"),
    quick: QuickOption = False,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="Which: a benchmark (move) or its part (move.posts); all of them."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also parts whose file is there.")] = False,
    parts: Annotated[bool, typer.Option("--list", help="Only list the parts with their minutes and commands.")] = False,
) -> None:
    """Everything, part by part, the most important claims first; continues where it was stopped. The tables of the
    documentation are made of these files (tools/results.py)."""
    from . import everything

    try:
        wanted = everything.chosen(part or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--part") from error
    if parts:
        for each in wanted:
            typer.echo(f"{each.name:<20} {each.minutes:>4g} min   {' '.join(each.command())}")
        return
    if not everything.run(wanted, folder, out, again, quick, make_console()):
        raise typer.Exit(1)


@app.command("task")
def task_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    part: Annotated[list[str] | None, part_option(TASK_PARTS)] = None,
) -> None:
    """Functions over a program's memory: the cost of a request, and of its bytes against memcpy."""
    from . import task

    finish(task.run(out, quick, chosen(part, TASK_PARTS), make_console()), json_path, check)


@app.command("tcp")
def tcp_command(
    out: OutOption = Path("offpath-bench"),
    json_path: JsonOption = None,
    check: CheckOption = False,
    quick: QuickOption = False,
    part: Annotated[list[str] | None, part_option(TCP_PARTS)] = None,
    breakdown: Annotated[bool, typer.Option("--breakdown", help="Only where an echo's time goes.")] = False,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", help=f"Only with the program beyond a link: {', '.join(TCP_LINKS)}."),
    ] = None,
) -> None:
    """TCP on the agent against the kernel's: echoes, processor time of the host, streams, connections, redis;
    goodput over bad networks; where an echo's time goes. With ``--link``: an agent that reaches its program over it."""
    from . import tcp, tcp_linked

    if link:
        if part or breakdown:
            raise typer.BadParameter("goes without --part and --breakdown", param_hint="--link")
        check_links(link, TCP_LINKS)
        return finish(tcp_linked.run(quick, link, make_console()), json_path, check)
    parts = ["breakdown"] if breakdown else chosen(part, TCP_PARTS)
    finish(tcp.run(out, quick, parts, make_console()), json_path, check)
