"""The newest step of a pool as counts in bins, its columns, and the agents of the group with their resources.

The agents count: a picture of any number of rows costs its bins.
"""

from __future__ import annotations

import glob
import math
import operator
import threading
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import Invalid
from ..group_view import look
from ..pool import Entry, Pool
from ..session import Session
from .exchanges import Exchanges
from .paths import Paths
from .refused import Refused, is_drawn

BINS_MAX = 512
GAUGES_MAX = 200
WAIT_S = 10.0


def newest_step(pool: Pool) -> list[Entry]:
    """The Arrow objects of the row that was stored last; may be empty."""
    entries = [each for each in pool.list(timeout=WAIT_S) if each.rows is not None]
    return [each for each in entries if each.row == entries[-1].row]


def state_of(step: list[Entry]) -> str:
    """Differs whenever the newest step does."""
    return f"{step[-1].row}/{len(step)}/{step[-1].sequence}" if step else ""


def are_finite(names: list[str]) -> pc.Expression:
    """The rows in which none of the columns is null, NaN or infinite."""
    return reduce(operator.and_, (pc.abs(pc.field(each).cast(pa.float64())) < math.inf for each in names))


def gauges_of(name: str, status: dict[str, Any]) -> list[dict[str, Any]]:
    """The values that programs of this agent give now."""
    return [
        {"name": f"{name} {each['name']} {field['name']}", "value": field["value"], "unit": field["unit"]}
        for each in status.get("sampled", [])
        if each["way"] == "gauges" and each["fresh"]
        for field in each["fields"]
        if field["value"] is not None
    ]


class Pictures:
    """Answers for the page, from one session, which one request uses at a time; agents are asked beside that."""

    def __init__(self, session: Session, http: str) -> None:
        self._session = session
        self._http = http
        self._lock = threading.Lock()
        self.paths = Paths(session, self._lock)
        self.exchanges = Exchanges(session, self._lock)
        self._agents_lock = threading.Lock()

    def agents(self) -> dict[str, Any]:
        """The group's members with their memory; the pools, tracks, exchanges and gauges of all of them."""
        with self._agents_lock:
            seen = look(self._http)
        members: list[dict[str, Any]] = []
        pools: set[str] = set()
        tracks: set[str] = set()
        exchanges: set[str] = set()
        gauges: list[dict[str, Any]] = []
        for member in seen.members:
            row = {"name": member["name"], "state": member["state"], "answers": member["name"] in seen.statuses}
            if status := seen.statuses.get(member["name"]):
                waits = [each["waits_for_credit_s"] for each in status["streams"] if "waits_for_credit_s" in each]
                row |= {
                    "used_bytes": status["memory"]["used_bytes"],
                    "bytes_max": status["memory"]["bytes_max"],
                    "moved_bytes": status["mover"]["bytes"],
                    "pid": status["pid"],
                    "waiting": len(waits),
                    "longest_wait_s": max(waits, default=0.0),
                }
                pools.update(each["name"] for each in status["pools"])
                tracks.update(each["options"] for each in status["sifts"])
                exchanges.update(each["name"] for each in status["exchanges"])
                gauges += gauges_of(member["name"], status)
            members.append(row)
        return {
            "members": members,
            "pools": sorted(pools),
            "tracks": sorted(tracks),
            "exchanges": sorted(exchanges),
            "gauges": gauges[:GAUGES_MAX],
            "gauges_left_out": max(len(gauges) - GAUGES_MAX, 0),
        }

    def columns(self, name: str) -> dict[str, Any]:
        """The columns of the newest step, with their types, and which of them can be drawn."""
        with self._lock:
            pool = self._session.pool(name)
            step = newest_step(pool)
            if not step:
                return {"columns": []}
            schema = self._schema_of(pool, step[-1])
        columns = [{"name": each.name, "type": str(each.type), "drawn": is_drawn(each.type)} for each in schema]
        return {"columns": columns}

    @staticmethod
    def _schema_of(pool: Pool, entry: Entry) -> pa.Schema:
        row, column = glob.escape(entry.row), glob.escape(entry.column)
        return pool.query(pc.scalar(False), rows=row, columns_glob=column, timeout=WAIT_S).schema

    def density(self, name: str, x: str, y: str, bins: int, state: str) -> dict[str, Any]:
        """Counts of the newest step as numpy.histogram2d has them, or of ``x`` alone if ``y`` is empty.

        If ``state`` is that of the newest step, only the state is answered. Raises Refused.
        """
        if not 1 <= bins <= BINS_MAX:
            raise Refused(f"bins must be from 1 to {BINS_MAX}")
        names = [x, y] if y else [x]
        with self._lock:
            pool = self._session.pool(name)
            step = newest_step(pool)
            now = state_of(step)
            if now == state or not step:
                return {"state": now}
            schema = self._schema_of(pool, step[-1])
            for each in names:
                if schema.get_field_index(each) >= 0 and not is_drawn(schema.field(each).type):
                    raise Refused(f"column {each} has no numbers")
            asked: dict[str, Any] = {"filter": are_finite(names), "rows": glob.escape(step[-1].row), "arrow_only": True}
            try:
                counts, *edges = (
                    pool.histogram2d(x, y, bins, timeout=WAIT_S, **asked)
                    if y
                    else pool.histogram(x, bins, timeout=WAIT_S, **asked)
                )
            except Invalid as error:
                raise Refused(f"the values cannot be divided into bins: {error}") from None
        return {
            "state": now,
            "row": step[-1].row,
            "rows": sum(each.rows or 0 for each in step),
            "counted": int(counts.sum()),
            "counts": counts.tolist(),
            "edges": [each.tolist() for each in edges],
        }
