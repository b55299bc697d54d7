"""Tokens for shared storage: at most two of four clients may write at a time. A token is a grant of 1 out of a total of
2; it is used while it lasts, renewed with every round, and gone by itself when its holder or the leader is.

Clients are processes that write files, each with an agent of its own and in a cgroup that limits its writes, where
cgroups with such limits can be made (root, and a disk below the temporary directory): so many writers have so many
times the limit. The agent of one client that writes is stopped (SIGSTOP) for longer than its token lasts: the client
writes on while the token is good, and then waits, as the token goes to another one. Later one client is killed, and the
agent of yet another one. The first client is the leader's program, which decides: without it, or its agent, the next
client decides.

Usage: io_tokens.py [SEED], which draws who is stopped and killed, and when.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import offpath

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # code shared by several examples
from cgroups import Limits, make_cgroups, remove_cgroups

CLIENTS = ["client0", "client1", "client2", "client3"]
TOKENS = 2
PIECES, PIECE_BYTES = 60, 256 << 10  # of each client's file
LIMIT_BYTES_S = 8 << 20  # of each client: a piece takes 31 ms
GRANT_TTL_S = 2.5
LOOK_S = 0.05  # how long a client waits for a view before it looks at its token again
MARGIN_S = 1.5  # a token lasts longer than the piece that is begun with it, also if the client waits for a core
GONE_S = 1.0  # a client that has said nothing for so long waits no more
PATIENCE_S = 60.0
CONFIG = f"""
[[exchange]]
name = "storage"
topology = "allgather"
members = {CLIENTS}
interval = "30ms"
deadline = "25ms"
fields = ["waiting_since:f64:seconds"]
grant_total = {TOKENS}
grant_ttl = "{GRANT_TTL_S * 1000:.0f}ms"
grant_lease = "3s"
"""


class Storage:
    """Counts writers, whose number is limited. A writer has its own file locked; its locks end with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.door = os.open(directory / "door", os.O_CREAT | os.O_RDWR)

    @contextmanager
    def writing(self, name: str) -> Iterator[int]:
        """How many write, this one included."""
        own = os.open(self.directory / f"{name}.writes", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self.door, fcntl.LOCK_EX)
            fcntl.flock(own, fcntl.LOCK_EX)
            writers = 1 + sum(self.is_writing(other) for other in CLIENTS if other != name)
            fcntl.flock(self.door, fcntl.LOCK_UN)
            yield writers
        finally:
            os.close(own)

    def is_writing(self, name: str) -> bool:
        look = os.open(self.directory / f"{name}.writes", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(look, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(look)
        return False


def decide(view: offpath.View) -> dict[str, int]:
    """Tokens for the longest waits. A client that writes counts as waiting, and so keeps its token until it is done. Of
    a client that has ended, its agent still has the last record, which grows old."""
    waiting = {name: entry["waiting_since"] for name, entry in view.entries.items()
               if entry.present and entry.values and entry.age < GONE_S}  # fmt: skip
    first = sorted(waiting, key=lambda name: waiting[name])[:TOKENS]
    return {name: int(name in first) for name in CLIENTS}


# ---- the process of a client


def open_file(path: Path) -> int:
    """Past the page cache, so that the cgroup's limit is met by the write itself; where that is not possible, each
    write waits for the disk."""
    try:
        return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    except OSError:
        return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DSYNC, 0o600)


def run_client(address: str, directory: Path, cgroup: str) -> None:
    storage, piece = Storage(directory), mmap.mmap(-1, PIECE_BYTES)  # memory of whole pages, for O_DIRECT
    with offpath.connect(address) as session, session.exchange("storage", publish=True) as exchange:
        name = session.info.agent_name
        if cgroup:
            Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
        file = open_file(directory / name)
        written, most, since = 0, 0, time.monotonic()
        while written < PIECES:
            exchange.publish(waiting_since=since)
            try:
                exchange.grant(decide(exchange.view(timeout=LOOK_S)))
            except offpath.Timeout:
                pass  # its agent is late, or stopped: the token is good while it lasts
            tokens, left_s = exchange.granted
            if not tokens or left_s < MARGIN_S:
                continue
            with storage.writing(name) as writers:
                most = max(most, writers)
                os.pwrite(file, piece, written * PIECE_BYTES)
            written += 1
            print(f"{written} {most}", flush=True)


# ---- all of them


def limits_of(directory: Path) -> list[Limits]:
    """For the directory's disk; None for memory or the network."""
    number = os.stat(directory).st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if (disk / "partition").exists():
        disk = disk.resolve().parent
    try:
        device = (disk / "dev").read_text().strip()
    except OSError:
        return []
    return [
        Limits("/sys/fs/cgroup", "io", {"io.max": f"{device} wbps={LIMIT_BYTES_S}"}),
        Limits("/sys/fs/cgroup/blkio", "", {"blkio.throttle.write_bps_device": f"{device} {LIMIT_BYTES_S}"}),
    ]


class Client:
    def __init__(self, address: str, directory: Path, cgroup: str) -> None:
        words = [sys.executable, __file__, address, str(directory), cgroup]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.written = self.most = 0

    def hear(self) -> bool:
        """Waits for its next piece. False at the end."""
        if self.written == PIECES or not (line := self.process.stdout.readline()):
            return False
        self.written, self.most = map(int, line.split())
        return True


def first_writers(clients: list[Client]) -> list[int]:
    """Those that have the first tokens."""
    outputs = [client.process.stdout for client in clients]
    while len(ready := select.select(outputs, [], [], PATIENCE_S)[0]) < TOKENS:
        assert ready, "nobody has a token"
        time.sleep(0.01)
    return [number for number, output in enumerate(outputs) if output in ready]


def write_all(
    agents: list[offpath.Agent], directory: Path, cgroups: list[Path], draw: random.Random
) -> tuple[list[Client], list[Client]]:
    """All clients, and those that were not killed."""
    clients = [Client(agent.address, directory, str(cgroups[number]) if cgroups else "")
               for number, agent in enumerate(agents)]  # fmt: skip
    try:
        stopped = draw.choice(first_writers(clients))
        killed, cut_off = draw.sample([number for number in range(len(clients)) if number != stopped], 2)
        for victim in (stopped, killed, cut_off):
            for _ in range(draw.randrange(1, PIECES // 2)):
                assert clients[victim].hear(), f"{CLIENTS[victim]} had no token"
            if victim == stopped:
                os.kill(agents[victim].pid, signal.SIGSTOP)
                time.sleep(draw.uniform(1, 2) * GRANT_TTL_S)
                os.kill(agents[victim].pid, signal.SIGCONT)
            elif victim == killed:
                clients[victim].process.send_signal(signal.SIGKILL)
            else:
                agents[victim].kill()  # its client ends, and the leader may be another one
        left = [client for number, client in enumerate(clients) if number not in (killed, cut_off)]
        for client in clients:
            while client.hear():
                pass
        assert [client.process.wait(PATIENCE_S) for client in left] == [0] * len(left)
        print(f"the agent of {CLIENTS[stopped]} was stopped; {CLIENTS[killed]} was killed, and the agent of "
              f"{CLIENTS[cut_off]}")  # fmt: skip
        return clients, left
    finally:
        for client in clients:
            client.process.kill()
            client.process.wait()


def main(seed: int) -> None:
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="offpath-tokens-")))
        cgroups = make_cgroups("tokens", CLIENTS, limits_of(directory))
        running.callback(remove_cgroups, cgroups)
        if not cgroups:
            print("no cgroup can limit writes to the temporary directory here: clients write as fast as they can")
        agents = []
        for name in CLIENTS:
            join = {"group.join": agents[0].address} if agents else {}
            agents.append(offpath.Agent.start(config=CONFIG, settings={"agent.name": name, **join}))
            running.callback(agents[-1].stop)
        began = time.monotonic()
        clients, left = write_all(agents, directory, cgroups, random.Random(seed))
        seconds = time.monotonic() - began
        most = max(client.most for client in clients)
        mib = sum(client.written for client in clients) * PIECE_BYTES / (1 << 20)
        print(f"{mib:.1f} MiB in {seconds:.1f} s, at most {most} of {len(CLIENTS)} clients at a time")
        assert [client.written for client in left] == [PIECES] * len(left), "a client got no tokens"
        assert 1 <= most <= TOKENS, f"{most} clients wrote at a time"
        if cgroups:
            assert mib / seconds < 1.5 * TOKENS * LIMIT_BYTES_S / (1 << 20), "the limits were not in force"


if __name__ == "__main__":
    if len(sys.argv) > 3:
        try:
            run_client(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
        except offpath.PeerLost:
            sys.exit(1)  # its agent was killed
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
