"""Work stealing: every rank publishes its remaining tasks; an idle rank looks at the newest view and takes half of the
busiest rank's. Looking costs a few loads of a rank's own memory: no rank is asked, and none is polled.

Ranks are processes that compute, each with an agent of its own and in a cgroup with a quarter of a core, where cgroups
can be made (root, or a delegation). A task belongs to the rank that has put it into the pool `claimed`, which takes
each key once. The same work is done by one rank alone for comparison.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import offpath

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # code shared by several examples
from cgroups import Limits, make_cgroups, remove_cgroups

RANKS = ["rank0", "rank1", "rank2", "rank3"]
TASKS, TASK_S = 160, 0.005  # all of them begin at rank0; processor time of one
CORES = 0.25  # of each rank
PERIOD_US = 20_000
QUOTA_US = round(CORES * PERIOD_US)
LIMITS = [
    Limits("/sys/fs/cgroup", "cpu", {"cpu.max": f"{QUOTA_US} {PERIOD_US}"}),
    Limits("/sys/fs/cgroup/cpu", "", {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{QUOTA_US}"}),
]
PATIENCE_S = 60.0
CLAIMS = "hash:/claimed?overwrite=no"
CONFIG = """
[[exchange]]
name = "tasks"
topology = "allgather"
interval = "20ms"
deadline = "15ms"
fields = ["first:u64", "last:u64", "done:u64"]
"""


class Rank:
    """The tasks `first` to `last` are left, unless another rank has claimed them."""

    def __init__(self, session: offpath.Session, exchange: offpath.Exchange) -> None:
        self.name, self.exchange = session.info.agent_name, exchange
        self.claims = session.pool(CLAIMS)
        self.first, self.last = (0, TASKS) if self.name == RANKS[0] else (0, 0)
        self.done: list[int] = []
        self.stolen = 0

    def publish(self) -> None:
        self.exchange.publish(first=self.first, last=self.last, done=len(self.done))

    def claim(self, task: int) -> bool:
        try:
            self.claims.put(self.name.encode(), f"task{task}", timeout=PATIENCE_S)
        except offpath.Exists:
            return False
        return True

    def do_next(self) -> None:
        task = self.first
        self.first += 1
        if self.claim(task):
            compute()
            self.done.append(task)

    def others(self, view: offpath.View) -> list[tuple[int, int]]:
        known = [entry for name, entry in view.entries.items() if name != self.name and entry.values]
        return [(entry["first"], entry["last"]) for entry in known]

    def give_way(self, view: offpath.View) -> None:
        """The upper part of the rest belongs to a rank that begins there."""
        for first, last in sorted(self.others(view), reverse=True):
            if self.first < first < last == self.last:
                self.last = first

    def steal(self, view: offpath.View) -> None:
        first, last = max(self.others(view), key=lambda left: left[1] - left[0], default=(0, 0))
        if last > first:
            self.first, self.last = (first + last) // 2, last
            self.stolen += 1

    def run(self) -> None:
        view = None
        while True:
            self.publish()
            if self.first < self.last:
                self.do_next()
                try:
                    view = self.exchange.view(timeout=0)
                    self.give_way(view)
                except offpath.WouldBlock:
                    pass  # nothing newer
            else:
                view = self.exchange.view(timeout=PATIENCE_S)
                if sum(entry["done"] for entry in view.entries.values() if entry.values) == TASKS:
                    return
                self.steal(view)


def compute() -> None:
    """A task: hashes, for so much processor time."""
    block, end_s = bytes(65536), time.process_time() + TASK_S
    while time.process_time() < end_s:
        hashlib.sha256(block).digest()


# ---- the process of a rank


def run_rank(address: str, cgroup: str) -> None:
    with offpath.connect(address) as session, session.exchange("tasks", publish=True) as exchange:
        rank = Rank(session, exchange)
        rank.publish()
        print("ready", flush=True)
        sys.stdin.readline()
        if cgroup:
            Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
        rank.run()
        print(json.dumps({"name": rank.name, "done": rank.done, "stolen": rank.stolen}), flush=True)


# ---- all of them


def work(addresses: list[str], cgroups: list[Path]) -> tuple[float, list[dict]]:
    """Seconds, and the tasks that each rank has done."""
    with ExitStack() as running:
        ranks = []
        for number, address in enumerate(addresses):
            words = [sys.executable, __file__, address, str(cgroups[number]) if cgroups else ""]
            rank = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.callback(rank.wait)
            running.callback(rank.kill)
            ranks.append(rank)
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n", "a rank did not start"
        began = time.monotonic()
        for rank in ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        said = [json.loads(rank.stdout.readline()) for rank in ranks]
        took = time.monotonic() - began
        assert [rank.wait(PATIENCE_S) for rank in ranks] == [0] * len(ranks)
    assert sorted(task for each in said for task in each["done"]) == list(range(TASKS)), "a task twice, or not at all"
    return took, said


def main() -> None:
    cgroups = make_cgroups("stealing", RANKS, LIMITS)
    if not cgroups:
        print("no cgroup with the cpu controller can be made here: ranks share the cores")
    took = []
    try:
        for count in (1, len(RANKS)):
            with ExitStack() as agents:
                started = []
                for name in RANKS[:count]:
                    join = {"group.join": started[0].address} if started else {}
                    started.append(offpath.Agent.start(config=CONFIG, settings={"agent.name": name, **join}))
                    agents.callback(started[-1].stop)
                with offpath.connect(started[0].address) as session, session.exchange("tasks") as exchange:
                    session.pool(CLAIMS).create()
                    while exchange.view(timeout=PATIENCE_S).expected < count:
                        pass
                seconds, said = work([agent.address for agent in started], cgroups[:count])
                took.append(seconds)
                for each in said:
                    print(f"{each['name']}: {len(each['done'])} tasks, {each['stolen']} times from another rank")
        print(f"alone {took[0]:.2f} s, together {took[1]:.2f} s: {took[0] / took[1]:.1f} times as fast")
        if cgroups or len(os.sched_getaffinity(0)) > len(RANKS):
            assert took[1] < took[0] / 1.5, "stealing did not help"
    finally:
        remove_cgroups(cgroups)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_rank(sys.argv[1], sys.argv[2])
    else:
        main()
