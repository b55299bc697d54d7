"""The whole run: an agent, a simulation on one rank or several, the file, the check, the picture."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

import offpath

from .check import StepCheck, check_frames
from .dump import DumpError, read_dump
from .figures import draw
from .frames import read_frames
from .handover import RankResult, drive, key_step, sift_pool
from .parallel import drive_ranks
from .paths import follow
from .progress import StepProgress
from .report import RunReport
from .settings import RunError, Settings
from .simulation import load_lammps
from .tracks import collect, draw_tracks, find_difference, read_sorted


def run(settings: Settings, console: Console) -> RunReport:
    """Does all that ``offpath run`` does but printing the tables. Raises RunError, offpath.Error."""
    settings.validate()
    load_lammps()
    settings.prepare_out()
    for stale in (settings.stream_path, settings.figure_path, settings.dump_path, settings.tracks_path,
                  settings.tracks_figure_path):  # fmt: skip
        stale.unlink(missing_ok=True)
    with ExitStack() as stack:
        address = settings.agent_address
        pool = "local:/particles"
        if address is None:
            address = stack.enter_context(offpath.Agent.start()).address
        else:
            # Others may use the same agent: a pool of this run's own, whose memory is given back at the end.
            pool = f"local:/particles-{socket.gethostname()}-{os.getpid()}"
        session = stack.enter_context(offpath.connect(address))
        report, steps = simulate(settings, session, address, pool, console)
        report.tracks = collect(session, sift_pool(pool).partition("?")[0], settings.tracks_path)
        if settings.agent is not None:
            session.pool(pool).drop()
            session.tracks(sift_pool(pool).partition("?")[0]).drop()
    if settings.check:
        report.checks = check(settings, report.ranks[0], steps)
        report.tracks.checked = True
        report.tracks.difference = find_difference(read_sorted(settings.tracks_path), read_dump(settings.dump_path))
        if report.ok:
            settings.dump_path.unlink()
    boxes = {handover.step: handover.box for handover in report.ranks[0].handovers}
    draw(report, follow(read_frames(settings.stream_path, steps), boxes), settings.figure_path)
    report.figure = settings.figure_path
    draw_tracks(read_sorted(settings.tracks_path), boxes, settings.tracks_figure_path)
    return report


def simulate(
    settings: Settings, session: Any, address: str, pool: str, console: Console
) -> tuple[RunReport, list[int]]:
    """Runs the simulation and has the pool written; the report so far and the step of each batch in the file."""
    agent_pid = session.info.agent_pid if session.info.link == "local" else 0  # elsewhere it is another process's
    cpu_before = process_cpu_s(agent_pid)
    with StepProgress(console, settings.steps, settings.every) as progress:
        if settings.ranks == 1:
            ranks = [drive(settings, session, pool, progress)]
        else:
            ranks = drive_ranks(settings, address, pool, progress)
    cpu_after = process_cpu_s(agent_pid)
    report = RunReport(settings, pool, session.info.link, ranks)
    if cpu_before is not None and cpu_after is not None:
        report.agent_cpu_s = cpu_after - cpu_before
    kept = session.pool(pool)
    steps = [key_step(row) for row, _ in kept.keys()]
    kept.write(settings.stream_path)
    report.written_bytes = settings.stream_path.stat().st_size
    return report, steps


def check(settings: Settings, first: RankResult, steps: list[int]) -> list[StepCheck]:
    """The written file against LAMMPS's dump."""
    expected = [handover.step for handover in first.handovers]
    try:
        return check_frames(read_frames(settings.stream_path, steps), read_dump(settings.dump_path), expected)
    except DumpError as error:
        raise RunError(f"{settings.dump_path}: {error}") from error


def process_cpu_s(pid: int) -> float | None:
    """User and system time of a process on this machine so far; None if ``pid`` is 0 or there is no such process."""
    if pid == 0:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
