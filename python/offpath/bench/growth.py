"""``offpath bench growth``: the cost of each service as its load grows.

Every part gives lines over a number, drawn on logarithmic axes, and for each line the slope by least squares of the
logarithms: 0 if the cost does not depend on the number, 1 if it grows in proportion. Where a line is steepest is named.
"""

from __future__ import annotations

import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

import offpath

from ..errors import Error
from . import figures
from .agent_process import AgentProcess, AgentUnavailableError
from .process_cost import resident_kib
from .programs import ProgramError, default_cores, empty_report, run_program
from .report import Claim, Report, Series

MIB = 1 << 20
SCHEMA = pa.schema([("x", pa.float64())])
ROWS = 512  # of a small frame: one page
PATIENCE_S = 60.0
STREAMS_OF_PROGRAM = 1000  # a channel's limit is 1,024
DESCRIPTORS_OF_PROGRAM = 9  # of a session in this process
REST_S = 0.3  # by then an idle channel is not polled (src/channel/agent_end_options.h)
LIMITS = ("limits.streams_max=262144", "limits.user_streams_max=262144")
WINDOW = "memory.window=64KiB"  # credit that each open stream is promised, of 12 GiB for all


def slope(x: list[float], y: list[float]) -> float:
    """The slope by least squares of the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def steepest(line: Series) -> str:
    """The two neighbouring points between which the cost grows most, and their slope."""
    steps = [(log(y2 / y1) / log(x2 / x1), x1, x2) for (x1, y1), (x2, y2) in pairwise(zip(line.x, line.y, strict=True))]
    rise, first, last = max(steps)
    return f"{line.y[0]:.3g} {line.y_unit} at {line.x[0]:,g}, {line.y[-1]:.3g} at {line.x[-1]:,g}; steepest from " \
           f"{first:,g} to {last:,g}: {rise:.2f}"  # fmt: skip


def send_us(stream: offpath.Stream, columns: dict[str, np.ndarray]) -> tuple[float, float]:
    """Microseconds of the post, and until the frame is stored. A frame replaces the one before."""
    began = time.perf_counter_ns()
    ticket = stream.send(columns, key=("step", "rank"))
    posted = time.perf_counter_ns()
    ticket.wait_stored(PATIENCE_S)
    return (posted - began) / 1e3, (time.perf_counter_ns() - began) / 1e3


def medians(streams: Iterable[offpath.Stream], columns: dict[str, np.ndarray]) -> tuple[float, float]:
    """The medians of one send on each stream, in their order."""
    posts, stores = zip(*(send_us(stream, columns) for stream in streams), strict=True)
    return statistics.median(posts), statistics.median(stores)


class Lines:
    """The lines of one part, by their names."""

    def __init__(self, part: str, x_unit: str, names: Iterable[str]) -> None:
        self._lines = {name: Series(f"growth_{part}", name, x_unit, "us", [], []) for name in names}

    def add(self, x: float, costs: Iterable[float]) -> None:
        for line, cost in zip(self._lines.values(), costs, strict=True):
            line.x.append(x)
            line.y.append(cost)

    def series(self) -> list[Series]:
        return list(self._lines.values())


def programs_max() -> int:
    """The sessions that this process may have descriptors for, once its limit is as high as it may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return (hard - 100) // DESCRIPTORS_OF_PROGRAM


def measure_programs(report: Report, quick: bool) -> None:
    """Programs that are connected: one of them sends when all have just sent, and when the others have been idle; and
    all send by turns."""
    numbers = (1, 2, 4) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
    lines = Lines("programs", "programs", ["one of them sends", "one sends, the others idle", "all send by turns"])
    columns = {"x": np.zeros(ROWS)}
    with AgentProcess.start(default_cores()[1], others=(WINDOW,)) as agent, ExitStack() as sessions:
        streams: list[offpath.Stream] = []
        for number in (each for each in numbers if each <= programs_max()):
            while len(streams) < number:
                session = sessions.enter_context(offpath.connect(agent.address, name=f"program{len(streams)}"))
                streams.append(session.stream(f"s{len(streams)}", SCHEMA, rows_max=ROWS, pool=f"local:/{len(streams)}"))
            turns = 20 if quick else 1000
            medians(streams, columns)  # the first send of each finds no memory
            one = medians(streams[:1] * turns, columns)[1]
            time.sleep(REST_S)
            alone = medians(streams[:1] * turns, columns)[1]
            lines.add(number, (one, alone, medians((streams * turns)[:turns], columns)[1]))
    report.series += lines.series()


def measure_streams(report: Report, quick: bool) -> None:
    """Open streams, in as many programs as they need; sends go to 50 of them."""
    numbers = (1, 10, 100) if quick else (1, 10, 100, 1000, 10_000, 100_000)
    lines = Lines("streams", "open streams", ["post", "until it is stored", "opening another one"])
    columns = {"x": np.zeros(ROWS)}
    chosen = random.Random(3)
    with AgentProcess.start(default_cores()[1], others=(*LIMITS, WINDOW)) as agent, ExitStack() as sessions:
        streams: list[offpath.Stream] = []
        before = resident_kib(agent.process.pid)
        for number in numbers:
            opened_us = []
            while len(streams) < number:
                if len(streams) % STREAMS_OF_PROGRAM == 0:
                    session = sessions.enter_context(offpath.connect(agent.address, name=f"program{len(streams)}"))
                began = time.perf_counter_ns()
                streams.append(session.stream(f"s{len(streams)}", SCHEMA, rows_max=ROWS, pool="local:/growth"))
                opened_us.append((time.perf_counter_ns() - began) / 1e3)
            turns = 20 if quick else 1000
            some = chosen.sample(streams, min(number, 50))
            medians(some, columns)
            costs = medians((some * turns)[:turns], columns)
            lines.add(number, (*costs, statistics.median(opened_us)))
        each = (resident_kib(agent.process.pid) - before) / numbers[-1]
        report.claims.append(Claim("growth.streams_memory (the agent's, of an open stream)", each, "KiB", holds=True))
    report.series += lines.series()


def measure_objects(report: Report, quick: bool) -> None:
    core, other_core = default_cores()
    arguments = ["--host-core", str(core), "--agent-core", str(other_core), "--part", "growth"]
    report.absorb(run_program("bench_pool_local", [*arguments, *(["--quick"] if quick else [])]))


def measure_shapes(report: Report, part: str, x_unit: str, shapes: list[tuple[int, int, int]], quick: bool) -> None:
    """Frames of so many columns and rows, the number of the x axis first."""
    lines = Lines(part, x_unit, ["post", "until it is stored"])
    for number, columns, rows in shapes:
        schema = pa.schema([(f"c{i}", pa.float64()) for i in range(columns)])
        with AgentProcess.start(default_cores()[1]) as agent, offpath.connect(agent.address) as session:
            stream = session.stream("frames", schema, rows_max=rows, pool="local:/growth")
            arrays = {name: np.zeros(rows) for name in schema.names}
            kept = [session.announce(values) for values in arrays.values()]
            medians([stream] * 3, arrays)
            lines.add(number, medians([stream] * (3 if quick else 101), arrays))
            for each in kept:
                each.retire()
    report.series += lines.series()


def measure_frames(report: Report, quick: bool) -> None:
    sizes = (1, 2) if quick else (1, 2, 4, 8, 16, 32, 64)
    shapes = [(size, 16, size * MIB // 16 // 8) for size in sizes]
    measure_shapes(report, "frames", "MiB in 16 columns", shapes, quick)


def measure_columns(report: Report, quick: bool) -> None:
    """As many bytes in more and more columns."""
    numbers = (1, 4, 16) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    shapes = [(number, number, 4 * MIB // number // 8) for number in numbers]
    measure_shapes(report, "columns", "columns of 4 MiB", shapes, quick)


MEASURES: dict[str, Callable[[Report, bool], None]] = {
    "streams": measure_streams,
    "objects": measure_objects,
    "frames": measure_frames,
    "columns": measure_columns,
    "programs": measure_programs,
}


def add_slopes(report: Report) -> None:
    """A row without a target for each line."""
    for line in report.series:
        part = line.figure.removeprefix("growth_")
        report.claims.append(
            Claim(f"growth.{part} ({line.name})", slope(line.x, line.y), f"slope over {line.x_unit}", holds=True,
                  detail=steepest(line))
        )  # fmt: skip


def draw(report: Report, out: Path) -> list[Path]:
    """Draws a figure for each part; returns the paths."""
    drawn = []
    for name in dict.fromkeys(line.figure for line in report.series):
        figure, axes = figures.new_figure(1, 1)
        lines = figures.lines_of(report, name)
        for line in lines:
            label = f"{line.name}, slope {slope(line.x, line.y):.2f}"
            axes[0][0].plot(line.x, line.y, marker="o", markersize=3, label=label)
        axes[0][0].set(xscale="log", yscale="log", xlabel=lines[0].x_unit, ylabel=lines[0].y_unit)
        axes[0][0].grid(alpha=0.3)
        axes[0][0].legend(fontsize="small")
        drawn.append(figures.save(figure, out, name, "svg"))
    return drawn


def run(out: Path, quick: bool, parts: list[str], console: Console) -> Report:
    """Measures, draws a figure for each part into ``out`` and prints the table. Returns the report."""
    report = empty_report("growth")
    for part in parts:
        try:
            with console.status(f"growth: {part}"):
                MEASURES[part](report, quick)
        except (AgentUnavailableError, ProgramError, Error) as error:
            report.add_unmeasured([(f"growth.{part}", "", None)], str(error))
    add_slopes(report)
    report.conclude(console, quick=quick)
    for path in draw(report, out):
        console.print(f"drawn: {path}")
    return report
