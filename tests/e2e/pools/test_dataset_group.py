"""A pool on two members as a dataset: each reads and sends the columns that are named, and one that dies is named."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from agent_process import until

NAMES = ["a", "b"]
COLUMNS = [f"c{number}" for number in range(10)]
STEPS, ROWS = 8, 20_000


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, "local") as made:
        yield made


def filled(session: offpath.Session) -> pa.Table:
    """Puts every other step at each member; returns all rows."""
    tables = []
    for step in range(STEPS):
        ids = np.arange(ROWS) + step * ROWS
        tables.append(pa.table({"id": ids} | {name: np.sin(ids + len(name)) for name in COLUMNS}))
        session.pool("rank:/p").put(tables[-1], f"step{step}", timeout=PATIENCE_S)
    return pa.concat_tables(tables)


def answered_bytes(group: Group, name: str, queries: int) -> int:
    """The bytes that a member has sent, once so many queries have ended there."""

    def counters() -> dict[str, int]:
        return dict(group.running[name].status()["queries"])

    assert until(lambda: counters()["queries"] >= queries and counters()["open"] == 0, PATIENCE_S), counters()
    return int(counters()["answered_bytes"])


def test_members_send_the_named_columns_of_the_chosen_rows(group: Group) -> None:
    with group.connect("a") as session:
        rows = filled(session)
        dataset = session.pool("rank:/p").dataset()
        before = {name: int(group.running[name].status()["queries"]["answered_bytes"]) for name in NAMES}
        assert all(each < 20_000 for each in before.values())  # of the schema
        filter = (pc.field("c3") > 0.5) & (pc.field("id") < STEPS * ROWS // 2)
        found = dataset.to_table(["id"], filter)
        expected = rows.filter(filter).select(["id"])
        assert found.sort_by("id").equals(expected)
        sent = {name: answered_bytes(group, name, 1) for name in NAMES}
        assert sent["b"] < expected.nbytes  # its part of one column
        assert sent["a"] < 1.1 * expected.nbytes  # all that this program read, its own part counted once
        assert dataset.count_rows(filter) == expected.num_rows


def test_sql_over_members_moves_the_named_columns(group: Group) -> None:
    sql = pytest.importorskip("offpath.sql")
    with group.connect("a") as session:
        rows = filled(session)
        pool = session.pool("rank:/p")
        filter = (pc.field("id") >= 10) & (pc.field("id") < 20_000)
        before = {name: int(group.running[name].status()["queries"]["answered_bytes"]) for name in NAMES}
        text = f"SELECT count(*) AS n, max(c3) AS most FROM pool('{pool.name}') WHERE id >= 10 AND id < 20000"
        chosen = rows.filter(filter)
        assert sql.run_sql(session, text).to_pylist() == [{"n": chosen.num_rows, "most": pc.max(chosen["c3"]).as_py()}]
        sent = {name: answered_bytes(group, name, 2) - before[name] for name in NAMES}
        assert sum(sent.values()) < 2 * chosen.select(["id", "c3"]).nbytes  # b's part is counted at both


def test_a_member_that_is_lost_is_named(group: Group) -> None:
    with group.connect("a") as session:
        rows = filled(session)
        dataset = session.pool("rank:/p").dataset()
        rest = session.pool("rank:/p").dataset(partial=True)
        group.running["b"].stop(signal.SIGKILL)
        assert until(lambda: group.states("a")["b"] == "dead", PATIENCE_S)
        with pytest.raises(offpath.PeerLost, match="rows that only member b had are missing"):
            dataset.to_table(["id"])
        with pytest.raises(offpath.PeerLost, match="member b"):
            dataset.count_rows()
        assert 0 < rest.to_table(["id"]).num_rows < rows.num_rows
