"""Minutes of waiting, as thousands of short waits: no request is sent to the agent twice."""

import asyncio
import concurrent.futures
import os
import signal
import threading

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath import waits

WAITS = 1100
SLICE_S = 0.001


@pytest.fixture
def ticket(session, name):
    """One that is not stored until the object before it is dropped: the pool has room for one."""
    schema = pa.schema([pa.field("x", pa.float64(), nullable=False)])
    stream = session.stream("waits", schema, rows_max=1000, pool=f"local:/{name}?budget=16KiB")
    stream.send({"x": np.arange(1000.0)}, "step0").wait_stored(60)
    yield stream.send({"x": np.arange(1000.0)}, "step1")
    stream.close()


def go_on(ticket):
    pool = ticket.stream.session.pool(ticket.stream.pool_name)
    assert pool.drop("step0") == 1
    ticket.wait_stored(60)
    assert pool.get("step1", timeout=60).num_rows == 1000


def test_thousands_of_short_waits_cost_no_channel(ticket):
    for _ in range(WAITS):
        with pytest.raises(offpath.Timeout):
            ticket.wait_stored(SLICE_S)
    go_on(ticket)


def test_thousands_of_short_waits_of_asyncio_cost_no_channel(ticket):
    async def wait() -> None:
        for _ in range(WAITS):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ticket.when_stored(), SLICE_S)

    asyncio.run(wait())
    go_on(ticket)


def test_thousands_of_short_waits_for_an_object_cost_no_channel(session, name):
    pool = session.pool(f"local:/{name}").create()
    wanted = pool.want("late")
    for _ in range(WAITS):
        with pytest.raises(concurrent.futures.TimeoutError):
            wanted.result(SLICE_S)
    for _ in range(WAITS):
        with pytest.raises(offpath.Timeout):
            pool.get_bytes("never", timeout=SLICE_S)
    pool.put(b"here", "late")
    assert wanted.result(60).buffer().to_pybytes() == b"here"


def test_thousands_of_wants_that_end_at_their_deadlines_cost_no_channel(session, name):
    pool = session.pool(f"local:/{name}").create()
    late = pool.want("late", timeout=60)
    for _ in range(10):
        wanted = [pool.want(f"never{i}", timeout=SLICE_S) for i in range(WAITS // 10)]
        for each in wanted:
            with pytest.raises(offpath.Timeout):
                each.result(60)
    pool.put(b"here", "late")
    assert late.result(60).buffer().to_pybytes() == b"here"


def test_thousands_of_short_waits_of_asyncio_for_an_object_cost_no_channel(session, name):
    pool = session.pool(f"local:/{name}").create()

    async def wait() -> bytes:
        wanted = asyncio.wrap_future(pool.want("late"))
        for _ in range(WAITS):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(wanted), SLICE_S)
        for _ in range(WAITS):  # an abandoned request, sent again
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(pool.want("never")), SLICE_S)
        pool.put(b"here", "late")
        return (await asyncio.wait_for(wanted, 60)).buffer().to_pybytes()

    assert asyncio.run(wait()) == b"here"


def test_each_of_many_that_are_awaited_comes(name):
    schema = pa.schema([pa.field("x", pa.float64(), nullable=False)])
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        stream = session.stream("waits", schema, rows_max=1000, pool=f"local:/{name}")

        async def wait() -> None:
            os.kill(agent.pid, signal.SIGSTOP)
            tickets = [stream.send({"x": np.arange(1000.0)}, f"step{i}") for i in range(20)]
            waiting = [asyncio.ensure_future(each.when_stored()) for each in reversed(tickets)]
            await asyncio.sleep(0.05)
            os.kill(agent.pid, signal.SIGCONT)
            await asyncio.wait_for(asyncio.gather(*waiting), 60)

        asyncio.run(wait())


def test_an_interrupt_before_the_thread_starts_stops_no_later_wait(session, name, monkeypatch):
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise KeyboardInterrupt

    pool = session.pool(f"local:/{name}").create()
    with monkeypatch.context():
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.want("step0")
    waits.wait_for_threads()  # as at the program's end
    later = pool.want("step0")
    pool.put(b"here", "step0")
    assert later.result(60).buffer().to_pybytes() == b"here"
