"""Paths of particles through time, from the tracks of a sift pool."""

from __future__ import annotations

import math
import re
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..session import Session
from .refused import Refused, is_drawn

IDENTIFIERS_MAX = 8
EXAMPLES = 4
POINTS_MAX = 2000
WAIT_S = 10.0


def identifiers_of(text: str) -> list[int]:
    """Numbers between commas or blanks. Raises Refused."""
    words = re.split(r"[,\s]+", text.strip())
    if not all(re.fullmatch(r"-?\d{1,20}", word) for word in words):
        raise Refused(f"{text[:80]!r} are not identifiers: give whole numbers with blanks between them")
    found = list(dict.fromkeys(int(word) for word in words))
    if len(found) > IDENTIFIERS_MAX:
        raise Refused(f"{len(found)} identifiers; at most {IDENTIFIERS_MAX} are drawn at the same time")
    if not all(-(2**63) <= each < 2**63 for each in found):
        raise Refused("an identifier has at most 64 bits")
    return found


def drawable(column: pa.ChunkedArray) -> list[float | None]:
    """Numbers for JSON: null for null, NaN and infinite values."""
    return [
        each if each is not None and math.isfinite(each) else None for each in column.cast(pa.float64()).to_pylist()
    ]


class Paths:
    """Answers for the page, from one session. ``lock`` keeps requests to it apart."""

    def __init__(self, session: Session, lock: threading.Lock) -> None:
        self._session = session
        self._lock = lock

    def columns(self, name: str) -> dict[str, Any]:
        """The columns that can be drawn, and a few identifiers that have tracks."""
        with self._lock:
            tracks = self._session.tracks(name)
            schema = next(tracks.select(pc.scalar(False), timeout=WAIT_S)).schema
            some = next(tracks.select(None, timeout=WAIT_S, columns={"id": tracks.key}))[0]
        columns = [each.name for each in schema if is_drawn(each.type) and each.name not in ("step", tracks.key)]
        return {"columns": columns, "examples": some.unique()[:EXAMPLES].to_pylist()}

    def paths(self, name: str, identifiers: str, x: str, y: str) -> dict[str, Any]:
        """For each identifier with a track its values of two columns in the order of steps, at most ``POINTS_MAX``.

        Raises Refused.
        """
        wanted = identifiers_of(identifiers)
        with self._lock:
            tracks = self._session.tracks(name)
            columns = list(dict.fromkeys(["step", tracks.key, x, y]))
            rows = tracks.tracks(wanted, columns=columns, timeout=WAIT_S)
        for each in (x, y):
            if not is_drawn(rows.schema.field(each).type):
                raise Refused(f"column {each} has no numbers")
        paths = []
        for identifier in wanted:
            track = rows.filter(pc.field(tracks.key) == identifier)
            if track.num_rows:
                kept = track.take(np.arange(0, track.num_rows, math.ceil(track.num_rows / POINTS_MAX)))
                points = {"x": drawable(kept[x]), "y": drawable(kept[y])}
                paths.append({"id": str(identifier), "rows": track.num_rows, **points})
        return {"paths": paths}
