"""A pool of two members on Dask: each member's part is computed by the worker beside it, and nothing crosses between
agents; a member that dies is named."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from agent_process import until

distributed = pytest.importorskip("distributed")
pd = pytest.importorskip("pandas")
offpath_dask = pytest.importorskip("offpath.dask")

NAMES = ["a", "b"]
STEPS, ROWS = 8, 20_000
COLUMNS = ["c0", "c1", "c2", "c3"]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, "local") as made:
        yield made


@contextmanager
def workers_beside(group: Group, *members: str) -> Iterator[Any]:
    """A client of a cluster with a worker beside each of these."""
    beside = [{"OFFPATH_AGENT": group.address(member)} for member in members]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, env=beside[0], local_directory=str(group.directory)
    ) as cluster:
        for count, environment in enumerate(beside[1:], 2):
            options = {**cluster.new_spec["options"], "env": environment}
            cluster.new_spec = {**cluster.new_spec, "options": options}
            cluster.scale(count)
        with distributed.Client(cluster) as client:
            client.wait_for_workers(len(members), timeout=PATIENCE_S)
            yield client


def filled(session: offpath.Session) -> pa.Table:
    """Every other step is at each member. Some values are NaN, some are null."""
    tables = []
    for step in range(STEPS):
        ids = np.arange(ROWS) + step * ROWS
        columns = {name: pa.array(np.sin(ids + number), mask=ids % 7 == number) for number, name in enumerate(COLUMNS)}
        x = np.where(ids % 5 == 0, np.nan, np.cos(ids))
        table = pa.table({"id": ids, "x": pa.array(x, mask=ids % 3 == 0, from_pandas=False), **columns})
        session.pool("rank:/p").put(table, f"step{step}", timeout=PATIENCE_S)
        tables.append(table)
    return pa.concat_tables(tables)


def answered(group: Group, queries: dict[str, int]) -> dict[str, int]:
    """The bytes that each member has answered, when so many queries have ended there."""
    now: dict[str, dict[str, int]] = {}

    def ended() -> bool:
        now.update({name: dict(group.running[name].status()["queries"]) for name in NAMES})
        return all(now[name]["queries"] == queries[name] and now[name]["open"] == 0 for name in NAMES)

    assert until(ended, PATIENCE_S), f"{now} instead of {queries} queries"
    return {name: now[name]["answered_bytes"] for name in NAMES}


def rows_of(frame: Any) -> list[Any]:
    """In the order of identifiers, with NaN equal to NaN, and apart from null."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return sorted(map(repr, table.to_pylist()))


def test_nothing_crosses_between_agents_when_workers_sit_beside_them(group: Group) -> None:
    with group.connect("a") as session, workers_beside(group, *NAMES), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPATH_AGENT", group.address("a"))
        table = filled(session)
        filter = (pc.field("x") < 0.5) | pc.field("c0").is_null()
        expected = table.filter(filter).select(["id", "x"])
        frame = offpath_dask.read_pool("rank:/p", ["id", "x"], filter)
        assert frame.npartitions == len(NAMES) and list(frame.columns) == ["id", "x"]
        before = answered(group, {"a": 1, "b": 1})  # for the schema
        for queries in range(2, 5):
            assert rows_of(frame.compute()) == rows_of(expected.to_pandas(types_mapper=pd.ArrowDtype))
            now = answered(group, {"a": queries, "b": queries})  # its own part each
            for name in NAMES:
                assert 0.4 * expected.nbytes < now[name] - before[name] < 0.6 * expected.nbytes, (now, before)
            before = now
        # Work on the partitions is done where they are read, and columns that it does not name do not move.
        assert frame[frame.id < 100].id.sum().compute() == pc.sum(expected.filter(pc.field("id") < 100)["id"]).as_py()
        now = answered(group, {"a": 5, "b": 5})
        assert sum(now.values()) - sum(before.values()) < 0.6 * expected.nbytes


def test_a_worker_elsewhere_reads_through_its_own_agent(group: Group) -> None:
    with group.connect("a") as session, workers_beside(group, "a"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPATH_AGENT", group.address("a"))
        table = filled(session)
        frame = offpath_dask.read_pool("rank:/p", ["id"])
        before = answered(group, {"a": 1, "b": 1})
        assert len(frame.compute()) == table.num_rows
        now = answered(group, {"a": 3, "b": 2})
        assert now["a"] - before["a"] > 0.9 * table["id"].nbytes and now["b"] - before["b"] > 0.4 * table["id"].nbytes


def test_the_parts_of_a_lost_worker_are_read_by_another(group: Group) -> None:
    with group.connect("a") as session, workers_beside(group, *NAMES) as client, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPATH_AGENT", group.address("a"))
        table = filled(session)
        frame = offpath_dask.read_pool("rank:/p", ["id"])
        addresses = client.scheduler_info()["workers"]
        beside_b = next(worker for worker, agent in client.run(offpath_dask.own_agent, None).items() if agent == "b")
        assert len(addresses) == 2
        client.retire_workers([beside_b], close_workers=True, remove=True)
        assert len(frame.compute()) == table.num_rows


def test_the_parts_that_wait_for_a_killed_worker_are_read_by_another(group: Group) -> None:
    with group.connect("a") as session, workers_beside(group, *NAMES) as client, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPATH_AGENT", group.address("a"))
        table = filled(session)
        frame = offpath_dask.read_pool("rank:/p", ["id"])
        agents = client.run(offpath_dask.own_agent, None)
        beside_b = next(worker for worker, agent in agents.items() if agent == "b")

        def waits(what: str) -> bool:
            return any(what in str(key) for key in client.processing()[beside_b])

        blocked = client.submit(select.select, [], [], [], workers=[beside_b], pure=False)  # its only thread
        assert until(lambda: waits("select"), PATIENCE_S)
        read = client.compute(frame)
        assert until(lambda: waits("offpath_part"), PATIENCE_S)
        (process,) = client.run(os.getpid, workers=[beside_b]).values()
        os.kill(process, signal.SIGKILL)
        assert len(read.result(timeout=PATIENCE_S)) == table.num_rows
        blocked.cancel()


def test_a_member_that_is_killed_is_named(group: Group) -> None:
    with group.connect("a") as session, workers_beside(group, *NAMES), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFPATH_AGENT", group.address("a"))
        filled(session)
        frame = offpath_dask.read_pool("rank:/p", ["id"])
        group.running["b"].stop(signal.SIGKILL)
        with pytest.raises(offpath.PeerLost, match="member b"):
            frame.partitions[1].compute()
        assert until(lambda: group.states("a")["b"] == "dead", PATIENCE_S)
        with pytest.raises(offpath.PeerLost, match="rows that only member b had are missing"):
            frame.partitions[0].compute()


def test_without_a_cluster_and_with_wrong_arguments(group: Group) -> None:
    with group.connect("b") as session:
        table = filled(session)
        frame = offpath_dask.read_pool("rank:/p", filter="x < 0.5 and c1 > 0", agent=group.address("b"))
        expected = table.filter((pc.field("x") < 0.5) & (pc.field("c1") > 0))
        found = frame.compute(scheduler="threads")
        assert rows_of(found) == rows_of(expected.to_pandas(types_mapper=pd.ArrowDtype))
        assert frame.dtypes.equals(found.dtypes)
        read = {"agent": group.address("b")}
        with pytest.raises(offpath.NotFound, match='there is no column "speed"; there are id, x, c0'):
            offpath_dask.read_pool("rank:/p", ["speed"], **read)
        with pytest.raises(offpath.Invalid, match="the filter does not fit the columns"):
            offpath_dask.read_pool("rank:/p", filter="speed > 1", **read)
        with pytest.raises(offpath.NotFound, match="there is no pool"):
            offpath_dask.read_pool("rank:/none", **read)
        with pytest.raises(offpath.NotFound, match="has no objects whose keys match"):
            offpath_dask.read_pool("rank:/p", rows="x*", **read)
