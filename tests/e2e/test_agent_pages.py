"""Where the command line finds the pages of an agent that was named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_process import AgentProcess
from offpath import agent_http
from offpath.errors import AgentError


@contextmanager
def agent(directory: Path, *arguments: str) -> Iterator[AgentProcess]:
    directory.mkdir(exist_ok=True)
    started = AgentProcess(directory, arguments)
    try:
        yield started
    finally:
        started.stop()


def test_agents_of_one_folder_have_pages_of_their_own(tmp_path: Path) -> None:
    named = {name: f"unix:{tmp_path}/{name}.sock" for name in ("agent", "agent-3", "job7")}
    with (
        agent(tmp_path, "--name", "first", "--listen", named["agent"]),
        agent(tmp_path, "--name", "third", "--listen", named["agent-3"]),
        agent(tmp_path, "--name", "other", "--listen", named["job7"]),
        agent(tmp_path, "--listen", f"unix:{tmp_path}/silent.sock", "--http", "off"),
    ):
        for name, said in (("agent", "first"), ("agent-3", "third"), ("job7", "other")):
            command = [sys.executable, "-m", "offpath", "status", "--agent", named[name]]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert shown.returncode == 0 and said in shown.stdout, shown
        assert not (tmp_path / "silent-http.sock").exists()


def test_no_other_agents_pages_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OFFPATH_AGENT", raising=False)
    monkeypatch.delenv("OFFPATH_AGENT_HTTP", raising=False)
    system, own = f"unix:{tmp_path}/agent.sock", f"unix:{tmp_path}/own.sock"
    with (
        agent(tmp_path / "a", "--listen", system, "--http", "127.0.0.1:0") as machines,
        agent(tmp_path / "b", "--listen", own, "--http", "off"),
    ):
        pages = machines.ready["http"].removeprefix("http://").rstrip("/")
        monkeypatch.setattr(agent_http, "DEFAULT", pages)  # as of packaging/offpath.toml
        assert agent_http.find_http(None, system) == pages
        for address in (own, "tls:dpu7:7411"):
            with pytest.raises(AgentError, match=f"{address} has no status pages"):
                agent_http.find_http(None, address)
        monkeypatch.setenv("OFFPATH_AGENT", own)
        with pytest.raises(AgentError, match="--http"):
            agent_http.find_http(None, None)
