"""redis in ``offpath bench tcp``: a server over ``offpath sockets`` and one in the kernel, asked by redis-benchmark."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console

from .agent_process import AgentProcess
from .intervals import median_interval
from .network_pair import AGENT_ADDRESS, PEER_SERVER_ADDRESS, NetworkPair
from .process_cost import cpu_seconds, on_core
from .programs import ProgramError, default_cores, find_other_program, find_program, with_unpacked_libraries
from .report import Claim, Report

PORT = 6379
START_SECONDS_MAX = 60.0


class Figure(NamedTuple):
    """One of the figures that a turn of redis-benchmark gives for a side."""

    name: str
    unit: str
    least: float | None  # of the ratio to the kernel's, which is above 1 if Offpath is better; None: only shown
    shown: Callable[[float], float]
    more_is_better: bool = False

    @property
    def target(self) -> str | None:
        return None if self.least is None else f">= {self.least:.3g}"


def per_second(cpu_seconds_of_one: float) -> float:
    """Thousands of requests for each second of a processor."""
    return 1e-3 / cpu_seconds_of_one


# In the order of `one_turn`'s results.
FIGURES = (
    Figure("tcp.redis_per_cpu_vs_kernel ({})", "k/CPU s", 1.5, per_second),
    Figure("tcp.redis_per_total_cpu ({}, agent included)", "k/CPU s", None, per_second),
    Figure("tcp.redis_requests ({})", "k/s", 0.9, lambda rate: rate / 1e3, more_is_better=True),
    Figure("tcp.redis_ms_p50 ({})", "ms", 1 / 1.2, lambda ms: ms),
)
REQUESTS = ("SET 64 B", "GET 64 B")
PEERS = {"asleep": "", "spinning": ", its server spins"}  # how the kernel's server waits, and how claims say so
CLAIMS = [
    (each.name.format(request + waits), each.unit, each.target)
    for request in REQUESTS
    for waits in PEERS.values()
    for each in FIGURES
]
SPINNING = "bench_spinning_epoll.so"  # preloaded
SETTLE_SECONDS = 0.003  # until the agent, and a server that spins, sleep after their turn


def lacking() -> str | None:
    """The first of its programs that is not here."""
    names = ("redis-server", "redis-benchmark", "redis-cli")
    return next((each for each in names if find_other_program(each) is None), None)


def found(name: str) -> str:
    program = find_other_program(name)
    if program is None:
        raise ProgramError(f"there is no {name}")
    return program


def server_command(port: int) -> list[str]:
    return [found("redis-server"), "--bind", "0.0.0.0", "--save", "", "--protected-mode", "no", "--port", str(port)]


def wait_for_server(pair: NetworkPair, address: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    ping = pair.far_command(found("redis-cli"), "-h", address, "-p", str(port), "ping")
    env = with_unpacked_libraries()
    while subprocess.run(ping, capture_output=True, env=env, check=False).stdout != b"PONG\n":
        if time.monotonic() > deadline:
            raise ProgramError(f"redis-server at {address}:{port} does not answer")
        time.sleep(0.05)


class Turn(NamedTuple):
    """CPU seconds for a request, of the server and of all that serve; requests a second, their median milliseconds;
    CPU seconds of all of redis-benchmark."""

    server_cpu: float
    all_cpu: float
    per_second: float
    ms: float
    client_cpu: float


def one_turn(pair: NetworkPair, address: str, port: int, pids: Sequence[int], command: str,
             requests: int, core: int | None = None) -> Turn:  # fmt: skip
    """The server is the first of ``pids``. ``core``: redis-benchmark's, if it may not use any."""
    ask = [found("redis-benchmark"), "-h", address, "-p", str(port), "-t", command, "-n", str(requests), "-c", "50",
           "-d", "64", "--csv"]  # fmt: skip
    before = [cpu_seconds(pid) for pid in pids]
    client_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(pair.far_command(*ask), capture_output=True, text=True, check=False, timeout=120,
                          env=with_unpacked_libraries(),
                          preexec_fn=None if core is None else on_core(core))  # fmt: skip
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = [(cpu_seconds(pid) - begin) / requests for pid, begin in zip(pids, before, strict=True)]
    fields = [word.strip('"') for word in done.stdout.strip().splitlines()[-1].split(",")] if done.stdout else []
    if done.returncode != 0 or len(fields) < 5:
        raise ProgramError(f"redis-benchmark: {done.stderr.strip()[-300:]}")
    client_cpu = client.ru_utime + client.ru_stime - client_before.ru_utime - client_before.ru_stime
    return Turn(spent[0], sum(spent), float(fields[1]), float(fields[4]), client_cpu)


class Server(NamedTuple):
    address: str
    port: int
    pid: int


@contextmanager
def servers_of(pair: NetworkPair, offloads: list[str]) -> Iterator[dict[str, Server]]:
    """The sides' servers once they answer, each on the host's core. ``offloads``: the command in
    front of an offloaded program. The kernel's server sleeps in epoll, and another one spins."""
    here = with_unpacked_libraries()
    spins = {**here, "LD_PRELOAD": str(find_program("bench_tcp").resolve().with_name(SPINNING))}
    sides = {
        "offloaded": (offloads, here, AGENT_ADDRESS, PORT),
        "asleep": ([], here, PEER_SERVER_ADDRESS, PORT + 1),
        "spinning": ([], spins, PEER_SERVER_ADDRESS, PORT + 2),
    }
    processes = []
    try:
        for before, env, _, port in sides.values():
            processes.append(subprocess.Popen(
                pair.near_command(*before, *server_command(port)), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, preexec_fn=on_core(default_cores()[0]), env=env,
            ))  # fmt: skip
        for _, _, address, port in sides.values():
            wait_for_server(pair, address, port)
        yield {name: Server(address, port, process.pid)
               for (name, (_, _, address, port)), process in zip(sides.items(), processes, strict=True)}  # fmt: skip
    finally:
        for each in processes:
            each.kill()
            each.wait()


def by_turns(pair: NetworkPair, servers: dict[str, Server], agent: AgentProcess, request: str, turns: int,
             requests: int, core: int | None = None) -> dict[str, list[Turn]]:  # fmt: skip
    """As many requests of each side, by turns, after one that does not count."""
    figures: dict[str, list[Turn]] = {side: [] for side in servers}
    for turn in range(-1, turns):
        for side in list(servers) if turn // 3 % 2 else reversed(list(servers)):
            address, port, pid = servers[side]
            pids = [pid, *([agent.process.pid] if side == "offloaded" else [])]
            time.sleep(SETTLE_SECONDS)
            figure = one_turn(pair, address, port, pids, request.split()[0].lower(), requests, core)
            if turn >= 0:
                figures[side].append(figure)
    return figures


def measure(report: Report, pair: NetworkPair, agent: AgentProcess, offloads: list[str], quick: bool,
            console: Console) -> None:  # fmt: skip
    """SET and GET of 64 bytes from 50 connections."""
    if (name := lacking()) is not None:
        report.add_unmeasured(CLAIMS, f"left out: there is no {name} (Debian: redis-server, redis-tools)")
        return
    with servers_of(pair, offloads) as servers:
        turns, requests = (3, 500) if quick else (21, 20_000)
        for request in REQUESTS:
            with console.status(f"tcp: redis, {request}"):
                figures = by_turns(pair, servers, agent, request, turns, requests)
            add_claims(report, request, figures)


def add_claims(report: Report, request: str, figures: Mapping[str, Sequence[tuple[float, ...]]]) -> None:
    """A claim for each kind of figure and each way in which the kernel's server waits, from the same turns, each with
    its own target."""
    for waits, told in PEERS.items():
        for kind, each in enumerate(FIGURES):
            ours, theirs = ([figure[kind] for figure in figures[side]] for side in ("offloaded", waits))
            ratios = [own / peer if each.more_is_better else peer / own for own, peer in zip(ours, theirs, strict=True)]
            ratio = statistics.median(ratios)
            value, peer_value = (each.shown(statistics.median(side)) for side in (ours, theirs))
            holds = each.least is None or ratio >= each.least
            report.claims.append(
                Claim(each.name.format(request + told), value, each.unit, "kernel", peer_value, ratio, each.target,
                      holds, median_interval(ratios), len(ratios), peer_waits=waits)
            )  # fmt: skip
