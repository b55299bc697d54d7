"""Objects that are asked for before they are there: futures and callbacks, any number at a time."""

import asyncio
import threading

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath.agent_http import fetch_status
from waiting import until

SCHEMA = pa.schema([pa.field("v", pa.int64(), nullable=False)])
ROWS = [f"step{number}" for number in range(8)]
PATIENCE_S = 60


@pytest.fixture(params=["mapped", "tcp"])
def wanting(request):
    """A session that maps the agent's pages, and one to which bytes are pushed."""
    if request.param == "mapped":
        yield request.getfixturevalue("session")
        return
    _, address, key = request.getfixturevalue("tcp_agent")
    with offpath.connect(address, key_file=key) as connected:
        yield connected


def table(agent: offpath.Agent) -> dict[str, int]:
    return fetch_status(agent.http_address)["table"]


def leases(agent: offpath.Agent) -> int:
    return table(agent)["leases"]


def put(stream, row):
    stream.send({"v": np.full(1000, int(row[4:]))}, key=(row, "c")).wait_stored(PATIENCE_S)


def test_several_are_outstanding_at_once_and_each_gets_its_own_object(wanting, name):
    stream = wanting.stream(name, SCHEMA, rows_max=1000)
    pool = wanting.pool(stream.pool_name)
    called = []
    wanted = {row: pool.want(row, "c", called.append) for row in ROWS}
    twice = pool.want(ROWS[0], "c")
    late = pool.want("never", "c", timeout=0.2)
    assert not any(future.done() for future in wanted.values())
    for row in reversed(ROWS):
        put(stream, row)
    for row, future in wanted.items():
        frame = future.result(PATIENCE_S)
        assert frame.table()["v"].to_numpy().tolist() == [int(row[4:])] * 1000
    assert twice.result(PATIENCE_S).rows == 1000
    with pytest.raises(offpath.Timeout, match=r"has no object \(never, c\)"):
        late.result(PATIENCE_S)
    assert until(lambda: set(called) == set(wanted.values()), PATIENCE_S)
    # An existing object, and one that should exist already.
    assert pool.want(ROWS[3], "c").result(PATIENCE_S).table()["v"][0].as_py() == 3
    with pytest.raises(offpath.NotFound, match=r"has no object \(never, c\)"):
        pool.want("never", "c", timeout=0).result(PATIENCE_S)


def test_they_are_awaited(session, name):
    stream = session.stream(name, SCHEMA, rows_max=1000)
    pool = session.pool(stream.pool_name)

    async def both():
        wanted = [asyncio.wrap_future(pool.want(row, "c", timeout=PATIENCE_S)) for row in ROWS[:2]]
        return await asyncio.gather(*wanted)

    later = threading.Timer(0.05, lambda: [put(stream, row) for row in ROWS[:2]])
    later.start()
    assert [frame.rows for frame in asyncio.run(both())] == [1000, 1000]
    later.join(PATIENCE_S)  # not after the session's end


def test_what_is_not_wanted_any_more_is_given_back(name):
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        stream = session.stream(name, SCHEMA, rows_max=1000)
        pool = session.pool(stream.pool_name)
        wanted = pool.want(ROWS[0], "c")
        other = pool.want(ROWS[0], "c")
        assert until(lambda: table(agent)["waiting"] == 2, PATIENCE_S)
        assert wanted.cancel()
        # The agent does not wait for its time to be over.
        assert until(lambda: table(agent)["waiting"] == 1, PATIENCE_S)
        put(stream, ROWS[0])
        assert other.result(PATIENCE_S).rows == 1000
        del other
        # An object that had come before the cancellation.
        pool.want(ROWS[0], "c").cancel()

        def all_given_back() -> bool:
            session.poll()
            return leases(agent) == 0 and table(agent)["waiting"] == 0

        assert until(all_given_back, PATIENCE_S)
        held = pool.want(ROWS[0], "c").result(PATIENCE_S)
        assert until(lambda: leases(agent) == 1, PATIENCE_S)
        del held
        assert until(lambda: leases(agent) == 0, PATIENCE_S)


def test_closing_the_session_and_losing_the_agent_end_them(name):
    with offpath.Agent.start() as agent:
        session = offpath.connect(agent.address)
        closed = session.pool(f"local:/{name}").want("step0")
        session.close()
        with pytest.raises(offpath.Closed):
            closed.result(PATIENCE_S)
        session = offpath.connect(agent.address)
        lost = [session.pool(f"local:/{name}").want(row) for row in ROWS]
    for future in lost:
        with pytest.raises(offpath.PeerLost):
            future.result(PATIENCE_S)
    session.close()


def test_the_end_of_a_request_that_was_freed_ends_no_other(session, name):
    """A new request often lies where a freed one lay, whose end was reported but not read."""
    stream = session.stream(name, SCHEMA, rows_max=1000)
    put(stream, ROWS[0])

    def want(row: str):
        request = session._native.pool_want(stream.pool_name, row, "c", PATIENCE_S)
        request.tell_end()
        return request

    for _ in range(20):
        there = want(ROWS[0])
        assert there.wait(PATIENCE_S)
        there.free()
        other = want("never")
        assert other.key not in session._native.take_ended()
        other.free()
