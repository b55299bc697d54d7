"""Functions that decide on views of an exchange, in workers of real agents, and set files in a directory of the test's,
and cgroups where this machine permits it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_group import PATIENCE_S, Group
from agent_process import AgentProcess, agent, find_program, run_agent, until

SOURCES = Path(__file__).resolve().parents[2]
FUNCTION_S = 1.0  # of tell_late
VIEWS_JUDGED = 64  # IntervalWatch::views
CONFIG = """
[actuators]
sysfs = "{directory}/sys"
cgroups = "{directory}/cgroup"

[[plugin]]
name = "decision"
path = "{directory}/decision_plugin.so"

[[actuator]]
name = "power"
kind = "power"
where = "intel-rapl:0"
min = 50_000_000
max = 100_000_000
lease = "{lease}"

[[actuator]]
name = "frequency"
kind = "cpufreq"
where = "policy0"
min = 800_000
max = 2_000_000
lease = "{lease}"

[[actuator]]
name = "other"
kind = "power"
where = "intel-rapl:1"
min = 1
max = 100_000_000

[[exchange]]
name = "load"
interval = "100ms"
deadline = "80ms"
fields = ["interval:u64", "present:u64", "actuators:u64"]
decide = "decision/{function}"
arguments = "{arguments}"
actuators = [{actuators}]
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plugin") / "decision_plugin.so"
    source = SOURCES / "tests/plugin/decision_plugin.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{SOURCES}/include", source, "-o", made], check=True)
    return made


@pytest.fixture
def directory(tmp_path: Path, plugin: Path) -> Path:
    """With the plug-in, two powercap zones and a policy of frequencies."""
    (tmp_path / "decision_plugin.so").write_bytes(plugin.read_bytes())
    for path, value in {"class/powercap/intel-rapl:0/constraint_0_power_limit_uw": 125_000_000,
                        "class/powercap/intel-rapl:1/constraint_0_power_limit_uw": 30_000_000,
                        "devices/system/cpu/cpufreq/policy0/scaling_max_freq": 3_600_000}.items():  # fmt: skip
        file = tmp_path / "sys" / path
        file.parent.mkdir(parents=True)
        file.write_text(f"{value}\n")
    return tmp_path


def power_of(directory: Path, zone: int = 0) -> str:
    return (directory / f"sys/class/powercap/intel-rapl:{zone}/constraint_0_power_limit_uw").read_text().strip()


def frequency_of(directory: Path) -> str:
    return (directory / "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq").read_text().strip()


def configured(
    directory: Path, function: str, actuators: str = "", arguments: str = "", lease: str = "1h"
) -> list[str]:
    file = directory / "agent.toml"
    file.write_text(CONFIG.format(directory=directory, function=function, actuators=actuators, arguments=arguments,
                                  lease=lease))  # fmt: skip
    return ["--config", str(file)]


def load_of(running: AgentProcess) -> dict[str, float]:
    return next(each for each in running.status()["exchanges"] if each["name"] == "load")


def test_a_function_makes_the_record_of_each_of_a_group(directory: Path) -> None:
    group = Group(directory)
    try:
        arguments = configured(directory, "tell", '"power"')
        for i, name in enumerate(("a", "b", "c")):
            group.start(name, *arguments, *(["--join", group.address("a")] if i else []))
        exchange = group.connect("b").exchange("load")

        def all_tell() -> bool:
            view = exchange.view(PATIENCE_S)
            told = [entry.values for entry in view.entries.values() if entry.has_value]
            return len(told) == 3 and all(each["present"] == 3 and each["interval"] <= view.epoch for each in told)

        assert until(all_tell, PATIENCE_S)
        assert exchange.view(PATIENCE_S)["a"]["actuators"] == 1
        with pytest.raises(Exception, match="are those of function tell of plug-in decision"):
            group.connect("a").exchange("load", publish=True)
        assert "offpath_exchange_decisions_total" in group.running["a"].get("/metrics")[2]
    finally:
        group.stop_all()


def test_a_slow_function_loses_views_and_delays_none(directory: Path) -> None:
    with agent(directory, *configured(directory, "tell_late")) as running:
        assert until(lambda: load_of(running)["decisions"] >= 3, PATIENCE_S)
        before = load_of(running)
        assert until(lambda: load_of(running)["decisions"] >= before["decisions"] + 2, PATIENCE_S)
        after = load_of(running)
        decided, lost, *views = (
            after[key] - before[key] for key in ("decisions", "decisions_lost", "complete", "partial")
        )
        assert decided + lost == sum(views)
        assert lost >= 2 * decided > 0
        assert after["overrun_s_max"] < FUNCTION_S  # no view waited for it
        assert after["decisions_failed"] == 0


def test_a_function_that_crashes_changes_nothing_and_is_called_again(directory: Path) -> None:
    with agent(directory, *configured(directory, "crash", '"power"', "90000000")) as running:
        assert until(lambda: load_of(running)["decisions_failed"] >= 3, PATIENCE_S)
        assert running.says("a decision failed")
        assert power_of(directory) == "125000000"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_settings_are_bounded_and_end_with_their_agent(directory: Path, end: signal.Signals) -> None:
    with agent(directory, *configured(directory, "set", '"power", "frequency"', "90000000")) as running:
        assert until(lambda: power_of(directory) == "90000000", PATIENCE_S)
        assert until(lambda: frequency_of(directory) == "2000000", PATIENCE_S)  # its maximum
        assert power_of(directory, 1) == "30000000"
        running.stop(end)
        assert until(lambda: power_of(directory) == "125000000", PATIENCE_S)
        assert until(lambda: frequency_of(directory) == "3600000", PATIENCE_S)


def test_settings_end_while_their_agent_is_stopped(directory: Path) -> None:
    with agent(directory, *configured(directory, "set", '"power"', "90000000", lease="1s")) as running:
        assert until(lambda: power_of(directory) == "90000000", PATIENCE_S)
        os.kill(running.pid, signal.SIGSTOP)
        try:
            assert until(lambda: power_of(directory) == "125000000", PATIENCE_S)
        finally:
            os.kill(running.pid, signal.SIGCONT)
        assert until(lambda: power_of(directory) == "90000000", PATIENCE_S)


def keeper_of(running: AgentProcess) -> int:
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "comm").read_text() == "offpath-keeper\n":
                status = (process / "status").read_text()
                if f"\nPPid:\t{running.pid}\n" in status:
                    return int(process.name)
        except OSError:
            continue
    raise AssertionError("the agent has no keeper")


def test_the_next_start_returns_what_a_killed_keeper_left(directory: Path) -> None:
    with agent(directory, *configured(directory, "set", '"power"', "90000000")) as running:
        assert until(lambda: power_of(directory) == "90000000", PATIENCE_S)
        left = list((directory / "actuators").iterdir())
        assert len(left) == 1 and left[0].stat().st_mode & 0o777 == 0o600
        os.kill(keeper_of(running), signal.SIGKILL)
        assert until(lambda: "the keeper of actuators" in running.log(), PATIENCE_S)
        running.stop(signal.SIGKILL)
    assert power_of(directory) == "90000000"
    with agent(directory, *configured(directory, "tell", '"power"')) as running:
        assert until(lambda: power_of(directory) == "125000000", PATIENCE_S)
        assert until(lambda: not any((directory / "actuators").iterdir()), PATIENCE_S)


def test_an_actuator_that_is_not_the_exchanges_is_not_set(directory: Path) -> None:
    with agent(directory, *configured(directory, "overreach", '"power", "frequency"', "90000000")) as running:
        assert until(lambda: load_of(running)["decisions_failed"] >= 3, PATIENCE_S)
        assert running.says("the exchange may set no actuator 'other'")
        assert power_of(directory, 1) == "30000000"
        assert power_of(directory) == "125000000"  # nor those beside it
        assert frequency_of(directory) == "3600000"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('decide = "decision/tell"', 'decide = "nothing/tell"'), "there is no [[plugin]] with the name 'nothing'"),
        (('actuators = ["power"]', 'actuators = ["fan"]'), "there is no [[actuator]] with the name 'fan'"),
        (('decide = "decision/tell"', 'decide = ""'), "only a function sets them"),
        (('decide = "decision/tell"', 'decide = "decision/tell"\nsource = "host"'), "exchange.source is set as well"),
        (("min = 50_000_000", "min = 0"), "actuator power: min is 0"),
        (('where = "intel-rapl:0"', 'where = "../../etc"'), "is not a directory below"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(directory: Path, change: tuple[str, str], why: str) -> None:
    arguments = configured(directory, "tell", '"power"')
    file = directory / "agent.toml"
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(change[0], change[1], 1))
    done = run_agent(*arguments, "--listen", f"unix:{directory}/agent.sock", "--check-config")
    assert done.returncode != 0 and why in done.stderr, done.stderr


def start_rounds(group: Group, names: list[str], interval_us: int) -> None:
    """Exchanges with a deadline of three tenths of their interval."""
    config = group.directory / "agent.toml"
    config.write_text(
        f'[[exchange]]\nname = "load"\ninterval = "{interval_us}us"\ndeadline = "{interval_us * 3 // 10}us"\n'
        'topology = "hybrid(2, 5)"\n'
    )
    for i, name in enumerate(names):
        group.start(name, "--config", str(config), *(["--join", group.address(names[0])] if i else []))


def share_of_complete_views(running: AgentProcess) -> float:
    """Of as many as are judged together."""
    before = after = load_of(running)
    deadline = time.monotonic() + PATIENCE_S
    while after["rounds"] < before["rounds"] + VIEWS_JUDGED:
        assert time.monotonic() < deadline, after
        time.sleep(0.1)
        after = load_of(running)
    complete, partial = (after[key] - before[key] for key in ("complete", "partial"))
    return complete / (complete + partial)


def test_an_interval_that_cannot_be_held_is_remarked_with_one_that_can(tmp_path: Path) -> None:
    """Sixteen agents on a few cores, every millisecond; then at the interval that they name. If the cores have more to
    do by then, they name another one."""
    group = Group(tmp_path)
    names = [f"m{i:02}" for i in range(16)]
    try:
        start_rounds(group, names, 1000)
        first = group.running["m00"]
        assert until(lambda: "views were complete in the interval of 1ms; it" in first.log(), PATIENCE_S)
        assert until(lambda: re.search(r"it (could|might) hold [0-9.]+[mun]?s", first.log()), PATIENCE_S), first.log()
        assert until(lambda: load_of(first)["interval_held_s"] > 0.001, PATIENCE_S)
        tried_us = [1000]

        def named() -> int:
            return round(1e6 * max(load_of(group.running[name])["interval_held_s"] for name in names))

        def is_held() -> bool:
            return share_of_complete_views(group.running["m00"]) >= 0.95

        while True:
            assert until(lambda: named() > tried_us[-1], PATIENCE_S), tried_us
            assert len(tried_us) <= 8, tried_us
            tried_us.append(named())
            group.stop_all()
            start_rounds(group, names, tried_us[-1])
            assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
            if any(is_held() for _ in range(4)):
                return
            assert until(lambda: named() > tried_us[-1] or is_held(), PATIENCE_S), tried_us
            if named() <= tried_us[-1]:
                return
    finally:
        group.stop_all()


def test_a_real_cgroup_has_its_limit_again_when_its_agent_is_killed(directory: Path, cgroups: tuple[Path, str]) -> None:
    root, limit = cgroups
    before = (root / limit).read_text()
    arguments = configured(directory, "set", '"power"', "300")
    file = directory / "agent.toml"
    text = file.read_text().replace(f'cgroups = "{directory}/cgroup"', f'cgroups = "{root.parent}"')
    text = text.replace('kind = "power"\nwhere = "intel-rapl:0"\nmin = 50_000_000\nmax = 100_000_000',
                        f'kind = "cpu"\nwhere = "{root.name}"\nmin = 100\nmax = 1000')  # fmt: skip
    file.write_text(text)
    with agent(directory, *arguments) as running:
        assert until(lambda: (root / limit).read_text().split()[0] == "30000", PATIENCE_S)
        running.stop(signal.SIGKILL)
        assert until(lambda: (root / limit).read_text() == before, PATIENCE_S)


def test_the_example_shares_a_budget_of_real_cgroups(tmp_path: Path, cgroups: tuple[Path, str]) -> None:
    """Four agents, one of them killed; the example asserts that the sum is never above the budget."""
    example = SOURCES / "examples/12_cpu_budget"
    source, made = example / "cpu_budget_plugin.c", tmp_path / "cpu_budget_plugin.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{SOURCES}/include", source, "-o", made], check=True)
    command = [sys.executable, example / "cpu_budget.py", made, "--cgroups", cgroups[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "OFFPATH_AGENT_PROGRAM": str(find_program())})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "never above" in done.stdout
