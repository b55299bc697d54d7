"""Requests that the page cannot draw."""

from __future__ import annotations

import pyarrow as pa


class Refused(Exception):
    """A request that asks for too much, or for data that cannot be drawn."""


def is_drawn(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
