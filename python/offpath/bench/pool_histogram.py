"""The part ``histogram`` of ``offpath bench pool``: a picture of 10^8 rows.

An agent counts two columns in bins, beside a program that reads these columns and counts them with NumPy, object by
object. Both ask over a Unix socket, by turns; the agent and the program have a core each. Bytes moved are
`answered_bytes` of the agent's queries.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..agent_http import fetch_status
from ..errors import Error
from .agent_process import AgentProcess, AgentUnavailableError
from .intervals import median_interval
from .programs import ProgramError, default_cores
from .report import Claim, Report

if TYPE_CHECKING:
    from ..pool import Pool

ROWS, QUICK_ROWS = 100_000_000, 800_000
OBJECTS = 8
BINS = 256
LIMITS = ((-3.0, 3.0), (-3.0, 3.0))
PEER = "reading the columns, numpy.histogram2d"
MOVED_MIB_MAX = 1
STATUS_SECONDS_MAX = 60.0
CLAIMS: list[tuple[str, str, str | None]] = [
    ("pool.histogram2d (100 M rows, 256 x 256 bins)", "s", ">= 1x"),
    ("pool.histogram2d_moved (100 M rows, 256 x 256 bins)", "MiB", f"<= {MOVED_MIB_MAX} MiB"),
]


def fill(pool: Pool, rows: int) -> None:
    """x and y of a normal distribution, and an unused column."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    for number in range(OBJECTS):
        columns: dict[str, Any] = {name: random.standard_normal(rows // OBJECTS) for name in "xy"}
        columns["id"] = np.arange(rows // OBJECTS)
        pool.put(pa.table(columns), f"step0.{number}", timeout=60)


def counted_by_agent(pool: Pool) -> Any:
    return pool.histogram2d("x", "y", BINS, LIMITS)[0]


def counted_here(pool: Pool) -> Any:
    import numpy as np

    counts = np.zeros((BINS, BINS))
    for frame in pool.query_frames(columns=["x", "y"]):
        table = frame.table()
        counts += np.histogram2d(table["x"].to_numpy(), table["y"].to_numpy(), BINS, LIMITS)[0]
    return counts


def answered_bytes(http: str, queries: int) -> int:
    """When so many queries have ended. Raises ProgramError."""
    deadline = time.monotonic() + STATUS_SECONDS_MAX
    while True:
        counters = fetch_status(http)["queries"]
        if counters["queries"] == queries and counters["open"] == 0:
            return int(counters["answered_bytes"])
        if time.monotonic() > deadline:
            raise ProgramError(f"the agent counts {counters['queries']} queries, {queries} were made")
        time.sleep(0.02)


def measure(pool: Pool, http: str, turns: int) -> list[Claim]:
    """The claims. Raises ProgramError if the counts differ."""
    import numpy as np

    sides: dict[str, Callable[[Pool], Any]] = {"agent": counted_by_agent, "here": counted_here}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    moved: dict[str, int] = {}
    queries, before = 0, answered_bytes(http, 0)
    for turn in range(-1, turns):
        counts = {}
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            counts[name] = sides[name](pool)
            if turn >= 0:
                seconds[name].append(time.perf_counter() - begin)
            queries += 1
            now = answered_bytes(http, queries)
            moved[name], before = now - before, now
        if not np.array_equal(counts["agent"], counts["here"]):
            raise ProgramError("the agent's counts are not those of numpy.histogram2d")
    ratios = [peer / ours for peer, ours in zip(seconds["here"], seconds["agent"], strict=True)]
    ratio = statistics.median(ratios)
    mib = {name: each / (1 << 20) for name, each in moved.items()}
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    (name, unit, target), (moved_name, moved_unit, moved_target) = CLAIMS
    return [
        Claim(name, medians["agent"], unit, PEER, medians["here"], ratio, target, ratio >= 1, median_interval(ratios),
              len(ratios)),
        Claim(moved_name, mib["agent"], moved_unit, PEER, mib["here"], None, moved_target,
              mib["agent"] <= MOVED_MIB_MAX),
    ]  # fmt: skip


def measure_histogram(report: Report, quick: bool, console: Console) -> None:
    """Adds the claims to the report."""
    import offpath

    rows, turns = (QUICK_ROWS, 3) if quick else (ROWS, 21)
    _, agent_core = default_cores()
    try:
        with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
            http = f"unix:{Path(folder) / 'http.sock'}"
            with (
                AgentProcess.start(agent_core, others=(f"agent.http={http}",)) as agent,
                offpath.connect(agent.address) as session,
                console.status(f"a histogram of {rows / 1e6:g} M rows"),
            ):
                pool = session.pool("local:/histogram")
                fill(pool, rows)
                report.claims += measure(pool, http, turns)
    except (AgentUnavailableError, ProgramError, Error) as error:
        report.add_unmeasured(CLAIMS, str(error))
