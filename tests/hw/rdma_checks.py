"""Checks where there is an RDMA device: the link's conformance suite, the doctor, the move service.

Usage: rdma_checks.py OUT [NAMES]. Writes one line of JSON for each check to OUT/results. The device's own counters say
how many RDMA packets it sent: a link that quietly went another way would not move them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
from checks import BUILD, Failed, expect, run_checks
from offpath.agent_http import fetch_status

DEVICE = next(iter(sorted(Path("/sys/class/infiniband").glob("*/ports/1"))), None)
# Of soft-RoCE, and of cards.
COUNTERS = (
    ("hw_counters/sent_pkts", "hw_counters/rcvd_pkts"),
    ("counters/port_xmit_packets", "counters/port_rcv_packets"),
)
ROWS = (1, 7, 100, 4_096, 65_537, 300_000)  # of the batches that are moved
RATE_SIZES = (1 << 16, 1 << 20)
RATES_WANTED = {1: 0.85, 16: 0.9}  # of the rate of bare reads, by how many are outstanding
RATE_BYTES, RATE_ROUNDS = 16 << 20, 3
PACKET_BYTES_MAX = 4096  # the largest MTU of InfiniBand; Ethernet with 1500 bytes gives 1024


def packets() -> tuple[int, int]:
    """RDMA packets sent and received so far."""
    for sent, received in COUNTERS:
        if (DEVICE / sent).exists():
            return int((DEVICE / sent).read_text()), int((DEVICE / received).read_text())
    raise Failed(f"{DEVICE} has no packet counters")


def address_of_device() -> str:
    """Of the network interface that the RDMA device belongs to."""
    interface = (DEVICE / "gid_attrs/ndevs/0").read_text().strip()
    shown = json.loads(subprocess.run(["ip", "-j", "addr", "show", interface], capture_output=True, check=True).stdout)
    return next(each["local"] for each in shown[0]["addr_info"] if each["family"] == "inet")


def start_agent(key: Path, config: str | None = None, **settings: Any) -> tuple[offpath.Agent, str]:
    """An agent that listens for RDMA, and its address. `settings`: name="a" for agent.name and so on. `config`: further
    tables."""
    of_group = {f"{'agent' if name == 'name' else 'group'}.{name}": value for name, value in settings.items()}
    agent = offpath.Agent.start(
        listen=[f"verbs:{address_of_device()}:0"],
        settings={"security.key_file": key, "security.insecure_network": True, **of_group},
        config=config,
        timeout=60.0,
    )
    return agent, next(address for address in agent.addresses if address.startswith("verbs:"))


def conformance(out: Path, key: Path) -> str:
    """Every test of the suite that runs over verbs."""
    program = BUILD / "tests" / "link_conformance_test"
    done = subprocess.run(
        [program, "--gtest_filter=*verbs*:EveryLink.*", f"--gtest_output=json:{out}/conformance.json"],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    (out / "conformance.log").write_text(done.stdout + done.stderr)
    passed = re.search(r"\[  PASSED  \] (\d+) tests?", done.stdout)
    expect(done.returncode == 0 and passed is not None, f"the suite failed (exit code {done.returncode})")
    expect(int(passed[1]) >= 40, f"only {passed[1]} tests ran over verbs")
    skipped = re.search(r"\[  SKIPPED \] (\d+) tests?", done.stdout)
    return f"{passed[1]} tests passed, {skipped[1] if skipped else 0} do not apply"


def forgery(out: Path, key: Path) -> str:
    """Agents with forged keys, addresses and lengths, programs that reach for agent memory, strangers at the port."""
    done = subprocess.run(
        [BUILD / "tests" / "verbs_link_test"], capture_output=True, text=True, timeout=400, check=False
    )  # fmt: skip
    (out / "forgery.log").write_text(done.stdout + done.stderr)
    expect(done.returncode == 0, f"a test failed (exit code {done.returncode}); see forgery.log")
    expect("[  PASSED  ] 9 tests" in done.stdout, "not every test ran")
    return "an agent reached what was announced to it and nothing else, a program nothing, a stranger nobody"


def doctor(out: Path, key: Path) -> str:
    """Says that the agent reads one-sided, and proves it by a program that is stopped while it is read."""
    agent, address = start_agent(key)
    with agent:
        done = subprocess.run(
            [sys.executable, "-m", "offpath", "doctor", "--agent", address, "--json"],
            capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "OFFPATH_KEY_FILE": str(key)},
        )  # fmt: skip
        (out / "doctor.json").write_text(done.stdout + done.stderr + agent.log)
    findings = {each["name"]: each["value"] for each in json.loads(done.stdout)["findings"]}
    expect(findings["link"] == "verbs", f"the link is {findings['link']}, wanted is verbs")
    expect(findings["reads"] == "one-sided", f"reads are {findings['reads']}, wanted is one-sided")
    expect(findings["library threads"] == 0, f"the library runs {findings['library threads']} threads, wanted are none")
    silence = findings["silenced peer"]
    expect(silence == "stopped while the agent read from it; its frame arrived", f"the silenced peer: {silence}")
    return f"one-sided, no thread in the program; a program that was {silence}"


def move_batches(session: offpath.Session) -> str:
    """Arrays of all sizes go out and come back bit for bit, and their bytes crossed as RDMA packets."""
    expect(session.info.one_sided and session.info.link == "verbs", f"the link is {session.info.link}")
    identifier = pa.field("id", pa.int64(), nullable=False)
    schema = pa.schema([identifier, pa.field("x", pa.list_(pa.float64(), 3), nullable=False)])
    pool = session.pool(f"local:/particles-{secrets.token_hex(3)}")
    random = np.random.default_rng(20260101)
    total = 0
    before = packets()
    with session.stream(pool.name.partition("/")[2], schema, rows_max=ROWS[-1]) as stream:
        for number, rows in enumerate(ROWS):
            ids = random.integers(0, 2**62, rows)
            x = random.normal(size=(rows, 3))
            stream.send({"id": ids, "x": x}, key=(f"step{number}", "rank0")).wait_stored(60.0)
            table = pool.get(f"step{number}", "rank0", timeout=60.0)
            expect(table.num_rows == rows, f"{table.num_rows} rows came back, {rows} were sent")
            back = table["x"].combine_chunks().flatten().to_numpy()
            expect(np.array_equal(table["id"].to_numpy(), ids), f"ids of {rows} rows came back changed")
            expect(back.tobytes() == x.tobytes(), f"positions of {rows} rows came back changed")
            total += 2 * (ids.nbytes + x.nbytes)  # there and back
    pool.drop()
    sent, received = (now - then for now, then in zip(packets(), before, strict=True))
    least = total // 2 // PACKET_BYTES_MAX  # each way
    expect(min(sent, received) >= least, f"{sent} RDMA packets sent, {received} received, {least} are needed each way")
    return f"{total / 1e6:.1f} MB there and back, bit for bit; {sent} RDMA packets sent, {received} received"


def moves(out: Path, key: Path) -> str:
    """The move service, with the agent beside the program."""
    agent, address = start_agent(key)
    with agent, offpath.connect(address, key_file=key) as session:
        return move_batches(session)


def put_rows(session: offpath.Session, pool: str, rows: int) -> int:
    """Objects of all sizes under as many rows. Returns their bytes."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with session.stream(pool.partition(":/")[2], schema, rows_max=ROWS[-1], pool=pool) as stream:
        for row in range(rows):
            ids = np.arange(row, row + ROWS[row % len(ROWS)])
            stream.send({"id": ids}, key=(f"row{row}", "")).wait_stored(60.0)
    return sum(8 * ROWS[row % len(ROWS)] for row in range(rows))


def check_rows(session: offpath.Session, pool: str, rows: int) -> None:
    for row in range(rows):
        ids = session.pool(pool).get(f"row{row}", timeout=60.0)["id"].to_numpy()
        wanted = np.arange(row, row + ROWS[row % len(ROWS)])
        expect(np.array_equal(ids, wanted), f"row{row} of {pool} came back changed: {len(ids)} rows")


def frames_at(agent: offpath.Agent, name: str) -> int:
    return next((pool["frames"] for pool in fetch_status(agent.http_address)["pools"] if pool["name"] == name), 0)


def wait_for_members(agent: offpath.Agent, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(member["state"] == "alive" for member in fetch_status(agent.http_address)["members"]) < count:
        expect(time.monotonic() < deadline, f"the agents did not find each other: {agent.log[-500:]}")
        time.sleep(0.1)


@dataclass(frozen=True)
class Two:
    """Two agents, a and b, that know each other over RDMA alone, and a program of each."""

    agents: tuple[offpath.Agent, offpath.Agent]
    programs: tuple[offpath.Session, offpath.Session]

    def expect_undisturbed(self) -> None:
        """Neither loop waited for the other's answer (it would say so: retire in announced_memory.h)."""
        for agent in self.agents:
            expect("did not answer" not in agent.log, f"an agent's loop waited for the other: {agent.log[-500:]}")
            expect("suspect" not in agent.log, f"a member was suspected: {agent.log[-500:]}")

    def both(self, program: Callable[[int, offpath.Session], None]) -> None:
        """Runs it for both programs at once, with their numbers."""
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(program, *each) for each in enumerate(self.programs)]:
                done.result()


@contextmanager
def two_agents(key: Path, **settings: Any) -> Iterator[Two]:
    first, address = start_agent(key, name="a", **settings)
    with first:
        second, other = start_agent(key, name="b", join=address, **settings)
        with second, offpath.connect(address, key_file=key) as here, offpath.connect(other, key_file=key) as there:
            for agent in (first, second):
                wait_for_members(agent, 2)
            yield Two((first, second), (here, there))


def pools_of_two_agents(out: Path, key: Path) -> str:
    """The data service between two agents that reach each other over RDMA alone: rows are spread and found from either;
    of rows with a copy none is lost when an agent is killed."""
    rows = 24
    with two_agents(key, dead_after="10s") as two:
        (first, second), (here, there) = two.agents, two.programs
        before = packets()[0]
        total = put_rows(here, "hash:/spread", rows)
        check_rows(there, "hash:/spread", rows)
        held = frames_at(first, "hash:/spread"), frames_at(second, "hash:/spread")
        expect(sum(held) == rows and min(held) > 0, f"the two agents hold {held} of {rows} rows")
        put_rows(here, "hash:/twice?replicas=2", rows)
        check_rows(there, "hash:/twice", rows)
        sent = packets()[0] - before
        second.kill()
        check_rows(here, "hash:/twice", rows)
    least = 3 * total // PACKET_BYTES_MAX  # into an agent, out of one, and to the other as a replica, at least
    expect(sent >= least, f"{sent} RDMA packets sent, {least} are needed")
    return f"{rows} rows, {held[0]} and {held[1]} of them; all replicas found after a kill; {sent} RDMA packets sent"


CHANNEL_BYTES_MAX, BOUNCE_BYTES_MAX = 64 << 10, 1 << 20  # pinned: of an idle channel to a member, of an agent


def idle_members(out: Path, key: Path) -> str:
    """The memory that agents pin for each other when they have nothing to say."""
    rows = 24
    with two_agents(key, dead_after="30s") as two:
        address = next(each for each in two.agents[0].addresses if each.startswith("verbs:"))
        third, _ = start_agent(key, name="c", join=address, dead_after="30s")
        with third:
            agents = (*two.agents, third)
            for agent in agents:
                wait_for_members(agent, 3)
            for name, session in zip(("from_a", "from_b"), two.programs, strict=True):
                put_rows(session, f"hash:/{name}?replicas=2", rows)
            busy = [fetch_status(agent.http_address) for agent in agents]
            deadline = time.monotonic() + 90
            while True:
                idle = [fetch_status(agent.http_address) for agent in agents]
                pinned = [each["cards"]["pinned_bytes"] - each["cards"]["frame_bytes"] for each in idle]
                channels = [each["group"]["channels"] for each in idle]
                done = all(
                    bytes_ <= count * CHANNEL_BYTES_MAX + BOUNCE_BYTES_MAX
                    for bytes_, count in zip(pinned, channels, strict=True)
                )
                if done and not any(each["group"]["outboxes"] for each in idle):
                    break
                expect(time.monotonic() < deadline, f"pinned beside frames: {pinned}, channels to members: {channels}")
                time.sleep(0.5)
    (out / "idle_members.json").write_text(json.dumps({"busy": busy, "idle": idle}))
    expect(min(channels) > 0, f"channels to members: {channels}")
    devices = [each["cards"]["devices"] for each in idle]
    expect(devices == [1, 1, 1], f"the agents have {devices} devices open, wanted is one each")
    said = [f"{bytes_ >> 10} KiB for {count}" for bytes_, count in zip(pinned, channels, strict=True)]
    peak = max(each["cards"]["pinned_bytes"] - each["cards"]["frame_bytes"] for each in busy)
    return (
        f"pinned beside frames: {', '.join(said)} idle member channels with all bounce buffers; {peak >> 10} KiB before"
    )


def both_ways(out: Path, key: Path) -> str:
    """Two agents give each other large objects at the same time. Each withdraws an object once the other has read it;
    neither waits for the other's loop."""
    rows, in_a_row = 64, 1 << 17  # 1 MiB of int64
    at_once = 4  # more, on a slow machine, are tried again because they wait for one another
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    ids = np.arange(in_a_row)
    names = ("from_a", "from_b")

    def put(number: int, session: offpath.Session) -> None:
        name = names[number]
        with session.stream(name, schema, rows_max=in_a_row, pool=f"hash:/{name}?replicas=2") as stream:
            tickets: deque[offpath.Ticket] = deque()
            for row in range(rows):
                if len(tickets) == at_once:
                    tickets.popleft().wait_stored(120.0)
                tickets.append(stream.send({"id": ids + row}, key=(f"row{row}", "")))
            for ticket in tickets:
                ticket.wait_stored(120.0)

    with two_agents(key, dead_after="30s") as two:
        two.both(put)
        held = [frames_at(agent, f"hash:/{name}") for agent in two.agents for name in names]
        expect(held == [rows] * 4, f"the agents hold {held}, each should hold {rows} of both pools")
        longest = [fetch_status(agent.http_address)["loop"]["longest_round_s"] for agent in two.agents]
        two.expect_undisturbed()
    return f"{2 * rows} objects of 1 MiB, longest rounds of the loops {longest[0]:.3f} and {longest[1]:.3f} s"


EXCHANGE = """
[[exchange]]
name = "load"
topology = "allgather"
interval = "250ms"
deadline = "200ms"
fields = ["power:f64:watts", "jobs:u64"]
reductions = ["sum(power)"]
"""
RECORDS = 12


def exchange_both_ways(out: Path, key: Path) -> str:
    """Two agents give each other a record in each round. Both views have all that both programs published, digit by
    digit, one record after the other."""

    def records(record: int) -> dict[str, dict[str, float | int]]:
        """Of both agents."""
        return {name: {"power": record / 3 + i, "jobs": 2 * record + i} for i, name in enumerate("ab")}

    def has(view: offpath.View, record: int) -> bool:
        wanted, total = records(record), view.figures.get("sum(power)")
        seen = {name: entry.values for name, entry in view.entries.items()}
        return seen == wanted and total is not None and total.value == sum(each["power"] for each in wanted.values())

    took: list[float] = []

    def take_part(number: int, session: offpath.Session) -> None:
        with session.exchange("load", publish=True) as exchange:
            for record in range(RECORDS):
                exchange.publish(**records(record)["ab"[number]])
                deadline = time.monotonic() + 60
                view = exchange.view(timeout=60.0)
                while not has(view, record):
                    expect(time.monotonic() < deadline, f"{'ab'[number]} does not see record {record}: {view.entries}")
                    view = exchange.view(timeout=60.0)
                took.append(view.took)
                together.wait(60.0)

    together = threading.Barrier(2)
    with two_agents(key, config=EXCHANGE, dead_after="30s") as two:
        before = packets()
        two.both(take_part)
        sent, received = (now - then for now, then in zip(packets(), before, strict=True))
        told = [fetch_status(agent.http_address)["exchanges"][0] for agent in two.agents]
        two.expect_undisturbed()
    expect(min(sent, received) >= 2 * RECORDS, f"{sent} RDMA packets sent, {received} received")
    complete, partial = (sum(each[what] for each in told) for what in ("complete", "partial"))
    return (f"{RECORDS} records of each seen at both, {complete} complete views and {partial} partial ones; the median "
            f"round took {statistics.median(took) * 1e3:.1f} ms; {sent} RDMA packets sent")  # fmt: skip


ATOMS, STEPS = 40_000, 16


def sift_both_ways(out: Path, key: Path) -> str:
    """Two agents sift what both programs send at the same time: each passes the other its half of all rows. The tracks
    are those of a plain sort, read at both."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("type", pa.int32())])
    pool = "sift:/tracks?key=id&stages=2&fanout=4&threshold=256KiB&age=200ms"
    shares = [np.array_split(np.random.default_rng(step).permutation(ATOMS), 2) for step in range(STEPS)]

    def send(number: int, session: offpath.Session) -> None:
        with session.stream("particles", schema, rows_max=ATOMS, pool=pool, ranks=2, rank=number) as stream:
            tickets = []
            for step, share in enumerate(shares):
                ids = share[number]
                rows = {"id": ids, "x": ids + step / 1024, "type": (ids % 3).astype(np.int32)}
                tickets.append(stream.send(rows, key=(f"step{step:06}", f"rank{number}"), snapshot=True))
            for ticket in tickets:
                ticket.wait_stored(120.0)

    def look(number: int, session: offpath.Session) -> None:
        table = session.tracks("sift:/tracks").table()
        ids, steps = np.repeat(np.arange(ATOMS), STEPS), np.tile(np.arange(STEPS), ATOMS)
        for name, wanted in {"id": ids, "step": steps, "x": ids + steps / 1024, "type": ids % 3}.items():
            expect(np.array_equal(table[name].to_numpy(), wanted), f"'{name}' of {table.num_rows} rows is not sorted")

    with two_agents(key, dead_after="30s") as two:
        before = packets()[0]
        two.both(send)
        two.programs[0].tracks("sift:/tracks").flush(120.0)
        two.both(look)
        sent = packets()[0] - before
        last = [fetch_status(agent.http_address)["sifts"][0]["stages"][-1]["rows"] for agent in two.agents]
        two.expect_undisturbed()
    total = ATOMS * STEPS
    expect(sum(last) == total and min(last) > 0, f"the agents hold tracks of {last} rows, {total} were sent")
    least = total * 20 // PACKET_BYTES_MAX  # each row from its program; more crosses between the agents
    expect(sent >= least, f"{sent} RDMA packets sent, {least} are needed")
    return f"tracks of {last[0]} and {last[1]} rows, sorted at both; {sent} RDMA packets sent"


def example(out: Path, key: Path) -> str:
    """The example in C, with nothing changed but the agent's address."""
    agent, address = start_agent(key)
    with agent:
        before = packets()[0]
        done = subprocess.run(
            [BUILD / "examples" / "particles_c"], capture_output=True, text=True, timeout=100, check=False,
            env={**os.environ, "OFFPATH_AGENT": address, "OFFPATH_KEY_FILE": str(key)},
        )  # fmt: skip
        sent = packets()[0] - before
    expect(done.returncode == 0 and "step4: 10000 rows" in done.stdout, f"the example failed: {done.stderr.strip()}")
    expect(sent > 0, "no RDMA packet was sent")
    return f"{sent} RDMA packets"


LOCKED_BYTES = 4 << 20  # enough for a channel, too little for the array
NOBODY = 65534
GREEDY = """
import sys
import numpy as np, offpath
with offpath.connect(sys.argv[1], key_file=sys.argv[2]) as session:
    try:
        session.announce(np.zeros(16 << 20, dtype=np.uint8))
    except offpath.Error as error:
        print(type(error).__name__, error)
    session.announce(np.zeros(4096, dtype=np.uint8))  # the channel is as good as before
    print("usable")
"""


def locked_memory(out: Path, key: Path) -> str:
    """A program that may not lock its announced memory learns the limit and how to raise it, and goes on."""
    own_key = key.with_name("nobodys-key")
    own_key.write_bytes(key.read_bytes())
    own_key.chmod(0o600)
    os.chown(own_key, NOBODY, NOBODY)
    key.parent.chmod(0o711)
    for device in Path("/dev/infiniband").iterdir():
        device.chmod(0o666)  # the work of udev
    agent, address = start_agent(key)
    with agent:
        done = subprocess.run(
            ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all",
             "prlimit", f"--memlock={LOCKED_BYTES}", sys.executable, "-c", GREEDY, address, own_key],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    said = done.stdout.strip().splitlines()
    expect(done.returncode == 0 and len(said) == 2, f"the program failed: {done.stdout}{done.stderr[-500:]}")
    wanted = f"this process may lock {LOCKED_BYTES >> 10} KiB (ulimit -l"
    expect(said[0].startswith("OutOfMemory") and wanted in said[0], f"it was told: {said[0]}")
    return said[0]


def rate_of_moves(address: str, key: Path, size: int, outstanding: int) -> float:
    """MB/s of the move service."""
    done = subprocess.run(
        [BUILD / "bin" / "bench_move_rate", address, *map(str, (size, outstanding, RATE_BYTES // size))],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "OFFPATH_KEY_FILE": str(key)},
    )  # fmt: skip
    expect(done.returncode == 0, f"bench_move_rate failed: {done.stderr.strip()}")
    return float(done.stdout)


def rate_of_reads(address: str, size: int, outstanding: int) -> float:
    """MB/s of bare RDMA reads of the same size from another process, by perftest's ib_read_bw; 0 if it got stuck."""
    port = "18515"
    options = ["-d", DEVICE.parents[1].name, "-p", port, "-s", str(size), "-n", str(RATE_BYTES // size)]
    options += ["-o", str(outstanding), "-F"]
    with subprocess.Popen(["ib_read_bw", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):  # until it listens
                if f":{int(port):04X} " in Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text():
                    break
                time.sleep(0.1)
            said = subprocess.run(
                ["ib_read_bw", *options, address], capture_output=True, text=True, timeout=30, check=False
            ).stdout
        except subprocess.TimeoutExpired:
            return 0.0
        finally:
            server.kill()
    rows = [line.split() for line in said.splitlines()]
    return next((float(row[3]) for row in rows if len(row) == 5 and row[0] == str(size)), 0.0)


def bandwidth(out: Path, key: Path) -> str:
    """The move service against bare RDMA reads, taking turns. An emulated card's figures are shown and not judged,
    because the agent is emulated as well, on the same processors."""
    emulated = DEVICE.parents[1].name.startswith("rxe")
    ratios = []
    here = address_of_device()
    agent, address = start_agent(key)
    with agent:
        for size in RATE_SIZES:
            for outstanding, wanted in RATES_WANTED.items():
                case = f"{size >> 10} KiB x{outstanding}"
                rounds = [
                    (rate_of_moves(address, key, size, outstanding), rate_of_reads(here, size, outstanding))
                    for _ in range(RATE_ROUNDS)
                ]
                moved, read = (statistics.median(rates) for rates in zip(*rounds, strict=True))
                expect(read > 0, f"{case}: ib_read_bw got stuck")
                ratio = moved / read
                expect(emulated or ratio >= wanted, f"{case}: {ratio:.2f} of bare reads, wanted are {wanted}")
                ratios.append(f"{case}: {moved:.0f} of {read:.0f} MB/s, {ratio:.2f}")
    return "; ".join(ratios) + (" (emulated, not judged)" if emulated else "")


def bench(out: Path, name: str, seconds: float) -> dict[str, Any]:
    """The report of `offpath bench NAME --link verbs --quick`; figures are in `out`."""
    done = subprocess.run(
        [sys.executable, "-m", "offpath", "bench", name, "--link", "verbs", "--quick", "--out", out, "--json",
         out / f"bench_{name}.json"],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    (out / f"bench_{name}.log").write_text(done.stdout + done.stderr)
    expect(done.returncode == 0, f"it ended with exit code {done.returncode}: {done.stderr[-300:]}")
    report: dict[str, Any] = json.loads((out / f"bench_{name}.json").read_text())
    return report


def bench_link(out: Path, key: Path) -> str:
    """The benchmark of the link itself runs here too, at every place, beside perftest's bare reads."""
    report = bench(out, "link", 300)
    values = {each["claim"]: each["value"] for each in report["claims"]}
    said = []
    for place in ("host-host", "host-agent", "agent-agent"):
        names = [f"link.{name} (verbs, {place}, 64 B)" for name in ("latency", "rate", "all_gather")]
        names.append(f"link.bandwidth (verbs, {place}, 4 KiB)")
        missing = [name for name in names if not values.get(name)]
        expect(not missing, f"not measured: {missing}, there are {sorted(values)}")
        latency, bandwidth = (values[names[0]], values[names[-1]])
        said.append(f"{place} 64 B in {latency:.0f} us, 4 KiB at {bandwidth * 1e3:.0f} MB/s")
    bare = {line["name"]: line["y"] for line in report["series"] if "ib_read" in line["name"]}
    expect(all(bare.values()) and len(bare) == 2, f"perftest measured nothing: {bare}")
    expect((out / "link_verbs.png").exists(), "no figure was drawn")
    return "; ".join(said) + " (emulated)"


def bench_exchange(out: Path, key: Path) -> str:
    """The benchmark of rounds between real agents runs over verbs."""
    report = bench(out, "exchange", 200)
    values = {each["claim"]: each["value"] for each in report["claims"]}
    said = []
    for agents in (2, 4):
        of = f"({agents} agents, verbs)"
        complete, p50 = (values.get(f"exchange.agents_{name} {of}") for name in ("complete", "us_p50"))
        expect(bool(complete and p50), f"not measured: {values}")
        said.append(f"{agents} agents: {complete:.0f} % of the views complete, a round in {p50:.0f} us")
    return "; ".join(said) + " (emulated)"


CHECKS: tuple[Callable[[Path, Path], str], ...] = (
    doctor, moves, pools_of_two_agents, idle_members, both_ways, exchange_both_ways, sift_both_ways, example, forgery,
    locked_memory, bandwidth, bench_link, bench_exchange, conformance,
)  # fmt: skip


def main() -> None:
    out = Path(sys.argv[1])
    if DEVICE is None:
        sys.exit("no RDMA device: /sys/class/infiniband is empty")
    directory = Path(tempfile.mkdtemp())
    key = directory / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    run_checks(out / "results", CHECKS, out, key, count=lambda: packets()[0], only=" ".join(sys.argv[2:]))


if __name__ == "__main__":
    main()
