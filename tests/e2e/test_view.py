"""``offpath view``: counts are NumPy's, a step that arrives is drawn without a reload, and strangers get nothing."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_process import agent
from offpath.view import Pictures, ViewServer, pictures

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
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
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        connection.request(method, f"/{self.server.token if token is None else token}/{path}", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body

    def density(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        asked = urllib.parse.urlencode({"pool": self.pool.name, "x": "x", "y": "y", "bins": 16, **fields})
        code, _, body = self.get(f"density?{asked}")
        return code, json.loads(body)


@pytest.fixture
def viewed(tmp_path: Path) -> Iterator[Viewed]:
    with agent(tmp_path) as running:
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


def test_what_cannot_be_drawn_is_refused(viewed: Viewed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert viewed.density() == (200, {"state": ""})
    viewed.put("step0")
    assert viewed.density(bins=513)[0] == 422 and viewed.density(bins=0)[0] == 422
    assert viewed.density(bins="many")[0] == 400
    assert viewed.density(x="name") == (422, {"error": "column name has no numbers"})
    assert viewed.density(x="absent")[0] in (404, 502)
    assert viewed.density(pool="local:/absent")[0] in (200, 404)
    assert viewed.get("density?pool=local:/points")[0] == 400
    monkeypatch.setattr(pictures, "ROWS_MAX", 999)
    assert viewed.density() == (422, {"error": "step step0 has 1000 rows; at most 999 are drawn"})


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


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
def test_a_step_that_arrives_is_drawn(viewed: Viewed, tmp_path: Path) -> None:
    viewed.put("step0")
    following: Any = viewed.server.pictures
    following.arrives = lambda: viewed.put("step1", 1234)
    command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=8000", "--timeout=20000",
               "--dump-dom", viewed.server.url]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert following.arrives is None, "the page asked again"
    assert "step step1: " in done.stdout and "of 1234 rows" in done.stdout
    assert "CONSOLE" not in done.stderr, done.stderr
    assert 'id="alarm" role="alert" hidden' in done.stdout
    assert "1 agent, 1 pool" in done.stdout and "<td>int32</td>" in done.stdout
