"""The cost of membership for an idle agent: processor time, threads, memory, tables and their bytes. Also the time of a
put with a copy, one at a time, by the number of agents; and whether agents suspect each other while the machine has
other work.

All agents share the cores there are. ``tests/e2e/group/test_group_cost.py`` bounds the figures that do not depend on
the machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..agent_group import AgentGroup
from ..agent_http import fetch_status
from .groups import LINKS, connect, cpu_seconds, group_of
from .report import Claim, Report, Series

AGENTS = 100
SETTLE_S = 10.0  # the members know each other, but still exchange what they learnt last
DEAD_AFTER = "5s"
CPU_MAX = {"unix": 10, "tcp": 20}  # per cent of one core, of all agents together
THREADS_MAX, PRIVATE_MIB_MAX = 12, 8
MEMORY_MIB = 64  # for frames, which are not touched
PUT_AGENTS = (16, 64, 100)
PUT_POOL = "hash:/puts?replicas=2"
PUT_BYTES = 64
PUT_GROWTH_MAX = 2  # a put goes to two owners, however many members there are
PATIENCE_S = 60.0
LOAD_PERCENT, LOADED_S = 50, 3600.0
LOADS = """
import sys, time
share = float(sys.argv[1])
while True:
    end = time.monotonic() + 0.05 * share
    while time.monotonic() < end:
        pass
    time.sleep(0.05 * (1 - share))
"""


def measure(report: Report, quick: bool) -> None:
    """Adds the rows ``exchange.group_*``."""
    agents, seconds, settle = (4, 1.0, 1.0) if quick else (AGENTS, 20.0, SETTLE_S)
    for link in LINKS:
        with group_of(agents, link, MEMORY_MIB, DEAD_AFTER) as (group, _):
            time.sleep(settle)
            add_idle(report, link, idle_cost(group, seconds), seconds)
    p50: dict[int, float] = {}
    for count in (2, 4) if quick else PUT_AGENTS:
        with group_of(count, "unix", MEMORY_MIB) as (group, key):
            taken = puts(group, key, 20 if quick else 1000)
            p50[count] = statistics.median(taken)
            add_puts(report, count, taken)
    add_put_growth(report, p50)


def measure_load(report: Report, quick: bool) -> None:
    """Adds the rows of agents on a machine that has other work for an hour."""
    agents, seconds, settle = (4, 1.0, 1.0) if quick else (AGENTS, LOADED_S, SETTLE_S)
    with group_of(agents, "tcp", MEMORY_MIB, DEAD_AFTER) as (group, _):
        time.sleep(settle)
        before = counted(group)
        with busy_cores(LOAD_PERCENT):
            time.sleep(seconds)
        after = counted(group)
    add_load(report, agents, seconds, {key: after[f"group.{key}"] - before[f"group.{key}"] for key in LOST})


LOST = ("suspicions", "deaths")


def add_load(report: Report, agents: int, seconds: float, lost: dict[str, int]) -> None:
    for key in LOST:
        report.claims.append(
            Claim(f"exchange.group_{key} ({agents} agents, tcp, {LOAD_PERCENT} % load)", lost[key], key,
                  target=f"<= 0 {key}", holds=lost[key] == 0,
                  detail=f"over {seconds / 60:g} min on {len(os.sched_getaffinity(0))} cores, dead_after {DEAD_AFTER}")
        )  # fmt: skip


@contextmanager
def busy_cores(percent: int) -> Iterator[None]:
    """Other programs compute on each core for so much of the time."""
    with ExitStack() as running:
        for core in sorted(os.sched_getaffinity(0)):
            command = ["taskset", "-c", str(core), sys.executable, "-c", LOADS, str(percent / 100)]
            running.callback((process := subprocess.Popen(command)).wait)
            running.callback(process.kill)
        yield


# ---- an idle group


def idle_cost(group: AgentGroup, seconds: float) -> dict[str, Any]:
    """Over ``seconds`` without requests to the agents."""
    before, began, slept_before = counted(group), time.monotonic(), sleeps_of(group.pids)
    cpu_before, cpu_began = sum(map(cpu_seconds, group.pids)), time.monotonic()
    time.sleep(seconds)
    cpu_s, cpu_passed = sum(map(cpu_seconds, group.pids)) - cpu_before, time.monotonic() - cpu_began
    slept = sleeps_of(group.pids)
    after, passed = counted(group), time.monotonic() - began
    count = len(group.pids)
    rates = {key: (after[key] - before[key]) / passed / count for key in after}
    rates["wakes"] = sum(times - slept_before.get(task, 0) for task, times in slept.items()) / passed / count
    return {
        "agents": count,
        "cpu_percent": 100 * cpu_s / cpu_passed,  # of one core, all agents together
        "channels_max": max(len(status["channels"]) for status in statuses(group)),  # that others have to it
        "threads_max": max(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in group.pids),
        "private_mib_max": max(map(private_bytes_of, group.pids)) / (1 << 20),
        "suspicions": after["group.suspicions"] - before["group.suspicions"],
        "suspicions_at_start": before["group.suspicions"],
        "deaths": after["group.deaths"] - before["group.deaths"],
        "per_agent_and_second": rates,
    }


def statuses(group: AgentGroup) -> list[dict[str, Any]]:
    return [fetch_status(each["http"]) for each in group.ready]


def counted(group: AgentGroup) -> dict[str, int]:
    """Sums over all agents."""
    sums: dict[str, int] = {}
    for status in statuses(group):
        for part in ("group", "loop"):
            for key, value in status[part].items():
                if isinstance(value, int):
                    sums[f"{part}.{key}"] = sums.get(f"{part}.{key}", 0) + value
    return sums


def private_bytes_of(pid: int) -> int:
    """Memory that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def sleeps_of(pids: Sequence[int]) -> dict[str, int]:
    """How often each thread went to sleep by itself, and so was woken again."""
    sleeps = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends
                text = (task / "status").read_text()
                sleeps[task.name] = int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return sleeps


def add_idle(report: Report, link: str, cost: dict[str, Any], seconds: float) -> None:
    of = f"({cost['agents']} agents, {link})"
    detail = (
        f"over {seconds:g} s on {len(os.sched_getaffinity(0))} cores; suspected {cost['suspicions']} times, "
        f"{cost['suspicions_at_start']} times while all started"
    )
    for what, value, unit, most, limit in (
        ("cpu", cost["cpu_percent"], "% of a core", CPU_MAX[link], f"{CPU_MAX[link]} %"),
        ("threads", cost["threads_max"], "threads", THREADS_MAX, f"{THREADS_MAX} threads"),
        ("memory", cost["private_mib_max"], "MiB", PRIVATE_MIB_MAX, f"{PRIVATE_MIB_MAX} MiB"),
    ):
        report.claims.append(
            Claim(f"exchange.group_{what} {of}", value, unit, target=f"<= {limit}", holds=value <= most, detail=detail)
        )
    for what, key in (("wakes", "wakes"), ("table_bytes", "group.table_bytes_posted")):
        rate = cost["per_agent_and_second"][key]
        report.claims.append(Claim(f"exchange.group_{what} {of}", rate, "/s of an agent", holds=True))


# ---- puts


def puts(group: AgentGroup, key: str, count: int) -> list[float]:
    """Microseconds of each put, by a program of one agent, each to the two owners of a key of its own."""
    with connect(group, 0, key) as session:
        pool = session.pool(PUT_POOL).create()
        taken = []
        for number in range(-3 * len(group.ready), count):  # first those with which the agent connects to the others
            began = time.perf_counter_ns()
            pool.put(bytes(PUT_BYTES), f"row{number}", timeout=PATIENCE_S)
            taken.append((time.perf_counter_ns() - began) / 1e3)
    return taken[-count:]


def add_puts(report: Report, agents: int, taken: Sequence[float]) -> None:
    p50, p99 = statistics.median(taken), statistics.quantiles(taken, n=100)[98]
    for name, us in (("p50", p50), ("p99", p99)):
        report.claims.append(Claim(f"exchange.group_put_us_{name} ({agents} agents, replicas=2)", us, "us", holds=True))
    report.series.append(Series("exchange_group_put", "p50", "agents", "us", [float(agents)], [p50]))


def add_put_growth(report: Report, p50: dict[int, float]) -> None:
    """How much longer a put takes in the largest group than in the smallest."""
    least, most = min(p50), max(p50)
    growth = p50[most] / p50[least]
    report.claims.append(
        Claim(f"exchange.group_put_growth ({most} agents, replicas=2)", growth, "x", target=f"<= {PUT_GROWTH_MAX} x",
              holds=growth <= PUT_GROWTH_MAX,
              detail=f"{p50[most]:.0f} us, with {least} agents {p50[least]:.0f} us")
    )  # fmt: skip
