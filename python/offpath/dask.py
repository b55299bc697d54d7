"""Pools as dataframes of Dask: a partition for each member's part of the pool, read by the workers beside it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from dask import config
from dask.task_spec import Task
from distributed import Client, Scheduler, SchedulerPlugin, default_client

from .part_reading import parts_to_read, read_part, session_of
from .parts import PoolPart

LABEL = "offpath_part"  # in the names of all tasks that read one, fused or not


def read_pool(
    name: str,
    columns: list[str] | None = None,
    filter: pc.Expression | str | None = None,
    *,
    rows: str | None = None,
    columns_glob: str | None = None,
    agent: str | None = None,
    arrow_only: bool = False,
) -> dd.DataFrame:
    """The objects of a pool as a dataframe of Dask. Agents read the named columns, compute the filter, and send the
    chosen rows, when a partition is computed. Columns have Arrow's types (``pandas.ArrowDtype``), so that null stays
    null and NaN stays NaN.

    Each partition is one member's part (``Pool.parts``). With a client of ``distributed`` it is computed by the workers
    whose own agent is that member, and nothing crosses between agents; other workers compute it where no such worker is
    left. Make the client first: workers that join later are not known to be beside a member.

    ``filter`` is an expression of pyarrow, or such as people type (``"0 <= x < 1"``); ``rows`` and ``columns_glob`` are
    patterns of the objects' keys; ``agent`` is the address of the agent here and of each worker's own, None: as of
    ``offpath.connect``.

    >>> particles = offpath.dask.read_pool("hash:/particles", ["id", "v"], "x < 0.5")
    >>> particles.v.mean().compute()

    Raises the errors of ``Pool.parts``; partitions raise those of queries, with the member's name.
    """
    parts, schema, filter = parts_to_read(name, columns, filter, rows, columns_glob, agent, arrow_only)
    agents = agents_of_workers(agent)
    reading = [
        Reading(part, filter, agent, {worker for worker, own in agents.items() if own == part.member}) for part in parts
    ]
    with config.set({"dataframe.convert-string": False}):  # texts are Arrow's already
        return dd.from_map(frame_of, reading, columns=columns, meta=to_pandas(schema.empty_table()), label=LABEL)


class Reading:
    """The part that a partition reads, and the workers beside its member."""

    def __init__(self, part: PoolPart, filter: pc.Expression | None, agent: str | None, workers: set[str]) -> None:
        self.part = part
        self.filter = filter
        self.agent = agent
        self.workers = workers
        self._token = uuid.uuid4().hex  # a pool changes: each call of read_pool reads it again

    def __dask_tokenize__(self) -> str:
        return self._token


def frame_of(reading: Reading, columns: list[str] | None = None) -> pd.DataFrame:
    return to_pandas(read_part(reading.part, columns, reading.filter, reading.agent))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def agents_of_workers(agent: str | None) -> dict[str, str]:
    """Returns the name of each worker's own agent, and prepares the scheduler; returns nothing without a client."""
    try:
        client: Client = default_client()
    except ValueError:
        return {}
    if client.asynchronous:  # this call cannot wait for the workers
        return {}
    client.register_plugin(BesideMembers())
    answers = client.run(own_agent, agent, on_error="ignore")
    return {worker: name for worker, name in answers.items() if isinstance(name, str)}


def own_agent(agent: str | None) -> str:
    return session_of(agent).info.agent_name


def readings_in(spec: Any) -> Iterator[Reading]:
    """The workers of one task, however it was fused."""
    left = [spec]
    while left:
        each = left.pop()
        if isinstance(each, Reading):
            yield each
        elif isinstance(each, Task):
            left += [*each.args, *each.kwargs.values()]
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each


class BesideMembers(SchedulerPlugin):
    """Restricts the tasks that read a part to the workers beside its member, as long as there are any. Annotations,
    which are Dask's own way, do not reach the tasks of a dataframe."""

    name = "offpath"
    idempotent = True

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Any], **_: Any) -> None:
        """Called by the scheduler before new tasks are placed."""
        for key in tasks:
            if LABEL in str(key):
                task = scheduler.tasks[key]
                beside = set().union(*(reading.workers for reading in readings_in(task.run_spec)))
                if here := beside & set(scheduler.workers):
                    task.worker_restrictions = here

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **_: Any) -> None:
        """Called by the scheduler: any other worker may read the parts that only this one was to read."""
        waiting: dict[Any, Any] = {}
        for key, task in scheduler.tasks.items():
            if LABEL in str(key) and task.worker_restrictions:
                task.worker_restrictions &= set(scheduler.workers)
                if not task.worker_restrictions:
                    task.worker_restrictions = None
                    if task.state == "no-worker":
                        waiting[key] = "processing"
        scheduler.transitions(waiting, stimulus_id)
