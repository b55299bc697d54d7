"""Waiting requests, their reasons and since when: in the status, in `offpath status` and in errors."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import threading
import time

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath.agent_http import fetch, fetch_status
from offpath.cli import app
from typer.testing import CliRunner

MIB = 1 << 20
SCHEMA = pa.schema({"v": pa.int64()})
PATIENCE_S = 60.0


def status_when(agent, holds):
    """The status once it holds, or the last one."""
    end = time.monotonic() + PATIENCE_S
    while not holds(status := fetch_status(agent.http_address)) and time.monotonic() < end:
        time.sleep(0.05)
    return status


def shown(agent, *words):
    done = CliRunner().invoke(app, ["status", "--http", agent.http_address, *words], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def small():
    with offpath.Agent.start(memory="64MiB") as started:
        yield started


def test_gets_that_wait_in_vain_are_no_failures(small):
    with offpath.connect(small.address) as session:
        pool = session.pool("local:/p")
        pool.create()
        for _ in range(5):
            with pytest.raises(offpath.Timeout):
                pool.get("nothing", timeout=0.01)
            with pytest.raises(offpath.NotFound):
                pool.get("nothing")
        (channel,) = status_when(small, lambda status: status["channels"][0]["misses"] == 10)["channels"]
        assert channel["failures"] == 0 and channel["misses"] == 10
        with session.stream("twice", SCHEMA, rows_max=10), pytest.raises(offpath.Exists):
            session.stream("twice", SCHEMA, rows_max=10)
        status = status_when(small, lambda status: status["failures_count"])
        assert status["channels"][0]["failures"] == status["failures_count"] == 1
        assert status["failures"][0]["program"] == channel["program"] and "open already" in status["failures"][0]["why"]
    assert "open already" in shown(small, "--events")


def test_a_send_without_credit_is_shown_with_what_it_lacks(small):
    with offpath.connect(small.address) as session:
        stream = session.stream("filling", SCHEMA, rows_max=2 * MIB)
        values = np.arange(2 * MIB)

        def waits(status):
            return [each for each in status["streams"] if "waits_for_credit_s" in each]

        def fill():
            for step in range(5):
                stream.send({"v": values}, key=f"s{step}")

        filling = threading.Thread(target=fill)
        filling.start()
        (first,) = waits(status_when(small, waits))
        assert first["name"] == "filling" and first["pid"] == os.getpid()
        assert 2 * values.nbytes > first["credit_lacking_bytes"] > 0
        longer = status_when(small, lambda status: waits(status)[0]["waits_for_credit_s"] > first["waits_for_credit_s"])
        assert waits(longer)[0]["waits_for_credit_s"] > first["waits_for_credit_s"]
        assert "credit: " in shown(small) and "stream filling of" in shown(small)

        def lines(status):
            return [each["what"] for each in status["events"] if "for credit" in each["what"]]

        (line,) = lines(status_when(small, lines))
        assert f"(process {os.getpid()}) has waited" in line and "open the stream with keep" in line
        metrics = fetch(small.http_address, "/metrics")
        assert "\noffpath_streams_waiting 1\n" in metrics and "\noffpath_stream_longest_wait_seconds " in metrics
        while filling.is_alive():
            session.pool(stream.pool_name).drop()
            filling.join(0.1)
        assert not waits(status_when(small, lambda status: not waits(status)))
        assert "\noffpath_streams_waiting 0\n" in fetch(small.http_address, "/metrics")


def test_a_get_that_waits_is_shown_with_what_it_lacks_and_since_when(small):
    with offpath.connect(small.address, name="reader") as session:
        pool = session.pool("local:/p")
        pool.create()
        wanted = pool.want("step7", "rank3")

        def gets(status):
            return status["waiting_gets"]["longest"]

        (first,) = gets(status_when(small, gets))
        assert (first["pool"], first["row"], first["column"]) == ("local:/p", "step7", "rank3")
        assert first["program"] == "reader" and first["pid"] == os.getpid() and first["waits_s"] >= 1
        longer = status_when(small, lambda status: gets(status)[0]["waits_s"] > first["waits_s"])
        assert gets(longer)[0]["waits_s"] > first["waits_s"]
        line = next(each for each in shown(small).splitlines() if "step7" in each)
        assert f"get of (step7, rank3) from local:/p by reader (process {os.getpid()})" in line
        assert "has no object (step7, rank3)" in line and re.search(r"│ +\d+ s", line)
        metrics = fetch(small.http_address, "/metrics")
        assert "\noffpath_gets_waiting 1\n" in metrics
        assert float(re.search(r"\noffpath_get_longest_wait_seconds (\S+)", metrics)[1]) >= 1
        pool.put(b"there", "step7", "rank3")
        wanted.result(PATIENCE_S)
        assert status_when(small, lambda status: not gets(status))["waiting_gets"] == {"count": 0, "longest": []}
        assert "\noffpath_gets_waiting 0\n" in fetch(small.http_address, "/metrics")


def test_the_rates_of_the_last_minutes_are_kept_by_the_agent(small):
    with offpath.connect(small.address) as session:
        with session.stream("gone", SCHEMA, rows_max=10) as closed:
            closed.send({"v": np.arange(10)}, key="a").wait_stored(PATIENCE_S)
        with session.stream("kept", SCHEMA, rows_max=1000) as stream, session.stream("idle", SCHEMA, rows_max=10):
            stream.send({"v": np.arange(1000)}, key="b").wait_stored(PATIENCE_S)

            def curve(status):
                (kept,) = [each for each in status["streams"] if each["name"] == "kept"]
                return kept["recent"]["bytes_per_s"]

            status = status_when(small, curve)
            assert curve(status) and sum(curve(status)) > 0
            assert sum(status["recent"]["bytes_per_s"]) > 0 and status["recent"]["every_s"] == 5
            (idle,) = [each for each in status["streams"] if each["name"] == "idle"]
            assert "recent" not in idle, "it has moved nothing"
            assert re.search(r"│ kept .*│ [▁▂▃▄▅▆▇█]+ \d+(\.\d)? (B|KiB)/s", shown(small)), shown(small)
            assert re.search(r"last 5 min [▁▂▃▄▅▆▇█]+ \d", shown(small))
        assert status_when(small, lambda status: not status["streams"])["streams"] == []


def test_a_curve_in_letters():
    from offpath.status_view import recent_text

    assert recent_text(None) == recent_text({"bytes_per_s": []}) == recent_text({"bytes_per_s": [0, 0]}) == "-"
    assert recent_text({"bytes_per_s": [0, 1024, 2048]}) == "▁▅█ 1.0 KiB/s"
    assert recent_text({"bytes_per_s": [0] * 30 + [7] * 30}) == "▁▁▁▁▁█████ 4 B/s"


def test_a_program_that_reads_no_replies_fills_its_rings_and_is_named(small):
    with offpath.connect(small.address, name="careless", ring_slots=64) as session:
        stream = session.stream("s", SCHEMA, rows_max=10, pool="local:/p?overwrite=no")
        values = {"v": np.arange(10)}
        stream.send(values, key="again").wait_stored(60)

        def fill():  # each of these fails: their answers are read by a wait alone
            try:
                for _ in range(10_000):
                    stream.send(values, key="again", wait=False)
            except offpath.WouldBlock as full:
                return str(full)
            return ""

        def rings(status):
            (channel,) = status["channels"]
            fill()
            return channel if "requests_full_s" in channel and "replies_full_s" in channel else None

        first = rings(status_when(small, rings))
        assert first["program"] == "careless" and first["requests_full"] >= 1 and first["replies_full"] == 1
        assert first["requests_wait_for"] == "the program does not read its replies"
        assert "the request ring is full" in fill()
        longer = status_when(small, lambda status: rings(status)["requests_full_s"] > first["requests_full_s"] + 1)
        assert rings(longer)["requests_full_s"] > first["requests_full_s"] + 1
        table = shown(small)
        name = rf"careless \(process {os.getpid()}\)"
        room = "room in its ring of requests: the program does not read its replies"
        assert re.search(rf"{name} *│ {room} *│ +[1-9]\d* s", table)
        assert re.search(rf"replies to {name} *│ the program, which does not read them *│ +[1-9]\d* s", table)
        metrics = fetch(small.http_address, "/metrics")
        assert '\noffpath_rings_full{ring="requests"} 1\n' in metrics
        stream.send(values, key="read")  # a send that waits for room reads some
        with pytest.raises(offpath.Exists):  # of which its own is the newest, and in the ring before it is over
            stream.send(values, key="again").wait_stored(60)

        def is_over(status):  # a wait reads replies, as many as are there
            stream.send(values, key=f"read at {time.monotonic()}").wait_stored(60)
            return not any(each in status["channels"][0] for each in ("requests_full_s", "replies_full_s"))

        (channel,) = status_when(small, is_over)["channels"]
        assert "requests_full_s" not in channel and "replies_full_s" not in channel
        assert channel["requests_full"] >= 1


def test_a_ring_that_was_full_for_a_moment_is_counted(small):
    with offpath.connect(small.address, ring_slots=64) as session:
        stream = session.stream("s", SCHEMA, rows_max=10)
        stream.send({"v": np.arange(10)}, key="first").wait_stored(60)
        assert fetch_status(small.http_address)["channels"][0]["requests_full"] == 0
        os.kill(small.pid, signal.SIGSTOP)
        try:
            with pytest.raises(offpath.WouldBlock):
                for step in range(1000):
                    stream.send({"v": np.arange(10)}, key=f"s{step}", wait=False)
        finally:
            os.kill(small.pid, signal.SIGCONT)
        (channel,) = status_when(small, lambda status: status["channels"][0]["requests_full"])["channels"]
        assert channel["requests_full"] == 1
        assert "requests_full_s" not in status_when(small, lambda status: True)["channels"][0]


def one_rank(address, steps, ends):
    """Rank 1 of 2: ends some steps, and itself."""
    session = offpath.connect(address, name="solver")
    stream = session.stream("steps", SCHEMA, rows_max=10, ranks=2, rank=1)
    for step in range(steps):
        stream.send({"v": np.arange(10)}, key=(f"step{step}", "1")).wait_stored(60)
        stream.step_end(f"step{step}").wait_stored(60)
    ends.wait(PATIENCE_S)
    os._exit(1)


def test_a_dead_rank_is_named_by_who_waits_for_it(small):
    spawn = multiprocessing.get_context("spawn")
    ends = spawn.Event()
    dying = spawn.Process(target=one_rank, args=(small.address, 2, ends))
    dying.start()
    with offpath.connect(small.address) as session:
        stream = session.stream("steps", SCHEMA, rows_max=10, ranks=2, rank=0)
        for step in range(3):
            stream.send({"v": np.arange(10)}, key=(f"step{step}", "0")).wait_stored(60)
            stream.step_end(f"step{step}").wait_stored(60)
        pool = session.pool(stream.pool_name)

        def of_pool(status):
            return next(each for each in status["pools"] if each["name"] == stream.pool_name)

        running = of_pool(status_when(small, lambda status: of_pool(status)["newest_row"] == "step1"))
        assert running["newest_row"] == "step1" and running["steps_waiting"] == 1
        (step,) = running["steps"]
        assert 0 <= step.pop("waits_s") < PATIENCE_S
        assert step == {"row": "step2", "ended": 1, "ranks": 2, "gone": "", "missing": [1]}
        assert re.search(r"it waits for rank 1 *│ +\d+ s", shown(small))
        longer = status_when(small, lambda status: of_pool(status)["steps"][0]["waits_s"] > 1)
        assert of_pool(longer)["steps"][0]["waits_s"] > 1
        wanted = pool.want("step2", "0")
        (get,) = status_when(small, lambda status: status["waiting_gets"]["longest"])["waiting_gets"]["longest"]
        assert get["what"] == "the object" and "1 of 2 ranks have ended" in get["why"] and get["waits_s"] >= 1
        wanted.cancel()
        metrics = fetch(small.http_address, "/metrics")
        assert "\noffpath_steps_waiting 1\n" in metrics
        assert float(re.search(r"\noffpath_step_longest_wait_seconds (\S+)", metrics)[1]) > 1
        ends.set()
        dying.join(PATIENCE_S)
        status = status_when(small, lambda status: of_pool(status)["steps"][0]["gone"])
        named = rf"rank 1 \(solver, process {dying.pid} on \S+\) ended at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        with pytest.raises(offpath.Timeout, match=rf"1 of 2 ranks have ended.*; {named}; step \"step2\" waits for it"):
            pool.get("step2", "0", timeout=0.01)
        assert f"process {dying.pid}" in of_pool(status)["steps"][0]["gone"]
        assert any(f"process {dying.pid}" in each["what"] for each in status["events"] if each["level"] == "warning")
        assert "waits for it" in shown(small)
        again = session.stream("again", SCHEMA, rows_max=10, pool=stream.pool_name, ranks=2, rank=1)
        again.step_end("step2").wait_stored(60)
        assert pool.get("step2", "0", timeout=PATIENCE_S).num_rows == 10


def test_columns_are_shown_on_demand(small):
    with offpath.connect(small.address) as session:
        schema = pa.schema([pa.field("x", pa.list_(pa.float32(), 3), nullable=False), pa.field("id", pa.int64())])
        stream = session.stream("points", schema, rows_max=10)
        (told,) = json.loads(fetch(small.http_address, "/schemas.json"))
        assert told["name"] == stream.name and told["pid"] == os.getpid()
        assert [each["name"] for each in told["columns"]] == ["x", "id"]
        assert [each["nullable"] for each in told["columns"]] == [False, True]
        assert "fixed_size_list<item: float32>[3], no nulls" in shown(small, "--schemas")
        assert "fixed_size_list" not in fetch(small.http_address, "/status.json")


def test_gauges_of_programs_are_shown(small):
    with offpath.connect(small.address) as session:
        gauges = session.gauges("solver", ["residual"])
        gauges["residual"] = 0.123456789

        def sampled(status):
            return [field["value"] for each in status["sampled"] for field in each["fields"]]

        assert sampled(status_when(small, lambda status: sampled(status) == [0.123456789]))
        assert "0.1235" in shown(small) and "residual" in shown(small)


def test_names_are_cut_in_the_middle():
    from offpath.status_view import middle_text

    assert middle_text("short") == "short"
    cut = middle_text("a" * 100 + "b" * 100, 20)
    assert len(cut) == 20 and cut.startswith("aaaaaaaaaa…") and cut.endswith("bbbbbbbbb")
