"""Requests to pools without waiting: several kinds at a time, over every way to reach the agent."""

import asyncio
import gc
import subprocess
import sys
import time

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from offpath.agent_http import fetch_status

SCHEMA = pa.schema([pa.field("v", pa.int64(), nullable=False)])
PATIENCE_S = 60


@pytest.fixture(params=["direct", "staged", "tcp"])
def asking(request):
    if request.param == "tcp":
        _, address, key = request.getfixturevalue("tcp_agent")
        with offpath.connect(address, key_file=key) as connected:
            yield connected
        return
    agent = request.getfixturevalue("agent")
    with offpath.connect(agent.address, force_staging=request.param == "staged") as connected:
        yield connected


def fill(session, name, steps=4):
    stream = session.stream(name, SCHEMA, rows_max=1000)
    for step in range(steps):
        stream.send({"v": np.full(1000, step)}, key=(f"step{step}", "c")).wait_stored(PATIENCE_S)
    return session.pool(stream.pool_name)


def test_all_kinds_are_under_way_at_once(asking, name):
    pool = fill(asking, name)
    called = []
    wanted = pool.want("late", timeout=PATIENCE_S)
    listed = [pool.list_async("step*", callback=called.append) for _ in range(20)]
    asked = pool.query_async(pc.field("v") > 1)
    figures = pool.query_async(aggregates={"n": "count"})
    missing = pool.query_async(columns=["w"])
    refused = pool.compute_async("nothing.f", "step1", "c")
    assert len({entry.row for each in listed for entry in each.result(PATIENCE_S)}) == 4
    assert set(asked.result(PATIENCE_S)["v"].to_pylist()) == {2, 3}
    assert figures.result(PATIENCE_S)["n"].to_pylist() == [4000]
    with pytest.raises(offpath.NotFound, match="w"):
        missing.result(PATIENCE_S)
    with pytest.raises(offpath.Error):
        refused.result(PATIENCE_S)
    puts = [pool.put_async(bytes([each]) * 5000, f"put{each}") for each in range(5)]
    assert not wanted.done()
    pool.put(b"here", "late")
    assert bytes(wanted.result(PATIENCE_S)) == b"here"
    for each in puts:
        each.result(PATIENCE_S)
    assert bytes(pool.get_bytes("put3")) == bytes([3]) * 5000
    assert pool.drop_async("put*").result(PATIENCE_S) == 5
    end = time.monotonic() + PATIENCE_S
    while len(called) < len(listed):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert set(called) == set(listed)


def test_they_are_awaited(session, name):
    pool = fill(session, name)

    async def both():
        return await asyncio.gather(*map(asyncio.wrap_future, [pool.list_async(), pool.query_async()]))

    entries, table = asyncio.run(both())
    assert len(entries) == 4 and table.num_rows == 4000


def test_an_answer_is_given_back_with_its_last_reference(name):
    """Not when Python next looks for cycles: the agent keeps memory for it until then, of sixteen at most."""
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        pool = fill(session, name)
        gc.disable()
        try:
            for _ in range(40):
                assert pool.query_async().result(PATIENCE_S).num_rows == 4000
            end = time.monotonic() + PATIENCE_S
            while fetch_status(agent.http_address)["table"]["leases"] != 0:
                session.poll()
                assert time.monotonic() < end
                time.sleep(0.01)
        finally:
            gc.enable()


def test_a_deadline_passes_and_what_is_cancelled_is_freed(name):
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        pool = fill(session, name)
        with pytest.raises(offpath.Timeout):
            pool.want("never", timeout=0.1).result(PATIENCE_S)
        late = pool.compute_async("nothing.f", "never", "c", timeout=0.1)
        with pytest.raises(offpath.Error):
            late.result(PATIENCE_S)
        waiting = pool.compute_async("nothing.f", "never", "c", timeout=None)
        queried = [pool.query_async() for _ in range(10)]
        wanted = pool.want("never")
        for each in [waiting, wanted, *queried]:
            each.cancel()

        def left() -> int:
            status = fetch_status(agent.http_address)
            return status["table"]["leases"] + status["table"]["waiting"]

        del queried, each  # and with them the answers that came before they were cancelled
        end = time.monotonic() + PATIENCE_S
        while left() != 0:
            session.poll()
            assert time.monotonic() < end
            time.sleep(0.01)
        # All sixteen answers that a program may have open are free again.
        assert all(each.result(PATIENCE_S).num_rows == 4000 for each in [pool.query_async() for _ in range(16)])


def test_the_agent_is_lost_while_they_are_under_way(name):
    with offpath.Agent.start() as agent:
        session = offpath.connect(agent.address)
        pool = fill(session, name)
        under_way = [pool.want("never"), pool.compute_async("nothing.f", "never", timeout=None), pool.want("never2")]
        time.sleep(0.05)
    for each in under_way:
        with pytest.raises(offpath.Error):
            each.result(PATIENCE_S)
    with pytest.raises(offpath.PeerLost):
        under_way[0].result(PATIENCE_S)
    session.close()


PROGRAM = """
import sys, offpath
session = offpath.connect(sys.argv[1])
pool = session.pool("local:/" + sys.argv[2])
for each in range(20):
    pool.put_async(bytes(100_000), f"row{each}")
pool.want("never"), pool.list_async()
"""


def test_a_program_that_ends_meanwhile_loses_nothing_and_does_not_hang(agent, session, name):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, agent.address, name], timeout=60, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    pool = session.pool(f"local:/{name}")
    for each in range(20):
        assert pool.get_frame(f"row{each}", timeout=PATIENCE_S).nbytes == 100_000
