"""Work stealing: every rank says how many tasks it has left; who has none looks at the newest view and takes half of
what the busiest one has. Looking costs a few loads of a rank's own memory: no rank is asked, and none is polled.

Ranks are threads, each with an agent of its own; tasks are waits. The same work is done without stealing for
comparison.
"""

import threading
import time
from collections import deque

import offpath

RANKS = ["rank0", "rank1", "rank2", "rank3"]
TASKS, TASK_S = 240, 0.01  # all of them begin at rank0
CONFIG = """
[[exchange]]
name = "tasks"
topology = "allgather"
interval = "20ms"
deadline = "15ms"
fields = ["left:u64"]
"""


class Rank:
    def __init__(self, name: str, session: offpath.Session | None) -> None:
        self.name, self.tasks, self.lock, self.done, self.stolen = name, deque(), threading.Lock(), 0, 0
        self.exchange = session.exchange("tasks", publish=True) if session else None

    def take(self, count: int) -> list[int]:
        """Tasks from the end that was not begun with. (Where ranks are processes, a get of one's queue.)"""
        with self.lock:
            return [self.tasks.pop() for _ in range(min(count, len(self.tasks)))]

    def steal(self, ranks: dict[str, "Rank"]) -> None:
        view = self.exchange.view(timeout=5)
        left = {name: entry["left"] for name, entry in view.entries.items() if entry.values and name != self.name}
        busiest = max(left, key=left.get, default=None)
        if busiest and left[busiest] > 1:
            found = ranks[busiest].take(left[busiest] // 2)
            self.stolen += len(found)
            with self.lock:
                self.tasks.extend(found)

    def run(self, ranks: dict[str, "Rank"], all_done: threading.Event) -> None:
        while not all_done.is_set():
            with self.lock:
                task = self.tasks.popleft() if self.tasks else None
            if self.exchange:
                self.exchange.publish(left=len(self.tasks))
            if task is not None:
                time.sleep(TASK_S)
                self.done += 1
            elif self.exchange:
                self.steal(ranks)
            else:
                time.sleep(TASK_S)


def work(sessions: list[offpath.Session] | None) -> tuple[float, dict[str, Rank]]:
    ranks = {name: Rank(name, sessions[i] if sessions else None) for i, name in enumerate(RANKS)}
    ranks["rank0"].tasks.extend(range(TASKS))
    all_done = threading.Event()
    threads = [threading.Thread(target=rank.run, args=(ranks, all_done)) for rank in ranks.values()]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    while sum(rank.done for rank in ranks.values()) < TASKS:
        time.sleep(0.002)
    took = time.monotonic() - began
    all_done.set()
    for thread in threads:
        thread.join()
    return took, ranks


def main() -> None:
    alone, _ = work(None)
    agents = []
    for name in RANKS:
        join = {"group.join": agents[0].address} if agents else {}
        agents.append(offpath.Agent.start(config=CONFIG, settings={"agent.name": name, **join}))
    sessions = [offpath.connect(agent.address) for agent in agents]
    with sessions[0].exchange("tasks") as first:
        while first.view(timeout=5).expected < len(RANKS):
            pass
    together, ranks = work(sessions)
    for rank in ranks.values():
        print(f"{rank.name}: {rank.done} tasks, {rank.stolen} of them stolen")
        rank.exchange.close()
    print(f"without stealing {alone:.2f} s, with {together:.2f} s: {alone / together:.1f} times as fast")
    assert sum(rank.done for rank in ranks.values()) == TASKS
    assert together < alone / 1.5, "stealing did not help"
    for session in sessions:
        session.close()
    for agent in agents:
        agent.stop()


if __name__ == "__main__":
    main()
