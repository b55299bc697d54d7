"""Sampling beside the usual programs of a site: node_exporter, asked over one kept connection as Prometheus does, and
LDMS, whose ldmsd samples by itself while a second ldmsd pulls the set.

All take the same values on the host's core. A turn's cost is the processor time of the sampling process for one value.
"""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from .intervals import median_interval
from .process_cost import cpu_seconds, on_core, resident_kib
from .programs import ProgramError, find_program
from .report import Claim, Report

NODE_EXPORTER = "prometheus-node-exporter"
CPU_TARGET, MEMORY_TARGET = 10.0, 5.0
LDMS_INTERVAL_S = 0.01  # the rate at which offpath-sampler is asked beside it
LDMS_SETS = ("procstat2", "procnetdev2")
START_S = 60.0


def claims_of(peer: str) -> list[tuple[str, str, str]]:
    """Name, unit and target of the claims beside ``peer``."""
    return [
        (f"exchange.peers (processor time of a value, {peer})", "ns", f">= {CPU_TARGET:g}"),
        (f"exchange.peers (memory, {peer})", "KiB", f">= {MEMORY_TARGET:g}"),
    ]


class Side(Protocol):
    """One side of the turns."""

    def turn(self, times: int) -> float:
        """Takes so many samples; nanoseconds of processor time for one value."""

    def resident_kib(self) -> float: ...

    def close(self) -> None: ...


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Exporter:
    """node_exporter with the collectors of the same values."""

    def __init__(self, core: int) -> None:
        program = shutil.which(NODE_EXPORTER)
        if program is None:
            raise ProgramError(f"{NODE_EXPORTER} is not installed (Debian's package of that name)")
        port = free_port()
        collectors = ["cpu", "stat", "netdev"]
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._process = subprocess.Popen(
            [program, f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults",
             "--web.disable-exporter-metrics", *(f"--collector.{each}" for each in collectors)],
            stderr=subprocess.DEVNULL, preexec_fn=on_core(core),
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.scrape()
                return
            except OSError:
                self._connection.close()
                if time.monotonic() > deadline:
                    self.close()
                    raise ProgramError(f"{NODE_EXPORTER} does not answer") from None
                time.sleep(0.05)

    def scrape(self) -> int:
        """Values in the answer. Raises ProgramError if the connection was not kept."""
        self._connection.request("GET", "/metrics")
        answer = self._connection.getresponse()
        lines = answer.read().decode().splitlines()
        if answer.will_close:
            raise ProgramError(f"{NODE_EXPORTER} closes its connection after an answer")
        return sum(1 for line in lines if line and not line.startswith("#"))

    def turn(self, times: int) -> float:
        before = cpu_seconds(self._process.pid)
        values = sum(self.scrape() for _ in range(times))
        return (cpu_seconds(self._process.pid) - before) * 1e9 / values

    def resident_kib(self) -> float:
        return resident_kib(self._process.pid)

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


class Ldms:
    """A sampling ldmsd on the host's core, and one that pulls from it on the agent's. Both work by themselves."""

    def __init__(self, program: str, host_core: int, agent_core: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="offpath-bench-")
        self._processes: list[subprocess.Popen] = []
        interval_us = int(LDMS_INTERVAL_S * 1e6)
        ports = free_port(), free_port()
        sampling = "".join(
            f"load name={name}\nconfig name={name} producer=bench instance=bench/{name}\n"
            f"start name={name} interval={interval_us} offset=0\n"
            for name in LDMS_SETS
        )
        pulling = (
            f"prdcr_add name=bench host=127.0.0.1 port={ports[0]} xprt=sock type=active interval=1000000\n"
            f"prdcr_start name=bench\nupdtr_add name=all interval={interval_us} offset=0\n"
            "updtr_prdcr_add name=all regex=.*\nupdtr_start name=all\n"
        )
        try:
            for name, text, port, core in (
                ("sampler", sampling, ports[0], host_core), ("puller", pulling, ports[1], agent_core)
            ):  # fmt: skip
                configuration = Path(self._folder.name) / f"{name}.conf"
                configuration.write_text(text)
                log = configuration.with_suffix(".log")
                self._processes.append(subprocess.Popen(
                    [program, "-F", "-x", f"sock:{port}", "-c", str(configuration), "-l", str(log)],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=on_core(core),
                ))  # fmt: skip
            self._values = self._values_pulled(program, ports[1])
        except (OSError, ProgramError) as error:
            self.close()
            raise ProgramError(f"{program}: {error}") from error

    def _values_pulled(self, program: str, port: int) -> int:
        """Values of all sets at the pulling ldmsd, which has them a moment after its start."""
        listing = Path(program).with_name("ldms_ls")
        command = [str(listing) if listing.exists() else "ldms_ls", "-h", "127.0.0.1", "-x", "sock", "-p", str(port)]
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            said = subprocess.run([*command, "-l"], capture_output=True, text=True, check=False, timeout=START_S).stdout
            if all(f"bench/{name}" in said for name in LDMS_SETS):
                if values := len(re.findall(r"^[MD] \S+", said, re.MULTILINE)):
                    return values
            time.sleep(0.2)
        raise ProgramError(f"no values of {' and '.join(LDMS_SETS)} arrive at a second ldmsd within {START_S:g} s")

    def turn(self, times: int) -> float:
        sampler = self._processes[0].pid
        before = cpu_seconds(sampler)
        time.sleep(times * LDMS_INTERVAL_S)
        return (cpu_seconds(sampler) - before) * 1e9 / (times * self._values)

    def resident_kib(self) -> float:
        return resident_kib(self._processes[0].pid)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()


class Samples:
    """bench_exchange_sample asking the sampler, one sample after the other or at an interval."""

    def __init__(self, arguments: list[str], interval_s: float = 0) -> None:
        self._pid = int(arguments[arguments.index("--pid") + 1])
        paced = ["--interval-us", str(int(interval_s * 1e6))] if interval_s else []
        self._process = subprocess.Popen(
            [find_program("bench_exchange_sample"), *arguments, "--part", "turns", *paced],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def turn(self, times: int) -> float:
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise ProgramError("bench_exchange_sample ended")
        return float(answer[0]) / int(answer[1])

    def resident_kib(self) -> float:
        return resident_kib(self._pid)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait()


def measure(report: Report, arguments: list[str], host_core: int, agent_core: int, quick: bool,
            ldmsd: str = "") -> None:  # fmt: skip
    """Adds the claims beside node_exporter and LDMS; ``ldmsd`` is its path, or empty."""
    beside(report, "node_exporter", lambda: Exporter(host_core), arguments, 0, quick)
    program = ldmsd or shutil.which("ldmsd")
    if program is None:
        report.add_unmeasured(claims_of("LDMS"), "there is no ldmsd: build LDMS and name it by --peer-program")
        return
    beside(report, "LDMS", lambda: Ldms(program, host_core, agent_core), arguments, LDMS_INTERVAL_S, quick)


def beside(report: Report, name: str, start: Callable[[], Side], arguments: list[str], interval_s: float,
           quick: bool) -> None:  # fmt: skip
    """The sampler and one peer by turns; the side that begins changes."""
    claims = claims_of(name)
    try:
        peer = start()
    except ProgramError as error:
        return report.add_unmeasured(claims, str(error))
    own = Samples(arguments, interval_s)
    try:
        turns, times = (3, 5) if quick else (21, 40)
        sides: list[Side] = [own, peer]
        costs: tuple[list[float], list[float]] = [], []
        memory: tuple[list[float], list[float]] = [], []
        for turn in range(-2, turns):
            for index in (0, 1) if turn % 2 else (1, 0):
                cost = sides[index].turn(times)
                if turn >= 0:
                    costs[index].append(cost)
                    memory[index].append(sides[index].resident_kib())
        for (claim, unit, target), (ours, theirs), least in zip(
            claims, (costs, memory), (CPU_TARGET, MEMORY_TARGET), strict=True
        ):
            ratios = [peers / own for own, peers in zip(ours, theirs, strict=True)]
            ratio = statistics.median(ratios)
            report.claims.append(
                Claim(claim, statistics.median(ours), unit, name, statistics.median(theirs), ratio, target,
                      ratio >= least, median_interval(ratios), len(ratios))
            )  # fmt: skip
    finally:
        own.close()
        peer.close()
