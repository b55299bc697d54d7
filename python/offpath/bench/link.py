"""``offpath bench link``: the speed of a bare link, without services, with its two ends placed in turn.

The measurements that papers on SmartNICs begin with (OSU: latency, bandwidth, message rate, all-gather), between two
hosts, host and agent, two agents. An agent here is a process under a BlueField-2's processor quota.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from . import control_group, figures
from .programs import default_cores, run_program
from .report import Report, Series

# The owner of the memory, and the side that reads it.
PLACES = ("host-host", "host-agent", "agent-agent")
QUANTITIES = (("latency", "us"), ("bandwidth", "GB/s"), ("rate", "M/s"), ("all_gather", "us"))
DEVICES = Path("/sys/class/infiniband")
PERFTEST_S = 120.0
PERFTEST_PORT = 18516
READS_OUTSTANDING = 16  # the most that every device grants to perftest


class NoDevice(RuntimeError):
    """Verbs was asked for, and this machine has no RDMA device."""


def links_here() -> list[str]:
    """Local and tcp, and verbs where there is an RDMA device."""
    return ["local", "tcp"] + (["verbs"] if any(DEVICES.glob("*/ports/1")) else [])


def device_and_address() -> tuple[str, str]:
    """The first RDMA device and the address of the network interface it belongs to. Raises NoDevice."""
    for port in sorted(DEVICES.glob("*/ports/1")):
        try:
            interface = (port / "gid_attrs/ndevs/0").read_text().strip()
            shown = subprocess.run(["ip", "-j", "addr", "show", interface], capture_output=True, check=True)
            addresses = json.loads(shown.stdout)[0]["addr_info"]
            return port.parents[1].name, next(each["local"] for each in addresses if each["family"] == "inet")
        except (OSError, StopIteration, subprocess.CalledProcessError):
            continue
    raise NoDevice(f"{DEVICES} names no RDMA device whose network interface has an address: see `rdma link`")


def run(out: Path, links: list[str], sizes_max: str, quick: bool, console: Console) -> Report:
    """Measures, draws a figure for each link into ``out`` and prints the table. Returns the report."""
    report = Report("link")
    for link in links:
        for place in PLACES:
            with console.status(f"{link}, {place}"):
                measure(report, link, place, sizes_max, quick)
        if link == "verbs":
            with console.status("perftest"):
                add_perftest(report, quick)
    report.conclude(console, quick=quick)
    for path in figures.draw_link(report, out):
        console.print(f"drawn: {path}")
    return report


def measure(report: Report, link: str, place: str, sizes_max: str, quick: bool) -> None:
    """Adds one link at one place; where control groups may not be made, claims without figures that say so."""
    host_core, agent_core = default_cores()
    arguments = ["--link", link, "--place", place, "--sizes-max", sizes_max]
    arguments += ["--host-core", str(host_core), "--agent-core", str(agent_core)]
    if quick:
        arguments.append("--quick")
    if link == "verbs":
        arguments += ["--address", f"verbs:{device_and_address()[1]}:0"]
    holder, fetcher = place.split("-")
    try:
        with ExitStack() as groups:
            for role, option in ((holder, "--members-group"), (fetcher, "--group")):
                if role == "agent":
                    group = groups.enter_context(control_group.bluefield_group(option))
                    arguments += [option, str(group / "cgroup.procs")]
            report.absorb(run_program("bench_link_points", arguments))
    except control_group.ControlGroupError as error:
        left_out = [(f"link.{name} ({link}, {place})", unit, None) for name, unit in QUANTITIES]
        report.add_unmeasured(left_out, f"left out: {error}")


def add_perftest(report: Report, quick: bool) -> None:
    """Bare RDMA reads by perftest, which takes turns with nothing: a series beside ours, host to host."""
    device, address = device_and_address()
    sizes = (64, 4096) if quick else (64, 1024, 65_536, 1 << 20)
    wanted: tuple[tuple[str, str, str, list[str]], ...] = (
        ("latency", "us", "ib_read_lat", []),
        ("bandwidth", "GB/s", "ib_read_bw", ["-o", str(READS_OUTSTANDING)]),
    )
    for name, unit, program, options in wanted:
        if shutil.which(program) is None:
            continue
        line = Series(f"link_{name}_verbs", f"host-host, {program}", "bytes", unit, [], [])
        for size in sizes:
            rounds = max(5, min(1000, (1 << 20) // size)) if quick else 1000
            common = ["-d", device, "-F", "-p", str(PERFTEST_PORT), "-s", str(size), "-n", str(rounds), *options]
            said = serve_and_ask([program, *common], address)
            if (value := figure_of(said, size, name)) is not None:
                line.x.append(size)
                line.y.append(value)
        report.series.append(line)


def serve_and_ask(command: list[str], address: str) -> str:
    """The output of perftest's client with a server beside it; empty if it got stuck."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):  # until it listens
                if f":{PERFTEST_PORT:04X} " in Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text():
                    break
                time.sleep(0.1)
            asked = [*command, address]
            return subprocess.run(asked, capture_output=True, text=True, timeout=PERFTEST_S, check=False).stdout
        except subprocess.TimeoutExpired:
            return ""
        finally:
            server.kill()


def figure_of(said: str, size: int, name: str) -> float | None:
    """Of the line of this size: ib_read_lat's typical microseconds, ib_read_bw's average, MB/s there."""
    for line in said.splitlines():
        words = line.split()
        if words[:1] == [str(size)] and all(re.fullmatch(r"[0-9.]+", word) for word in words):
            return float(words[4]) if name == "latency" else float(words[3]) / 1e3
    return None
