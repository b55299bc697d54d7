"""A pool of two members on Ray: each member's part is read on the node beside it. For the long suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from agent_process import until

ray = pytest.importorskip("ray")
offpath_ray = pytest.importorskip("offpath.ray")
from ray.cluster_utils import Cluster  # noqa: E402

NAMES = ["a", "b"]
STEPS, ROWS = 8, 20_000
FILTER = (pc.field("x") < 0.5) | pc.field("x").is_null()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, "local") as made:
        yield made


@pytest.fixture
def nodes(group: Group, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A node beside each member, both on this machine; this program is on the first."""
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    cluster = Cluster()
    try:
        for name in NAMES:
            monkeypatch.setenv("OFFPATH_AGENT", group.address(name))
            cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
        monkeypatch.setenv("OFFPATH_AGENT", group.address("a"))
        ray.init(address=cluster.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def filled(session: offpath.Session) -> pa.Table:
    tables = []
    for step in range(STEPS):
        ids = np.arange(ROWS) + step * ROWS
        x = pa.array(np.where(ids % 5 == 0, np.nan, np.cos(ids)), mask=ids % 3 == 0, from_pandas=False)
        tables.append(pa.table({"id": ids, "x": x, "y": np.sin(ids)}))
        session.pool("rank:/p").put(tables[-1], f"step{step}", timeout=PATIENCE_S)
    return pa.concat_tables(tables)


def answered(group: Group, queries: int) -> dict[str, int]:
    """The bytes that each member has answered, when so many queries have ended there."""
    now: dict[str, dict[str, int]] = {}

    def ended() -> bool:
        now.update({name: dict(group.running[name].status()["queries"]) for name in NAMES})
        return all(each["queries"] == queries and each["open"] == 0 for each in now.values())

    assert until(ended, PATIENCE_S), f"{now} instead of {queries} queries each"
    return {name: now[name]["answered_bytes"] for name in NAMES}


def rows_of(dataset: Any) -> list[dict[str, Any]]:
    return sorted(map(repr, dataset.take_all()))


@pytest.mark.usefixtures("nodes")
def test_each_part_is_read_on_the_node_beside_its_member(group: Group) -> None:
    with group.connect("a") as session:
        expected = filled(session).filter(FILTER).select(["id", "x"])
        dataset = offpath_ray.read_pool("rank:/p", ["id", "x"], FILTER)
        before = answered(group, 1)  # for the schema
        assert rows_of(dataset) == sorted(map(repr, expected.to_pylist()))
        now = answered(group, 2)  # its own part each: nothing was read for another member
        for name in NAMES:
            assert 0.4 * expected.nbytes < now[name] - before[name] < 0.6 * expected.nbytes


@pytest.mark.usefixtures("nodes")
def test_a_datasource_reads_wherever_ray_puts_it(group: Group) -> None:
    with group.connect("b") as session:
        table = filled(session)
        source = offpath_ray.PoolDatasource("rank:/p", ["id"], "y > 0", agent=group.address("b"))
        assert source.estimate_inmemory_data_size() > table.nbytes and len(source.get_read_tasks(7)) == len(NAMES)
        expected = table.filter(pc.field("y") > 0)["id"]
        assert ray.data.read_datasource(source).sum("id") == pc.sum(expected).as_py()


@pytest.mark.usefixtures("nodes")
def test_a_member_that_is_killed_is_named(group: Group) -> None:
    with group.connect("a") as session:
        filled(session)
        dataset = offpath_ray.read_pool("rank:/p", ["id"])
        group.running["b"].stop(signal.SIGKILL)
        with pytest.raises(Exception, match="member b"):
            dataset.take_all()
