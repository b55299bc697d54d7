"""Pools as datasets of Ray: a read task for each member's part of the pool, on the node beside that member."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data import Dataset
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .errors import Error
from .part_reading import parts_to_read, read_part, session_of
from .parts import PoolPart


class PoolDatasource(Datasource):
    """The objects of a pool for ``ray.data.read_datasource``: a read task for each member's part (``Pool.parts``).
    Agents read the named columns, compute the filter, and send the chosen rows. Tasks run where Ray puts them, and ask
    the agent of their node; ``read_pool`` puts each beside its member.

    Arguments and errors are those of ``offpath.dask.read_pool``.

    >>> ray.data.read_datasource(PoolDatasource("hash:/particles", ["id", "v"], "x < 0.5"))
    """

    def __init__(
        self,
        name: str,
        columns: list[str] | None = None,
        filter: pc.Expression | str | None = None,
        *,
        rows: str | None = None,
        columns_glob: str | None = None,
        agent: str | None = None,
        arrow_only: bool = False,
    ) -> None:
        super().__init__()
        self.parts, self.schema, self._filter = parts_to_read(
            name, columns, filter, rows, columns_glob, agent, arrow_only
        )
        self._columns = columns
        self._agent = agent

    def of(self, part: PoolPart) -> PoolDatasource:
        """A read task for this part alone."""
        made = object.__new__(PoolDatasource)
        made.__dict__.update(self.__dict__, parts=[part])
        return made

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes of the objects, before columns and rows are chosen."""
        return sum(part.nbytes for part in self.parts)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Read tasks, one for each part, for any ``parallelism``, because a part is at one member."""
        return [
            ReadTask(
                partial(blocks_of, part, self._columns, self._filter, self._agent),
                BlockMetadata(
                    num_rows=part.rows if self._filter is None else None,
                    size_bytes=part.nbytes,
                    input_files=None,
                    exec_stats=None,
                ),
                schema=self.schema,
                per_task_row_limit=per_task_row_limit,
            )
            for part in self.parts
        ]


def blocks_of(
    part: PoolPart, columns: list[str] | None, filter: pc.Expression | None, agent: str | None
) -> Iterable[pa.Table]:
    return [read_part(part, columns, filter, agent)]


def read_pool(name: str, columns: list[str] | None = None, filter: pc.Expression | str | None = None, *,
              agent: str | None = None, **options: Any) -> Dataset:  # fmt: skip
    """The objects of a pool as a dataset of Ray, each member's part read on the node whose own agent is that member, or
    elsewhere if there is no such node or it has no room. Arguments are those of ``PoolDatasource``."""
    source = PoolDatasource(name, columns, filter, agent=agent, **options)
    nodes = nodes_of_agents(agent)
    parts = []
    for part in source.parts:
        place: dict[str, Any] = {}
        if part.member in nodes:
            place = {
                "label_selector": {"ray.io/node-id": nodes[part.member]},
                "fallback_strategy": [{"label_selector": {}}],
            }
        parts.append(ray.data.read_datasource(source.of(part), **place))
    return parts[0].union(*parts[1:]) if len(parts) > 1 else parts[0]


def nodes_of_agents(agent: str | None) -> dict[str, str]:
    """Nodes by the name of their own agent; those without one are left out."""
    asked = {
        node["NodeID"]: ray.remote(own_agent)
        .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        .remote(agent)
        for node in ray.nodes()
        if node["Alive"]
    }
    return {name: node for node, answer in asked.items() if (name := ray.get(answer)) is not None}


def own_agent(agent: str | None) -> str | None:
    try:
        return session_of(agent).info.agent_name
    except Error:
        return None
