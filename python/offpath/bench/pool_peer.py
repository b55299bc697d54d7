"""A peer of ``bench_pool_query``: the same two queries by another library, over the same Arrow data in memory.

``python -m offpath.bench.pool_peer ENGINE THREADS FOLDER`` says ``ready``, then answers each word it reads with
``NANOSECONDS ROWS LEAST MOST``. One process for each number of threads, because Polars takes it before its import.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ENGINES = ("duckdb", "polars", "pyarrow")
LOW, HIGH = 0.25, 0.75

Answer = tuple[int, float, float]
Queries = dict[str, Callable[[], Answer]]


def read_table(folder: Path):
    """All frames as one table of as many chunks, in memory of this process."""
    import pyarrow as pa

    frames = sorted(folder.glob("*.arrow"), key=lambda path: int(path.stem))
    return pa.concat_tables([pa.ipc.open_stream(pa.py_buffer(frame.read_bytes())).read_all() for frame in frames])


def duckdb_queries(table, threads: int) -> Queries:
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    connection.register("particles", table)
    inside = " AND ".join(f"{axis} >= {LOW} AND {axis} < {HIGH}" for axis in "xyz")
    v2 = "vx * vx + vy * vy + vz * vz"

    def box() -> Answer:
        return connection.execute(f"SELECT * FROM particles WHERE {inside}").to_arrow_table().num_rows, 0, 0

    def speed() -> Answer:
        least, most = connection.execute(f"SELECT min({v2}), max({v2}) FROM particles").fetchall()[0]
        return table.num_rows, least, most

    return {"box": box, "speed": speed}


def polars_queries(table, _: int) -> Queries:
    import polars

    frame = polars.from_arrow(table, rechunk=False)
    inside = polars.all_horizontal([polars.col(axis).is_between(LOW, HIGH, closed="left") for axis in "xyz"])
    v2 = polars.col("vx") ** 2 + polars.col("vy") ** 2 + polars.col("vz") ** 2

    def box() -> Answer:
        return frame.lazy().filter(inside).collect().height, 0, 0

    def speed() -> Answer:
        return table.num_rows, *frame.lazy().select(least=v2.min(), most=v2.max()).collect().row(0)

    return {"box": box, "speed": speed}


def pyarrow_queries(table, threads: int) -> Queries:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.acero import AggregateNodeOptions, Declaration, ProjectNodeOptions, TableSourceNodeOptions

    pa.set_cpu_count(threads)
    inside = pc.scalar(True)
    for axis in "xyz":
        inside = inside & (pc.field(axis) >= LOW) & (pc.field(axis) < HIGH)
    v2 = sum((pc.field(axis) * pc.field(axis) for axis in ("vy", "vz")), pc.field("vx") * pc.field("vx"))
    plan = Declaration.from_sequence(
        [
            Declaration("table_source", TableSourceNodeOptions(table)),
            Declaration("project", ProjectNodeOptions([v2], ["v2"])),
            Declaration("aggregate", AggregateNodeOptions([("v2", "min", None, "least"), ("v2", "max", None, "most")])),
        ]
    )

    def box() -> Answer:
        return table.filter(inside).num_rows, 0, 0

    def speed() -> Answer:
        found = plan.to_table(use_threads=threads > 1)
        return table.num_rows, found["least"][0].as_py(), found["most"][0].as_py()

    return {"box": box, "speed": speed}


def main(engine: str, threads: int, folder: Path) -> None:
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    queries = {"duckdb": duckdb_queries, "polars": polars_queries, "pyarrow": pyarrow_queries}[engine](
        read_table(folder), threads
    )
    print("ready", flush=True)
    for line in sys.stdin:
        begin = time.perf_counter_ns()
        rows, least, most = queries[line.strip()]()
        print(time.perf_counter_ns() - begin, rows, least, most, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
