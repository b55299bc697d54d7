"""The whole run: an agent, a simulation on one rank or several, the file, the check, the picture."""

from __future__ import annotations

import os
import socket
import threading
import time
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import offpath

from ..agent_http import fetch_status, find_http
from ..errors import AgentError
from ..view import Pictures, ViewServer
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

GROUP_S = 60.0  # until agents know each other


def run(settings: Settings, console: Console) -> RunReport:
    """Does all that ``offpath run`` does but printing the tables. Raises RunError, offpath.Error."""
    settings.validate()
    load_lammps()
    settings.prepare_out()
    for stale in (settings.stream_path, settings.figure_path, settings.dump_path, settings.tracks_path,
                  settings.tracks_figure_path):  # fmt: skip
        stale.unlink(missing_ok=True)
    with ExitStack() as stack:
        pool = "local:/particles" if settings.agents == 1 else "hash:/particles"
        if settings.agent_address is None:
            started = start_agents(stack, settings.agents)
            addresses, pages = [agent.address for agent in started], started[0].http_address
        else:
            addresses, pages = [settings.agent_address], None
            # Other programs may use the same agent, so this run has a pool of its own, whose memory is returned at the
            # end.
            pool = f"local:/particles-{socket.gethostname()}-{os.getpid()}"
        sessions = [stack.enter_context(offpath.connect(address)) for address in addresses]
        session = sessions[0]
        if settings.view:
            serve_page(stack, addresses[0], pages, console)
        report, steps = simulate(settings, sessions, addresses, pool, console)
        report.tracks = collect(session, sift_pool(pool).partition("?")[0], settings.tracks_path)
        if settings.view and console.is_terminal:
            console.input("The page stays until Enter is pressed. ")
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


def serve_page(stack: ExitStack, address: str, pages: str | None, console: Console) -> None:
    """Serves the page of ``offpath view`` until the stack ends, and opens a browser from a terminal. ``pages`` is the
    agent's HTTP address, where it is known."""
    session = stack.enter_context(offpath.connect(address))
    try:
        server = stack.enter_context(ViewServer(Pictures(session, find_http(pages, address))))
    except AgentError as error:
        raise RunError(f"--view: {error}") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    console.print(f"the page: {server.url}", highlight=False, soft_wrap=True)
    if console.is_terminal:
        webbrowser.open(server.url)


def start_agents(stack: ExitStack, number: int) -> list[offpath.Agent]:
    """Agents that end with the stack; several of them are a group in which all know each other."""
    agents = [stack.enter_context(offpath.Agent.start(settings={"agent.name": "agent0"} if number > 1 else {}))]
    for index in range(1, number):
        settings = {"agent.name": f"agent{index}", "group.join": agents[0].address}
        agents.append(stack.enter_context(offpath.Agent.start(settings=settings)))
    give_up = time.monotonic() + GROUP_S
    while not all(len(fetch_status(agent.http_address)["members"]) == number for agent in agents):
        if time.monotonic() > give_up:
            raise RunError(f"{number} agents were started and did not find each other within {GROUP_S:.0f} s")
        time.sleep(0.02)
    return agents


def simulate(
    settings: Settings, sessions: list[Any], addresses: list[str], pool: str, console: Console
) -> tuple[RunReport, list[int]]:
    """Runs the simulation and has the pool written; the report so far and the step of each batch in the file."""
    session = sessions[0]
    # Where the link is another one the number is another machine's.
    pids = [each.info.agent_pid if each.info.link == "local" else 0 for each in sessions]
    cpu_before = process_cpu_s(pids)
    with StepProgress(console, settings.steps, settings.every) as progress:
        if settings.ranks == 1:
            ranks = [drive(settings, session, pool, progress)]
        else:
            ranks = drive_ranks(settings, addresses, pool, progress)
    cpu_after = process_cpu_s(pids)
    report = RunReport(settings, pool, session.info.link, ranks)
    if cpu_before is not None and cpu_after is not None:
        report.agent_cpu_s = cpu_after - cpu_before
    steps = write_frames(session.pool(pool), settings)
    report.written_bytes = settings.stream_path.stat().st_size
    return report, steps


def write_frames(pool: Any, settings: Settings) -> list[int]:
    """All frames as one Arrow stream; the step of each batch. One agent writes it itself, of several none has all."""
    keys = pool.keys()
    if settings.agents == 1:
        pool.write(settings.stream_path)
        return [key_step(row) for row, _ in keys]
    keys.sort(key=lambda key: (key_step(key[0]), int(key[1].removeprefix("rank"))))
    frames = [pool.get_frame(*key) for key in keys]
    with pa.ipc.new_stream(settings.stream_path, frames[0].batch().schema) as writer:
        for frame in frames:
            writer.write_batch(frame.batch())
    return [key_step(row) for row, _ in keys]


def check(settings: Settings, first: RankResult, steps: list[int]) -> list[StepCheck]:
    """The written file against LAMMPS's dump."""
    expected = [handover.step for handover in first.handovers]
    try:
        return check_frames(read_frames(settings.stream_path, steps), read_dump(settings.dump_path), expected)
    except DumpError as error:
        raise RunError(f"{settings.dump_path}: {error}") from error


def process_cpu_s(pids: list[int]) -> float | None:
    """User and system time of processes on this machine so far; None if one is 0 or there is no such process."""
    ticks = 0
    for pid in pids:
        if pid == 0:
            return None
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return None
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
