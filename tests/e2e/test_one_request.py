"""A Python call that waits for another member asks its agent as often as one that need not wait, however long it takes:
in slices, each slice would be a request of its own, which begins anew there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import PATIENCE_S, joined_group

WAIT_S = 1.5
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64(), nullable=False)])
FAR = "hash:/far?members=b"
TRACKS = "sift:/tracks?key=id&stages=1&fanout=4&age=50ms"

# Each with a session, and how long it may wait.
CALLS: dict[str, Callable[[offpath.Session, float], object]] = {
    "get": lambda session, wait_s: session.pool(FAR).get("row", timeout=wait_s),
    "list": lambda session, wait_s: session.pool(FAR).list(timeout=wait_s),
    "query": lambda session, wait_s: session.pool(FAR).query(aggregates={"rows": "count"}, timeout=wait_s),
    "flush": lambda session, wait_s: session.tracks(TRACKS).flush(wait_s),
    "select": lambda session, wait_s: list(session.tracks(TRACKS).select("x < 1", timeout=wait_s)),
    "track": lambda session, wait_s: session.tracks(TRACKS).tracks("id >= 0", timeout=wait_s),
}


def test_a_call_that_waits_for_a_member_asks_no_more_often(tmp_path: Path) -> None:
    with (
        joined_group(tmp_path, ["a", "b"], "local", "--set", "group.dead_after=60s") as group,
        group.connect("a") as session,
    ):
        batch = {"id": np.arange(100), "x": np.arange(100.0)}
        session.pool(FAR).put(batch, "row", timeout=PATIENCE_S)
        with session.stream("walkers", SCHEMA, rows_max=100, pool=TRACKS) as stream:
            stream.send(batch, key=("step0", "rank0"), snapshot=True).wait_stored(PATIENCE_S)
        session.tracks(TRACKS).flush(PATIENCE_S)

        def answered() -> int:
            channels = group.running["a"].status()["channels"]
            return sum(each["replies"] for each in channels if each["pid"] == os.getpid())

        def answered_by_now() -> int:
            """The answer to a call that has timed out may still be on its way."""
            before = -1
            while (now := answered()) != before:
                before = now
                time.sleep(0.3)
            return now

        usual = {}
        for name, call in CALLS.items():
            before = answered_by_now()
            call(session, PATIENCE_S)
            usual[name] = answered_by_now() - before
            assert 1 <= usual[name] <= 6, name  # slices would be thirty
        os.kill(group.running["b"].pid, signal.SIGSTOP)
        try:
            for name, call in CALLS.items():
                before, began = answered_by_now(), time.monotonic()
                with pytest.raises((offpath.Timeout, offpath.WouldBlock)):
                    call(session, WAIT_S)
                assert time.monotonic() - began > WAIT_S / 2, f"{name} has not waited"
                assert answered() <= before + usual[name] + 1, name  # one for giving it up
        finally:
            os.kill(group.running["b"].pid, signal.SIGCONT)
