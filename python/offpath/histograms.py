"""Histograms whose rows are counted by agents: finds ranges that are not given, and returns NumPy's form."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .errors import Invalid
from .expression import Aggregates, Axis, Histogram

Range = tuple[float, float]
# Asks for aggregates within so many seconds.
Ask = Callable[[Aggregates, "float | None"], pa.Table]


def count_rows(
    ask: Ask,
    values: Sequence[pc.Expression | str],
    bins: Sequence[int],
    ranges: Sequence[Range] | None,
    timeout: float | None,
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """The counts, an axis for each of ``values``, and the edges of each. Raises Invalid, and the errors of ``ask``."""
    give_up = None if timeout is None else time.monotonic() + timeout

    def left() -> float | None:
        return None if give_up is None else max(give_up - time.monotonic(), 0.001)

    if len(bins) != len(values) or any(each < 1 for each in bins):
        raise Invalid(f"{bins} bins: one number, 1 or more, for each axis")
    if ranges is None:
        ranges = find_ranges(ask, values, left())
    axes = tuple(Axis(what, float(low), float(high), number)
                 for what, (low, high), number in zip(values, ranges, bins, strict=True))  # fmt: skip
    answer = ask({"counts": Histogram(axes)}, left())
    counts = answer.column("counts").combine_chunks().flatten().to_numpy().reshape([*bins])
    return counts, [np.linspace(axis.low, axis.high, axis.bins + 1) for axis in axes]


def find_ranges(ask: Ask, of: Sequence[pc.Expression | str], timeout: float | None) -> list[Range]:
    """Ranges from the least to the greatest value of each axis, as in NumPy: a single value is in the middle of a range
    of length 1, and without values the range is from 0 to 1."""
    asked: dict[str, Any] = {}
    for axis, what in enumerate(of):
        asked |= {f"low{axis}": ("min", what), f"high{axis}": ("max", what)}
    found = ask(asked, timeout).to_pylist()[0]
    ranges = []
    for axis in range(len(of)):
        low, high = found[f"low{axis}"], found[f"high{axis}"]
        if low is None or high is None or low > high:
            low, high = 0.0, 1.0
        if not np.isfinite([low, high]).all():
            raise Invalid(f"the values go from {low} to {high}, which cannot be divided into bins: give a range")
        ranges.append((low - 0.5, high + 0.5) if low == high else (float(low), float(high)))
    return ranges
