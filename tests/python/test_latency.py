"""The agent's latency histograms: in the status, in both formats of the metrics, and in `offpath status`."""

from __future__ import annotations

import http.client
import re
import threading

import numpy as np
import offpath
import pyarrow as pa
import pytest
from offpath.agent_http import fetch, fetch_status
from offpath.cli import app
from typer.testing import CliRunner
from waiting import until

SCHEMA = pa.schema({"v": pa.int64()})
PATIENCE_S = 60.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def busy():
    """An agent that has served 20 sends, 10 gets of which one found nothing, and 3 queries."""
    with offpath.Agent.start(memory="64MiB", settings={"agent.http": "127.0.0.1:0"}) as started:
        with offpath.connect(started.address) as session, session.stream("s", SCHEMA, rows_max=10) as stream:
            for step in range(20):
                stream.send({"v": np.arange(10)}, key=f"s{step}").wait_stored(PATIENCE_S)
            pool = session.pool(stream.pool_name)
            for step in range(9):
                assert pool.get(f"s{step}").num_rows == 10
            with pytest.raises(offpath.NotFound):
                pool.get("nothing")
            for _ in range(3):
                assert pool.query(columns=["v"]).num_rows == 200
        yield started


def answer_to(agent, accept: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(agent.http_address.removeprefix("http://").rstrip("/"), timeout=PATIENCE_S)
    connection.request("GET", "/metrics", headers={"Accept": accept})
    return connection.getresponse()


def open_metrics(agent) -> str:
    return answer_to(agent, OPENMETRICS).read().decode()


def test_counts_are_those_of_the_operations(busy):
    status = fetch_status(busy.http_address)
    latency = status["latency"]
    assert latency["pull"]["count"] == latency["store"]["count"] == status["mover"]["sends"] == 20
    assert latency["get"]["count"] == 10
    assert latency["query"]["count"] == status["queries"]["queries"] == 3
    assert latency["credit_wait"]["count"] == 0 and "tcp_acknowledged" not in latency
    for each in ("pull", "store", "get", "query"):
        assert latency[each]["sum_s"] > 0
        assert 0 < latency[each]["p50_s"] <= latency[each]["p99_s"]
        assert latency[each]["sum_s"] <= latency[each]["count"] * latency[each]["p99_s"] * 1.5
        buckets = latency[each]["buckets"]
        assert sum(bucket["count"] for bucket in buckets) == latency[each]["count"]
        bounds = [bucket["up_to_s"] for bucket in buckets]
        assert bounds == sorted(set(bounds)) and latency[each]["p50_s"] in bounds


def test_exemplars_name_tickets(busy):
    metrics = open_metrics(busy)
    exemplar = r'\{channel="\d+",ticket="\d+"\} (\S+)$'
    for name in ("pull", "store", "get", "query"):
        bucket = rf'^offpath_{name}_latency_seconds_bucket\{{le="(\S+)"\}} \d+ # '
        found = re.findall(bucket + exemplar, metrics, re.MULTILINE)
        assert found and all(float(seconds) <= float(bound) for bound, seconds in found)
    assert "ticket=" not in fetch(busy.http_address, "/metrics"), "the text format has no exemplars"


def test_a_wait_for_memory_is_counted_with_its_time():
    """The agent's memory is full of objects; a send waits until they are dropped."""
    values, waited_s = np.arange(1 << 19), 0.5
    with (
        offpath.Agent.start(memory="16MiB", settings={"agent.http": "127.0.0.1:0"}) as agent,
        offpath.connect(agent.address) as session,
        session.stream("s", {"v": "int64"}, rows_max=1 << 19) as stream,
    ):
        with pytest.raises(offpath.Timeout):
            for step in range(20):
                stream.send({"v": values}, ("full", str(step)), timeout=1.0)
        dropping = threading.Timer(2 * waited_s, session.pool(stream.pool_name).drop)
        dropping.start()
        stream.send({"v": values}, ("waited", "0"), timeout=PATIENCE_S).wait_stored(PATIENCE_S)
        dropping.join()
        assert until(lambda: fetch_status(agent.http_address)["latency"]["credit_wait"]["count"] > 0)
        waits = fetch_status(agent.http_address)["latency"]["credit_wait"]
        longest = waits["buckets"][-1]
        assert waits["sum_s"] > 0.8 * waited_s and longest["up_to_s"] > 0.8 * waited_s, waits
        assert sum(bucket["count"] for bucket in waits["buckets"]) == waits["count"]
        counted = f"offpath_credit_wait_latency_seconds_count {waits['count']}\n"
        assert counted in fetch(agent.http_address, "/metrics")


@pytest.mark.parametrize(
    ("accept", "opens"),
    [
        (OPENMETRICS, True),
        ("Application/OpenMetrics-Text", True),
        ("application/*, text/plain;q=0.9", True),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3", True),
        ("*/*;q=0.1, application/openmetrics-text;q=0.2", True),
        ("*/*", False),
        ("", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", False),
        ("application/openmetrics-text;version=0.0.1, text/plain;q=0.1", False),
        ("application/*;q=0.9, application/openmetrics-text;q=0.1, text/*;q=0.2", False),
        ("text/html;version=1.0.0, application/xml;q=0.9", False),
        ("application/openmetrics-text;q=much, text/plain;q=0.1", False),
    ],
)
def test_the_format_is_the_one_that_is_wanted_most(busy, accept, opens):
    content_type = answer_to(busy, accept).headers["Content-Type"]
    assert content_type.startswith(OPENMETRICS if opens else "text/plain; version=0.0.4")


def test_prometheus_reads_both_formats(busy):
    from prometheus_client.openmetrics import parser as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as text

    for families in (text(fetch(busy.http_address, "/metrics")),
                     openmetrics.text_string_to_metric_families(open_metrics(busy))):  # fmt: skip
        shown = {family.name: family for family in families}
        for name, count in (("pull", 20), ("store", 20), ("get", 10), ("query", 3), ("credit_wait", 0)):
            family = shown[f"offpath_{name}_latency_seconds"]
            assert family.type == "histogram"
            samples = {(each.name.rsplit("_", 1)[1], each.labels.get("le")): each.value for each in family.samples}
            assert samples["count", None] == samples["bucket", "+Inf"] == count
            buckets = [each.value for each in family.samples if each.name.endswith("_bucket")]
            assert buckets == sorted(buckets)


def test_the_terminal_shows_percentiles(busy):
    done = CliRunner().invoke(app, ["status", "--http", busy.http_address], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    assert re.search(r"│ pull +│ +20 │ +\S+ (us|ms) │ +\S+ (us|ms|s) │", done.output), done.output
    assert "credit_wait" not in done.output, "nobody has waited"
