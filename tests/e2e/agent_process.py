"""One offpath-agent as a process of a test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from waiting import until

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


def find_program() -> Path:
    """The built agent: OFFPATH_AGENT_PROGRAM, or the release build's, or the dev build's."""
    named = os.environ.get("OFFPATH_AGENT_PROGRAM")
    if named:
        return Path(named)
    root = Path(__file__).resolve().parents[2]
    for preset in ("release", "dev"):
        built = root / "build" / preset / "bin" / "offpath-agent"
        if built.exists():
            return built
    raise FileNotFoundError("offpath-agent is not built: run ./dev build, or set OFFPATH_AGENT_PROGRAM")


def run_agent(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the agent until it ends by itself."""
    return subprocess.run(
        [find_program(), *arguments],
        capture_output=True,
        text=True,
        timeout=START_SECONDS_MAX,
        check=False,
        env={"XDG_RUNTIME_DIR": "/nonexistent", **os.environ, **(env or {})},
    )


class AgentProcess:
    """A running agent. `ready` is its ready line; standard error goes to a file."""

    def __init__(self, directory: Path, arguments: Sequence[str], launcher: Sequence[str] = ()) -> None:
        self.log_path = directory / "agent.log"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [*launcher, find_program(), "--ready", *arguments], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(START_SECONDS_MAX)
            raise RuntimeError(f"the agent ended with {self.process.returncode}: {self.log()}")
        self.ready: dict[str, Any] = json.loads(line)
        self._told_s = -1.0  # uptime of the status that was read last

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """The log so far. A thread of the agent writes it soon after the events: see `says`."""
        return self.log_path.read_text()

    def says(self, text: str) -> bool:
        """Waits until `text` is in the log."""
        return until(lambda: text in self.log())

    def get(self, path: str) -> tuple[int, str, str]:
        """(status, content type, text) of a GET on the agent's HTTP address, TCP."""
        try:
            with urllib.request.urlopen(self.ready["http"].rstrip("/") + path, timeout=60) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    def status(self) -> dict[str, Any]:
        """The present status. An agent repeats its answer for a tenth of a second, so this reads again until that has
        passed, and while the agent's loop has no processor to answer with."""
        failures = 0
        while True:
            code, _, text = self.get("/status.json")
            if code == 503 and failures < 20:  # each after a second
                failures += 1
                continue
            assert code == 200, text
            result: dict[str, Any] = json.loads(text)
            if result["uptime_s"] != self._told_s:
                self._told_s = result["uptime_s"]
                return result
            time.sleep(0.01)

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        line = next(each for each in Path(f"/proc/{self.pid}/status").read_text().splitlines() if "VmRSS" in each)
        return int(line.split()[1]) << 10

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends the signal and waits; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@contextlib.contextmanager
def agent(directory: Path, *arguments: str, http: bool = True, launcher: Sequence[str] = ()) -> Iterator[AgentProcess]:
    """An agent at a Unix socket below `directory`, unless `arguments` name addresses; `launcher` starts it."""
    given = list(arguments)
    if "--listen" not in given:
        given += ["--listen", f"unix:{directory}/agent.sock"]
    if http and "--http" not in given:
        given += ["--http", "127.0.0.1:0"]
    running = AgentProcess(directory, given, launcher)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)


def pages_of(directory: Path) -> dict[str, Any]:
    """The status of the agent whose pages are at http.sock there, as it was at most a tenth of a second ago."""
    # Once more if its loops are too busy to answer.
    url = ["curl", "--silent", "--fail", "--retry", "5", "--unix-socket", f"{directory}/http.sock"]
    asked = subprocess.run([*url, "http://agent/status.json"], capture_output=True, timeout=120, check=True)
    status: dict[str, Any] = json.loads(asked.stdout)
    return status


def connections_of(directory: Path) -> bytes:
    """The output of ``offpath sockets ss --json`` for the agent that listens at agent.sock there."""
    words = ["sockets", "ss", "--agent", f"unix:{directory}/agent.sock", "--json"]
    asked = subprocess.run([sys.executable, "-m", "offpath", *words], capture_output=True, timeout=60, check=False)
    assert asked.returncode == 0, asked
    return asked.stdout


def connect(address: str) -> socket.socket:
    """A plain connection to "unix:/path" or "tcp:HOST:PORT"."""
    kind, rest = address.split(":", 1)
    if kind == "unix":
        made = socket.socket(socket.AF_UNIX)
        made.connect(rest)
        return made
    host, port = rest.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)), timeout=60)
