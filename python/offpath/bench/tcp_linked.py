"""``offpath bench tcp --link``: TCP of an agent that reaches its program over a link.

One unmodified server (``bench_tcp_server``) runs three times in one network namespace: over ``offpath sockets`` and a
relay, whose agent is beyond the link; over an agent on its machine; and in the kernel. The client is the kernel's in
another namespace. The relay is on the server's core, both agents are on the other one.

A card's link is simulated (``bench_tcp_simulated``): agent and program take the times of their code on this machine,
and time is virtual.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from rich.console import Console

from . import link as links
from .agent_process import AgentProcess, AgentUnavailableError
from .network_pair import (
    AGENT_ADDRESS,
    PEER_SERVER_ADDRESS,
    SECOND_AGENT_ADDRESS,
    NetworkPair,
    missing,
    network_pair,
)
from .programs import ProgramError, default_cores, empty_report, find_program, run_program
from .report import Report
from .tcp_servers import BOUNDS, PORT, server, sockets_command, start_agent

SOCKETS = 256  # of each offloaded server; over verbs all their rings are pinned
# The paper's read() over RDMA of 100 bytes that come every 100 ms, and its flush.
MEASURED = [
    ("tcp.linked_sparse ({link}, 100 B, every 100 ms, average read())", "us", "<= 520 us"),
    ("tcp.linked_sparse ({link}, 100 B, every 100 ms, average echo)", "us", "<= 520 us"),
    ("tcp.linked_post ({link}, a send of 64 B, beside the local area)", "ns", "<= 7000 ns"),
    ("tcp.linked_reads ({link}, an echo of 64 B, one after the other)", "reads", "<= 3 reads"),
    ("tcp.linked_chains_of_writes ({link}, an echo of 64 B, one after the other)", "chains", "<= 2 chains"),
]
SIMULATED = [
    ("tcp.linked_echo (simulated link of 2 us each way, beyond the local area)", "us", "<= 12 us"),
    *(
        (f"tcp.linked_stream (simulated link of 100 Gb/s, rings of 1 MiB, {way}, share of the link)", "%", ">= 90 %")
        for way in ("to the server", "from the server")
    ),
    ("tcp.linked_reads (simulated, an echo of 64 B)", "reads", "<= 3 reads"),
    ("tcp.linked_chains_of_writes (simulated, an echo of 64 B)", "chains", "<= 2 chains"),
]


def run(quick: bool, wanted: list[str], console: Console) -> Report:
    """Measures over each link and prints the table. Returns the report."""
    report = empty_report("tcp")
    for link in wanted:
        claims = [(name.format(link=link), unit, target) for name, unit, target in MEASURED]
        if (why := missing()) is not None:
            report.add_unmeasured(claims, why)
            continue
        try:
            with console.status(f"tcp: over {link}"):
                measure(report, link, quick)
        except (AgentUnavailableError, ProgramError, links.NoDevice) as error:
            measured = {claim.claim for claim in report.claims}
            report.add_unmeasured([each for each in claims if each[0] not in measured], str(error))
    try:
        with console.status("tcp: a simulated link"):
            report.absorb(run_program("bench_tcp_simulated", ["--quick"] if quick else []))
    except ProgramError as error:
        report.add_unmeasured(SIMULATED, str(error))
    report.conclude(console, quick=quick)
    return report


def relay(pair: NetworkPair, far: AgentProcess) -> AbstractContextManager[AgentProcess]:
    """An agent on the server's core that reaches the network by ``far``."""
    others = (f"tcp.device=agent:{far.network_address}", f"security.key_file={far.key_file}", *BOUNDS)
    return AgentProcess.start(default_cores()[0], others=others, launcher=tuple(pair.near_command()))


def measure(report: Report, link: str, quick: bool) -> None:
    host_core, agent_core = default_cores()
    program = str(find_program("bench_tcp_server"))
    with ExitStack() as stack:
        pair = stack.enter_context(network_pair(with_peer=True, with_second=True))
        pages = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="offpath-bench-"))) / "http.sock"
        address = "tcp:127.0.0.1:0" if link == "tcp" else f"verbs:{links.device_and_address()[1]}:0"
        far = stack.enter_context(start_agent(pair, f"agent.http=unix:{pages}", network=address))
        here = stack.enter_context(relay(pair, far))
        alone = stack.enter_context(start_agent(pair, device="second", address=SECOND_AGENT_ADDRESS))
        ports = range(PORT, PORT + 300, 100)
        commands = [[*sockets_command(here, SOCKETS), program], [*sockets_command(alone, SOCKETS), program], [program]]
        linked, local, kernel = (
            stack.enter_context(server(pair.near_command(*command, str(port)), host_core))
            for command, port in zip(commands, ports, strict=True)
        )
        arguments = [
            "--part", "linked", "--link", link, "--pages", str(pages),
            "--offloaded", f"{AGENT_ADDRESS}:{ports[0]}:{linked.pid}", "--agent-pid", str(far.process.pid),
            "--relay-pid", str(here.process.pid),
            "--local", f"{SECOND_AGENT_ADDRESS}:{ports[1]}:{local.pid}", "--other-agent-pid", str(alone.process.pid),
            "--kernel", f"{PEER_SERVER_ADDRESS}:{ports[2]}:{kernel.pid}",
            "--host-core", str(host_core), "--agent-core", str(agent_core), *(["--quick"] if quick else []),
        ]  # fmt: skip
        report.absorb(run_program("bench_tcp", arguments, launcher=pair.far_command()))
