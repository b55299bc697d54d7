"""Plug-ins of an agent: which are loaded, which are refused, and what remains after the agent's end."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from agent_process import AgentProcess, agent, find_program, run_agent, until
from built import needs_built

PLUGIN = find_program().parents[1] / "examples" / "particles_plugin.so"

pytestmark = needs_built(PLUGIN)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A copy of the example's plug-in, in the test's folder, which belongs to this user only."""
    return Path(shutil.copy(PLUGIN, tmp_path / "particles_plugin.so"))


def configured(directory: Path, *plugins: str) -> list[str]:
    (directory / "agent.toml").write_text("".join(f"[[plugin]]\n{text}\n" for text in plugins))
    return ["--config", str(directory / "agent.toml")]


def workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "offpath-worker"]


def plugin_status(a: AgentProcess, name: str) -> dict[str, object]:
    return next(each for each in a.status()["plugins"] if each["name"] == name)


def test_a_plugin_is_loaded_and_seen(tmp_path: Path, plugin: Path) -> None:
    with agent(tmp_path, *configured(tmp_path, f'name = "particles"\npath = "{plugin}"')) as a:
        assert until(lambda: plugin_status(a, "particles")["functions"])
        status = plugin_status(a, "particles")
        assert [each["name"] for each in status["functions"]] == ["mean", "bounding_box"]  # type: ignore[attr-defined]
        assert (status["workers"], status["failure"]) == (1, "")
        assert 'offpath_plugin_usable{plugin="particles"} 1' in a.get("/metrics")[2]
        assert a.says("has mean, bounding_box")
        assert a.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_agent(tmp_path: Path, plugin: Path, number: int) -> None:
    with agent(tmp_path, *configured(tmp_path, f'name = "particles"\npath = "{plugin}"')) as a:
        assert until(lambda: plugin_status(a, "particles")["functions"])
        (worker,) = workers_of(a.pid)
        a.stop(number)

        def gone() -> bool:
            try:
                return ") Z" in Path(f"/proc/{worker}/stat").read_text()
            except OSError:
                return True

        assert until(gone)


def test_an_idle_worker_that_is_killed_is_noticed_and_the_agent_goes_on(tmp_path: Path, plugin: Path) -> None:
    with agent(tmp_path, *configured(tmp_path, f'name = "particles"\npath = "{plugin}"')) as a:
        assert until(lambda: plugin_status(a, "particles")["functions"])
        os.kill(workers_of(a.pid)[0], signal.SIGKILL)
        assert until(lambda: plugin_status(a, "particles")["unexpected_exits"] == 1)
        assert a.says("a worker was killed by SIGKILL")
        assert a.stop() == 0


def test_one_that_cannot_be_loaded_is_said_and_the_agent_goes_on(tmp_path: Path, plugin: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_text("this is no shared object")
    with agent(
        tmp_path, *configured(tmp_path, f'name = "broken"\npath = "{broken}"', f'name = "good"\npath = "{plugin}"')
    ) as a:
        assert until(lambda: plugin_status(a, "broken")["failure"])
        assert f"{broken} cannot be used: " in str(plugin_status(a, "broken")["failure"])
        assert a.says("broken.so cannot be used")
        assert until(lambda: plugin_status(a, "good")["functions"])
        assert a.stop() == 0


def test_files_that_others_could_change_are_refused_at_start(tmp_path: Path, plugin: Path) -> None:
    plugin.chmod(0o775)
    said = {"others may write to it": plugin, "No such file": tmp_path / "nothing.so"}
    for text, path in said.items():
        for more in (["--check-config"], ["--listen", f"unix:{tmp_path}/agent.sock"]):
            result = run_agent(*configured(tmp_path, f'name = "particles"\npath = "{path}"'), *more)
            assert result.returncode == 2
            assert "plug-in 'particles'" in result.stderr and text in result.stderr and str(path) in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="workers of another user need root")
def test_workers_have_the_user_that_is_named(tmp_path: Path) -> None:
    """nobody reads neither the test's folder nor the plug-in there; the built one it may, where the clone is open."""
    if any((parent.stat().st_mode & 0o005) != 0o005 for parent in PLUGIN.parents):
        pytest.skip("other users cannot reach the build")
    with agent(tmp_path, *configured(tmp_path, f'name = "particles"\npath = "{PLUGIN}"\nuser = "nobody"')) as a:
        assert until(lambda: plugin_status(a, "particles")["functions"])
        (worker,) = workers_of(a.pid)
        status = Path(f"/proc/{worker}/status").read_text()
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "CapPrm:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        # The capability is permitted, but not in force.
        own = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{a.pid}/status").read_text().splitlines() if ":\t" in line
        )
        assert int(own["CapPrm"], 16) & ~(1 << 19) == 1 << 5 | 1 << 6 | 1 << 7
        assert int(own["CapEff"], 16) & ~(1 << 19) == 0
        assert a.stop() == 0
        assert until(lambda: not Path(f"/proc/{worker}").exists() or ") Z" in Path(f"/proc/{worker}/stat").read_text())
