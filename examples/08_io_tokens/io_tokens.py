"""Tokens for a shared file system: at most two of four clients may write at a time. A token is a grant of 1 out of a
total of 2; it is used while it lasts, renewed with every round, and gone by itself when its holder or the leader is.
"""

import threading
import time

import offpath

CLIENTS = ["client0", "client1", "client2", "client3"]
TOKENS, WRITES, WRITE_S = 2, 3, 0.1
CONFIG = f"""
[[exchange]]
name = "storage"
topology = "allgather"
members = {CLIENTS}
interval = "30ms"
deadline = "25ms"
fields = ["waiting_since:f64:seconds"]
grant_total = {TOKENS}
grant_ttl = "400ms"
grant_lease = "500ms"
"""


class Storage:
    """What must not happen is counted here."""

    def __init__(self) -> None:
        self.lock, self.writing, self.writing_max = threading.Lock(), 0, 0

    def enter(self) -> None:
        with self.lock:
            self.writing += 1
            self.writing_max = max(self.writing_max, self.writing)

    def leave(self) -> None:
        with self.lock:
            self.writing -= 1


def decide(view: offpath.View) -> dict[str, int]:
    """Those that have waited longest. Who writes goes on waiting in this sense, so it keeps its token until done."""
    waiting = {name: entry["waiting_since"] for name, entry in view.entries.items() if entry.present and entry.values}
    first = sorted((name for name, since in waiting.items() if since), key=lambda name: waiting[name])[:TOKENS]
    return {name: int(name in first) for name in CLIENTS}


def client(session: offpath.Session, storage: Storage, done: threading.Semaphore, end: threading.Event) -> None:
    written, since = 0, time.monotonic()
    with session.exchange("storage", publish=True) as exchange:
        while not end.is_set():
            exchange.publish(waiting_since=since)
            exchange.grant(decide(exchange.view(timeout=5)))
            tokens, left = exchange.granted
            if since and tokens and left > 1.5 * WRITE_S:  # enough of it for one write
                storage.enter()
                time.sleep(WRITE_S)
                storage.leave()
                written += 1
                since = time.monotonic() if written < WRITES else 0.0
                if written == WRITES:
                    done.release()


def main() -> None:
    agents = []
    for name in CLIENTS:
        join = {"group.join": agents[0].address} if agents else {}
        agents.append(offpath.Agent.start(config=CONFIG, settings={"agent.name": name, **join}))
    sessions = [offpath.connect(agent.address) for agent in agents]
    storage, done, end = Storage(), threading.Semaphore(0), threading.Event()
    threads = [threading.Thread(target=client, args=(session, storage, done, end)) for session in sessions]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    finished = [done.acquire(timeout=60) for _ in CLIENTS]
    end.set()
    for thread in threads:
        thread.join()
    print(f"{len(CLIENTS) * WRITES} writes in {time.monotonic() - began:.1f} s, "
          f"at most {storage.writing_max} at a time")  # fmt: skip
    assert all(finished), "a client never got its tokens"
    assert 1 <= storage.writing_max <= TOKENS
    for session in sessions:
        session.close()
    for agent in agents:
        agent.stop()


if __name__ == "__main__":
    main()
