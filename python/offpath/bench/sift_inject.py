"""Injection: from a rank's arrays to frames that a sift pool has stored, beside the same frames into a plain pool.

Run against an agent of the benchmark's own. The sift pool's threshold is larger than the data, so that nothing is split
while the clock runs: splits are jobs on other cores of a DPU. Their cost on one core with the loop has a claim of its
own, beside the rate at which that core splits and does nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import offpath

from .agent_process import AgentProcess, are_weak
from .intervals import median_interval
from .pool import Answering
from .programs import find_program
from .report import Claim, Report, Series

RECORD_BYTES = 37
MIB = 1 << 20
NAMES = ("x", "y", "z", "vx", "vy", "vz", "q")
SCHEMA = pa.schema([("id", pa.uint64()), *((name, pa.float32()) for name in NAMES), ("type", pa.uint8())])
STAGES = ("post", "pull", "store")
PATIENCE_S = 120.0
HELD = "threshold=4GiB&age=1h&budget=10GiB"  # nothing is split
SIFTED = "threshold=64MiB&budget=4GiB"
POOLS = {
    "sift": f"sift:/inject?key=id&stages=2&fanout=16&{HELD}",
    "sifting": f"sift:/inject?key=id&stages=2&fanout=16&{SIFTED}",
    "move": "local:/moved",
}
TARGET = 0.85
SIFTING_TARGET = 0.5  # of the rate of the split alone
SPLIT_ROWS = 8_000_000  # of the peer: its rate does not depend on them
# Pulled bytes may be in use, in the cache, and promised as credit.
MEMORY = ("memory.bytes_max=12GiB", "memory.window=1GiB", "memory.cached_max=3GiB")


def particles(rows: int) -> dict[str, np.ndarray]:
    """Random identifiers; every page of the rest is there."""
    random = np.random.default_rng(7)
    columns = {"id": random.permutation(np.arange(rows, dtype=np.uint64))}
    columns |= {name: np.ones(rows, dtype=np.float32) for name in NAMES}
    return columns | {"type": np.ones(rows, dtype=np.uint8)}


@dataclass
class Injection:
    """Seconds since the first post until all was posted, pulled and stored."""

    posted: float
    pulled: float
    stored: float

    def stages(self) -> tuple[float, float, float]:
        return self.posted, self.pulled - self.posted, self.stored - self.pulled


@contextmanager
def fresh_pool(session: offpath.Session, pool: str, rows_max: int) -> Iterator[offpath.Stream]:
    """A stream into a pool that is dropped with all that was sent, whose memory the next one finds."""
    stream = session.stream("particles", SCHEMA, rows_max=rows_max, pool=pool)
    try:
        yield stream
    finally:
        stream.close(PATIENCE_S)
        name = pool.partition("?")[0]
        if name.startswith("sift:"):
            session.tracks(name).drop(PATIENCE_S)
        else:
            session.pool(name).drop(timeout=PATIENCE_S)


def inject(stream: offpath.Stream, columns: dict[str, np.ndarray], rows: int, fragment_rows: int) -> Injection:
    """Sends ``rows`` of the columns in fragments, from where they lie."""
    began = time.perf_counter()
    for number, first in enumerate(range(0, rows, fragment_rows)):
        last = min(first + fragment_rows, rows)
        ticket = stream.send(
            {name: values[first:last] for name, values in columns.items()}, ("step0", f"fragment{number}")
        )
    posted = time.perf_counter() - began
    ticket.wait_pulled(PATIENCE_S)
    pulled = time.perf_counter() - began
    ticket.wait_stored(PATIENCE_S)
    return Injection(posted, pulled, time.perf_counter() - began)


def measure(report: Report, core: int, quick: bool) -> None:
    """Adds ``sift.inject_gbps_vs_move``, ``sift.inject_gbps_while_sifting`` and figure 6."""
    sizes = [100_000] if quick else [1 << 20, 4 << 20, 16 << 20, 64 << 20]
    fragments = [MIB, 4 * MIB] if quick else [MIB, 4 * MIB, 16 * MIB, 64 * MIB]
    columns = particles(sizes[-1])
    # An agent for each size: its cache would keep buffers of former sizes, and the benchmark would measure new pages.
    for fragment in fragments:
        fragment_rows = fragment // RECORD_BYTES
        with AgentProcess.start(core, others=MEMORY) as agent, offpath.connect(agent.address) as session:
            kept = [session.announce(values) for values in columns.values()]  # once, as memory that stays is

            def once(pool: str, rows: int, fragment_rows=fragment_rows, session=session) -> Injection:
                with fresh_pool(session, POOLS[pool], fragment_rows) as stream:
                    return inject(stream, columns, rows, fragment_rows)

            once("sift", sizes[-1])  # fills the cache
            if fragment == fragments[-1]:
                add_claim(report, once, sizes[-1], fragment, 3 if quick else 21)
            add_figure(report, once, sizes, fragment, 1 if quick else 5)
            if fragment == fragments[-1]:
                with splitting(core, min(SPLIT_ROWS, sizes[-1])) as split:
                    # Shown only, and half a minute each, of a weak agent.
                    add_sifting_claim(report, once, split, sizes[-1], 5 if are_weak() else 3 if quick else 21)
            for announcement in kept:
                announcement.retire()


@contextmanager
def splitting(core: int, rows: int) -> Iterator[Callable[[], float]]:
    """Nanoseconds of a byte when ``core`` does nothing but split so many of the same records into 16 parts."""
    program = str(find_program("bench_sift_partition"))
    peer = Answering([program, "--host-core", str(core), "--part", "turns", "--rows", str(rows)])
    try:
        yield lambda: peer.ask("split")[0] * 1e9 / (rows * RECORD_BYTES)
    finally:
        peer.close()


def add_sifting_claim(
    report: Report, once: Callable[[str, int], Injection], split: Callable[[], float], rows: int, pairs: int
) -> None:
    """The largest size in the largest fragments while its splits are under way; the sides begin in turn."""
    sides = {"ours": lambda: once("sifting", rows).stored * 1e9 / (rows * RECORD_BYTES), "split": split}
    spent: dict[str, list[float]] = {side: [] for side in sides}
    for pair in range(-1, pairs):
        for side in sorted(sides, reverse=pair % 2 == 0):
            ns = sides[side]()
            if pair >= 0:
                spent[side].append(ns)
    ratios = [peer / ours for ours, peer in zip(spent["ours"], spent["split"], strict=True)]
    ratio, ours, peer = (statistics.median(values) for values in (ratios, *spent.values()))
    report.claims.append(
        Claim("sift.inject_gbps_while_sifting (one core for loop and splits)", 1 / ours, "GB/s",
              "that core splits into 16 parts, and nothing else", 1 / peer, ratio, f">= {SIFTING_TARGET:g}",
              ratio >= SIFTING_TARGET, median_interval(ratios), len(ratios))
    )  # fmt: skip


def add_claim(report: Report, once, rows: int, fragment_bytes: int, pairs: int) -> None:
    """The largest size in the largest fragments; the sides begin in turn."""
    spent: dict[str, list[float]] = {"sift": [], "move": []}
    for pair in range(-1, pairs):
        for pool in ("sift", "move") if pair % 2 else ("move", "sift"):
            seconds = once(pool, rows).stored
            if pair >= 0:
                spent[pool].append(seconds)
    ratios = [move / sift for sift, move in zip(spent["sift"], spent["move"], strict=True)]
    ratio = statistics.median(ratios)
    rate = {pool: rows * RECORD_BYTES / 1e9 / statistics.median(seconds) for pool, seconds in spent.items()}
    report.claims.append(
        Claim(
            "sift.inject_gbps_vs_move",
            rate["sift"],
            "GB/s",
            "the same frames into a plain pool",
            rate["move"],
            ratio,
            f">= {TARGET:g}",
            ratio >= TARGET,
            median_interval(ratios),
            len(ratios),
            detail=f"{rows / 1e6:.3g} M particles in fragments of {fragment_bytes // MIB} MiB",
        )
    )


def add_figure(report: Report, once, sizes: list[int], fragment_bytes: int, turns: int) -> None:
    """One panel of figure 6: medians of each stage over the sizes."""
    lines = {stage: Series(f"sift_fig6_{fragment_bytes // MIB}", stage, "particles", "s", [], []) for stage in STAGES}
    for rows in sizes:
        found = [once("sift", rows).stages() for _ in range(turns)]
        for stage, seconds in zip(STAGES, zip(*found, strict=True), strict=True):
            lines[stage].x.append(float(rows))
            lines[stage].y.append(statistics.median(seconds))
    report.series += lines.values()
