"""One track out of many, asked for by a process while others send and an agent sifts.

As a program it is the process that sends: ``python -m offpath.bench.sift_tracks ADDRESS IDS FIRST LAST CORE``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import numpy as np

import offpath

from .agent_process import AgentProcess
from .programs import ProgramError
from .report import Claim, Report
from .sift_inject import NAMES, PATIENCE_S, SCHEMA

POOL = "sift:/tracks?key=id&fanout=64&threshold=16MiB&budget=2GiB"
TARGET_MS = 5.0
PAUSE_S = 0.002  # between two questions, so that readers do not keep the agent busy


def send(address: str, ids: int, first: int, last: int) -> None:
    """Steps of all particles in no order, as fast as the agent takes them; then everything is in its track."""
    shuffled = np.random.default_rng(first)
    order = np.arange(ids, dtype=np.uint64)
    columns = {name: np.ones(ids, dtype=np.float32) for name in NAMES} | {"type": np.ones(ids, dtype=np.uint8)}
    with offpath.connect(address) as session:
        stream = session.stream(f"from{first}", SCHEMA, rows_max=ids, pool=POOL)
        for step in range(first, last):
            shuffled.shuffle(order)
            ticket = stream.send({"id": order, **columns}, (f"step{step:06}", "rank0"))
            ticket.wait_pulled(PATIENCE_S)
        ticket.wait_stored(PATIENCE_S)
        session.tracks(POOL.partition("?")[0]).flush(PATIENCE_S)


def sender(address: str, ids: int, first: int, last: int, core: int) -> subprocess.Popen:
    words = [address, *map(str, (ids, first, last, core))]
    return subprocess.Popen([sys.executable, "-m", __name__, *words], stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen) -> None:
    _, said = process.communicate()
    if process.returncode != 0:
        raise ProgramError(f"sending particles: {(said.strip().splitlines() or ['no reason given'])[-1]}")


def measure(report: Report, host_core: int, agent_core: int, quick: bool) -> None:
    """Adds ``sift.track_ms_p99``: from asking in Python to the table, over all asked while steps were sifted."""
    ids, steps = (10_000, 20) if quick else (1_000_000, 100)
    chosen = random.Random(5)
    spent: list[float] = []
    with AgentProcess.start(agent_core) as agent:
        end(sender(agent.address, ids, 0, steps // 10, host_core))
        with offpath.connect(agent.address) as session:
            tracks = session.tracks(POOL.partition("?")[0])
            busy = sender(agent.address, ids, steps // 10, steps, host_core)
            try:
                while busy.poll() is None or len(spent) < 20:
                    identifier = chosen.randrange(ids)
                    began = time.perf_counter()
                    table = tracks.track(identifier)
                    spent.append((time.perf_counter() - began) * 1e3)
                    if table.num_rows < steps // 10:
                        raise ProgramError(f"track {identifier} has {table.num_rows} rows of {steps // 10} or more")
                    time.sleep(PAUSE_S)
            finally:
                end(busy)
            if tracks.track(0).num_rows != steps:
                raise ProgramError(f"track 0 has {tracks.track(0).num_rows} rows of {steps} steps")
    p99 = float(np.quantile(spent, 0.99))
    report.claims.append(
        Claim("sift.track_ms_p99", p99, "ms", target=f"<= {TARGET_MS:g} ms", holds=p99 <= TARGET_MS,
              detail=f"{ids:,} identifiers, {steps} steps, {len(spent):,} asked while sifting")
    )  # fmt: skip
    report.claims.append(Claim("sift.track_ms_p50 (of these)", float(np.median(spent)), "ms", holds=True))


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[5])})
    send(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
