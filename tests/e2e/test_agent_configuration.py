"""Settings by file and command line, and the agent's answers to wrong ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from agent_process import agent, find_program, run_agent, until

ROOT = Path(__file__).resolve().parents[2]


def test_the_configuration_in_force_can_be_fed_back(tmp_path: Path) -> None:
    listen = ["--listen", f"unix:{tmp_path}/a", "--listen", f"unix:{tmp_path}/b"]
    first = run_agent("--print-config", "--memory", "512MiB", *listen)
    assert first.returncode == 0, first.stderr
    values = tomllib.loads(first.stdout)
    assert values["memory"]["bytes_max"] == "512MiB"
    assert values["agent"]["listen"] == [f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"]
    (tmp_path / "agent.toml").write_text(first.stdout)
    second = run_agent("--print-config", "--config", str(tmp_path / "agent.toml"))
    assert tomllib.loads(second.stdout) == values


def test_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text('[memory]\nbytes_max = "2GiB"\nwindow = "1MiB"\n')
    result = run_agent("--config", str(tmp_path / "agent.toml"), "--memory", "3GiB", "--print-config")
    memory = tomllib.loads(result.stdout)["memory"]
    assert (memory["bytes_max"], memory["window"]) == ("3GiB", "1MiB")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    """Every line of it is understood; the program it starts is the one that was built."""
    unit = (ROOT / "packaging" / "systemd" / "offpath-agent.service").read_text()
    assert "/usr/bin/offpath-agent" in unit
    (tmp_path / "offpath-agent.service").write_text(unit.replace("/usr/bin/offpath-agent", str(find_program())))
    command = ["systemd-analyze", "verify", str(tmp_path / "offpath-agent.service")]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_sample_is_in_order() -> None:
    result = run_agent("--config", str(ROOT / "packaging" / "offpath.toml"), "--check-config")
    assert result.returncode == 0, result.stderr
    assert "is valid" in result.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[memory]\nbyte_max = 1\n", "the nearest known key is 'memory.bytes_max'"),
        ('[memory]\nbytes_max = "1 XB"\n', "agent.toml:2"),
        ("[memory]\nbytes_max = 5\n", "memory.bytes_max"),
        ("[agent\n", "agent.toml:1"),
        ('[agent]\nlisten = ["udp:x:1"]\n', "udp:x:1"),
        ('[security]\nallow_uids = ["no-such-user-here"]\n', "no-such-user-here"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "agent.toml").write_text(text)
    for more in (["--check-config"], ["--http", f"unix:{tmp_path}/http.sock"]):
        result = run_agent("--config", str(tmp_path / "agent.toml"), *more)
        assert result.returncode == 2
        assert said in result.stderr
        assert not (tmp_path / "http.sock").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["--set", "memory.bytes_mx=1"], "memory.bytes_max"),
        (["--set", "bytes_mxa=1GiB"], "the nearest known key is 'memory.bytes_max'"),
        (["--set", "foo=1"], "unknown key 'foo', and no known key is like it"),
        (["--memory", "lots"], "lots"),
        (["--config", "/no/such/file.toml"], "/no/such/file.toml"),
        (["--profile", "toaster"], "bluefield2"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], said: str) -> None:
    result = run_agent(*arguments)
    assert result.returncode != 0
    assert said in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "tcp:127.0.0.1:0"], "security.key_file"),
        (["--listen", "tcp:0.0.0.0:0", "--key-file", "KEY"], "use tls:0.0.0.0:0"),
        (["--listen", "tls:127.0.0.1:0", "--key-file", "KEY"], "security.tls_certificate"),
        (["--http", "0.0.0.0:0"], "agent.http 0.0.0.0:0"),
        (["--listen", "tcp:no-such-host.invalid:1", "--key-file", "KEY"], "no-such-host.invalid"),
        (["--listen", "tcp:127.0.0.1:0", "--key-file", "/no/such/key"], "/no/such/key"),
        (["--listen", "tcp:127.0.0.1:0", "--key-file", "OPEN"], "OPEN"),
    ],
)
def test_addresses_that_others_could_reach_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    for name, mode in (("KEY", 0o600), ("OPEN", 0o644)):
        (tmp_path / name).write_bytes(os.urandom(32))
        (tmp_path / name).chmod(mode)
    named = [str(tmp_path / each) if each in ("KEY", "OPEN") else each for each in arguments]
    if "--listen" not in named:
        named += ["--listen", f"unix:{tmp_path}/agent.sock"]
    result = run_agent(*named)
    assert result.returncode != 0
    assert said in result.stderr


def test_what_is_insecure_is_said_loudly(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    with agent(tmp_path, "--listen", "tcp:0.0.0.0:0", "--key-file", str(key), "--insecure-network") as a:
        assert a.says("INSECURE")
        assert a.stop() == 0


def test_more_memory_than_there_is_is_said(tmp_path: Path) -> None:
    with agent(tmp_path, "--memory", "60TiB") as a:
        assert a.says("this machine has")
    with agent(tmp_path, "--memory", "1MiB", "--set", "memory.cached_max=1MiB") as a:
        assert "this machine has" not in a.log()


def test_without_a_runtime_directory_an_address_has_to_be_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root has a directory of its own")
    result = run_agent(env={"XDG_RUNTIME_DIR": ""})
    assert result.returncode == 2
    assert "--listen" in result.stderr


def test_the_profile_of_a_device_works_with_and_without_its_processor(tmp_path: Path) -> None:
    with agent(tmp_path, "--profile", "bluefield2") as a:
        assert a.status()["profile"] == "bluefield2"
        assert until(lambda: ("cores by" in a.log()) != ("NOT its processor" in a.log())), a.log()
        groups = [line for line in Path(f"/proc/{a.pid}/cgroup").read_text().splitlines() if "offpath-agent-" in line]
        assert bool(groups) == ("cores by" in a.log())
        assert a.stop() == 0
