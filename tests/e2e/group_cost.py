"""What belonging to a group costs an idle agent: processor time, threads, memory, tables and their bytes.

    python tests/e2e/group_cost.py --agents 16,64 --link unix --seconds 10

Prints a line of JSON for each number of agents. test_group_cost.py bounds what does not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))  # as pytest does

from agent_process import AgentProcess, until

PATIENCE_S = 40.0  # until the members know each other
SETTLE_S = 10.0  # the members know each other, but still exchange what they learnt last


@contextmanager
def idle_group(directory: Path, agents: int, link: str, dead_after_s: int = 5) -> Iterator[list[AgentProcess]]:
    """Members that all know each other. They join the first one, over Unix sockets or TCP."""
    started: list[AgentProcess] = []
    key = directory / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    try:
        for index in range(agents):
            here = directory / f"m{index}"
            here.mkdir()
            listen = ["--listen", f"unix:{here}/agent.sock"]
            if link == "tcp":
                listen = ["--listen", "tcp:127.0.0.1:0", "--key-file", str(key)]
            join = ["--join", started[0].ready["address"]] if started else []
            given = ["--name", f"m{index:03}", "--http", "127.0.0.1:0", "--memory", "64MiB"]
            given += ["--set", f"group.dead_after={dead_after_s}s"]
            started.append(AgentProcess(here, [*given, *listen, *join]))

        def complete(agent: AgentProcess) -> bool:
            members = agent.status()["members"]
            return len(members) == agents and all(each["state"] == "alive" for each in members)

        for agent in started:
            assert until(lambda agent=agent: complete(agent), PATIENCE_S + agents), agent.log()
        yield started
    finally:
        for agent in started:
            agent.process.kill()
        for agent in started:
            agent.process.wait()


def on_cpu_ns(pid: int) -> int:
    """Processor time of a process, those of its threads that have ended included (clock_getcpuclockid)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def private_bytes_of(pid: int) -> int:
    """Memory that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def wakes_of(pid: int) -> int:
    """How often a thread of the process went to sleep by itself, and so was woken again."""
    wakes = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends
            text = (task / "status").read_text()
            wakes += int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return wakes


def counted(agents: list[AgentProcess]) -> dict[str, int]:
    sums = {"wakes": sum(wakes_of(agent.pid) for agent in agents)}
    for agent in agents:
        status = agent.status()
        figures = {f"group.{key}": value for key, value in status["group"].items()}
        figures |= {f"loop.{key}": value for key, value in status["loop"].items()}
        figures["suspicions"] = agent.log().count(" suspect, ")
        figures["deaths"] = agent.log().count(" dead, ")
        for key, value in figures.items():
            if isinstance(value, int):
                sums[key] = sums.get(key, 0) + value
    return sums


def measure(agents: list[AgentProcess], seconds: float) -> dict[str, Any]:
    """Over `seconds`, in which nobody asks the agents anything."""
    before, began = counted(agents), time.monotonic()
    cpu_before, cpu_began = sum(on_cpu_ns(agent.pid) for agent in agents), time.monotonic()
    time.sleep(seconds)
    cpu_ns, cpu_passed = sum(on_cpu_ns(agent.pid) for agent in agents) - cpu_before, time.monotonic() - cpu_began
    after, passed = counted(agents), time.monotonic() - began
    rates = {key: round((after[key] - before[key]) / passed / len(agents), 2) for key in after if key in before}
    return {
        "agents": len(agents),
        "cpu_percent": round(cpu_ns / cpu_passed / 1e7, 2),  # of one core, all agents together
        "cpu_us_per_agent_and_s": round(cpu_ns / cpu_passed / 1e3 / len(agents), 1),
        "channels_max": max(len(agent.status()["channels"]) for agent in agents),  # that others have to it
        "threads_max": max(threads_of(agent.pid) for agent in agents),
        "private_mib_max": round(max(private_bytes_of(agent.pid) for agent in agents) / (1 << 20), 2),
        "per_agent_and_second": {key: rate for key, rate in sorted(rates.items()) if rate},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="16,32,64,100", help="numbers of agents, one group after the other")
    parser.add_argument("--link", choices=("unix", "tcp"), default="unix")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--settle", type=float, default=SETTLE_S)
    arguments = parser.parse_args()
    for agents in map(int, arguments.agents.split(",")):
        with (
            tempfile.TemporaryDirectory(prefix="group-") as directory,
            idle_group(Path(directory), agents, arguments.link) as started,
        ):
            time.sleep(arguments.settle)
            print(json.dumps({"link": arguments.link, **measure(started, arguments.seconds)}), flush=True)


if __name__ == "__main__":
    main()
