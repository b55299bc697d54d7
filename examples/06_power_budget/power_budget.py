"""A power budget over four nodes: every node publishes what it would draw, the leader gives each a cap, and nodes keep
to it. The caps are grants: they end by themselves, so whoever dies or stops, the caps in force are never above the
budget.

A node is a process that computes in a cgroup, beside it a process that sets the cgroup's limit, and an agent. A limited
cgroup draws at most WATTS_PER_CORE for each core that it may use. Where the machine limits power itself, an agent sets
it: actuators of the kind `power`, as in 12_cpu_budget. Processes and agents are killed on the way, and started again.
Agents are also stopped (SIGSTOP) for longer than a grant lasts: the others take a stopped agent for dead and share its
power, while its process lives, with a cap that it has to give up by itself.

Usage: power_budget.py [SEED], which draws these events. Takes root, or a directory of cgroups that belong to this user;
without one it prints the reason and ends.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import offpath

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # code shared by several examples
from cgroups import Limits, make_cgroups, remove_cgroups

NODES = ["node0", "node1", "node2", "node3"]
BUDGET, IDLE = 200, 20  # watts: of all; of a node without a cap
WATTS_PER_CORE = 200
PERIOD_US = 20_000
GRANT_TTL_S = 2.5
MARGIN_S = 1.2  # a cap is given up so long before its grant ends: for a process that is late
GONE_S = 1.0  # a node whose newest record is older is not there
TICK_S = 0.1  # how often a process looks whether its cap is over
EVENTS = 10
PATIENCE_S = 60.0
CONFIG = f"""
[[exchange]]
name = "power"
topology = "neighbourhoods(2)"
members = {NODES}
interval = "50ms"
deadline = "40ms"
fields = ["wanted:f64:watts", "drawn:f64:watts"]
reductions = ["sum(drawn)"]
grant_total = {BUDGET - IDLE * len(NODES)}
grant_ttl = "{GRANT_TTL_S * 1000:.0f}ms"
grant_lease = "3s"
"""
PR_SET_PDEATHSIG = 1


def quota_us(watts: float) -> int:
    return round(watts / WATTS_PER_CORE * PERIOD_US)


LIMITS = [
    Limits("/sys/fs/cgroup", "cpu", {"cpu.max": f"{quota_us(IDLE)} {PERIOD_US}"}),
    Limits("/sys/fs/cgroup/cpu", "", {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{quota_us(IDLE)}"}),
]


def limit_file(cgroup: Path) -> Path:
    two = cgroup / "cpu.max"
    return two if two.exists() else cgroup / "cpu.cfs_quota_us"


def decide(view: offpath.View) -> dict[str, int]:
    """Each node's demand, if the sum is available; otherwise in proportion. A node of which nothing is heard wants
    nothing."""
    wants = {name: max(entry["wanted"] - IDLE, 0) if entry.age < GONE_S else 0
             for name, entry in view.entries.items() if entry.has_value}  # fmt: skip
    room = BUDGET - IDLE * len(NODES)
    scale = min(1.0, room / max(sum(wants.values()), 1.0))
    return {name: int(watts * scale) for name, watts in wants.items()}


# ---- the process of a node


class Computing:
    """A process that uses a core as far as its cgroup permits, and dies with this one."""

    def __init__(self, cgroup: Path) -> None:
        def die_with_parent() -> None:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        self.limit, self.watts, self.ends_s = limit_file(cgroup), 0, 0.0
        self.set(IDLE)
        command = [sys.executable, "-c", "import sys\nsys.stdin.readline()\nwhile True: pass"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        (cgroup / "cgroup.procs").write_text(str(self.process.pid))
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self._before = self._now()

    def set(self, watts: int) -> None:
        if watts != self.watts:
            self.limit.write_text(str(quota_us(watts)))
            self.watts = watts

    def allow(self, watts: int, seconds: float) -> None:
        self.ends_s = time.monotonic() + seconds
        self.set(watts if seconds > 0 else IDLE)

    def end_if_over(self, *_: object) -> None:
        if time.monotonic() >= self.ends_s:
            self.set(IDLE)

    def _now(self) -> tuple[float, float]:
        clock = ~self.process.pid << 3 | 2  # its processor time
        return time.clock_gettime(clock), time.monotonic()

    def drawn(self) -> float:
        """Watts since the last call."""
        (cpu, at), (cpu_before, before) = self._now(), self._before
        self._before = cpu, at
        return WATTS_PER_CORE * (cpu - cpu_before) / (at - before)


def run_node(address: str, cgroup: Path, node: int) -> None:
    computing = Computing(cgroup)
    # A call waits for up to 5 s for an agent that is stopped. The cap ends in time, because the handler runs meanwhile.
    signal.signal(signal.SIGALRM, computing.end_if_over)
    signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)
    try:
        with offpath.connect(address) as session, session.exchange("power", publish=True) as exchange:
            while True:
                busy = int(time.monotonic() / 2) % 2 == node % 2  # all nodes of a machine have one clock
                exchange.publish(wanted=float(WATTS_PER_CORE if busy else 2 * IDLE), drawn=computing.drawn())
                try:
                    exchange.grant(decide(exchange.view(timeout=MARGIN_S / 8)))  # only the leader's proposal counts
                except offpath.Timeout:
                    pass  # its agent is late
                watts, left_s = exchange.granted
                computing.allow(IDLE + watts, left_s - MARGIN_S)
    except (offpath.PeerLost, offpath.Timeout):
        sys.exit("the agent is gone, or was stopped before this process had its exchange")
    finally:
        computing.process.kill()  # before its limit returns
        computing.process.wait()
        computing.set(IDLE)


# ---- all of them


class Nodes:
    """Agents and processes of the nodes; either may be missing, and agents may be stopped."""

    def __init__(self, cgroups: list[Path]) -> None:
        self.cgroups = cgroups
        self.agents: dict[int, offpath.Agent] = {}
        self.stopped: dict[int, float] = {}  # agents, and when they go on
        self.processes: dict[int, subprocess.Popen] = {}
        self.highest, self.looks = 0, 0

    def start(self, node: int) -> None:
        self.go_on(node)
        if node not in self.agents:
            settings = {"agent.name": NODES[node], "group.dead_after": "1s"}
            if running := [agent for other, agent in self.agents.items() if other not in self.stopped]:
                settings["group.join"] = running[0].address
            self.agents[node] = offpath.Agent.start(config=CONFIG, settings=settings)
        if node not in self.processes or self.processes[node].poll() is not None:
            words = [sys.executable, __file__, self.agents[node].address, str(self.cgroups[node]), str(node)]
            self.processes[node] = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def kill_process(self, node: int) -> None:
        if process := self.processes.pop(node, None):
            process.kill()
            process.wait()

    def kill_agent(self, node: int) -> None:
        """Its process sees that, and ends."""
        if agent := self.agents.pop(node, None):
            agent.kill()
            agent.stop()
        if process := self.processes.pop(node, None):
            process.wait(PATIENCE_S)

    def stop_agent(self, node: int, seconds: float) -> None:
        """Until `watch` continues it."""
        os.kill(self.agents[node].pid, signal.SIGSTOP)
        self.stopped[node] = time.monotonic() + seconds

    def go_on(self, node: int) -> None:
        if self.stopped.pop(node, None) is not None:
            os.kill(self.agents[node].pid, signal.SIGCONT)

    def caps(self) -> list[int]:
        """Of each node, in watts; of one without a process 0. Two equal looks: so they were at one moment."""
        while True:
            one, other = ([self.cap(cgroup) for cgroup in self.cgroups] for _ in range(2))
            if one == other:
                return one

    @staticmethod
    def cap(cgroup: Path) -> int:
        computes = (cgroup / "cgroup.procs").read_text().strip()
        quota = int(limit_file(cgroup).read_text().split()[0])
        return round(quota / PERIOD_US * WATTS_PER_CORE) if computes else 0

    def watch(self, seconds: float, until: Callable[[list[int]], bool] = lambda _: False) -> bool:
        """Asserts all the time that the caps are within the budget. Returns whether `until` held."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            caps = self.caps()
            self.looks += 1
            self.highest = max(self.highest, sum(caps))
            assert sum(caps) <= BUDGET, f"caps of {caps} watts are above {BUDGET}"
            if until(caps):
                return True
            for node in [node for node, at_s in self.stopped.items() if at_s < time.monotonic()]:
                self.go_on(node)
            time.sleep(0.001)  # the nodes need the processors more
        return False

    def stop(self) -> None:
        for node in range(len(NODES)):
            self.kill_process(node)
        for agent in self.agents.values():
            agent.stop()


def share(nodes: Nodes, seed: int) -> None:
    def used(caps: list[int]) -> bool:
        return sum(caps) > 0.9 * BUDGET

    draw = random.Random(seed)
    for node in range(len(NODES)):
        nodes.start(node)
    assert nodes.watch(PATIENCE_S, used), f"the budget is not used: {nodes.caps()}"
    print(f"caps of {nodes.caps()} W, together at most {BUDGET}", flush=True)
    for number in range(EVENTS):
        node = draw.randrange(len(NODES))
        majority = len(nodes.agents) - len(nodes.stopped) == len(NODES)  # with one agent less: it grants
        if node not in nodes.processes or node not in nodes.agents:
            nodes.start(node)
            what = f"{NODES[node]} is back"
        elif majority and (number == 0 or draw.random() < 0.4):
            caps = nodes.caps()
            node = caps.index(max(caps))  # which has the most to give up
            nodes.stop_agent(node, draw.uniform(1, 2) * GRANT_TTL_S)
            what = f"the agent of {NODES[node]} is stopped"
        elif majority and draw.random() < 0.5:
            nodes.kill_agent(node)
            what = f"the agent of {NODES[node]} was killed"
        else:
            nodes.kill_process(node)
            what = f"the process of {NODES[node]} was killed"
        nodes.watch(draw.uniform(0.2, 2.5))
        print(f"{what}: {nodes.caps()} W", flush=True)
    assert nodes.watch(PATIENCE_S, lambda _: not nodes.stopped), "an agent was not continued"
    for node in range(len(NODES)):
        nodes.start(node)
    assert nodes.watch(PATIENCE_S, used), f"the budget is not used after all: {nodes.caps()}"
    print(f"never above {BUDGET} W in {nodes.looks} looks; the highest sum was {nodes.highest} W")


def main(seed: int) -> None:
    cgroups = make_cgroups("power", NODES, LIMITS)
    if not cgroups:
        print("skipped: no cgroup with the cpu controller can be made here (root, or a delegation)")
        return
    with ExitStack() as running:
        running.callback(remove_cgroups, cgroups)
        nodes = Nodes(cgroups)
        running.callback(nodes.stop)
        share(nodes, seed)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        run_node(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
