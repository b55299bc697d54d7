"""Particles through a group of real agents, a process each, over real links: figure 7 with publishing.

Every agent is given an equal share of each step, as each of the paper's cards has its host. A few programs do that for
all agents, because a hundred of them would dominate the measurement. All processes share the machine's cores.

As a program it is one of these senders: ``python -m offpath.bench.sift_agents``, which reads its task as JSON from
standard input, says ``ready``, and begins when a line comes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass

import numpy as np

import offpath

from ..agent_group import AgentGroup
from ..errors import Error
from .agent_process import AgentUnavailableError
from .groups import LINKS, PATIENCE_S, connect, cpu_seconds, group_of
from .process_cost import resident_kib
from .programs import ProgramError
from .report import Claim, Report, Series
from .sift_inject import NAMES, RECORD_BYTES, SCHEMA

POOL = "sift:/agents"
WAYS = ((4, 4), (16, 2), (128, 1))  # splits and the stages that they need for a hundred agents
USUAL = (16, 2)
TRACK_BYTES = 57  # of a row in a run of its own, with its index
MIB = 1 << 20


class LostRowsError(Exception):
    """Rows that were stored are not in their tracks once each. ``percent`` of all rows are in tracks."""

    def __init__(self, percent: float, why: str) -> None:
        super().__init__(why)
        self.percent = percent


@dataclass
class Task:
    """The data of one program: of each step, identifiers ``first`` to ``last``, in equal shares to its agents."""

    addresses: list[str]
    key_file: str
    pool: str
    first: int
    last: int
    steps: int
    seed: int


@dataclass
class Found:
    """Of one way over one link. Seconds since the programs began; processor seconds of all agents and programs."""

    stored: float
    over: float
    flush: float
    agents_cpu: float
    programs_cpu: float
    resident_mib: float


# ---- a program


def send(task: Task) -> None:
    """Sends all steps, as fast as they are taken."""
    order = np.random.default_rng(task.seed).permutation(np.arange(task.first, task.last, dtype=np.uint64))
    columns = {name: np.ones(order.size, dtype=np.float32) for name in NAMES}
    columns |= {"id": order, "type": np.ones(order.size, dtype=np.uint8)}
    share = -(-order.size // len(task.addresses))
    with ExitStack() as open_sessions:
        streams = []
        for address in task.addresses:
            session = open_sessions.enter_context(offpath.connect(address, key_file=task.key_file or None))
            streams.append(session.stream(f"from{task.first}", SCHEMA, rows_max=share, pool=task.pool))
            for values in columns.values():
                session.announce(values)
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.process_time()
        tickets = []
        for step in range(task.steps):
            for number, stream in enumerate(streams):
                part = slice(number * share, min((number + 1) * share, order.size))
                if part.start < part.stop:
                    tickets.append(stream.send({name: values[part] for name, values in columns.items()},
                                               (f"step{step:06}", f"{task.first}.{number}")))  # fmt: skip
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)
        print(json.dumps({"cpu": time.process_time() - began}), flush=True)


class Sender:
    """The process of a program."""

    def __init__(self, task: Task) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        self._say(json.dumps(asdict(task)))

    def _say(self, line: str) -> None:
        with suppress(BrokenPipeError):  # `hear` reports its end
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def begin(self) -> None:
        self._say("")

    def hear(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            _, said = self.process.communicate()
            raise ProgramError(f"a program that sends: {(said.strip().splitlines() or ['no reason given'])[-1]}")
        return line.strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


# ---- measurements


def sift(group: AgentGroup, key: str, way: tuple[int, int], particles: int, steps: int, programs: int) -> Found:
    """One pool from the first send to its end. Raises LostRowsError, ProgramError if a program fails."""
    count = len(group.ready)
    fanout, stages = way
    pool = f"{POOL}?key=id&stages={stages}&fanout={fanout}&threshold=8MiB&budget=64MiB&age=100ms"
    bounds = [particles * number // programs for number in range(programs + 1)]
    addresses = [each["address"] for each in group.ready]
    shares = [addresses[number * count // programs : (number + 1) * count // programs] for number in range(programs)]
    tasks = [Task(to or addresses[:1], key, pool, bounds[number], bounds[number + 1], steps, number)
             for number, to in enumerate(shares)]  # fmt: skip
    with connect(group, 0, key) as session, ExitStack() as senders:
        session.pool(pool).create()
        started = []
        for task in tasks:
            started.append(Sender(task))
            senders.callback(started[-1].end)
        for each in started:
            if each.hear() != "ready":
                raise ProgramError("a program did not get ready")
        before = sum(cpu_seconds(pid) for pid in group.pids)
        began = time.perf_counter()
        for each in started:
            each.begin()
        spent = [json.loads(each.hear())["cpu"] for each in started]
        stored = time.perf_counter() - began
        tracks = session.tracks(POOL)
        tracks.flush(PATIENCE_S)
        over = time.perf_counter() - began
        cpu = sum(cpu_seconds(pid) for pid in group.pids) - before
        resident = statistics.median(resident_kib(pid) for pid in group.pids) / 1024
        check(session, tracks, particles, steps)
        tracks.drop(PATIENCE_S)
        group.show_logs(0.0)
    return Found(stored, over, over - stored, cpu, sum(spent), resident)


def check(session: offpath.Session, tracks: offpath.tracks.Tracks, particles: int, steps: int) -> None:
    """All rows are there, and some tracks are whole. Raises LostRowsError."""
    rows = session.pool(POOL).query(aggregates={"rows": "count"}, timeout=PATIENCE_S)["rows"][0].as_py()
    percent = 100 * rows / (particles * steps)
    if rows != particles * steps:
        raise LostRowsError(percent, f"{rows} of {particles * steps} rows are in tracks")
    for identifier in (0, particles // 2, particles - 1):
        found = tracks.track(identifier)["step"].to_pylist()
        if found != list(range(steps)):
            raise LostRowsError(percent, f"track {identifier} has the steps {found[:10]} of {steps}")


def add_kept(report: Report, link: str, percent: float, why: str | None = None) -> None:
    """A row that fails if rows were lost, which is not the same as an unmeasured figure."""
    name = f"sift.agents_rows_kept ({link})"
    report.claims.append(Claim(name, percent, "%", target="100 %", holds=why is None, why=why))


def measure(report: Report, agents: int, particles: int, steps: int, programs: int = 4) -> None:
    """Adds the rows ``sift.agents_*`` and the ways of figure 7 for each link. If a pool loses rows, the link's claim
    ``sift.agents_rows_kept`` fails."""
    share = particles * steps // agents * TRACK_BYTES // MIB
    memory = max(4 * share + 256, 256)  # tracks and the runs they are merged from, stages, and a reserve
    for link in LINKS:
        try:
            measure_link(report, link, memory, agents, particles, steps, programs)
            add_kept(report, link, 100.0)
        except LostRowsError as lost:
            add_kept(report, link, lost.percent, str(lost))
        except (AgentUnavailableError, ProgramError, Error) as error:
            row = (f"sift.agents_records_s ({link})", "M/s", None)
            if any(claim.claim == row[0] for claim in report.claims):
                row = (f"sift.agents_ways_s ({link})", "s", None)
            report.add_unmeasured([row], str(error))


def measure_link(
    report: Report, link: str, memory: int, agents: int, particles: int, steps: int, programs: int
) -> None:
    with group_of(agents, link, memory) as (group, key):
        sift(group, key, USUAL, max(particles // 100, agents), 1, programs)  # memory, channels between all
        found = sift(group, key, USUAL, particles, steps, programs)
        add_rows(report, link, agents, particles, steps, programs, found)
        for way in WAYS:
            found = sift(group, key, way, particles, 1, programs)
            name = f"{link}: {way[0]} splits, {way[1]} stage{'s' if way[1] > 1 else ''}"
            for part, seconds in (("stored", found.stored), ("flush", found.flush)):
                report.series.append(
                    Series("sift_fig7_agents", f"{name}/{part}", "particles", "s", [float(particles)], [seconds])
                )


def add_rows(report: Report, link: str, agents: int, particles: int, steps: int, programs: int, found: Found) -> None:
    rows = particles * steps
    detail = f"{agents} agents, {programs} programs, {particles / 1e6:.3g} M particles, {steps} steps, all on " \
             f"{len(os.sched_getaffinity(0))} cores"  # fmt: skip
    for what, value, unit in (
        (f"records_s ({link})", rows / found.over / 1e6, "M/s"),
        (f"gbps ({link})", rows * RECORD_BYTES / found.over / 1e9, "GB/s"),
        (f"flush_s ({link})", found.flush, "s"),
        (f"memory (one agent's, {link})", found.resident_mib, "MiB"),
        (f"host_cpu (the programs', {link})", found.programs_cpu / rows * 1e9, "ns a row"),
        (f"cpu (all agents', {link})", found.agents_cpu / rows * 1e9, "ns a row"),
        (f"total_cpu ({link}, agents included)", (found.programs_cpu + found.agents_cpu) / rows * 1e9, "ns a row"),
    ):
        report.claims.append(Claim(f"sift.agents_{what}", value, unit, holds=True, detail=detail))


if __name__ == "__main__":
    send(Task(**json.loads(sys.stdin.readline())))
