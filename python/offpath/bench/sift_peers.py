"""Peers of the split: a Python user's alternatives. Started by ``bench_sift_partition``.

Reads lines "METHOD WAYS" and answers each with the seconds its split took. One thread each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def records(rows: int) -> pa.Table:
    """The 37-byte record with random identifiers."""
    random = np.random.default_rng(1)
    columns = {"id": random.integers(0, 2**64, rows, dtype=np.uint64)}
    columns |= {name: np.ones(rows, dtype=np.float32) for name in ("x", "y", "z", "vx", "vy", "vz", "q")}
    columns["type"] = np.ones(rows, dtype=np.uint8)
    return pa.table(columns)


def filter_split(table: pa.Table) -> Callable[[int], list[pa.Table]]:
    """The paper's way: for each part, a mask over all rows and the rows it selects."""

    def split(ways: int) -> list[pa.Table]:
        part = pc.bit_wise_and(table["id"], pa.scalar(ways - 1, pa.uint64()))
        return [table.filter(pc.equal(part, pa.scalar(each, pa.uint64()))) for each in range(ways)]

    return split


def polars_split(table: pa.Table) -> Callable[[int], list]:
    import polars

    frame = polars.from_arrow(table)

    def split(ways: int) -> list:
        part = (polars.col("id") & (ways - 1)).cast(polars.UInt16).alias("part")
        return frame.with_columns(part).partition_by("part", include_key=False)

    return split


def main(rows: int) -> None:
    pa.set_cpu_count(1)
    table = records(rows)
    makers = {"filter": filter_split, "polars": polars_split}
    ready: dict[str, Callable[[int], list]] = {}
    for line in sys.stdin:
        method, ways = line.split()
        try:
            split = ready.get(method) or ready.setdefault(method, makers[method](table))
            began = time.perf_counter()
            parts = split(int(ways))
            seconds = time.perf_counter() - began
            assert sum(len(part) for part in parts) == rows
            print(f"{seconds:.9f}", flush=True)
        except ImportError as error:
            print(f"cannot run: {error}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
