"""``offpath bench tcp --part cores``: busy echoes and redis with every process on a core of its own, simulated.

A server over an agent takes three cores, and the kernel's client beside it takes one of two. So the rates and latencies
that claims are about are simulated, with costs that ``bench_tcp`` measures in the same run (``bench/tcp/tcp_cores.h``);
what two cores can show is measured and simulated as well. redis is measured here.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from rich.console import Console

from . import tcp_redis
from .agent_process import AgentProcess
from .network_pair import (
    AGENT_ADDRESS,
    PEER_SERVER_ADDRESS,
    SECOND_AGENT_ADDRESS,
    NetworkPair,
    network_pair,
)
from .programs import ProgramError, default_cores, find_program, run_program
from .report import Report
from .tcp_servers import PORT, SOCKETS, server, sockets_command, start_agent

ALONE = "every process on a core of its own, simulated"
WAITS = ("", ", its server spins")
BUSY = [
    (f"{name} (64 B, 32 busy{waits}, {ALONE})", unit, target)
    for waits in WAITS
    for name, unit, target in (("tcp.requests", "k/s", ">= 0.9"), ("tcp.request_us_p50", "us", ">= 0.833333"))
]
REDIS = [
    (f"{name} ({request}{waits}, {ALONE})", unit, target)
    for request in tcp_redis.REQUESTS
    for waits in WAITS
    for name, unit, target in (("tcp.redis_requests", "k/s", ">= 0.9"), ("tcp.redis_ms_p50", "ms", ">= 0.833333"))
]
CLAIMS = [*BUSY, *REDIS]
SIDES = ("asleep", "spinning", "offloaded")  # in the order that bench_tcp expects


def redis_figures(pair: NetworkPair, agent: AgentProcess, offloads: list[str], quick: bool) -> str:
    """The figures of redis-benchmark on the agent's core, as bench_tcp takes them."""
    core = default_cores()[1]
    turns, requests = (3, 500) if quick else (11, 20_000)
    said = []
    with tcp_redis.servers_of(pair, offloads) as servers:
        for request in tcp_redis.REQUESTS:
            # Hardly anything but the client's beginning and end.
            few = tcp_redis.by_turns(pair, servers, agent, request, 3, 50, core)
            begin = statistics.median(each.client_cpu for each in few["asleep"])
            figures = tcp_redis.by_turns(pair, servers, agent, request, turns, requests, core)
            numbers = []
            for side in SIDES:
                numbers += [statistics.median(each.per_second for each in figures[side]),
                            statistics.median(each.ms for each in figures[side]) * 1e6]  # fmt: skip
            client = [max(each.client_cpu - begin, 1e-9) / requests for each in figures["asleep"]]
            for spent in (client, [each.server_cpu for each in figures["asleep"]]):
                numbers.append(statistics.median(spent) * 1e9)
            said.append(f"{request}=" + ",".join(f"{number:.6g}" for number in numbers))
    return ";".join(said)


def measure(report: Report, quick: bool, console: Console) -> None:
    """Adds the claims, the checks of the simulation and the costs that it takes."""
    host_core, agent_core = default_cores()
    program, many = str(find_program("bench_tcp_server")), ["prlimit", f"--nofile={2 * SOCKETS}"]
    with ExitStack() as stack:
        pair = stack.enter_context(network_pair(with_peer=True, with_second=True))
        agent = stack.enter_context(start_agent(pair))
        offloads = [*many, *sockets_command(agent)]
        redis = ""
        if (name := tcp_redis.lacking()) is not None:
            report.add_unmeasured(REDIS, f"left out: there is no {name} (Debian: redis-server, redis-tools)")
        else:
            try:
                with console.status("tcp: cores, redis"):
                    redis = redis_figures(pair, agent, sockets_command(agent), quick)
            except ProgramError as error:
                report.add_unmeasured(REDIS, str(error))
        sides = {"--offloaded": (offloads, AGENT_ADDRESS, []), "--kernel": ([], PEER_SERVER_ADDRESS, []),
                 "--spinning": ([], PEER_SERVER_ADDRESS, ["spin"]),
                 "--measuring": (offloads, AGENT_ADDRESS, ["measure"])}  # fmt: skip
        arguments = []
        for number, (option, (before, address, how)) in enumerate(sides.items()):
            port = PORT + 100 * number
            command = pair.near_command(*before, program, str(port), *how)
            process = stack.enter_context(server(command, host_core))
            arguments += [option, f"{address}:{port}:{process.pid}"]
        arguments += [
            "--agent-pid", str(agent.process.pid), "--host-core", str(host_core), "--agent-core", str(agent_core),
            "--part", "cores", "--near", f"/proc/{pair.near}/ns/net", "--device", "second",
            "--device-address", SECOND_AGENT_ADDRESS, "--kernel-address", PEER_SERVER_ADDRESS,
            *(["--redis", redis] if redis else []), *(["--quick"] if quick else []),
        ]  # fmt: skip
        with console.status("tcp: cores"):
            report.absorb(run_program("bench_tcp", arguments, launcher=pair.far_command(*many)))
