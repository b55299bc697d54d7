"""``offpath view``: numbers are those of NumPy, tracks and exchanges; a step that arrives is drawn without a reload;
strangers get nothing."""

from __future__ import annotations

import html
import http.client
import json
import re
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import offpath.view.paths
import pyarrow as pa
import pytest
from agent_process import agent, until
from browser import BROWSER, FIRST_SECONDS, browser
from load_exchange import LOAD_EXCHANGE
from offpath.group_view import look
from offpath.view import Pictures, ViewServer
from offpath.view.server import SCRIPTS, Handler

SCHEMA = pa.schema([("x", pa.float64()), ("y", pa.int32()), ("name", pa.string())])


class Following(Pictures):
    """Stores another step before the second picture of the first is asked for."""

    arrives: Any = None

    def density(self, name: str, x: str, y: str, bins: int, state: str) -> dict[str, Any]:
        if state and self.arrives:
            arrives, self.arrives = self.arrives, None
            arrives()
        return super().density(name, x, y, bins, state)


class Viewed:
    def __init__(self, session: offpath.Session, server: ViewServer) -> None:
        self.session = session
        self.server = server
        self.pool = session.pool("local:/points").create()

    def put(self, step: str, rows: int = 1000, rank: str = "rank0") -> pa.Table:
        numbers = np.random.default_rng(rows)
        x = numbers.normal(size=rows)
        x[::10] = np.nan
        y = pa.array(numbers.integers(-50, 50, rows), pa.int32(), mask=np.arange(rows) % 7 == 0)
        table = pa.table([pa.array(x), y, pa.array(["a"] * rows)], schema=SCHEMA)
        self.pool.put(table, step, rank)
        return table

    def get(self, path: str, method: str = "GET", token: str | None = None, **headers: str) -> tuple[int, Any, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request(method, f"/{self.server.token if token is None else token}/{path}", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body

    def gauges(self) -> list[dict[str, Any]]:
        """Waits until the agent has read some."""
        until_s = time.monotonic() + 30
        listed: list[dict[str, Any]] = []
        while not listed and time.monotonic() < until_s:
            listed = json.loads(self.get("agents")[2])["gauges"]
        return listed

    def density(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        asked = urllib.parse.urlencode({"pool": self.pool.name, "x": "x", "y": "y", "bins": 16, **fields})
        code, _, body = self.get(f"density?{asked}")
        return code, json.loads(body)


@pytest.fixture
def viewed(tmp_path: Path) -> Iterator[Viewed]:
    (tmp_path / "agent.toml").write_text(LOAD_EXCHANGE)
    with agent(tmp_path, "--config", str(tmp_path / "agent.toml")) as running:
        with (
            offpath.connect(f"unix:{tmp_path}/agent.sock") as session,
            ViewServer(Following(session, running.ready["http"].removeprefix("http://").rstrip("/"))) as server,
        ):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield Viewed(session, server)
            server.shutdown()


def test_counts_are_those_of_numpy(viewed: Viewed) -> None:
    viewed.put("step0")
    table = pa.concat_tables([viewed.put("step[1]", 500), viewed.put("step[1]", 700, "rank1")])
    code, told = viewed.density()
    assert code == 200, told
    x, y = table["x"].to_numpy(), table["y"].cast(pa.float64()).to_numpy()
    kept = np.isfinite(x) & np.isfinite(y)
    counts, *edges = np.histogram2d(x[kept], y[kept], bins=16)
    assert (told["row"], told["rows"], told["counted"]) == ("step[1]", 1200, kept.sum())
    assert np.array_equal(told["counts"], counts)
    assert all(np.array_equal(told["edges"][axis], edges[axis]) for axis in (0, 1))
    _, alone = viewed.density(y="", bins=33)
    assert np.array_equal(alone["counts"], np.histogram(x[np.isfinite(x)], 33)[0])
    assert viewed.density(state=told["state"]) == (200, {"state": told["state"]}), "nothing new, nothing read"


def test_what_cannot_be_drawn_is_refused(viewed: Viewed) -> None:
    assert viewed.density() == (200, {"state": ""})
    viewed.put("step0")
    assert viewed.density(bins=513)[0] == 422 and viewed.density(bins=0)[0] == 422
    assert viewed.density(bins="many")[0] == 400
    assert viewed.density(x="name") == (422, {"error": "column name has no numbers"})
    assert viewed.density(x="absent")[0] in (404, 502)
    assert viewed.density(pool="local:/absent")[0] in (200, 404)
    assert viewed.get("density?pool=local:/points")[0] == 400


def test_strangers_get_nothing(viewed: Viewed) -> None:
    assert viewed.get("agents")[0] == 200
    assert viewed.get("agents", token="")[0] == 403
    assert viewed.get("agents", token=viewed.server.token[:-1])[0] == 403
    assert viewed.get("agents", Host=f"elsewhere.example:{viewed.server.port}")[0] == 403
    assert viewed.get("agents", Host="127.0.0.1")[0] == 403
    assert viewed.get("agents", method="POST")[0] == 501
    assert viewed.get("../cli.py")[0] == 404 and viewed.get("server.py")[0] == 404
    assert viewed.get("x" * 5000)[0] == 414
    code, headers, body = viewed.get("")
    assert code == 200 and b"<canvas" in body
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert viewed.server.server_address[0] == "127.0.0.1"


def send_tracks(session: offpath.Session, steps: int) -> None:
    """Particles 10 to 12; x is the identifier and a tenth of the step, y is NaN at odd steps."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32())])
    stream = session.stream("moving", schema, rows_max=3, pool="sift:/points?key=id")
    for step in range(steps):
        ids = np.arange(10, 13)
        y = np.full(3, np.nan if step % 2 else step, np.float32)
        stream.send({"id": ids, "x": ids + step / 10, "y": y}, f"step{step}").wait_stored(30)
    session.tracks("sift:/points?key=id").flush(30)


def test_paths_are_those_of_the_tracks(viewed: Viewed) -> None:
    send_tracks(viewed.session, 5)
    (name,) = json.loads(viewed.get("agents")[2])["tracks"]
    told = json.loads(viewed.get("track-columns?" + urllib.parse.urlencode({"tracks": name}))[2])
    assert told["columns"] == ["x", "y"] and set(told["examples"]) == {10, 11, 12}

    def paths(**fields: Any) -> tuple[int, dict[str, Any]]:
        asked = {"tracks": name, "ids": "11, 99 10", "x": "step", "y": "x", **fields}
        code, _, body = viewed.get("paths?" + urllib.parse.urlencode(asked))
        return code, json.loads(body)

    code, told = paths()
    assert code == 200, told
    assert [each["id"] for each in told["paths"]] == ["11", "10"]
    assert told["paths"][0]["x"] == [0, 1, 2, 3, 4]
    assert told["paths"][0]["y"] == pytest.approx([11, 11.1, 11.2, 11.3, 11.4])
    assert paths(y="y")[1]["paths"][1]["y"] == [0, None, 2, None, 4]
    assert paths(ids="7")[1] == {"paths": []}
    assert paths(ids="1 2 3 4 5 6 7 8 9")[0] == 422 and paths(ids="seven")[0] == 422
    assert paths(ids=str(2**63))[0] == 422
    assert paths(y="absent")[0] in (404, 502)
    assert viewed.get("paths?tracks=sift:/absent&ids=1&x=step&y=x")[0] == 404


def test_long_tracks_are_thinned(viewed: Viewed, monkeypatch: pytest.MonkeyPatch) -> None:
    send_tracks(viewed.session, 7)
    monkeypatch.setattr(offpath.view.paths, "POINTS_MAX", 3)
    (path,) = viewed.server.pictures.paths.paths("sift:/points?key=id", "10", "step", "x")["paths"]
    assert path["rows"] == 7 and path["x"] == [0, 3, 6]


def test_an_exchange_is_a_table_of_its_newest_view(viewed: Viewed) -> None:
    assert json.loads(viewed.get("agents")[2])["exchanges"] == ["load"]
    with viewed.session.exchange("load", publish=True) as publisher:
        publisher.publish(power=71.5)
        until_s = time.monotonic() + 30
        while time.monotonic() < until_s:
            code, _, body = viewed.get("exchange?name=load")
            told = json.loads(body)
            assert code == 200, told
            if told["members"] and told["members"][0]["values"][0] is not None:
                break
        (member,) = told["members"]
        assert member["values"] == [71.5, None] and member["present"]
        assert told["fields"] == [{"name": "power", "unit": "watts"}, {"name": "jobs", "unit": ""}]
        assert (told["present"], told["expected"]) == (1, 1)
    assert viewed.get("exchange?name=absent")[0] in (404, 502)


def test_gauges_of_programs_are_listed(viewed: Viewed) -> None:
    with viewed.session.gauges("solver", ["residual", "never_set"]) as gauges:
        gauges["residual"] = 0.25
        listed = viewed.gauges()
        assert [(each["name"].split()[-2:], each["value"]) for each in listed] == [(["solver", "residual"], 0.25)]


def drawn(viewed: Viewed, tmp_path: Path, runs: tuple[str, ...] = FIRST_SECONDS, colours: str = "light") -> str:
    """The page after its first seconds. Fails if the browser's console says anything."""
    command = browser(tmp_path / "browser", "--enable-logging=stderr", *runs, "--dump-dom", colours=colours)
    done = subprocess.run([*command, viewed.server.url], capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
def test_a_thousand_columns_and_a_hundred_agents(
    viewed: Viewed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = look(viewed.server.pictures._http)
    (own,) = seen.statuses.values()
    names = [f"agent{i}" for i in range(100)]
    seen.members = [{**seen.members[0], "name": name, "state": "alive"} for name in names]
    monkeypatch.setattr(offpath.view.pictures, "look", lambda _: seen)
    columns = {f"c{i}": np.arange(10.0) * i for i in range(1000)}
    viewed.pool.put(pa.table(columns), "step0")
    status = {**own, "pools": [{"name": viewed.pool.name}]}
    seen.statuses = {name: status for name in names}
    page = drawn(viewed, tmp_path)
    assert "100 agents, 1 pool" in page and page.count("<progress") == 100
    assert page.count("<td>double</td>") == 1000 and page.count('<option value="c999"') == 2  # of x and of y
    assert "step step0: 10 of 10 rows" in page
    assert 'id="alarm" role="alert" hidden' in page


class Controls(HTMLParser):
    """The elements that a keyboard reaches: choices in their labels, and tables that scroll."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.kinds: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        assert not [name for name in told if name.startswith("on")], "the page acts on a pointer alone"
        if tag in ("select", "input"):
            assert "label" in self.open, told
            self.kinds.append(tag)
        if "scroll" in (told.get("class") or "").split():
            assert told["tabindex"] == "0" and told["aria-label"], told
            self.kinds.append("scroll")
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open.pop() != tag:
            pass


def test_a_keyboard_reaches_everything(viewed: Viewed) -> None:
    kinds = Controls(viewed.get("")[2].decode()).kinds
    assert [kinds.count(each) for each in ("select", "input", "scroll")] == [8, 1, 4]
    scripts = [viewed.get(name)[2] for name in SCRIPTS]
    assert not any(word in script for script in scripts for word in (b"onclick", b'"click"', b'"pointer', b'"mouse'))


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
def test_a_step_that_arrives_is_drawn(viewed: Viewed, tmp_path: Path) -> None:
    viewed.put("step0")
    following: Any = viewed.server.pictures
    following.arrives = lambda: viewed.put("step1", 1234)
    send_tracks(viewed.session, 5)
    publisher = viewed.session.exchange("load", publish=True)
    publisher.publish(power=71.5, jobs=3)
    gauges = viewed.session.gauges("solver", ["residual"])
    gauges["residual"] = 0.25
    assert viewed.gauges()
    page = drawn(viewed, tmp_path)
    assert following.arrives is None, "the page asked again"
    assert "step step1: " in page and "of 1234 rows" in page
    assert 'id="alarm" role="alert" hidden' in page
    assert "1 agent, 1 pool" in page and "<td>int32</td>" in page
    assert "step from 0 to 4" in page and "10 (5 steps)" in page
    assert "<th>power (watts)</th>" in page and "<td style=" in page
    assert "solver residual</td>" in page
    publisher.close()
    gauges.close()


# Notes in the page, in their order, each picture's question that was answered and each caption that was shown.
WATCH = """
const notes = [], plain = window.fetch;
function note(each) {
  notes.push(each);
  document.documentElement.dataset.notes = JSON.stringify(notes);
}
window.fetch = async (path, ...rest) => {
  const answer = await plain(path, ...rest);
  const [name, fields] = path.split("?"), asked = new URLSearchParams(fields);
  if (name === "density" && asked.get("y")) note({state: asked.get("state")});
  return answer;
};
let shown = "";
new MutationObserver(() => {
  const caption = document.getElementById("density-text")?.textContent ?? "";
  if (caption !== shown) note({caption, at_s: Date.now() / 1000});
  shown = caption;
}).observe(document, {childList: true, subtree: true});
"""


class Noting(Handler):
    """Serves the page with another script, which records the page's actions and runs before its own ones."""

    script: str
    scripts = '<script src="watch.js"></script>'

    def do_GET(self) -> None:
        if self.path.rpartition("/")[2] == "watch.js":
            return self._answer(200, "text/javascript", self.script.encode())
        super().do_GET()

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        if kind == "text/html":
            body = body.replace(b"<body>", b"<body>" + self.scripts.encode())
        super()._answer(code, kind, body)


class Watching(Noting):
    """The load of the page ends, and the browser with it, when `enough` is set."""

    script = WATCH
    scripts = Noting.scripts + '<script async src="last.js"></script>'
    enough: threading.Event

    def do_GET(self) -> None:
        if self.path.rpartition("/")[2] == "last.js":
            self.enough.wait(60)
            return self._answer(200, "text/javascript", b"")
        super().do_GET()


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
def test_a_step_that_arrives_is_shown_within_a_second(
    viewed: Viewed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the page's design decides: it asks at least once a second, and shows the step with the next answer. The
    load of the machine adds to that, so no time of its own is a bound here; it is printed."""
    viewed.put("step0")
    pictures = viewed.server.pictures
    count, enough = pictures.density, threading.Event()
    asked_s: list[float] = []
    arrived_s: list[float] = []
    states: list[str] = []

    def density(name: str, x: str, y: str, bins: int, state: str) -> dict[str, Any]:
        if y:
            asked_s.append(time.monotonic())
            states.append(state)
        told = count(name, x, y, bins, state)
        if y and state and not arrived_s:  # it arrives just after an answer without news
            viewed.put("step1", 1234)
            arrived_s.append(time.time())
        if "step1" in states[-1] and min(np.diff(asked_s)) <= 1:
            enough.set()
        return told

    monkeypatch.setattr(pictures, "density", density)
    viewed.server.RequestHandlerClass = type("Watcher", (Watching,), {"enough": enough})
    page = drawn(viewed, tmp_path, ())
    notes = json.loads(html.unescape(re.search(r'data-notes="([^"]*)"', page)[1]))  # type: ignore[index]
    arrival = next(i for i, each in enumerate(notes) if each.get("state"))
    picture = next(i for i, each in enumerate(notes) if each.get("caption", "").startswith("step step1: "))
    assert [sorted(each) for each in notes[arrival + 1 : picture]] == [["state"]], "not shown with the next answer"
    assert min(np.diff(asked_s)) <= 1, f"the page asks every {min(np.diff(asked_s)):.1f} s"
    print(f"shown {notes[picture]['at_s'] - arrived_s[0]:.2f} s after it arrived")


def test_streams_that_wait_for_memory_are_counted(tmp_path: Path) -> None:
    values = np.arange(1 << 19)
    with (
        agent(tmp_path, "--memory", "16MiB") as running,
        offpath.connect(f"unix:{tmp_path}/agent.sock") as session,
        session.stream("full", {"v": "int64"}, rows_max=values.size) as stream,
    ):
        pictures = Pictures(session, running.ready["http"].removeprefix("http://").rstrip("/"))

        def told() -> dict[str, Any]:
            (member,) = pictures.agents()["members"]
            return member

        assert (told()["waiting"], told()["longest_wait_s"]) == (0, 0)
        with pytest.raises(offpath.Timeout):
            for step in range(20):
                stream.send({"v": values}, f"step{step}", timeout=1.0)
        with pytest.raises(offpath.WouldBlock):  # and the memory stays asked for
            stream.send({"v": values}, "next", wait=False)
        assert until(lambda: told()["waiting"] == 1)
        waited_s = told()["longest_wait_s"]
        assert until(lambda: told()["longest_wait_s"] > waited_s), "it waits on"
        assert told()["moved_bytes"] >= values.nbytes
        session.pool("local:/full").drop()
        assert until(lambda: told()["waiting"] == 0)


# Notes the line of the newest picture of a gauge.
COURSE = """
const to = CanvasRenderingContext2D.prototype, {beginPath, lineTo, stroke} = to;
let line = [];
to.beginPath = function () { line = []; beginPath.call(this); };
to.lineTo = function (x, y) { line.push([x, y]); lineTo.call(this, x, y); };
to.stroke = function () {
  stroke.call(this);
  if (this.canvas.height === 36) document.documentElement.dataset.course = JSON.stringify(line);
};
"""


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
def test_rates_waits_and_the_course_of_a_gauge_are_drawn(
    viewed: Viewed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page asks every two seconds. Each time 8 MiB more have moved, and the gauge has its next value."""
    seen = look(viewed.server.pictures._http)
    ((name, own),) = seen.statuses.items()
    values, looks = [0.25, 1.25, 0.75], [0]
    streams = [{"waits_for_credit_s": 1.5}, {}, {"waits_for_credit_s": 3.5}]

    def looked(_: str) -> Any:
        at = looks[0]
        looks[0] += 1
        field = {"name": "residual", "value": values[min(at, 2)], "unit": "m"}
        sampled = [{"way": "gauges", "fresh": True, "name": "solver", "fields": [field]}]
        seen.statuses = {
            name: {**own, "streams": streams, "mover": {"bytes": at * (8 << 20)}, "sampled": sampled, "exchanges": []}
        }
        return seen

    monkeypatch.setattr(offpath.view.pictures, "look", looked)
    viewed.server.RequestHandlerClass = type("Noter", (Noting,), {"script": COURSE})
    page = drawn(viewed, tmp_path)
    assert looks[0] >= 3
    assert "<td>2 streams, 3.5 s</td>" in page
    rate = float(re.search(r"<td>([\d.]+) MiB/s</td>", page)[1])  # type: ignore[index]
    assert 1 < rate <= 4.1, "8 MiB in two seconds, and what the answer took"
    assert f'aria-label="{name} solver residual from 0.25 to 1.25"' in page
    assert "<td>0.75 m</td>" in page and "<td>0.25 to 1.25</td>" in page
    line = json.loads(html.unescape(re.search(r'data-course="([^"]*)"', page)[1]))  # type: ignore[index]
    assert len(line) == looks[0]
    assert [x for x, _ in line] == pytest.approx(np.linspace(0, 200, looks[0])), "from the left to the right"
    assert [y for _, y in line] == [33, 3, 18, *[18] * (looks[0] - 3)], "low, high, and in the middle"


# Notes the ground of the page, and the colour of the strongest bin of the picture.
GROUND = """
new MutationObserver(() => {
  const canvas = document.getElementById("density"), told = document.documentElement.dataset;
  if (told.picture || !document.getElementById("density-text")?.textContent) return;
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let strongest = 0;
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] > data[strongest + 3]) strongest = at;
  told.ground = getComputedStyle(document.body).backgroundColor;
  told.picture = data.slice(strongest, strongest + 4).join(" ");
}).observe(document, {childList: true, subtree: true});
"""


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
@pytest.mark.parametrize(("colours", "ground", "picture"), [
    ("light", "rgb(255, 255, 255)", "47 111 173 255"),
    ("dark", "rgb(20, 23, 26)", "91 155 214 255"),
])  # fmt: skip
def test_the_page_has_the_colours_that_the_user_prefers(
    viewed: Viewed, tmp_path: Path, colours: str, ground: str, picture: str
) -> None:
    viewed.put("step0")
    viewed.server.RequestHandlerClass = type("Noter", (Noting,), {"script": GROUND})
    page = drawn(viewed, tmp_path, colours=colours)
    assert f'data-ground="{ground}"' in page and f'data-picture="{picture}"' in page
