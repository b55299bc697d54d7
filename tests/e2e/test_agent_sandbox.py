"""The kernel's limits for the agent and its workers once they serve: system calls, capabilities, namespaces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, agent, find_program, run_agent, until
from built import needs_built

PLUGIN = find_program().parents[1] / "tests" / "task_plugin.so"
NOBODY = 65534
SYS_PTRACE, SETGID, SETUID = 1 << 19, 1 << 6, 1 << 7
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes on an unprivileged user, which needs root")
needs_plugin = needs_built(PLUGIN)


def fields(status: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)


def threads(pid: int) -> list[dict[str, str]]:
    return [fields(each / "status") for each in Path(f"/proc/{pid}/task").iterdir()]


def bits(found: dict[str, str], name: str) -> int:
    return int(found[name], 16)


def with_plugin(directory: Path, *more: str) -> list[str]:
    (directory / "agent.toml").write_text(f'[[plugin]]\nname = "mine"\npath = "{PLUGIN}"\n' + "\n".join(more))
    return ["--config", str(directory / "agent.toml")]


def plugin_of(running: AgentProcess) -> dict[str, Any]:
    assert until(lambda: running.status()["plugins"][0]["functions"])
    found: dict[str, Any] = running.status()["plugins"][0]
    return found


def worker_of(running: AgentProcess) -> int:
    return int(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()[0])


def test_every_thread_of_the_agent_has_the_list(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        assert a.status()["sandbox"]["seccomp"] == "on"
        found = threads(a.pid)
        assert len(found) > 3
        assert {each["Seccomp"].strip() for each in found} == {"2"}
        assert {each["NoNewPrivs"].strip() for each in found} == {"1"}
        assert a.stop() == 0


@needs_root
def test_an_agent_of_root_keeps_one_capability_and_no_bounding_set(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        own = fields(Path(f"/proc/{a.pid}/status"))
        assert (bits(own, "CapEff"), bits(own, "CapPrm"), bits(own, "CapBnd")) == (SYS_PTRACE, SYS_PTRACE, 0)
        said = a.status()["sandbox"]
        assert said == {
            "seccomp": "on",
            "no_new_privs": True,
            "capabilities": f"{SYS_PTRACE:016x}",
            "permitted": f"{SYS_PTRACE:016x}",
            "bounding": f"{0:016x}",
        }


@needs_root
@needs_plugin
def test_what_workers_of_another_user_take_stays_in_the_bounding_set(tmp_path: Path) -> None:
    with agent(tmp_path, "--set", "task.user_plugins=own") as a:
        assert bits(fields(Path(f"/proc/{a.pid}/status")), "CapBnd") == SETUID | SETGID


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_an_agent_of_nobody_has_the_list_and_no_capability(open_path: Path) -> None:
    os.chown(open_path, NOBODY, NOBODY)
    with agent(open_path, launcher=AS_NOBODY) as a:
        own = fields(Path(f"/proc/{a.pid}/status"))
        assert own["Uid"].split()[0] == str(NOBODY)
        assert (bits(own, "CapEff"), bits(own, "CapPrm")) == (0, 0)
        assert {(each["Seccomp"], each["NoNewPrivs"]) for each in threads(a.pid)} == {("2", "1")}
        assert a.status()["sandbox"]["seccomp"] == "on"
        assert a.stop() == 0


@needs_plugin
def test_a_worker_has_a_list_of_its_own_and_namespaces(tmp_path: Path) -> None:
    with agent(tmp_path, *with_plugin(tmp_path)) as a:
        said, worker = plugin_of(a)["sandbox"], worker_of(a)
        own = fields(Path(f"/proc/{worker}/status"))
        assert said["seccomp"] == "on" and own["Seccomp"].strip() == "2" and own["NoNewPrivs"].strip() == "1"
        assert int(own["Seccomp_filters"]) > int(fields(Path(f"/proc/{a.pid}/status"))["Seccomp_filters"])
        agents = fields(Path(f"/proc/{a.pid}/status"))
        for name in (
            "CapEff",
            "CapPrm",
            "CapInh",
            "CapAmb",
            "CapBnd",
        ):  # without namespaces, those of the agent at most
            allowed = 0 if said["namespaces"] == "user net ipc" else bits(agents, name)
            assert bits(own, name) & ~allowed == 0, name
        if os.geteuid() == 0:  # who may look into it
            other = [os.readlink(f"/proc/{worker}/ns/{kind}") != os.readlink(f"/proc/{a.pid}/ns/{kind}")
                     for kind in ("user", "net", "ipc")]  # fmt: skip
            assert other == [said["namespaces"] == "user net ipc"] * 3
            assert os.readlink(f"/proc/{worker}/ns/mnt") == os.readlink(f"/proc/{a.pid}/ns/mnt")


@needs_plugin
def test_a_kernel_without_namespaces_for_users_is_told_of(tmp_path: Path) -> None:
    """The limit is that of a user namespace around the agent, which changes nothing for others."""
    inside = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    around = ("unshare", "--user", "--map-root-user", "sh", "-c", inside, "sh")
    if subprocess.run([*around, "true"], check=False).returncode != 0:
        pytest.skip("there is no namespace to be had, or no unshare")
    with agent(tmp_path, *with_plugin(tmp_path), launcher=around) as a:
        said = plugin_of(a)["sandbox"]
        assert said["namespaces"].startswith("none: ") and said["seccomp"] == "on"


@needs_plugin
def test_without_it_and_as_a_trial(tmp_path: Path) -> None:
    for mode, number in (("off", "0"), ("log", "2")):
        with agent(tmp_path, *with_plugin(tmp_path), "--set", f"security.sandbox={mode}") as a:
            assert a.status()["sandbox"]["seccomp"] == mode and plugin_of(a)["sandbox"]["seccomp"] == mode
            for pid in (a.pid, worker_of(a)):
                assert fields(Path(f"/proc/{pid}/status"))["Seccomp"].strip() == number


def test_the_unit_permits_what_the_sandbox_takes() -> None:
    unit = (Path(__file__).resolve().parents[2] / "packaging/systemd/offpath-agent.service").read_text()
    assert "seccomp" in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE)[0].split()
    assert re.findall(r"^RestrictNamespaces=(.*)$", unit, re.MULTILINE) == ["user net ipc"]


def test_another_word_is_refused() -> None:
    result = run_agent("--set", "security.sandbox=maybe", "--check-config")
    assert result.returncode == 2
    assert "security.sandbox: 'maybe' is neither on nor log nor off" in result.stderr
