"""``offpath bench exchange``: what sampling a host costs, with the paper's values.

The values are those of the SmartNIC data exchange framework's sample application: processor time in each state,
running and blocked tasks, context switches, and InfiniBand's received and sent data, or the network's where there is no
InfiniBand.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from . import figures
from .agent_process import write_key
from .programs import ProgramError, default_cores, find_program, run_program
from .report import Claim, Report

PR_SET_PDEATHSIG = 1
NODE_EXPORTER = "prometheus-node-exporter"
CPU_TARGET, MEMORY_TARGET = 10.0, 5.0
PEER_CLAIMS = [
    ("exchange.peers (processor time of a value)", "ns", f">= {CPU_TARGET:g}"),
    ("exchange.peers (memory)", "KiB", f">= {MEMORY_TARGET:g}"),
]


def paper_sources() -> str:
    """TOML of the paper's values on this machine."""
    device = "infiniband" if any(Path("/sys/class/infiniband").glob("*")) else "network"
    return f'[[source]]\nset = "cpu"\n[[source]]\nset = "{device}"\n'


def on_core(core: int):
    def prepare() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, {core})

    return prepare


@contextmanager
def running_sampler(folder: Path, core: int) -> Iterator[list[str]]:
    """A sampler on ``core``; what the benchmark programs are told of it."""
    key = write_key(folder)
    configuration = folder / "sampler.toml"
    configuration.write_text(f'[sampler]\nlisten = "127.0.0.1:0"\nkey_file = "{key}"\n{paper_sources()}')
    process = subprocess.Popen(
        [find_program("offpath-sampler"), configuration], stderr=subprocess.PIPE, text=True, preexec_fn=on_core(core)
    )
    try:
        readable, _, _ = select.select([process.stderr], [], [], 10)
        line = process.stderr.readline() if readable else ""
        found = re.search(r"port (\d+)$", line)
        if not found:
            raise ProgramError(f"offpath-sampler does not start: {line.strip()}")
        yield ["--sampler", f"127.0.0.1:{found[1]}", "--key-file", str(key), "--pid", str(process.pid)]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def cpu_seconds(pid: int) -> float:
    """Of the whole process, to a microsecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_kib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


class Exporter:
    """node_exporter with the collectors of the same values, asked over one connection at a time as Prometheus does."""

    def __init__(self, core: int) -> None:
        program = shutil.which(NODE_EXPORTER)
        if program is None:
            raise ProgramError(f"{NODE_EXPORTER} is not installed (Debian's package of that name)")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        collectors = ["cpu", "stat", "netdev"]
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.process = subprocess.Popen(
            [program, f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults",
             "--web.disable-exporter-metrics", *(f"--collector.{each}" for each in collectors)],
            stderr=subprocess.DEVNULL, preexec_fn=on_core(core),
        )  # fmt: skip
        for _ in range(100):
            try:
                self.scrape()
                return
            except OSError:
                time.sleep(0.05)
        self.close()
        raise ProgramError(f"{NODE_EXPORTER} does not answer")

    def scrape(self) -> int:
        """Values in the answer."""
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(1 for line in lines if line and not line.startswith("#"))

    def turn(self, times: int) -> float:
        """Nanoseconds of processor time for one value."""
        before = cpu_seconds(self.process.pid)
        values = sum(self.scrape() for _ in range(times))
        return (cpu_seconds(self.process.pid) - before) * 1e9 / values

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Samples:
    """bench_exchange_sample asking the sampler, turn by turn."""

    def __init__(self, arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            [find_program("bench_exchange_sample"), *arguments, "--part", "turns"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def turn(self, times: int) -> float:
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise ProgramError("bench_exchange_sample ended")
        return float(answer[0]) / int(answer[1])

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait()


def measure_peer(report: Report, arguments: list[str], core: int, quick: bool) -> None:
    pid = int(arguments[arguments.index("--pid") + 1])
    try:
        exporter = Exporter(core)
    except ProgramError as error:
        report.add_unmeasured(PEER_CLAIMS, str(error))
        return
    samples = Samples(arguments)
    try:
        turns, times = (3, 5) if quick else (21, 40)
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(-2, turns):
            sides: list[tuple[list[float], Samples | Exporter]] = [(ours, samples), (theirs, exporter)]
            for costs, side in sides if turn % 2 else reversed(sides):
                cost = side.turn(times)
                if turn >= 0:
                    costs.append(cost)
        ratios = sorted(peer / own for peer, own in zip(theirs, ours, strict=True))
        ratio, low = statistics.median(ratios), max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))
        report.claims.append(
            Claim(PEER_CLAIMS[0][0], statistics.median(ours), "ns", "node_exporter", statistics.median(theirs), ratio,
                  PEER_CLAIMS[0][2], ratio >= CPU_TARGET, [ratios[low], ratios[-1 - low]], len(ratios))
        )  # fmt: skip
        own, peer = resident_kib(pid), resident_kib(exporter.process.pid)
        report.claims.append(
            Claim(PEER_CLAIMS[1][0], own, "KiB", "node_exporter", peer, peer / own, PEER_CLAIMS[1][2],
                  peer / own >= MEMORY_TARGET)
        )  # fmt: skip
    finally:
        samples.close()
        exporter.close()


def run(out: Path, quick: bool, console: Console) -> Report:
    """Measures sampling and draws what a computation loses to it into ``out``."""
    report = Report("exchange")
    core, other_core = default_cores()
    # As in the paper the agent has the first core, the host's work the second.
    agent_core, host_core = core, other_core
    common = ["--host-core", str(host_core), "--agent-core", str(agent_core), *(["--quick"] if quick else [])]
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        folder = Path(directory)
        with running_sampler(folder, host_core) as sampler:
            with console.status("samples over UDP"):
                report.absorb(run_program("bench_exchange_sample", [*common, *sampler, "--part", "udp"]))
            with console.status("beside node_exporter"):
                measure_peer(report, [*common, *sampler], host_core, quick)
            with console.status("a computation and the sampler on one core"):
                place = ["--place", "one core for both"]
                report.absorb(run_program("bench_exchange_sample", [*common, *sampler, *place, "--part", "overhead"]))
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        with running_sampler(Path(directory), agent_core) as sampler, console.status("the sampler on another core"):
            place = ["--place", "a core for the sampler"]
            report.absorb(run_program("bench_exchange_sample", [*common, *sampler, *place, "--part", "overhead"]))
    with console.status("samples read one-sided"):
        report.absorb(run_program("bench_exchange_sample", [*common, "--part", "region"]))
    report.conclude(console, quick=quick)
    if (path := figures.draw_overhead(report, out)) is not None:
        console.print(f"drawn: {path}")
    return report
