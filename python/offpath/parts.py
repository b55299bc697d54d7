"""One member's part of a pool, read by a worker of Dask, Ray or another engine: ``Pool.parts`` divides a pool.

A part can be sent to other processes. A reader asks its own agent. If that is the part's member, no data crosses
between agents; otherwise that agent asks the member.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from .dataset import AgentDataset
from .expression import Aggregates, Part, encode_query

if TYPE_CHECKING:
    from .session import Session


@dataclass(frozen=True)
class PoolPart:
    """The objects of a pool for which one member answers, as they were listed."""

    pool: str
    member: str
    view: int  # identifies the members among which the pool was divided
    schema: pa.Schema
    objects: int
    rows: int
    nbytes: int
    row_glob: str | None = None
    columns_glob: str | None = None
    arrow_only: bool = False

    def dataset(self, session: Session, *, timeout: float | None = None) -> AgentDataset:
        """The part as a ``pyarrow.dataset.Dataset``, as of ``Pool.dataset``, through any agent of the group.

        Scans raise the errors of ``Pool.query``: PeerLost with the member's name if it is lost, and Stale if members
        have changed.
        """
        pool = session.pool(self.pool)

        def ask(filter: Part | None, columns: list[str] | None, aggregates: Aggregates | None) -> Iterator[pa.Table]:
            part = (self.view, self.member)
            asked = encode_query(filter, columns, aggregates, arrow_only=self.arrow_only, part=part)
            for frame in pool._answer(asked, self.row_glob, self.columns_glob, timeout):
                yield frame.table()

        return AgentDataset(f"part {self.member} of pool {self.pool}", self.schema, ask)
