"""Sizes as people read them."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: float, number: str = ".1f") -> str:
    """Bytes with a unit: 1536 -> 1.5 KiB. ``number`` formats values in larger units than bytes."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:{number if unit else '.0f'}} {UNITS[unit]}"
