"""Memory that idle streams were promised is there for those that send."""

from __future__ import annotations

import time

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath.agent_http import fetch_status

MIB = 1 << 20
SCHEMA = pa.schema({"v": pa.int64()})
PATIENCE_S = 60.0
STREAMS = 60


@pytest.fixture
def small():
    with offpath.Agent.start(memory="64MiB") as started:
        yield started


def waiting_streams(agent):
    """The requests that wait for memory, once the status shows some: it may be a tenth of a second old, or older."""
    end = time.monotonic() + PATIENCE_S
    waits = []
    while not waits and time.monotonic() < end:
        waits = [each for each in fetch_status(agent.http_address)["streams"] if "waits_for_credit_s" in each]
    return waits


def test_streams_that_have_sent_once_hold_up_nobody(small):
    few, many = {"v": np.arange(1000)}, {"v": np.arange(6 * MIB)}
    with offpath.connect(small.address) as session:
        idle = [session.stream(f"idle{i}", SCHEMA, rows_max=MIB // 8, keep=1) for i in range(STREAMS)]
        for stream in idle:
            stream.send(few).wait_stored(PATIENCE_S)
        assert fetch_status(small.http_address)["memory"]["promised_bytes"] > 48 * MIB
        with session.stream("another", SCHEMA, rows_max=6 * MIB) as another:
            another.send(many, timeout=PATIENCE_S).wait_stored(PATIENCE_S)  # 48 of 64 MiB
            # The idle ones post at once, each as much as its remaining credit: more than the free memory.
            batch = {"v": np.arange(MIB // 8)}
            tickets = []
            for stream in idle:
                try:
                    tickets.append((stream, stream.send(batch, key="late", wait=False)))
                except offpath.WouldBlock:
                    continue
            assert len(tickets) > 8
            with pytest.raises(offpath.Timeout):
                another.send(many, timeout=0.5)
            waits = waiting_streams(small)
            assert waits and all(each["credit_lacking_bytes"] > 0 for each in waits)
            rows = 0
            for stream, ticket in tickets:
                end = time.monotonic() + PATIENCE_S
                while not ticket.stored and time.monotonic() < end:
                    session.pool(another.pool_name).drop()
                    time.sleep(0.01)
                ticket.wait_stored(0)
                rows += session.pool(stream.pool_name).get("late", timeout=PATIENCE_S).num_rows
            assert rows == len(tickets) * (MIB // 8)
