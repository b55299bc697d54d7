"""``offpath bench tcp``: TCP on the agent beside the kernel's own.

One unmodified server (``bench_tcp_server``, redis) runs twice in one network namespace: over ``offpath sockets``, and
in the kernel. The client (``bench_tcp``, redis-benchmark) is the kernel's in another, over a pair of devices each.
"""

from __future__ import annotations

import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rich.console import Console

from . import tcp_figures
from .agent_process import AgentProcess, AgentUnavailableError
from .network_pair import (
    AGENT_ADDRESS,
    NEAR_KERNEL_ADDRESS,
    PEER_SERVER_ADDRESS,
    SECOND_AGENT_ADDRESS,
    NetworkPair,
    bad_network,
    missing,
    network_pair,
)
from .pool import median_interval
from .process_cost import cpu_seconds, on_core
from .programs import ProgramError, default_cores, empty_report, find_program, run_program
from .report import Claim, Report

PORT = 7000
REDIS_PORT = 6379
# The rows that a part leaves out when it cannot run: name, unit, target.
CLAIMS = {
    "echo": [("tcp.echo_us_p50_vs_kernel (64 B, client on the agent's core)", "us", ">= 0.5")],
    "busy": [("tcp.host_cpu_per_request_vs_kernel (64 B, 32 busy, client on the agent's core)", "us", ">= 2.86x")],
    "stream": [
        ("tcp.stream_gbps_vs_kernel (to the server)", "Gb/s", ">= 0.5"),
        ("tcp.stream_gbps_vs_kernel (from the server)", "Gb/s", ">= 0.5"),
    ],
}
# Networks for goodput, and for connections that share a bottleneck: what bench_tcp_path is told.
LOSSY = ("1 % loss, 2 ms round trip", ("--loss", "0.01", "--delay-us", "1000"))
FAR = ("20 ms round trip, 100 Mb/s", ("--delay-us", "10000", "--mbit", "100", "--queue-bytes", "250000"))
REORDERED = (
    "2 % up to 4 ms late, 10 ms round trip, 100 Mb/s",
    ("--reorder", "0.02", "--reorder-us", "4000", "--delay-us", "5000", "--mbit", "100", "--queue-bytes", "250000"),
)
JITTER = (
    "jitter of 4 ms, 10 ms round trip, 100 Mb/s",
    ("--jitter-us", "4000", "--delay-us", "3000", "--mbit", "100", "--queue-bytes", "250000"),
)
BURSTS = (
    "bursts of 8 lost, 10 ms round trip, 100 Mb/s",
    ("--loss", "0.0005", "--loss-burst", "8", "--delay-us", "5000", "--mbit", "100", "--queue-bytes", "250000"),
)
DOUBLED = (
    "1 % twice, 10 ms round trip, 100 Mb/s",
    ("--duplicate", "0.01", "--delay-us", "5000", "--mbit", "100", "--queue-bytes", "250000"),
)
BAD_NETWORKS = {"goodput": (LOSSY, FAR, REORDERED, JITTER, BURSTS, DOUBLED), "sharing": (FAR,)}
SOCKETS = 8192  # of an offloaded program: 4,096 idle connections, and what waits at its listeners
BOUNDS = (f"tcp.flows_of_program={SOCKETS}", "tcp.memory_of_program=32GiB")
REDIS_TARGET = 1.5
REDIS_CLAIMS = [
    (f"tcp.redis_per_cpu_vs_kernel ({name})", "k/CPU s", f">= {REDIS_TARGET:g}") for name in ("SET 64 B", "GET 64 B")
]
START_SECONDS_MAX = 20.0


def sockets_command(agent: AgentProcess, sockets: int = SOCKETS) -> list[str]:
    """What stands before a program that is to be offloaded."""
    return [sys.executable, "-m", "offpath", "sockets", "--agent", agent.address, "--sockets", str(sockets), "--"]


@contextmanager
def server(command: list[str], core: int) -> Iterator[subprocess.Popen]:
    """A server on ``core`` once it has said that it listens."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=on_core(core))
    try:
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
        if not readable or process.stdout.readline() != "listening\n":
            raise ProgramError(f"{' '.join(command)} does not listen")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def measure_programs(report: Report, pair: NetworkPair, agent: AgentProcess, parts: list[str], quick: bool,
                     console: Console, *others: str, kernel_address: str = PEER_SERVER_ADDRESS,
                     congestion: tuple[str, ...] = ()) -> None:  # fmt: skip
    """``others``: further options of bench_tcp. ``congestion``: the kernel's algorithm, if it is to be another one."""
    host_core, agent_core = default_cores()
    program, many = [str(find_program("bench_tcp_server")), str(PORT)], ["prlimit", f"--nofile={2 * SOCKETS}"]
    with (
        server(pair.near_command(*many, *sockets_command(agent), *program), host_core) as offloaded,
        server(pair.near_command(*program[:1], str(PORT + 100), *congestion), host_core) as kernel,
        server(pair.near_command(*program[:1], str(PORT + 200), "spin"), host_core) as spinning,
    ):
        arguments = [
            "--offloaded", f"{AGENT_ADDRESS}:{PORT}:{offloaded.pid}",
            "--kernel", f"{kernel_address}:{PORT + 100}:{kernel.pid}",
            "--spinning", f"{kernel_address}:{PORT + 200}:{spinning.pid}",
            "--agent-pid", str(agent.process.pid), "--host-core", str(host_core), "--agent-core", str(agent_core),
            *(["--quick"] if quick else []), *others,
        ]  # fmt: skip
        for part in parts:
            with console.status(" ".join(("tcp:", part, *others))):
                launcher = pair.far_command(*many)
                report.absorb(run_program("bench_tcp", [*arguments, "--part", part], launcher=launcher))


def start_agent(
    pair: NetworkPair, *settings: str, device: str = "near", address: str = AGENT_ADDRESS, network: str = ""
) -> AbstractContextManager[AgentProcess]:
    """``network``: where it listens for other machines, too."""
    others = (f"tcp.device={device}", f"tcp.address={address}/24", *BOUNDS, *settings)
    launcher = tuple(pair.near_command())
    return AgentProcess.start(default_cores()[1], others=others, launcher=launcher, network=network)


def run(out: Path, quick: bool, parts: list[str], console: Console) -> Report:
    """Measures, draws into ``out`` and prints the table. Returns the report."""
    report = empty_report("tcp")
    claims = [claim for part in parts for claim in CLAIMS.get(part, [])]
    others = [(f"tcp ({', '.join(parts)}: what is not above)", "", "measured")]
    if (why := missing()) is not None:
        report.add_unmeasured(claims or others, why)
        report.conclude(console, quick=quick)
        return report
    good = [part for part in parts if part not in ("breakdown", "slow-path") and part not in BAD_NETWORKS]
    try:
        if good:
            with network_pair(with_peer=True) as pair, start_agent(pair) as agent:
                if programs := [part for part in good if part != "redis"]:
                    measure_programs(report, pair, agent, programs, quick, console)
                if "redis" in good:
                    measure_redis(report, pair, agent, quick, console)
        for part in parts:
            for over, impairments in BAD_NETWORKS.get(part, ()):
                program = str(find_program("bench_tcp_path"))
                with bad_network(program, *impairments) as pair, start_agent(pair) as agent:
                    measure_programs(report, pair, agent, [part], quick, console, "--over", over,
                                     kernel_address=NEAR_KERNEL_ADDRESS, congestion=("cubic",))  # fmt: skip
        if "slow-path" in parts:
            measure_slow_path(report, quick, console)
        if "breakdown" in parts:
            measure_breakdown(report, quick, console)
    except (AgentUnavailableError, ProgramError) as error:
        measured = {claim.claim for claim in report.claims}
        left_out = [each for each in claims if each[0] not in measured]
        report.add_unmeasured(left_out or others, str(error))
    report.conclude(console, quick=quick)
    for path in tcp_figures.draw(report, out):
        console.print(f"wrote {path}")
    return report


@contextmanager
def slow_path_process(agent: AgentProcess, core: int) -> Iterator[subprocess.Popen]:
    """The slow path of ``agent`` on ``core``, once it does it."""
    program = [str(find_program("offpath-slow-path")), "--agent", agent.address, "--ready"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, preexec_fn=on_core(core))
    try:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("slow path of "):
            raise ProgramError("offpath-slow-path did not begin")
        yield process
    finally:
        process.kill()
        process.wait()


def measure_slow_path(report: Report, quick: bool, console: Console) -> None:
    """Two agents on one core, each with the same server; the slow path of one is a process on the host's core."""
    host_core = default_cores()[0]
    many = ["prlimit", f"--nofile={2 * SOCKETS}"]
    with (
        network_pair(with_second=True) as pair,
        start_agent(pair, "tcp.slow_path=host") as leaning,
        start_agent(pair, device="second", address=SECOND_AGENT_ADDRESS) as alone,
        slow_path_process(leaning, host_core) as process,
    ):
        program = [str(find_program("bench_tcp_server")), str(PORT)]
        with (
            server(pair.near_command(*many, *sockets_command(leaning), *program), host_core) as subject,
            server(pair.near_command(*many, *sockets_command(alone), *program), host_core) as peer,
            console.status("tcp: slow-path"),
        ):
            arguments = [
                "--offloaded", f"{AGENT_ADDRESS}:{PORT}:{subject.pid}", "--agent-pid", str(leaning.process.pid),
                "--slow-path-pid", str(process.pid), "--kernel", f"{SECOND_AGENT_ADDRESS}:{PORT}:{peer.pid}",
                "--other-agent-pid", str(alone.process.pid), "--host-core", str(host_core),
                "--agent-core", str(default_cores()[1]), *(["--quick"] if quick else []), "--part", "slow-path",
            ]  # fmt: skip
            report.absorb(run_program("bench_tcp", arguments, launcher=pair.far_command(*many)))


def measure_breakdown(report: Report, quick: bool, console: Console) -> None:
    """With an agent of its own: that it notes its stages takes time, if little."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory, network_pair(with_peer=True) as pair:
        trace_file = Path(directory) / "trace"
        with start_agent(pair, f"tcp.trace_file={trace_file}") as agent:
            measure_programs(report, pair, agent, ["breakdown"], quick, console, "--trace-file", str(trace_file))


# ---- redis


def redis_server(port: int) -> list[str]:
    return ["redis-server", "--bind", "0.0.0.0", "--save", "", "--protected-mode", "no", "--port", str(port)]


def wait_for_redis(pair: NetworkPair, address: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    ping = pair.far_command("redis-cli", "-h", address, "-p", str(port), "ping")
    while subprocess.run(ping, capture_output=True, check=False).stdout != b"PONG\n":
        if time.monotonic() > deadline:
            raise ProgramError(f"redis-server at {address}:{port} does not answer")
        time.sleep(0.05)


def redis_turn(pair: NetworkPair, address: str, port: int, pids: Sequence[int], command: str,
               requests: int) -> tuple[float, ...]:  # fmt: skip
    """CPU seconds for a request, of the server, which is the first of ``pids``, and of all; requests a second, their
    median milliseconds."""
    ask = ["redis-benchmark", "-h", address, "-p", str(port), "-t", command, "-n", str(requests), "-c", "50",
           "-d", "64", "--csv"]  # fmt: skip
    before = [cpu_seconds(pid) for pid in pids]
    done = subprocess.run(pair.far_command(*ask), capture_output=True, text=True, check=False, timeout=120)
    spent = [(cpu_seconds(pid) - begin) / requests for pid, begin in zip(pids, before, strict=True)]
    fields = [word.strip('"') for word in done.stdout.strip().splitlines()[-1].split(",")] if done.stdout else []
    if done.returncode != 0 or len(fields) < 5:
        raise ProgramError(f"redis-benchmark: {done.stderr.strip()[-300:]}")
    return spent[0], sum(spent), float(fields[1]), float(fields[4])


def measure_redis(report: Report, pair: NetworkPair, agent: AgentProcess, quick: bool, console: Console) -> None:
    """SET and GET of 64 bytes from 50 connections: as many requests of both sides, by turns."""
    if lacking := [each for each in ("redis-server", "redis-benchmark") if shutil.which(each) is None]:
        report.add_unmeasured(REDIS_CLAIMS, f"left out: there is no {lacking[0]} (Debian: redis-server, redis-tools)")
        return
    sides = {
        "offloaded": (sockets_command(agent), AGENT_ADDRESS, REDIS_PORT),
        "kernel": ([], PEER_SERVER_ADDRESS, REDIS_PORT + 1),
    }
    servers = {}
    try:
        for name, (before, _, port) in sides.items():
            servers[name] = subprocess.Popen(
                pair.near_command(*before, *redis_server(port)), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, preexec_fn=on_core(default_cores()[0]),
            )  # fmt: skip
        for _, address, port in sides.values():
            wait_for_redis(pair, address, port)
        turns, requests = (3, 500) if quick else (21, 20_000)
        for name, unit, target in REDIS_CLAIMS:
            command = name.partition("(")[2].partition(" ")[0]
            with console.status(name):
                figures: dict[str, list[tuple[float, ...]]] = {side: [] for side in sides}
                for turn in range(-1, turns):
                    for side in list(sides) if turn // 3 % 2 else reversed(list(sides)):
                        _, address, port = sides[side]
                        pids = [servers[side].pid, *([agent.process.pid] if side == "offloaded" else [])]
                        figure = redis_turn(pair, address, port, pids, command.lower(), requests)
                        if turn >= 0:
                            figures[side].append(figure)
            add_redis(report, name, unit, target, figures)
    finally:
        for each in servers.values():
            each.kill()
            each.wait()


def add_redis(report: Report, name: str, unit: str, target: str, figures: dict[str, list[tuple[float, ...]]]) -> None:
    """The claim, and what the same turns say of rate and latency."""
    for kind, (claim, shown, kind_unit, kind_target) in enumerate(
        (
            (name, lambda cpu: 1e-3 / cpu, unit, target),
            (
                name.replace("per_cpu_vs_kernel", "per_total_cpu").replace(")", ", agent included)"),
                lambda cpu: 1e-3 / cpu,
                unit,
                None,
            ),
            (name.replace("per_cpu_vs_kernel", "requests"), lambda rate: rate / 1e3, "k/s", None),
            (name.replace("per_cpu_vs_kernel", "ms_p50"), lambda ms: ms, "ms", None),
        )
    ):
        ours, theirs = ([figure[kind] for figure in figures[side]] for side in ("offloaded", "kernel"))
        ratios = [(own / peer if kind == 2 else peer / own) for own, peer in zip(ours, theirs, strict=True)]
        ratio = statistics.median(ratios)
        report.claims.append(
            Claim(claim, shown(statistics.median(ours)), kind_unit, "kernel", shown(statistics.median(theirs)), ratio,
                  kind_target, kind_target is None or ratio >= REDIS_TARGET, median_interval(ratios), len(ratios))
        )  # fmt: skip
