"""``offpath bench tcp``: TCP on the agent beside the kernel's own.

One unmodified server (``bench_tcp_server``, redis) runs twice in one network namespace: over ``offpath sockets``, and
in the kernel. The client (``bench_tcp``, redis-benchmark) is the kernel's in another, over a pair of devices each.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from . import tcp_cores, tcp_figures, tcp_redis
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
from .process_cost import on_core
from .programs import ProgramError, default_cores, empty_report, find_program, run_program
from .report import Report
from .tcp_servers import PORT, SOCKETS, server, sockets_command, start_agent

# The rows that a part leaves out when it cannot run: name, unit, target.
CLAIMS = {
    "echo": [("tcp.echo_us_p50_vs_kernel (64 B, client on the agent's core)", "us", ">= 0.5")],
    "busy": [("tcp.host_cpu_per_request_vs_kernel (64 B, 32 busy, client on the agent's core)", "us", ">= 2.86x")],
    "stream": [
        ("tcp.stream_gbps_vs_kernel (to the server)", "Gb/s", ">= 0.5"),
        ("tcp.stream_gbps_vs_kernel (from the server)", "Gb/s", ">= 0.5"),
    ],
    "devices": [
        ("tcp.device_stream_gbps_vs_xdp (to the server)", "Gb/s", ">= 1"),
        ("tcp.device_stream_gbps_vs_xdp (from the server)", "Gb/s", ">= 1"),
    ],
    "cores": tcp_cores.CLAIMS,
}
# Networks for goodput, and for connections that share a bottleneck: arguments of bench_tcp_path.
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
WITH_OTHER_AGENTS = ("breakdown", "slow-path", "devices", "cores")


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


def run(out: Path, quick: bool, parts: list[str], console: Console) -> Report:
    """Measures, draws into ``out`` and prints the table. Returns the report."""
    report = empty_report("tcp")
    claims = [claim for part in parts for claim in CLAIMS.get(part, [])]
    others = [(f"tcp ({', '.join(parts)}: other claims)", "", "measured")]
    if (why := missing()) is not None:
        report.add_unmeasured(claims or others, why)
        report.conclude(console, quick=quick)
        return report
    good = [part for part in parts if part not in WITH_OTHER_AGENTS and part not in BAD_NETWORKS]
    try:
        if good:
            with network_pair(with_peer=True) as pair, start_agent(pair) as agent:
                if programs := [part for part in good if part != "redis"]:
                    measure_programs(report, pair, agent, programs, quick, console)
                if "redis" in good:
                    tcp_redis.measure(report, pair, agent, sockets_command(agent), quick, console)
        for part in parts:
            for over, impairments in BAD_NETWORKS.get(part, ()):
                program = str(find_program("bench_tcp_path"))
                with bad_network(program, *impairments) as pair, start_agent(pair) as agent:
                    measure_programs(report, pair, agent, [part], quick, console, "--over", over,
                                     kernel_address=NEAR_KERNEL_ADDRESS, congestion=("cubic",))  # fmt: skip
        if "slow-path" in parts:
            measure_slow_path(report, quick, console)
        if "cores" in parts:
            tcp_cores.measure(report, quick, console)
        if "breakdown" in parts:
            measure_breakdown(report, quick, console)
        if "devices" in parts:  # last: an agent may be without AF_XDP
            measure_devices(report, quick, console)
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


def measure_devices(report: Report, quick: bool, console: Console) -> None:
    """Two agents on one core, each with the same server; one takes its interface by AF_PACKET, one by AF_XDP."""
    host_core, agent_core = default_cores()
    many = ["prlimit", f"--nofile={2 * SOCKETS}"]
    with (
        network_pair(with_second=True) as pair,
        start_agent(pair) as packet,
        start_agent(pair, device="xdp:second", address=SECOND_AGENT_ADDRESS) as xdp,
    ):
        program = [str(find_program("bench_tcp_server")), str(PORT)]
        with (
            server(pair.near_command(*many, *sockets_command(packet), *program), host_core) as subject,
            server(pair.near_command(*many, *sockets_command(xdp), *program), host_core) as peer,
            console.status("tcp: devices"),
        ):
            arguments = [
                "--offloaded", f"{AGENT_ADDRESS}:{PORT}:{subject.pid}", "--agent-pid", str(packet.process.pid),
                "--kernel", f"{SECOND_AGENT_ADDRESS}:{PORT}:{peer.pid}", "--other-agent-pid", str(xdp.process.pid),
                "--host-core", str(host_core), "--agent-core", str(agent_core), *(["--quick"] if quick else []),
                "--part", "devices",
            ]  # fmt: skip
            report.absorb(run_program("bench_tcp", arguments, launcher=pair.far_command(*many)))


def measure_breakdown(report: Report, quick: bool, console: Console) -> None:
    """With an agent of its own: that it notes its stages takes time, if little."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory, network_pair(with_peer=True) as pair:
        trace_file = Path(directory) / "trace"
        with start_agent(pair, f"tcp.trace_file={trace_file}") as agent:
            measure_programs(report, pair, agent, ["breakdown"], quick, console, "--trace-file", str(trace_file))
