"""Samplers on hosts, gauges of programs, and an agent's pages about them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import offpath
import pytest
from agent_process import agent, find_program, run_agent, until
from test_agent_status import parse_metrics

VALUE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')


def parse_openmetrics(text: str) -> dict[str, dict[str, float]]:
    """OpenMetrics 1.0, strictly: families one after another, each described before its samples; by sample name."""
    assert text.endswith("# EOF\n")
    families: dict[str, dict[str, str]] = {}
    samples: dict[str, dict[str, float]] = {}
    family = ""
    for line in text.removesuffix("# EOF\n").splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("TYPE", "UNIT", "HELP")
            if name != family:
                assert name not in families, f"{name} comes twice"
                families[name] = {}
                family = name
            assert what not in families[name]
            families[name][what] = rest
            assert what != "UNIT" or name.endswith("_" + rest), line
        else:
            match = VALUE.match(line.partition(" # ")[0])  # behind it is an exemplar
            assert match, line
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            assert match[1].removeprefix(family) in suffixes.get(families[family]["TYPE"], [""]), line
            labels = match[2] or ""
            assert labels not in samples.setdefault(match[1], {}), line
            samples[match[1]][labels] = float(match[3])
    return samples


def key_in(directory: Path) -> Path:
    key = directory / "sampler.key"
    key.touch(mode=0o600)
    key.write_text("a key of more than sixteen bytes\n")
    return key


class Sampler:
    """offpath-sampler as a process."""

    def __init__(self, directory: Path, toml: str, port: int = 0) -> None:
        path = directory / "sampler.toml"
        path.write_text(f'[sampler]\nlisten = "127.0.0.1:{port}"\nkey_file = "{key_in(directory)}"\n{toml}')
        self.process = subprocess.Popen(
            [find_program().with_name("offpath-sampler"), path], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"port (\d+)$", line)
        assert found, line
        self.port = int(found[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@contextlib.contextmanager
def sampler(directory: Path, toml: str) -> Iterator[Sampler]:
    running = Sampler(directory, toml)
    try:
        yield running
    finally:
        running.kill()


def agent_configuration(directory: Path, toml: str) -> Path:
    path = directory / "agent.toml"
    path.write_text(f'[sampling]\ninterval = "20ms"\ndeadline = "300ms"\nkey_file = "{key_in(directory)}"\n{toml}')
    return path


def sampled(a, name: str) -> dict:
    return next(each for each in a.status()["sampled"] if each["name"] == name)


def openmetrics(a) -> dict[str, dict[str, float]]:
    asked = urllib.request.Request(
        a.ready["http"].rstrip("/") + "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        return parse_openmetrics(answer.read().decode())


def test_a_host_that_nobody_knows_holds_nobody_up(tmp_path: Path) -> None:
    with sampler(tmp_path, "") as host:
        unknown = '[[host]]\nname = "gone"\naddress = "no-such-host.invalid:7480"\n'
        path = agent_configuration(tmp_path, f'{unknown}[[host]]\nname = "n"\naddress = "127.0.0.1:{host.port}"\n')
        with agent(tmp_path, "--config", str(path)) as a:
            # A name server may take its time; meanwhile everything else goes on.
            assert until(lambda: "no-such-host.invalid" in sampled(a, "gone")["trouble"], 60)
            assert not sampled(a, "gone")["fresh"] and sampled(a, "gone")["samples"] == 0
            assert until(lambda: sampled(a, "n")["fresh"])
            assert a.says("no-such-host.invalid") and a.says("the look-up is repeated")


def test_a_port_is_a_number(tmp_path: Path) -> None:
    path = agent_configuration(tmp_path, '[[host]]\naddress = "node17:sampler"\n')
    refused = run_agent("--config", str(path), "--check-config")
    assert refused.returncode != 0 and "host.address: 'sampler' is not a port number" in refused.stderr


def test_a_host_is_sampled_and_shown(tmp_path: Path) -> None:
    (tmp_path / "temperature").write_text("41\n")
    toml = f'''[[source]]
set = "cpu"
[[source]]
set = "network"
[[source]]
file = "{tmp_path}/temperature"
fields = ["temperature"]
unit = "celsius"
description = "Of a \\"test\\"."
'''
    with sampler(tmp_path, toml) as host:
        path = agent_configuration(tmp_path, f'[[host]]\nname = "node17"\naddress = "127.0.0.1:{host.port}"\n')
        with agent(tmp_path, "--config", str(path)) as a:
            assert until(lambda: sampled(a, "node17")["fresh"])
            shown = openmetrics(a)
            assert shown["offpath_host_temperature_celsius"] == {'host="node17"': 41}
            assert shown["offpath_host_cpu_seconds_total"]['host="node17",mode="idle"'] > 0
            assert any('device="lo"' in labels for labels in shown["offpath_host_network_received_bytes_total"])
            assert parse_metrics(a.get("/metrics")[2])["offpath_samples_total"]['host="node17"'] > 0
            status = sampled(a, "node17")
            assert abs(status["clock_ahead_s"]) <= max(status["clock_bound_s"], 0.001)
            assert 0 < status["sampler_resident_bytes"]
            # A field that stops being a number.
            (tmp_path / "temperature").write_text("hot\n")
            assert until(lambda: sampled(a, "node17")["missing"] == 1)
            assert "offpath_host_temperature_celsius" not in openmetrics(a)


def test_a_sampler_that_is_killed_and_started_again_is_found_again(tmp_path: Path) -> None:
    host = Sampler(tmp_path, '[[source]]\nset = "load"\n')
    try:
        path = agent_configuration(tmp_path, f'[[host]]\nname = "n"\naddress = "127.0.0.1:{host.port}"\n')
        with agent(tmp_path, "--config", str(path)) as a:
            assert until(lambda: sampled(a, "n")["fresh"])
            host.kill()
            assert until(lambda: not sampled(a, "n")["fresh"])
            assert "offpath_host_load1" not in openmetrics(a)
            host = Sampler(tmp_path, '[[source]]\nset = "load"\n[[source]]\nset = "memory"\n', host.port)
            assert until(lambda: sampled(a, "n")["fresh"])
            assert until(lambda: "offpath_host_memory_total_bytes" in openmetrics(a))
            # SIGHUP reads the configuration again, in the same process.
            host.process.send_signal(signal.SIGHUP)
            samples = sampled(a, "n")["samples"]
            assert until(lambda: sampled(a, "n")["samples"] > samples + 5)
    finally:
        host.kill()


def test_strangers_get_no_answer_and_stop_nobody(tmp_path: Path) -> None:
    with sampler(tmp_path, '[[source]]\nset = "load"\n') as host:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.3)
            for length in (0, 1, 47, 48, 63, 64, 65, 1400, 65507):
                stranger.sendto(os.urandom(length), ("127.0.0.1", host.port))
            stranger.sendto(b"OFS1\x01" + bytes(59), ("127.0.0.1", host.port))
            with contextlib.suppress(TimeoutError):
                raise AssertionError(f"answered with {len(stranger.recv(65536))} bytes")
        assert host.process.poll() is None
        path = agent_configuration(tmp_path, f'[[host]]\nname = "n"\naddress = "127.0.0.1:{host.port}"\n')
        with agent(tmp_path, "--config", str(path)) as a:
            assert until(lambda: openmetrics(a).get("offpath_sampler_refused_total", {}).get('host="n"', 0) >= 10)


def test_a_command_that_hangs_does_not_hold_up_the_sampler(tmp_path: Path) -> None:
    toml = """[[source]]
command = ["/bin/sh", "-c", "sleep 1000 & wait"]
fields = ["never"]
interval = "50ms"
time_limit = "100ms"
[[source]]
command = ["echo", "7"]
fields = ["seven"]
interval = "50ms"
"""
    with sampler(tmp_path, toml) as host:
        path = agent_configuration(tmp_path, f'[[host]]\nname = "n"\naddress = "127.0.0.1:{host.port}"\n')
        with agent(tmp_path, "--config", str(path)) as a:
            assert until(lambda: openmetrics(a).get("offpath_host_seven") == {'host="n"': 7})
            before = sampled(a, "n")
            assert until(lambda: sampled(a, "n")["samples"] > before["samples"] + 20)
            assert sampled(a, "n")["missing"] == 1
            children = f"/proc/{host.process.pid}/task/{host.process.pid}/children"
            assert until(lambda: len(Path(children).read_text().split()) <= 2)


def test_an_agent_samples_its_own_machine(tmp_path: Path) -> None:
    toml = '[[source]]\nset = "load"\n[[source]]\ncommand = ["echo", "3"]\nfields = ["three"]\n'
    path = agent_configuration(tmp_path, toml)
    with agent(tmp_path, "--config", str(path)) as a:
        name = socket.gethostname()
        assert until(lambda: "offpath_host_three" in openmetrics(a))
        assert openmetrics(a)["offpath_host_load1"].keys() == {f'host="{name}"'}


def test_what_is_wrong_is_said_at_the_start(tmp_path: Path) -> None:
    for toml, why in (
        ('[[source]]\nset = "cpuu"\n', "'cpuu'"),
        ('[[source]]\nfile = "/x"\n', "fields"),
        ('[[host]]\naddress = "nowhere"\n', "HOST:PORT"),
        ('[[host]]\naddres = "a:1"\n', "address"),
    ):
        path = agent_configuration(tmp_path, toml)
        ended = run_agent("--config", str(path), "--listen", f"unix:{tmp_path}/a.sock")
        assert ended.returncode != 0
        assert why in ended.stderr, ended.stderr


def test_gauges_of_a_program(tmp_path: Path) -> None:
    path = agent_configuration(tmp_path, "")
    with agent(tmp_path, "--config", str(path)) as a:
        with offpath.connect(a.ready["address"]) as session:
            described = offpath.Gauge("rays", "u64", "counter", "", "Rays that were traced.")
            with session.gauges("tracer", ["residual", described]) as gauges:
                gauges["residual"] = 0.125
                assert until(lambda: list(openmetrics(a).get("offpath_program_residual", {}).values()) == [0.125])
                assert "offpath_program_rays_total" not in openmetrics(a), "it was never set"
                gauges["rays"] = 1 << 40
                assert until(lambda: list(openmetrics(a).get("offpath_program_rays_total", {}).values()) == [1 << 40])
                del gauges["residual"]
                assert until(lambda: "offpath_program_residual" not in openmetrics(a))
            assert until(lambda: a.status()["sampled"] == [])
            try:
                session.gauges("tracer", ["twice", "twice"])
                raise AssertionError("two gauges of one name")
            except offpath.errors.SchemaError as error:
                assert "twice" in str(error)


# A program with one gauge, until its input ends.
OF_A_JOB = """
import sys, offpath
with offpath.connect(sys.argv[1], key_file=sys.argv[2]) as session, session.gauges("solver", ["residual"]) as gauges:
    gauges["residual"] = 0.5
    sys.stdin.read()
"""


@contextlib.contextmanager
def program_of_a_job(address: str, key: Path, before: Callable[[], None] | None = None) -> Iterator[None]:
    """It says that it is step 2 of job 4711; `before` runs in its process first."""
    program = subprocess.Popen(
        [sys.executable, "-c", OF_A_JOB, address, str(key)],
        env={**os.environ, "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2"}, stdin=subprocess.PIPE, preexec_fn=before,
    )  # fmt: skip
    try:
        yield
    finally:
        program.communicate(timeout=60)


def labels_of_residual(a) -> list[dict[str, str]]:
    found = openmetrics(a).get("offpath_program_residual", {})
    return [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in found]


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_gauges_have_the_job_and_step_of_their_program(tmp_path: Path, transport: str) -> None:
    key = key_in(tmp_path)
    path = agent_configuration(tmp_path, f'[security]\nkey_file = "{key}"')
    listen = ["--listen", "tcp:127.0.0.1:0"] if transport == "tcp" else []
    with agent(tmp_path, "--config", str(path), *listen) as a:
        with program_of_a_job(a.ready["address"], key):
            assert until(lambda: len(labels_of_residual(a)) == 1)
            [labels] = labels_of_residual(a)
            assert (labels["job"], labels["step"]) == ("4711", "2")
            assert list(openmetrics(a)["offpath_job_programs"]) == ['job="4711",step="2"']
            [channel] = a.status()["channels"]
            assert (channel["job"], channel["step"]) == ("4711", "2")
        assert until(lambda: "offpath_job_programs" not in openmetrics(a))


def own_cgroup_directory() -> Path | None:
    """Of this process, where groups can be made: of version 1 the memory controller's."""
    for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if os.access(root / "cgroup.procs", os.W_OK):
            return root
    return None


def test_of_a_program_in_slurms_cgroup_that_says_job_and_step(tmp_path: Path) -> None:
    root = own_cgroup_directory()
    if root is None:
        pytest.skip("no cgroup can be made here")
    slurm = root / f"slurm-test-{os.getpid()}"
    step = slurm / "job_77" / "step_batch"
    step.mkdir(parents=True)
    try:
        with agent(tmp_path, "--config", str(agent_configuration(tmp_path, ""))) as a:
            enter = lambda: (step / "cgroup.procs").write_text(str(os.getpid()))  # noqa: E731
            with program_of_a_job(a.ready["address"], key_in(tmp_path), enter):
                assert until(lambda: len(labels_of_residual(a)) == 1)
                [labels] = labels_of_residual(a)
                assert (labels["job"], labels["step"]) == ("77", "batch"), "the kernel's word counts"
                assert labels["cgroup"].endswith(f"{slurm.name}/job_77/step_batch")
    finally:
        for directory in (step, step.parent, slurm):
            directory.rmdir()


def test_a_sampler_writes_to_memory_that_the_agent_reads(tmp_path: Path) -> None:
    path = agent_configuration(tmp_path, "")
    with agent(tmp_path, "--config", str(path)) as a:
        toml = tmp_path / "region.toml"
        toml.write_text(
            f'[sampler]\nagent = "{a.ready["address"]}"\nname = "n"\ninterval = "2ms"\n[[source]]\nset = "cpu"\n'
        )
        process = subprocess.Popen([find_program().with_name("offpath-sampler"), toml], stderr=subprocess.DEVNULL)
        try:
            times = "offpath_program_cpu_seconds_total"
            assert until(lambda: any("idle" in labels for labels in openmetrics(a).get(times, {})))
            status = sampled(a, "n")
            assert status["cpu_s"] > 0
            assert 0 < status["age_s"] < 10
        finally:
            process.kill()
            process.wait()
        assert until(lambda: a.status()["sampled"] == [])
