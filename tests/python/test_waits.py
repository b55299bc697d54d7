"""Minutes of waiting, as thousands of short waits: the agent is not asked again for what it was asked for."""

import asyncio
import os
import signal

import numpy as np
import offpath
import pyarrow as pa
import pytest

WAITS = 1100
SLICE_S = 0.001


@pytest.fixture
def ticket(session, name):
    """One that is not stored until the object before it is dropped: the pool has room for one."""
    schema = pa.schema([pa.field("x", pa.float64(), nullable=False)])
    stream = session.stream("waits", schema, rows_max=1000, pool=f"local:/{name}?budget=16KiB")
    stream.send({"x": np.arange(1000.0)}, "step0").wait_stored(10)
    yield stream.send({"x": np.arange(1000.0)}, "step1")
    stream.close()


def go_on(ticket):
    pool = ticket.stream.session.pool(ticket.stream.pool_name)
    assert pool.drop("step0") == 1
    ticket.wait_stored(10)
    assert pool.get("step1", timeout=10).num_rows == 1000


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
            await asyncio.wait_for(asyncio.gather(*waiting), 20)

        asyncio.run(wait())
