"""``offpath bench move --part cores`` and ``offpath bench pool --part cores``: how rates grow with programs when an
agent has two loops (``agent.cores``).

Two agents, one with a loop and one with two, are measured by turns with 1, 2, 4 and 8 programs, each of which works as
fast as it can. The kernel places loops and programs. A second loop can show what it brings only where it has a core of
its own: on two cores, which loops and programs share, the figures show what it costs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import offpath

from .agent_process import AgentProcess
from .intervals import median_interval
from .programs import ProgramError, find_program
from .report import Claim, Report

PROGRAMS = (1, 2, 4, 8)
TARGET = 1.6
LOOPS = 2
PAIRS, QUICK_PAIRS = 21, 3


@dataclass(frozen=True)
class Work:
    """Measures programs, and makes the rows that show it: one for each size and number of programs."""

    claim: str
    unit: str
    in_unit: float  # of what a program counts
    sizes: Mapping[str, int]
    prepare: Callable[[str], None]  # an agent, by its address
    # The programs' commands: address, number, size, quick. A turn is long beside what they begin or end apart.
    commands: Callable[[str, int, int, bool], list[list[str]]]

    def name(self, programs: int, size: str) -> str:
        return f"{self.claim} ({programs} programs, {size})"

    @property
    def claims(self) -> list[tuple[str, str, str | None]]:
        return [(self.name(count, size), self.unit, target_of(count)) for size in self.sizes for count in PROGRAMS]


OUTSTANDING = 4
BYTES_OF_TURN, QUICK_BYTES = 512 << 20, 8 << 20  # of all programs together


def moves(address: str, programs: int, size: int, quick: bool) -> list[list[str]]:
    batches = max((QUICK_BYTES if quick else BYTES_OF_TURN) // size // programs, 4)
    command = [str(find_program("bench_move_rate")), address, str(size), str(OUTSTANDING), str(batches)]
    return [[*command, f"rate{number}"] for number in range(programs)]


POOL = "local:/rate"
OBJECTS = 256
GETS_OF_TURN, QUICK_GETS = 40_000, 400


def put_objects(address: str) -> None:
    with offpath.connect(address) as session:
        pool = session.pool(POOL)
        for row in range(OBJECTS):
            pool.put(bytes(SMALL["64 B"]), str(row), "bench", timeout=60)


def gets(address: str, programs: int, _size: int, quick: bool) -> list[list[str]]:
    count = (QUICK_GETS if quick else GETS_OF_TURN) // programs
    command = [str(find_program("bench_pool_rate")), address, POOL, str(OBJECTS), str(count)]
    return [[*command, str(number * OBJECTS // programs)] for number in range(programs)]


SMALL = {"64 B": 64}
MOVES = Work("move.cores_rate", "MB/s", 1e-6, {"64 KiB": 64 << 10, "1 MiB": 1 << 20}, lambda _: None, moves)
GETS = Work("pool.cores_rate", "gets/s", 1, SMALL, put_objects, gets)


def target_of(programs: int) -> str | None:
    """One program is on one loop."""
    return f">= {TARGET:g}x" if programs >= LOOPS else None


def why_undecided(cores: int) -> str | None:
    """Why a machine of so many cores cannot tell: each loop, and programs to keep it busy, need one."""
    if cores >= 2 * LOOPS:
        return None
    return f"{cores} cores, which {LOOPS} loops and the programs share: the second loop has none of its own"


@contextmanager
def agent_of(loops: int) -> Iterator[AgentProcess]:
    """An agent that may use all cores."""
    cores = sorted(os.sched_getaffinity(0))
    widened = ("taskset", "-c", ",".join(map(str, cores)))
    with AgentProcess.start(cores[0], others=(f"agent.cores={loops}",), launcher=widened) as agent:
        yield agent


def rate_together(commands: list[list[str]]) -> float:
    """How much programs do in a second, from the first one's begin to the last one's end. They begin when all are
    ready: the sum of each one's own rate would count what they do one after the other. Raises ProgramError."""
    with ExitStack() as running:
        started = []
        for command in commands:
            process = running.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
            running.callback(process.kill)
            started.append(process)
        for process in started:
            if process.stdout.readline() != "ready\n":
                raise ProgramError(why_ended(process))
        for process in started:
            with suppress(BrokenPipeError):  # its end is told below
                process.stdin.write("go\n")
                process.stdin.flush()
        spans = []
        for process in started:
            spans.append([float(number) for number in process.stdout.readline().split()])
            if len(spans[-1]) != 3:
                raise ProgramError(why_ended(process))
    began, ended = min(span[1] for span in spans), max(span[2] for span in spans)
    return sum(span[0] for span in spans) / (ended - began) * 1e9


def why_ended(process: subprocess.Popen[str]) -> str:
    _, error = process.communicate()
    return error.strip() or f"a program of the benchmark ended with status {process.returncode}"


def claim_of(work: Work, programs: int, size: str, pairs: list[tuple[float, float]], cores: int) -> Claim:
    """From pairs of rates of (two loops, one loop)."""
    ratios = [two / one for two, one in pairs]
    ratio, target = statistics.median(ratios), target_of(programs)
    interval = median_interval(ratios)
    why = why_undecided(cores) if target else None
    return Claim(
        work.name(programs, size), statistics.median(two for two, _ in pairs), work.unit, "one loop",
        statistics.median(one for _, one in pairs), ratio, target,
        holds=target is None or (why is None and ratio >= TARGET), interval=interval, pairs=len(pairs), why=why,
    )  # fmt: skip


def measure(work: Work, quick: bool, measured: Callable[[list[list[str]]], float] = rate_together) -> Report:
    """Both agents by turns; who begins changes."""
    report = Report(work.claim.partition(".")[0], commit="", machine="")  # known by the programs
    cores = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        agents = {loops: stack.enter_context(agent_of(loops)).address for loops in (1, LOOPS)}
        for address in agents.values():
            work.prepare(address)
        for size, length in work.sizes.items():
            for programs in PROGRAMS:
                pairs = []
                for turn in range(QUICK_PAIRS if quick else PAIRS):
                    order = (1, LOOPS) if turn % 2 else (LOOPS, 1)
                    found = {
                        loops: work.in_unit * measured(work.commands(agents[loops], programs, length, quick))
                        for loops in order
                    }
                    pairs.append((found[LOOPS], found[1]))
                report.claims.append(claim_of(work, programs, size, pairs, cores))
    return report
