"""What the page shows: pools, their columns, the newest step of one as counts in bins, and the agents of the group.

Columns of a step are read from the agent and binned here. A step with more rows than ``ROWS_MAX`` is refused.
"""

from __future__ import annotations

import glob
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..group_view import look
from ..pool import Entry, Pool
from ..session import Session

ROWS_MAX = 1 << 24  # of a step; two columns of float64 are 256 MiB
BINS_MAX = 512
WAIT_S = 10.0


class Refused(Exception):
    """A request that asks for too much, or for what cannot be drawn."""


def is_drawn(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def newest_step(pool: Pool) -> list[Entry]:
    """The Arrow objects of the row that was stored last; empty if there are none."""
    entries = [each for each in pool.list(timeout=WAIT_S) if each.rows is not None]
    return [each for each in entries if each.row == entries[-1].row]


def state_of(step: list[Entry]) -> str:
    """Differs whenever the newest step does."""
    return f"{step[-1].row}/{len(step)}/{step[-1].sequence}" if step else ""


def finite(columns: list[Any]) -> list[np.ndarray]:
    """The columns as float64, without the rows in which one of them is null, NaN or infinite."""
    arrays = [each.cast(pa.float64(), safe=False).to_numpy() for each in columns]
    kept = np.logical_and.reduce([np.isfinite(each) for each in arrays])
    return [each[kept] for each in arrays]


class Pictures:
    """Answers for the page, from one session. Steps are read one after the other; agents are asked beside that."""

    def __init__(self, session: Session, http: str) -> None:
        self._session = session
        self._http = http
        self._lock = threading.Lock()
        self._agents_lock = threading.Lock()

    def agents(self) -> dict[str, Any]:
        """The group's members with their memory, and the pools of all of them."""
        with self._agents_lock:
            seen = look(self._http)
        members: list[dict[str, Any]] = []
        pools: set[str] = set()
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
            members.append(row)
        return {"members": members, "pools": sorted(pools)}

    def columns(self, name: str) -> dict[str, Any]:
        """The columns of the newest step, with their types, and which of them can be drawn."""
        with self._lock:
            pool = self._session.pool(name)
            step = newest_step(pool)
            if not step:
                return {"columns": []}
            row, column = glob.escape(step[-1].row), glob.escape(step[-1].column)
            schema = pool.query(pc.scalar(False), rows=row, columns_glob=column, timeout=WAIT_S).schema
        columns = [{"name": each.name, "type": str(each.type), "drawn": is_drawn(each.type)} for each in schema]
        return {"columns": columns}

    def density(self, name: str, x: str, y: str, bins: int, state: str) -> dict[str, Any]:
        """Counts of the newest step as numpy.histogram2d has them, or of ``x`` alone if ``y`` is empty.

        If ``state`` is that of the newest step, only the state is answered. Raises Refused.
        """
        if not 1 <= bins <= BINS_MAX:
            raise Refused(f"bins must be from 1 to {BINS_MAX}")
        with self._lock:
            pool = self._session.pool(name)
            step = newest_step(pool)
            now = state_of(step)
            if now == state or not step:
                return {"state": now}
            rows = sum(each.rows or 0 for each in step)
            if rows > ROWS_MAX:
                raise Refused(f"step {step[-1].row} has {rows} rows; at most {ROWS_MAX} are drawn")
            table = pool.query(
                columns=list(dict.fromkeys(each for each in (x, y) if each)),
                rows=glob.escape(step[-1].row),
                timeout=WAIT_S,
                arrow_only=True,
            )
        names = [x, y] if y else [x]
        for each in names:
            if not is_drawn(table.schema.field(each).type):
                raise Refused(f"column {each} has no numbers")
        values = finite([table.column(each) for each in names])
        try:
            counts, edges = np.histogramdd(values, bins=bins)
        except ValueError as error:
            raise Refused(f"the values cannot be divided into bins: {error}") from None
        return {
            "state": now,
            "row": step[-1].row,
            "rows": rows,
            "counted": len(values[0]),
            "counts": counts.astype(np.int64).tolist(),
            "edges": [each.tolist() for each in edges],
        }
