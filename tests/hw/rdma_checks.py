"""What runs where there is an RDMA device: the link's conformance suite, the doctor, the move service.

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
from collections.abc import Callable
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


def start_agent(key: Path, **settings: Any) -> tuple[offpath.Agent, str]:
    """An agent that listens for RDMA, and its address. `settings`: name="a" for agent.name and so on."""
    of_group = {f"{'agent' if name == 'name' else 'group'}.{name}": value for name, value in settings.items()}
    agent = offpath.Agent.start(
        listen=[f"verbs:{address_of_device()}:0"],
        settings={"security.key_file": key, "security.insecure_network": True, **of_group},
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
        [BUILD / "tests" / "verbs_link_test"], capture_output=True, text=True, timeout=200, check=False
    )  # fmt: skip
    (out / "forgery.log").write_text(done.stdout + done.stderr)
    expect(done.returncode == 0, f"a test failed (exit code {done.returncode}); see forgery.log")
    expect("[  PASSED  ] 4 tests" in done.stdout, "not every test ran")
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


def pools_of_two_agents(out: Path, key: Path) -> str:
    """The data service between two agents that reach each other over RDMA alone: rows are spread and found from either;
    of those that are kept twice none is lost when an agent is killed."""
    rows = 24
    first, address = start_agent(key, name="a", dead_after="10s")
    with first:
        second, other = start_agent(key, name="b", dead_after="10s", join=address)
        with second, offpath.connect(address, key_file=key) as here, offpath.connect(other, key_file=key) as there:
            wait_for_members(second, 2)
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


def both_ways(out: Path, key: Path) -> str:
    """Two agents give each other large objects at the same time. Each withdraws what the other has read; neither
    waits for the other's loop."""
    rows, in_a_row = 64, 1 << 17  # 1 MiB of int64
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    ids = np.arange(in_a_row)
    failures: list[BaseException] = []

    def put(session: offpath.Session, name: str) -> None:
        try:
            with session.stream(name, schema, rows_max=in_a_row, pool=f"hash:/{name}?replicas=2") as stream:
                tickets = [stream.send({"id": ids + row}, key=(f"row{row}", "")) for row in range(rows)]
                for ticket in tickets:
                    ticket.wait_stored(120.0)
        except BaseException as error:
            failures.append(error)

    first, address = start_agent(key, name="a")
    with first:
        second, other = start_agent(key, name="b", join=address)
        with second, offpath.connect(address, key_file=key) as here, offpath.connect(other, key_file=key) as there:
            wait_for_members(second, 2)
            writers = [threading.Thread(target=put, args=each) for each in ((here, "from_a"), (there, "from_b"))]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            expect(not failures, f"a put failed: {failures[:1]}")
            held = [frames_at(agent, f"hash:/{name}") for agent in (first, second) for name in ("from_a", "from_b")]
            expect(held == [rows] * 4, f"the agents hold {held}, each should hold {rows} of both pools")
            longest = [fetch_status(agent.http_address)["loop"]["longest_round_s"] for agent in (first, second)]
            for agent in (first, second):
                # Each of two loops that waited for the other's answer would say so (retire in announced_memory.h).
                expect("did not answer" not in agent.log, f"an agent's loop waited for the other: {agent.log[-500:]}")
                expect("suspect" not in agent.log, f"a member was suspected: {agent.log[-500:]}")
    return f"{2 * rows} objects of 1 MiB, longest rounds of the loops {longest[0]:.3f} and {longest[1]:.3f} s"


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
    """A program that may not lock what it announces is told the limit and how to raise it, and goes on."""
    own_key = key.with_name("nobodys-key")
    own_key.write_bytes(key.read_bytes())
    own_key.chmod(0o600)
    os.chown(own_key, NOBODY, NOBODY)
    key.parent.chmod(0o711)
    for device in Path("/dev/infiniband").iterdir():
        device.chmod(0o666)  # what udev does
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
    """The move service against bare RDMA reads, taking turns. An emulated card's figures are shown and not judged: what
    the agent does beside it is emulated as well, on the same processors."""
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


def bench_link(out: Path, key: Path) -> str:
    """The benchmark of the link itself runs here too, at every place, beside perftest's bare reads."""
    done = subprocess.run(
        [sys.executable, "-m", "offpath", "bench", "link", "--link", "verbs", "--quick", "--out", out, "--json",
         out / "bench_link.json"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    (out / "bench_link.log").write_text(done.stdout + done.stderr)
    expect(done.returncode == 0, f"it ended with exit code {done.returncode}: {done.stderr[-300:]}")
    report = json.loads((out / "bench_link.json").read_text())
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


CHECKS: tuple[Callable[[Path, Path], str], ...] = (
    doctor, moves, pools_of_two_agents, both_ways, example, forgery, locked_memory, bandwidth, bench_link, conformance,
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
