"""The files for Prometheus and Grafana ask for metrics that an agent has."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from agent_process import agent, until
from network_pair import missing, network_pair
from offloading_agents import with_device
from unpacked_programs import program

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "packaging" / "monitoring"
DASHBOARD = MONITORING / "grafana-dashboard.json"
METRIC = re.compile(r"\boffpath_[a-z0-9_]+")
CONFIGURATION = """
[agent]
name = "node17"
[[source]]
set = "cpu"
[[source]]
set = "memory"
[[source]]
set = "load"
[[source]]
set = "network"
[[exchange]]
name = "load"
interval = "50ms"
deadline = "40ms"
fields = ["jobs:u64"]
"""


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an agent that samples its own machine, takes part in an exchange, and has a device for connections."""
    if (why := missing()) is not None:
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("monitoring")
    (directory / "agent.toml").write_text(CONFIGURATION)
    words = ["--config", str(directory / "agent.toml"), *with_device(1), "--http", f"unix:{directory}/http.sock"]
    with network_pair() as pair, agent(directory, *words, http=False, launcher=pair.near_command()):

        def scrape() -> str:
            asked = ["curl", "--silent", "--fail", "--unix-socket", f"{directory}/http.sock", "http://agent/metrics"]
            return subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout

        assert until(lambda: "offpath_host_load1" in scrape() and "offpath_exchange_present" in scrape())
        return scrape()


def expressions(dashboard: dict) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def unknown(names: set[str], metrics: str) -> list[str]:
    """Neither shown by this agent nor a field of a ready set of sources, which needs a device."""
    shown = set(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE))
    shown |= {f"{name}_bucket" for name in re.findall(r"^# TYPE (\S+) histogram", metrics, re.MULTILINE)}
    fields = set(re.findall(r'"(\w+)"', (ROOT / "src/telemetry/host_sampler/source_sets.c").read_text()))
    return sorted(
        name for name in names - shown if name.removeprefix("offpath_host_").removesuffix("_total") not in fields
    )


def wrong_labels(asked: list[str], metrics: str) -> list[str]:
    """Selectors by labels that a metric which is shown does not have; `instance` and `job` are Prometheus' own."""
    wrong = []
    for name, selector in re.findall(r"\b(offpath_[a-z0-9_]+)\{([^}]*)\}", " ".join(asked)):
        shown = re.search(rf"^{name}(?:\{{(.*)\}})? ", metrics, re.MULTILINE)
        has = {"instance", "job", *re.findall(r'(\w+)="', shown[1] or "")} if shown else set()
        wrong += [f"{name}: {label}" for label in re.findall(r"(\w+)[!=]", selector) if shown and label not in has]
    return wrong


def test_the_dashboard_asks_for_what_there_is(metrics: str) -> None:
    asked = expressions(json.loads(DASHBOARD.read_text()))
    assert len(asked) >= 30
    assert any("offpath_tcp_" in each for each in asked)
    assert unknown(set(METRIC.findall(" ".join(asked))), metrics) == []
    assert wrong_labels(asked, metrics) == []


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard["panels"])))
    assert used - {"__rate_interval", "__range"} == variables
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert panel["type"] == "row" or (panel["description"] and panel["targets"]), panel["title"]


def test_alerts_ask_for_what_there_is(metrics: str) -> None:
    asked = re.findall(r"expr: (.*)", (MONITORING / "offpath-alerts.yml").read_text())
    assert len(asked) >= 9
    assert any("offpath_tcp_" in each for each in asked)
    assert unknown(set(METRIC.findall(" ".join(asked))), metrics) == []
    assert wrong_labels(asked, metrics) == []


@pytest.mark.parametrize("what", ["rules", "config", "metrics"])
def test_prometheus_takes_them(what: str, metrics: str) -> None:
    given = {"rules": "offpath-alerts.yml", "config": "prometheus.yml"}
    checked = subprocess.run(
        [program("promtool"), "check", what, *([MONITORING / given[what]] if what in given else [])],
        input=metrics, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
