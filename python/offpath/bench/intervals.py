"""Intervals of figures that were measured several times."""

from __future__ import annotations


def median_interval(values: list[float]) -> list[float]:
    """Of the median, 95 %, by order statistics (binomial, normal approximation)."""
    ordered, count = sorted(values), len(values)
    low = max(0, int(count / 2 - 0.98 * count**0.5))
    return [ordered[low], ordered[count - 1 - low]]
