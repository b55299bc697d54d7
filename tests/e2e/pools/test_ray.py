"""A pool of two members on Ray: each member's part is read on the node beside it. For the long suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from agent_process import until
from page_blocks import ROOT, blocks_of
from pool_of_two import NAMES, filled

ray = pytest.importorskip("ray")
offpath_ray = pytest.importorskip("offpath.ray")
from ray.cluster_utils import Cluster  # noqa: E402

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


@pytest.mark.usefixtures("nodes")
def test_the_block_of_the_guide_runs(group: Group, tmp_path: Path) -> None:
    """On the particles that the page's first block puts; its files are in a folder of the test."""
    blocks = blocks_of(ROOT / "docs/guides/engines.md")
    (block,) = [each for each in blocks if each.marker == "Ray"]
    written = tmp_path / "particles"
    code = block.code.replace("/data/particles", str(written))
    assert code != block.code
    exec(compile(blocks[0].code, blocks[0].place, "exec"), {})
    exec(compile(code, block.place, "exec"), {})
    with group.connect("a") as session:
        expected = session.pool("hash:/particles").dataset().to_table(["id", "x"])
    order = [("id", "ascending"), ("x", "ascending")]
    assert expected.num_rows == 4000
    assert ds.dataset(written).to_table(["id", "x"]).sort_by(order).equals(expected.sort_by(order))
