"""The agent's pages over HTTP."""

from __future__ import annotations

import json
import re
import socket
from html.parser import HTMLParser
from pathlib import Path

import offpath
import pytest
from agent_process import agent, connect, until

SAMPLE = re.compile(r'^([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')


def parse_metrics(text: str) -> dict[str, dict[str, float]]:
    """Prometheus' text format, strictly: a sample's family is declared before it, once. By name: labels -> value."""
    types: dict[str, str] = {}
    helped: set[str] = set()
    samples: dict[str, dict[str, float]] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            assert kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match, line
            name, labels, value = match[1], match[2] or "", float(match[3])
            family = next((each for each in (name, re.sub("_(bucket|sum|count)$", "", name)) if each in types), "")
            assert family in helped, line
            assert (family != name) == (types[family] == "histogram"), line
            assert labels not in samples.setdefault(name, {}), line
            samples[name][labels] = value
            if types[family] == "counter":
                assert name.endswith("_total") and value >= 0
    return samples


def test_metrics(tmp_path: Path) -> None:
    with agent(tmp_path, "--memory", "64MiB", "--name", 'a "quoted\\name') as a:
        code, kind, text = a.get("/metrics")
        assert code == 200
        assert kind.startswith("text/plain; version=0.0.4")
        metrics = parse_metrics(text)
        assert metrics["offpath_memory_max_bytes"][""] == 64 << 20
        assert metrics["offpath_channels"] == {'link="local"': 0, 'link="tcp"': 0, 'link="verbs"': 0, 'link="doca"': 0}
        assert list(metrics["offpath_agent_info"].values()) == [1]
        assert metrics["offpath_loop_rounds_total"][""] > 0


def test_counters_only_grow(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        before = parse_metrics(a.get("/metrics")[2])
        connect(a.ready["address"]).close()
        assert until(lambda: parse_metrics(a.get("/metrics")[2])["offpath_connections_total"][""] == 1)
        after = parse_metrics(a.get("/metrics")[2])
        assert before.keys() == after.keys()
        for name, series in before.items():
            if name.endswith("_total"):
                assert all(after[name][labels] >= value for labels, value in series.items()), name


def test_status(tmp_path: Path) -> None:
    with agent(tmp_path, "--memory", "64MiB") as a:
        code, kind, text = a.get("/status.json")
        assert (code, kind) == (200, "application/json")
        status = json.loads(text)
        assert status["pid"] == a.pid
        assert status["addresses"] == [a.ready["address"]]
        assert re.fullmatch(r"\d+\.\d+\.\d+", status["version"])
        assert status["memory"]["bytes_max"] == status["memory"]["free_bytes"] == 64 << 20
        assert status["channels"] == status["streams"] == status["pools"] == []
        assert status["loop"]["rounds"] > 0
        assert status["process"]["resident_bytes"] > status["process"]["own_resident_bytes"] > 0
        assert status["limits"]["channels_max"] == 4096


def test_an_idle_agent_is_small(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        process = a.status()["process"]
        assert process["own_resident_bytes"] < 12 << 20
        assert process["resident_bytes"] < 60 << 20  # with pages of libraries, as many as the kernel maps at a time


def test_health(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        assert a.get("/healthz")[::2] == (200, "ok\n")
        assert a.get("/nothing-here")[0] == 404


class Page(HTMLParser):
    """Addresses from which a page would load something else."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "src" or (name == "href" and tag == "link"):
                self.loaded.append(str(value))
            if name == "id":
                self.ids.add(str(value))


def test_the_page_is_one_file(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        code, kind, text = a.get("/")
        assert (code, kind) == (200, "text/html; charset=utf-8")
        page = Page()
        page.feed(text)
        assert page.loaded == []
        assert not re.search(r"https?://", text)
        assert set(re.findall(r'(?:element|table)\("([a-z]+)"', text)) <= page.ids  # its script finds its elements
        assert len(text) < 32_000  # read once by each reader; its values come from status.json


def test_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with agent(tmp_path, "--http", f"unix:{path}") as a:
        assert a.ready["http"] == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            s.sendall(b"GET /healthz HTTP/1.0\r\nHost: x\r\n\r\n")
            answer = b"".join(iter(lambda: s.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"ok\n")
        assert a.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize("shows", [False, True])
def test_only_the_agents_user_reads_reasons_and_log_lines(tmp_path: Path, shows: bool) -> None:
    # All users of the machine can read a TCP address; names in both may be another user's.
    with agent(tmp_path, "--set", f"agent.http_events={str(shows).lower()}") as running:
        with offpath.connect(running.ready["address"]) as session:
            first = session.stream("secret-name", {"v": "int64"}, rows_max=10, ranks=2, rank=0)
            with pytest.raises(offpath.Exists):
                session.stream("secret-name", {"v": "int64"}, rows_max=10, ranks=2, rank=0)
            status = running.status()
            first.close()
        assert status["shows_events"] is shows
        assert [bool(each["why"]) for each in status["failures"]] == [shows], "that it failed is shown to everybody"
        assert bool(status["events"]) is shows


def test_a_name_that_is_not_the_agents_is_refused(tmp_path: Path) -> None:
    # A foreign page, whose name was redirected to this machine after a browser had loaded it.
    with agent(tmp_path, "--set", "agent.http_hosts=monitored.example") as running:
        for host, code in [
            ("attacker.example", 403),
            ("attacker.example:80", 403),
            ("127.0.0.1.attacker.example", 403),
            ("monitored.example:9477", 200),
            ("LOCALHOST:1", 200),
            (socket.gethostname(), 200),
            ("127.0.0.1:9477", 200),
            ("[::1]:9477", 200),
        ]:
            for path in ("/", "/status.json", "/metrics"):
                with connect(running.ready["http"].replace("http://", "tcp:").rstrip("/")) as link:
                    link.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                    assert link.recv(12) == f"HTTP/1.1 {code}".encode(), (host, path)


def test_nonsense_over_http_harms_nobody(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        address = "tcp:" + a.ready["http"].removeprefix("http://").rstrip("/")
        for nonsense in (b"\0" * 100, b"GET " + b"x" * 100_000, b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"):
            with connect(address) as s:
                s.sendall(nonsense)
        open_ones = [connect(address) for _ in range(10)]  # that say nothing
        for each in open_ones:
            each.close()
        assert a.get("/healthz")[0] == 200
