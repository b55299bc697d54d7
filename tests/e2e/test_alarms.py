"""Alarms of a real agent: a number that passes its limit, a silent host, and the site's program that learns of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_process import AgentProcess, agent, run_agent, until
from test_agent_status import parse_metrics

CONFIGURATION = """
[sampling]
interval = "20ms"
deadline = "20ms"
key_file = "{directory}/key"
[alarms]
hook = ["/bin/sh", "-c", "{hook}"]
hook_limit = "{limit}"
[[source]]
file = "{directory}/level"
fields = ["level"]
[[host]]
name = "node17"
address = "127.0.0.1:9"
[[alarm]]
name = "flood"
when = "level > 5"
lasting = "100ms"
clears_at = "3"
[[alarm]]
when = "silent"
lasting = "1s"
"""
SAY = "echo $OFFPATH_ALARM $OFFPATH_ALARM_STATE $OFFPATH_ALARM_HOST $OFFPATH_ALARM_VALUE >> {directory}/told"


def configured(directory: Path, hook: str = SAY, limit: str = "60s") -> list[str]:
    (directory / "level").write_text("1\n")
    key = directory / "key"
    key.touch(mode=0o600)
    key.write_text("a key of more than sixteen bytes\n")
    text = CONFIGURATION.replace("{hook}", hook).replace("{directory}", str(directory)).replace("{limit}", limit)
    (directory / "agent.toml").write_text(text)
    return ["--config", str(directory / "agent.toml")]


def raised(running: AgentProcess) -> set[str]:
    return {each["name"] for each in running.status()["alarms"]}


def test_a_limit_is_passed_and_the_site_is_told(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with agent(tmp_path, *configured(tmp_path)) as running:
        assert until(lambda: raised(running) == {"silent"})  # node17 has no sampler
        (tmp_path / "level").write_text("7\n")
        assert until(lambda: raised(running) == {"flood", "silent"})
        (alarm,) = [each for each in running.status()["alarms"] if each["name"] == "flood"]
        assert alarm["value"] == 7 and alarm["when"] == "level > 5" and alarm["for_s"] >= 0.1
        shown = parse_metrics(running.get("/metrics")[2])
        assert shown["offpath_alarms_raised"] == {'alarm="flood"': 1, 'alarm="silent"': 1}
        assert set(shown["offpath_alarm"].values()) >= {7}
        (tmp_path / "level").write_text("4\n")  # below the limit, not yet where it is cleared
        samples = running.status()["sampled"][-1]["samples"]
        assert until(lambda: running.status()["sampled"][-1]["samples"] > samples + 2)
        assert "flood" in raised(running)
        (tmp_path / "level").write_text("3\n")
        assert until(lambda: raised(running) == {"silent"})
        assert until(lambda: told.exists() and len(told.read_text().splitlines()) == 3)
    lines = [line.split() for line in told.read_text().splitlines()]
    assert lines[0][:3] == ["silent", "raised", "node17"]
    assert [line[:2] for line in lines[1:]] == [["flood", "raised"], ["flood", "cleared"]]
    assert [line[3] for line in lines[1:]] == ["7", "3"]


def test_a_hook_that_hangs_is_killed_and_the_agent_goes_on(tmp_path: Path) -> None:
    hook = "sleep 600 & echo $! >> {directory}/children; wait"
    with agent(tmp_path, *configured(tmp_path, hook, "1s")) as running:
        (tmp_path / "level").write_text("7\n")
        children = tmp_path / "children"
        assert until(lambda: children.exists() and len(children.read_text().split()) == 2)  # one after the other
        assert until(lambda: parse_metrics(running.get("/metrics")[2])["offpath_alarm_hook_failures_total"][""] == 2)
        assert until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in children.read_text().split()))
        assert raised(running) == {"flood", "silent"}
    assert running.says("did not end within 1.0 s")


def test_a_hook_inherits_no_descriptor_of_the_agent(tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook = "test -e /proc/$$/fd/77; echo $? >> {directory}/told"
    launcher = ["bash", "-c", 'exec "$@" 77</dev/null', "launcher"]
    with agent(tmp_path, *configured(tmp_path, hook), launcher=launcher) as running:
        assert Path(f"/proc/{running.process.pid}/fd/77").is_symlink()
        assert until(lambda: told.exists() and told.read_text() != "")
    assert set(told.read_text().split()) == {"1"}


def test_a_hook_that_is_not_there_is_said(tmp_path: Path) -> None:
    arguments = [*configured(tmp_path), "--set", "alarms.hook=/nonexistent/page"]
    with agent(tmp_path, *arguments) as running:
        assert until(lambda: "alarms.hook: /nonexistent/page cannot be started: No such file" in running.log())
        assert running.process.poll() is None


@pytest.mark.parametrize(
    ("alarm", "message"),
    [
        ('when = "load1 high"', "alarm.when: 'load1 high' is neither 'FIELD > NUMBER' nor 'FIELD < NUMBER'"),
        ('when = "load1 > 8"\nclears_at = "9"', "raised above 8 and cleared at 9, where it would be raised again"),
        ('when = "load1 > 8"\nclears_at = "low"', "alarm.clears_at: 'low' is not a number"),
        ('when = "silent"\nlasting = "0s"', "needs a time after which samples count as missing"),
        ('when = "silent"\n[[alarm]]\nwhen = "silent"', "there are two alarms with the name 'silent'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(tmp_path: Path, alarm: str, message: str) -> None:
    (tmp_path / "agent.toml").write_text(f"[[alarm]]\n{alarm}\n")
    refused = run_agent("--config", str(tmp_path / "agent.toml"), "--check-config")
    assert refused.returncode != 0 and message in refused.stderr
