"""The agent's life: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from agent_process import agent, connect, find_program, run_agent, until


def test_ready_line(tmp_path: Path) -> None:
    with agent(tmp_path, "--name", "node ä") as a:
        assert a.ready["address"] == f"unix:{tmp_path}/agent.sock"
        assert a.ready["addresses"] == [a.ready["address"]]
        assert a.ready["pid"] == a.pid
        assert a.ready["name"] == "node ä"
        assert a.ready["http"].startswith("http://127.0.0.1:")
        connect(a.ready["address"]).close()


def test_ready_line_to_a_descriptor(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [find_program(), "--listen", f"unix:{tmp_path}/a", "--ready-fd", str(writing)], pass_fds=[writing]
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as lines:
            ready = json.loads(lines.readline())
            assert ready["pid"] == process.pid
            assert ready["http"] == f"unix:{tmp_path}/a-http.sock"
            assert lines.read() == ""  # closed by the agent, which goes on running
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    with agent(tmp_path) as a:
        waiting = connect(a.ready["address"])  # a handshake under way does not hold it up
        assert a.stop(number) == 0
        assert waiting.recv(1) == b""
    assert not (tmp_path / "agent.sock").exists()
    assert a.says("stopping")


def test_a_port_that_was_left_open_is_told(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    with agent(tmp_path, "--listen", "tcp:127.0.0.1:0", "--key-file", str(key)) as a:
        assert not a.ready["address"].endswith(":0")
        connect(a.ready["address"]).close()


def test_several_addresses(tmp_path: Path) -> None:
    with agent(tmp_path, "--listen", f"unix:{tmp_path}/a", "--listen", f"unix:{tmp_path}/b") as a:
        assert a.ready["addresses"] == [f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"]
        for address in a.ready["addresses"]:
            connect(address).close()


def test_a_socket_nobody_answers_at_is_replaced(tmp_path: Path) -> None:
    with agent(tmp_path) as first:
        first.stop(signal.SIGKILL)
    assert (tmp_path / "agent.sock").exists()
    with agent(tmp_path) as second:
        connect(second.ready["address"]).close()


def test_a_live_agent_is_not_replaced(tmp_path: Path) -> None:
    with agent(tmp_path) as first:
        result = run_agent("--listen", first.ready["address"])
        assert result.returncode == 1
        assert f"{first.ready['address']}: another agent listens there already" in result.stderr
        connect(first.ready["address"]).close()


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    (tmp_path / "agent.sock").write_text("precious")
    result = run_agent("--listen", f"unix:{tmp_path}/agent.sock")
    assert result.returncode == 1
    assert (tmp_path / "agent.sock").read_text() == "precious"


def test_sighup_reads_the_log_level_again(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('[log]\nlevel = "error"\n')
    with agent(tmp_path, "--config", str(config)) as a:
        before = a.status()["memory"]["bytes_max"]
        config.write_text('[log]\nlevel = "info"\n[memory]\nbytes_max = "1GiB"\n')
        os.kill(a.pid, signal.SIGHUP)
        assert until(lambda: "SIGHUP: log.level is info" in a.log())  # written at level info only
        assert a.status()["memory"]["bytes_max"] == before
        config.write_text('[log]\nlevel = "loud"\n')
        os.kill(a.pid, signal.SIGHUP)
        assert until(lambda: "SIGHUP: nothing was changed" in a.log())
        assert a.stop() == 0


def test_it_survives_being_stopped(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        a.status()
        silent = connect(a.ready["address"])
        assert until(lambda: a.status()["acceptor"]["handshakes"] == 1)
        os.kill(a.pid, signal.SIGSTOP)
        time.sleep(7)  # longer than a handshake may take
        os.kill(a.pid, signal.SIGCONT)
        assert a.status()["acceptor"]["handshakes"] == 1  # the silent one was not held responsible
        silent.close()
        assert until(lambda: a.status()["acceptor"]["handshakes"] == 0)
        assert a.stop() == 0


def test_an_idle_agent_uses_no_processor(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        a.status()
        silent = connect(a.ready["address"])
        time.sleep(0.3)

        def is_idle() -> bool:
            before, began = a.cpu_seconds(), time.monotonic()
            time.sleep(2)
            return (a.cpu_seconds() - before) / (time.monotonic() - began) <= 0.01

        assert until(is_idle)  # what it does at its start may be late
        silent.close()


def test_many_connections_leave_nothing_behind(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{a.pid}/fd"))

    if os.geteuid() != 0:
        pytest.skip("the agent's descriptors are shown to root alone")
    with agent(tmp_path) as a:
        a.status()
        before = descriptors()
        for _ in range(300):
            made = connect(a.ready["address"])
            made.send(b"garbage that is no handshake at all")
            made.close()
        assert until(lambda: a.status()["acceptor"]["refused"] == 300)
        assert until(lambda: descriptors() <= before + 1)
        assert a.status()["acceptor"]["handshakes"] == 0


def test_a_flood_of_silent_connections_is_bounded(tmp_path: Path) -> None:
    with agent(tmp_path, "--set", "limits.handshakes_max=8") as a:
        path = a.ready["address"].removeprefix("unix:")
        silent = []
        for _ in range(64):
            made = socket.socket(socket.AF_UNIX)
            made.setblocking(False)
            if made.connect_ex(path) == 0:
                silent.append(made)
        highest = 0

        def all_had_their_turn() -> bool:
            nonlocal highest
            acceptor = a.status()["acceptor"]
            highest = max(highest, acceptor["handshakes"])
            return bool(acceptor["connections"] == len(silent))

        assert until(all_had_their_turn)  # a quarter is one user's
        assert highest == 2
        for made in silent:
            made.close()
        assert until(lambda: a.status()["acceptor"]["refused"] == len(silent))
        assert a.status()["acceptor"]["handshakes"] == 0
