"""``offpath bench pool``: objects of 64 bytes, queries of particles where they lie, and a histogram of 10^8 rows.

Objects are put, got and dropped in the service of one agent, and got through one agent from another. Queries are both
of the paper's, beside DuckDB, Polars and pyarrow: the rows of a box of an eighth of the volume, and the extremes of the
squared velocity, of 8 M particles of 37 bytes, over the same Arrow data in memory. Rates are of whole records, for any
columns of a query. The histogram is in pool_histogram.py, gets from an agent of two loops in cores.py.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..errors import NotFound
from . import cores, figures, pool_peer
from .agent_process import AgentProcess, AgentUnavailableError, quota_words
from .intervals import median_interval
from .pool_histogram import measure_histogram
from .programs import ProgramError, default_cores, empty_report, find_program, run_program
from .report import Claim, Report, Series

if TYPE_CHECKING:
    from ..pool import Pool

PARTS = ("objects", "queries", "cores", "histogram")
RECORD_BYTES = 37
FRAMES = 8
PARTICLES = 8_000_000
TARGETS = {"duckdb": 1.1, "polars": 1.1}  # of the ratio
QUERIES = {"box": "filter of a box of 1/8", "speed": "extremes of v²"}
REMOTE_CLAIM = ("pool.remote_get_us_p50 (64 B)", "us", "<= 8 us")
NAMES = {"duckdb": "DuckDB", "polars": "Polars", "pyarrow": "pyarrow"}


def write_particles(folder: Path, particles: int) -> None:
    """FRAMES streams of one batch each. Positions in [0, 1), so that the box holds one in eight."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    rows = particles // FRAMES
    for number in range(FRAMES):
        columns = {"id": random.permutation(np.arange(number * rows, (number + 1) * rows, dtype=np.uint64))}
        columns |= {name: random.random(rows, dtype=np.float32) for name in "xyz"}
        columns |= {name: random.standard_normal(rows, dtype=np.float32) for name in ("vx", "vy", "vz", "q")}
        columns["type"] = random.integers(0, 4, rows, dtype=np.uint8)
        batch = pa.RecordBatch.from_pydict(columns)
        with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)


class Answering:
    """A process that answers queries one by one. Its costs are seconds."""

    def __init__(self, command: list[str]) -> None:
        self._command = command[0]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise ProgramError(f"{self._command}: {self._process.stderr.read().strip()[-400:]}")
        return line

    def ask(self, query: str) -> tuple[float, tuple[float, ...]]:
        self._process.stdin.write(query + "\n")
        self._process.stdin.flush()
        return self.next()

    def next(self) -> tuple[float, tuple[float, ...]]:
        """Its next output, on request or not."""
        spent_ns, *answer = self._line().split()
        return int(spent_ns) / 1e9, tuple(float(value) for value in answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextmanager
def answering(folder: Path, threads: int, engines: list[str]) -> Iterator[dict[str, Answering]]:
    """Ours, ours by plans alone, and the peers, each in a process of its own."""
    program = str(find_program("bench_pool_query"))
    sides: dict[str, Answering] = {}
    try:
        for way in ("loops", "acero"):
            command = [*quota_words(), program, str(folder), "--threads", str(threads), "--way", way]
            sides[way] = Answering(command)
        for engine in engines:
            sides[engine] = Answering([sys.executable, "-m", pool_peer.__name__, engine, str(threads), str(folder)])
        yield sides
    finally:
        for side in sides.values():
            side.close()


def take_turns(sides: dict[str, Answering], query: str, turns: int) -> dict[str, list[float]]:
    """Costs of each side, interleaved, beginning in turn. Raises ProgramError if answers differ."""
    costs: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for turn in range(-2, turns):
        answers = {}
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            cost, answers[name] = sides[name].ask(query)
            if turn >= 0:
                costs[name].append(cost)
        ours = answers["loops"]
        for name, answer in answers.items():
            if any(abs(one - other) > 1e-4 * max(1, abs(one)) for one, other in zip(ours, answer, strict=True)):
                raise ProgramError(f"{query}: we answer {ours}, {name} {answer}")
    return costs


def measure_objects(report: Report, quick: bool, console: Console) -> None:
    """Objects of 64 bytes: in one service, and between two agents."""
    core, other_core = default_cores()
    arguments = ["--host-core", str(core), "--agent-core", str(other_core), *(["--quick"] if quick else [])]
    with console.status("objects of 64 bytes, one service"):
        report.absorb(run_program("bench_pool_local", arguments))
    try:
        with console.status("objects of 64 bytes, two agents"):
            report.absorb(measure_remote(arguments, core, other_core))
    except (AgentUnavailableError, ProgramError) as error:
        report.add_unmeasured([REMOTE_CLAIM], str(error))


def measure_remote(arguments: list[str], core: int, other_core: int) -> Report:
    """A program gets from its own agent, on the other core, and through that from one on its own core."""
    import offpath

    with (
        AgentProcess.start(other_core, others=("agent.name=near",)) as near,
        AgentProcess.start(core, others=("agent.name=far", f"group.members={near.address}")),
    ):
        names = {"--own": "hash:/near?members=near", "--other": "hash:/far?members=far"}
        with offpath.connect(near.address) as session:
            for name in names.values():
                put_when_joined(session.pool(name))
        named = [word for option, name in names.items() for word in (option, name)]
        return run_program("bench_pool_remote", [*arguments, "--agent", near.address, *named])


def put_when_joined(pool: Pool) -> None:
    """Puts an object as soon as the pool's member has joined the group, which takes a moment after its start."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return pool.put(bytes(range(64)), "step0", "rank0", timeout=60)
        except NotFound:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def run(out: Path, quick: bool, console: Console, parts: Sequence[str] = PARTS) -> Report:
    """Measures, draws figures 3 and 4 into ``out`` and prints the table. Returns the report."""
    report = empty_report("pool")
    if "objects" in parts:
        measure_objects(report, quick, console)
    if "queries" in parts:
        measure_queries(report, quick, console)
    if "cores" in parts:
        measure_cores(report, quick, console)
    if "histogram" in parts:
        measure_histogram(report, quick, console)
    report.conclude(console, quick=quick)
    for path in figures.draw_pool(report, out):
        console.print(f"drawn: {path}")
    return report


def measure_cores(report: Report, quick: bool, console: Console) -> None:
    try:
        with console.status("gets from agents of one loop and of two"):
            report.claims += cores.measure(cores.GETS, quick).claims
    except (AgentUnavailableError, ProgramError) as error:
        report.add_unmeasured(cores.GETS.claims, str(error))


def measure_queries(report: Report, quick: bool, console: Console) -> None:
    engines = [name for name in pool_peer.ENGINES if importlib.util.find_spec(name)]
    particles, turns = (80_000, 3) if quick else (PARTICLES, 21)
    cores = len(os.sched_getaffinity(0))
    lines: dict[tuple[str, str], Series] = {}
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        folder = Path(directory)
        write_particles(folder, particles)
        for threads in range(1, cores + 1):
            with console.status(f"{threads} threads"), answering(folder, threads, engines) as sides:
                for query in QUERIES:
                    costs = take_turns(sides, query, turns)
                    add(report, lines, query, threads, particles, costs)
    for name in TARGETS:
        if name not in engines:  # a missing peer does not make a claim hold
            report.add_unmeasured(
                [(claim_name(query, name, threads), "GB/s", target_text(name))
                 for query in QUERIES for threads in range(1, cores + 1)],
                f"{NAMES[name]} is not installed",
            )  # fmt: skip
    report.series += lines.values()


def claim_name(query: str, engine: str, threads: int) -> str:
    return f"pool.query_vs_{engine} ({QUERIES[query]}, {threads} thread{'s' if threads > 1 else ''})"


def target_text(engine: str) -> str | None:
    return f">= {TARGETS[engine]:g}x" if engine in TARGETS else None


def add(
    report: Report,
    lines: dict[tuple[str, str], Series],
    query: str,
    threads: int,
    particles: int,
    costs: dict[str, list[float]],
) -> None:
    """A claim against DuckDB and Polars each, a row for the others, a point of each line."""
    rate = {name: particles * RECORD_BYTES / 1e9 / statistics.median(spent) for name, spent in costs.items()}
    for name, value in rate.items():
        label = {"loops": "Offpath", "acero": "Offpath, Acero alone"}.get(name) or NAMES[name]
        line = lines.setdefault((query, name), Series(f"pool_fig4_{query}", label, "threads", "GB/s", [], []))
        line.x.append(threads)
        line.y.append(value)
        if name == "loops":
            continue
        ratios = [peer / ours for peer, ours in zip(costs[name], costs["loops"], strict=True)]
        ratio = statistics.median(ratios)
        report.claims.append(
            Claim(
                claim_name(query, name, threads),
                rate["loops"],
                "GB/s",
                label,
                value,
                ratio,
                target_text(name),
                ratio >= TARGETS.get(name, 0),
                median_interval(ratios),
                len(ratios),
            )
        )
