"""The cost of a post for a Python program: 16 NumPy columns, agent awake.

``python -m offpath.bench.post_python COUNT CORE`` connects to ``OFFPATH_AGENT`` and prints the median in microseconds.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import numpy as np
import pyarrow as pa

import offpath

COLUMNS = 16
ROWS = 512  # 4 KiB a column


def measure(posts: int) -> float:
    """Median microseconds of ``Stream.send`` over ``posts`` posts, after a tenth as many that do not count."""
    channel = offpath.connect(os.environ["OFFPATH_AGENT"])
    names = [f"column{index}" for index in range(COLUMNS)]
    schema = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in names])
    stream = channel.stream("bench-post-python", schema, rows_max=ROWS, keep=1)
    arrays = {name: np.full(ROWS, float(index)) for index, name in enumerate(names)}
    times_ns = []
    for index in range(posts + posts // 10):
        key = (f"step{index}", "bench")
        begin_ns = time.perf_counter_ns()
        ticket = stream.send(arrays, key=key)
        end_ns = time.perf_counter_ns()
        ticket.wait_stored()
        if index >= posts // 10:
            times_ns.append(end_ns - begin_ns)
    return statistics.median(times_ns) / 1e3


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[2])})
    print(measure(int(sys.argv[1])))


if __name__ == "__main__":
    main()
