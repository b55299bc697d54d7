"""A processor budget over four nodes, decided on their agents: cpu_budget_plugin.c has the decision. Each node is a
cgroup of this machine and an agent beside it; its agent sets the cgroup's cpu.max to its grant. One agent is killed on
the way. The sum of the limits is never above the budget.

Usage: cpu_budget.py PLUGIN [--cgroups DIRECTORY]. Takes root, or a directory of cgroups that belong to this user;
without one it prints the reason and ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import offpath

NODES = 4
FLOOR, SHARED = 100, 400  # thousandths of a core: of each node always, and of all together to be granted
BUDGET = NODES * FLOOR + SHARED
PERIOD_US = 100_000
EARLY_MS = 1200  # how long before its grant a setting ends: a busy machine's agents are late
PATIENCE_S = 60.0
NAMES = [f"node-{i}" for i in range(NODES)]
CONFIG = """
[sampling]
interval = "50ms"

[actuators]
cgroups = "{cgroups}"

[[plugin]]
name = "budget"
path = "{plugin}"

[[actuator]]
name = "cpu"
kind = "cpu"
where = "node-{{index}}"
min = {floor}
max = {budget}

[[exchange]]
name = "cpu"
topology = "neighbourhoods(2)"
members = {names}
interval = "100ms"
deadline = "80ms"
fields = ["wanted:u64"]
grant_total = {shared}
grant_ttl = "2500ms"
grant_lease = "3s"
decide = "budget/share"
arguments = "{floor} {early}"
actuators = ["cpu"]
"""


def find_cgroups() -> Path | None:
    """A directory for the nodes' cgroups, made here: of version 2, or of the cpu controller of version 1."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")):
        own = root / f"offpath-budget-{os.getpid()}"
        try:
            own.mkdir()
        except OSError:
            continue
        if any(os.access(own / limit, os.W_OK) for limit in ("cpu.max", "cpu.cfs_quota_us")):
            return own
        own.rmdir()
    return None


class Node:
    """A cgroup whose limit is the floor."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        two = (directory / "cpu.max").exists()
        self.file = directory / ("cpu.max" if two else "cpu.cfs_quota_us")
        self.file.write_text(str(FLOOR * PERIOD_US // 1000))

    @property
    def limit(self) -> int:
        """Thousandths of a core."""
        return int(self.file.read_text().split()[0]) * 1000 // PERIOD_US


class Watch:
    """Looks at all limits, again and again. A sum counts if all were the same in two looks one after the other: then
    they were so at one moment."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes, self.highest, self.looks = nodes, 0, 0

    def look(self) -> list[int]:
        while True:
            one, other = ([node.limit for node in self.nodes] for _ in range(2))
            if one != other:
                continue
            self.looks += 1
            self.highest = max(self.highest, sum(one))
            assert sum(one) <= BUDGET, f"{one} are {sum(one)}, the budget is {BUDGET}"
            return one

    def until(self, holds: Callable[[list[int]], bool], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not holds(limits := self.look()):
            assert time.monotonic() < end_s, f"not within {PATIENCE_S:.0f} s: {what}; the limits are {limits}"

    def for_seconds(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.look()


def show(text: str, limits: list[int]) -> None:
    print(f"{text}: {' '.join(f'{limit:4}' for limit in limits)}  together {sum(limits)} of {BUDGET}", flush=True)


def share(watch: Watch, directory: Path) -> None:
    sessions = [offpath.connect(f"unix:{directory}/agent-{i}.sock") for i in range(NODES)]
    demands = [session.gauges("demand", ["wanted"]) for session in sessions]
    for demand, wanted in zip(demands, (600, 0, 0, 0), strict=True):
        demand["wanted"] = float(wanted)
    watch.until(lambda limits: limits[0] == 500 and sum(limits[1:]) == 3 * FLOOR, "node-0 has what it wants")
    show("one busy node", watch.look())
    for demand in demands:
        demand["wanted"] = 600.0
    watch.until(lambda limits: limits == [200] * NODES, "all have as much")
    show("four of them", watch.look())
    pid = sessions[0].info.agent_pid
    os.kill(pid, signal.SIGKILL)  # the leader's: its own limit returns, and the others' end with their grants
    watch.until(lambda limits: limits[0] == FLOOR, "the killed agent's cgroup has its former limit")
    show("node-0's agent was killed", watch.look())
    watch.until(lambda limits: limits[0] == FLOOR and sum(limits[1:]) >= BUDGET - FLOOR - NODES, "the others share it")
    show("the others have its share", watch.look())
    watch.for_seconds(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plugin", type=Path)
    parser.add_argument("--cgroups", type=Path)
    given = parser.parse_args()
    cgroups = given.cgroups or find_cgroups()
    if cgroups is None:
        print("skipped: no cgroup with the cpu controller can be made here (root, or a delegation)")
        return
    directory = Path(tempfile.mkdtemp(prefix="offpath-budget-"))
    nodes: list[Node] = []
    agents = None
    try:
        if (cgroups / "cpu.max").exists():
            (cgroups / "cgroup.subtree_control").write_text("+cpu")
        nodes += [Node(cgroups / name) for name in NAMES]
        plugin = shutil.copy(given.plugin, directory / "cpu_budget_plugin.so")
        config = directory / "agent.toml"
        config.write_text(CONFIG.format(cgroups=cgroups, plugin=plugin, names=NAMES, floor=FLOOR, budget=BUDGET,
                                        early=EARLY_MS, shared=SHARED))  # fmt: skip
        agents = subprocess.Popen([sys.executable, "-m", "offpath", "agent", "--group", str(NODES), "--config", config,
                                   "--name", "node-{index}", "--listen", f"unix:{directory}/agent-{{index}}.sock",
                                   "--http", f"unix:{directory}/http-{{index}}.sock"])  # fmt: skip
        end_s = time.monotonic() + PATIENCE_S
        while not all((directory / f"agent-{i}.sock").exists() for i in range(NODES)):
            assert agents.poll() is None and time.monotonic() < end_s, "the agents did not start"
            time.sleep(0.05)
        os.nice(10)  # it looks all the time, and the agents need the processors more
        watch = Watch(nodes)
        share(watch, directory)
        print(f"never above {BUDGET} in {watch.looks} looks; the highest sum was {watch.highest}")
    finally:
        if agents is not None:
            agents.terminate()
            agents.wait(PATIENCE_S)
        for node in nodes:
            node.directory.rmdir()
        if given.cgroups is None:
            cgroups.rmdir()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
