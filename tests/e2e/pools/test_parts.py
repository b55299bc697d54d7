"""Parts of a pool by member: the members that a session knows, the member of each object, and reading one part."""

from __future__ import annotations

import pickle
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from agent_process import until

NAMES = ["a", "b", "c"]
STEPS, ROWS = 9, 1_000


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with joined_group(tmp_path, NAMES, "local") as made:
        yield made


def filled(session: offpath.Session, pool: str) -> pa.Table:
    tables = []
    for step in range(STEPS):
        ids = np.arange(ROWS) + step * ROWS
        tables.append(pa.table({"id": ids, "x": np.sin(ids)}))
        session.pool(pool).put(tables[-1], f"step{step}", timeout=PATIENCE_S)
    return pa.concat_tables(tables)


def test_members_are_known_with_host_and_addresses(group: Group) -> None:
    with group.connect("b") as session:
        members = session.members()
        assert [member.name for member in members] == NAMES
        for member in members:
            ready = group.running[member.name].ready
            assert member.host == socket.gethostname() and member.state == "alive"
            assert member.address == ready["address"] and member.http in ready["http"] and member.flight == ""
        group.running["c"].stop(signal.SIGKILL)
        assert until(lambda: session.members()[2].state == "dead", PATIENCE_S)


def test_one_agent_is_a_group_of_one(tmp_path: Path) -> None:
    with joined_group(tmp_path, ["a"], "local") as group, group.connect("a") as session:
        assert [(member.name, member.state) for member in session.members()] == [("a", "alive")]
        rows = filled(session, "local:/p")
        assert {entry.member for entry in session.pool("local:/p").list()} == {"a"}
        (part,) = session.pool("local:/p").parts(rows="step[0-2]")
        assert (part.member, part.view, part.objects, part.rows) == ("a", 0, 3, 3 * ROWS)
        assert part.dataset(session).to_table().equals(rows.slice(0, 3 * ROWS))


@pytest.mark.parametrize("pool", ["rank:/p", "hash:/p", "hash:/copied?replicas=2"])
def test_the_parts_are_the_whole_through_any_agent(group: Group, pool: str) -> None:
    filter = (pc.field("x") < 0.25) & (pc.field("id") > 10)
    with group.connect("a") as session:
        rows = filled(session, pool)
        entries = session.pool(pool).list()
        parts = session.pool(pool).parts()
        assert [part.member for part in parts] == sorted({entry.member for entry in entries})
        assert sum(part.rows for part in parts) == rows.num_rows
        assert sum(part.nbytes for part in parts) == sum(entry.nbytes for entry in entries)
        if pool == "rank:/p":
            assert [part.objects for part in parts] == [STEPS // len(NAMES)] * len(NAMES)
    for name in NAMES:
        with group.connect(name) as session:
            read = [pickle.loads(pickle.dumps(part)).dataset(session) for part in parts]
            assert pa.concat_tables(each.to_table() for each in read).sort_by("id").equals(rows.combine_chunks())
            found = pa.concat_tables(each.to_table(["id"], filter) for each in read).sort_by("id")
            assert found.equals(rows.filter(filter).select(["id"]).combine_chunks())
            assert sum(each.count_rows(filter) for each in read) == found.num_rows


def test_members_that_change_make_parts_stale_and_a_lost_one_is_named(group: Group) -> None:
    with group.connect("a") as session:
        filled(session, "hash:/copied?replicas=2")
        pool = session.pool("hash:/copied")
        of_a, _, of_c = pool.parts()
        assert (of_a.member, of_c.member) == ("a", "c")
        group.running["c"].stop(signal.SIGKILL)
        assert until(lambda: session.members()[2].state == "dead", PATIENCE_S)
        with pytest.raises(offpath.Stale, match="its members have changed since the part of member a was listed"):
            of_a.dataset(session).to_table()
        with pytest.raises(offpath.PeerLost, match="member c, whose part is asked for, is not one of its members"):
            of_c.dataset(session).to_table()
        assert until(lambda: sum(part.rows for part in pool.parts()) == STEPS * ROWS, PATIENCE_S)
        assert [part.member for part in pool.parts()] == ["a", "b"]


def test_a_part_of_another_agents_own_pool_is_refused(group: Group) -> None:
    with group.connect("a") as session, group.connect("b") as other:
        filled(session, "local:/p")
        (part,) = session.pool("local:/p").parts()
        filled(other, "local:/p")
        with pytest.raises(offpath.PeerLost, match=r"member a, whose part is asked for, .* it lies at b alone"):
            part.dataset(other).to_table()
