"""The status page in a real browser without a window: hosts, alarms, and the tree of an exchange with a dead member,
waiting requests, failures, gauges and rates."""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import Group
from agent_process import until
from browser import BROWSER, FIRST_SECONDS, browser

CONFIGURATION = """
[sampling]
interval = "100ms"
[[source]]
set = "cpu"
[[source]]
set = "load"
[[alarm]]
name = "there is time"
when = "cpu_seconds{mode=\\"idle\\"} > -1"
lasting = "0s"
[[exchange]]
name = "hosts"
topology = "neighbourhoods(2)"
source = "host"
interval = "400ms"
deadline = "320ms"
fields = ["load1:f64"]
"""
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.stop_all()


def page(group: Group, name: str, profile: Path) -> str:
    """The document some seconds after it was loaded, by the browser's clock."""
    command = [*browser(profile, *FIRST_SECONDS, "--dump-dom"), group.running[name].ready["http"]]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def cells(document: str, table: str) -> str:
    """The text of a table, without its tags."""
    found = re.search(rf'id="{table}"[^>]*>(.*?)</div>', document, re.DOTALL)
    assert found, document[:2000]
    return re.sub(r"<[^>]+>", " ", found[1])


def test_what_is_watched_is_a_picture(group: Group, tmp_path: Path) -> None:
    config = group.directory / "agent.toml"
    config.write_text(CONFIGURATION)
    for name in "abcde":
        join = ["--join", group.address("a")] if name != "a" else []
        group.start(name, "--config", str(config), "--set", "group.dead_after=5s", *join)
    assert until(lambda: group.all_know(list("abcde"), dict.fromkeys("abcde", "alive")))
    group.running["d"].process.kill()

    def entries() -> dict[str, bool]:
        (exchange,) = group.running["a"].status()["exchanges"]
        return {each["member"]: each["present"] for each in exchange["view"].get("entries", [])}

    assert until(lambda: entries() == {"a": True, "b": True, "c": True, "d": False, "e": True})
    document = page(group, "a", tmp_path / "browser")
    assert "neighbourhoods(2)" in cells(document, "exchanges") and "4 of 5" in cells(document, "exchanges")
    assert "there is time" in cells(document, "alarms")
    tree = re.search(r'<svg[^>]*aria-label="tree of the exchange hosts".*?</svg>', document, re.DOTALL)
    assert tree
    marks = {title: state for state, title in re.findall(r'<circle class="(\w+)"[^>]*><title>([^<]*)</title>', tree[0])}
    members = {"a, leads": "there", "b": "there", "c": "there", "d, not there": "away", "e": "there"}
    assert {title: state for title, state in marks.items() if state != "group"} == members
    load = re.search(r'<svg[^>]*aria-label="load of each host over time".*?</svg>', document, re.DOTALL)
    assert load and 'class="line"' in load[0]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', document)  # nothing comes from elsewhere


def text(document: str, element: str) -> str:
    """The text of an element of a table's rows, with blanks as a reader sees them."""
    return re.sub(r"\s+", " ", cells(document, element))


def test_who_waits_and_what_failed(group: Group, tmp_path: Path) -> None:
    long_name = "checkpoint-of-the-simulation-" + "with-a-name-that-goes-on-" * 4 + "to-its-end"
    group.start("a", "--memory", "64MiB", "--set", "log.level=warning", "--set", "agent.http_events=true")
    values = np.arange(1 << 20)
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    with offpath.connect(group.address("a"), name="solver") as session:
        gauges = session.gauges("solver", ["residual"])
        gauges["residual"] = 0.123456789
        rank = session.stream("ranks", schema, rows_max=10, ranks=3, rank=1)
        rank.step_end("step007").wait_stored(60)
        stream = session.stream(long_name, schema, rows_max=1 << 20)
        with pytest.raises(offpath.Exists):
            session.stream("ranks", schema, rows_max=10, ranks=3, rank=1)

        def fill() -> None:
            for step in range(10):
                stream.send({"v": values}, key=f"step{step}")

        filling = threading.Thread(target=fill)
        filling.start()
        wanted = session.pool(rank.pool_name).want("step008", "rank1")
        assert until(lambda: group.running["a"].status()["waiting_gets"]["count"] == 1)
        assert until(lambda: any("waits_for_credit_s" in each for each in group.running["a"].status()["streams"]))
        assert until(lambda: "0.12345" in json.dumps(group.running["a"].status())), "the agent has read the gauge"
        document = page(group, "a", tmp_path / "browser")
        while filling.is_alive():
            session.pool(stream.pool_name).drop()
            filling.join(0.1)
        wanted.cancel()
    waiting = text(document, "waiting")
    assert "of solver (process" in waiting and "credit: 8.0" in waiting
    assert "step step007 of local:/ranks 1 of 3 ranks have ended it; it waits for rank 0, 2" in waiting
    assert re.search(r"it waits for rank 0, 2 \d+(\.\d+)? s", waiting)
    assert re.search(
        r"get of \(step008, rank1\) from local:/ranks by solver \(process \d+\) .*rank1\) \d+(\.\d+)? s", waiting
    )
    assert "exists" in text(document, "failures") and "is open already" in text(document, "failures")
    assert "status at http" in text(document, "events"), "also lines that the log leaves out"
    assert "residual 0.1235" in text(document, "gauges")
    assert re.search(r"checkpoint-of-the-s\S*…\S*to-its-end", text(document, "streams"))
    assert f'title="{long_name}"' in document, "all of it is shown under the pointer"
    assert not re.search(r"\d\.\d{6}", re.sub(r"<svg.*?</svg>", "", document.split("<script>")[0])), "rounded"
    assert document.count("<details") == 3 and 'id="failing"' in document


def test_the_last_minutes_are_drawn_when_the_page_is_opened(group: Group, tmp_path: Path) -> None:
    """All is quiet when the browser comes: it draws the history that the agent kept."""
    group.start("a", "--memory", "64MiB")
    with offpath.connect(group.address("a"), name="solver") as session:
        stream = session.stream("particles", {"v": "int64"}, rows_max=1 << 16)
        for step in range(3):
            stream.send({"v": np.arange(1 << 16)}, key=f"step{step}").wait_stored(60)
        assert until(lambda: group.running["a"].status()["streams"][0]["recent"]["bytes_per_s"])
        document = page(group, "a", tmp_path / "browser")
    drawn = re.search(r'<svg[^>]*aria-label="rate of each stream over time".*?</svg>', document, re.DOTALL)
    assert drawn and "particles (solver, process" in drawn[0]
    (line,) = re.findall(r'<polyline class="line"[^>]*points="([^"]*)"', drawn[0])
    assert len(line.split()) >= 2
    assert "/s" in text(document, "streams"), "a rate at once, too"


def test_latencies_are_drawn_as_the_agent_counted_them(group: Group, tmp_path: Path) -> None:
    group.start("a", "--memory", "64MiB")
    with offpath.connect(group.address("a"), name="solver") as session:
        stream = session.stream("particles", {"v": "int64"}, rows_max=100)
        for step in range(7):
            stream.send({"v": np.arange(100)}, key=f"step{step}").wait_stored(60)
        for step in range(3):
            session.pool(stream.pool_name).get(f"step{step}")
        document = page(group, "a", tmp_path / "browser")
        latency = group.running["a"].status()["latency"]
    shown = text(document, "latencies")
    for name, key, times in (("pull of a batch", "pull", 7), ("store of a batch", "store", 7), ("get", "get", 3)):
        duration = r" +([\d.]+) (ns|µs|ms|s)"
        (row,) = re.findall(rf" {name} +(\d+){duration * 3}", shown)
        assert int(row[0]) == times
        scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
        seconds = [float(number) * scale[unit] for number, unit in zip(row[1::2], row[2::2], strict=True)]
        expected = [latency[key]["sum_s"] / times, latency[key]["p50_s"], latency[key]["p99_s"]]
        assert seconds == pytest.approx(expected, rel=0.01)
    assert "query" not in shown and "waits for memory" not in shown, "only what was measured"
    drawn = re.search(r'<svg[^>]*aria-label="how long each kind of operation took".*?</svg>', document, re.DOTALL)
    assert drawn
    bars = [int(each) for each in re.findall(r"<title>(\d+) of up to", drawn[0])]
    assert bars == [bucket["count"] for each in latency.values() for bucket in each["buckets"]]


MEASURE = """<script>
addEventListener("load", () => {
  document.getElementById("columns").open = true;
  setTimeout(() => {
    const root = document.documentElement;
    const wide = [...document.querySelectorAll("body *")].filter(each => !each.closest(".scroll, svg")
      && each.getBoundingClientRect().right > root.clientWidth + 1).map(each => each.tagName + " " + each.id);
    const note = document.body.appendChild(document.createElement("pre"));
    note.id = "measured";
    note.textContent = JSON.stringify({page: root.clientWidth, needs: root.scrollWidth, wide});
  }, 4000);
});
</script>"""


@contextmanager
def measured_page(agent: str) -> Iterator[str]:
    """The agent's page with a script that writes into it how wide it is; the page fetches the agent's own data."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with urllib.request.urlopen(agent.rstrip("/") + self.path, timeout=60) as answer:
                body, kind = answer.read(), answer.headers["Content-Type"]
            if self.path == "/":
                assert b"</body>" in body
                body = body.replace(b"</body>", MEASURE.encode() + b"</body>")
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("width", [800, 1280, 1920])
def test_nothing_runs_over_the_edge_of_the_screen(group: Group, tmp_path: Path, width: int) -> None:
    name = "particles-" + "of-a-run-with-a-long-name-" * 5 + "end"
    group.start("a", "--memory", "64MiB", "--set", "agent.http_events=true")
    with offpath.connect(group.address("a"), name="solver-" + "x" * 60) as session:
        stream = session.stream(name, {"position": "float64", "identity": "int64"}, rows_max=100, keep=10)
        stream.send({"position": np.arange(10.0), "identity": np.arange(10)}, key="step000001").wait_stored(60)
        session.pool("local:/bytes").put(b"bytes", "object")
        gauges = session.gauges("solver", ["residual-" + "y" * 20])
        gauges["residual-" + "y" * 20] = 1234567890.123456789
        with measured_page(group.running["a"].ready["http"]) as address:
            options = [*FIRST_SECONDS, "--dump-dom", f"--window-size={width},900"]
            command = [*browser(tmp_path / "browser", *options), address]
            document = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    found = re.search(r'<pre id="measured">(.*?)</pre>', document)
    assert found, document[-2000:]
    measured = json.loads(html.unescape(found[1]))
    assert abs(measured["page"] - width) <= 20, "the browser took the width that was asked for"
    assert measured["needs"] <= measured["page"] and measured["wide"] == []
    assert "position: float64 · identity: int64" in text(document, "schemas")
    pools = text(document, "pools")
    assert "step000001" in pools, "the newest row"
    assert re.search(r"local:/bytes .*?– .*5 B", pools), "bytes have no rows"
