"""``offpath bench adios2``: the engine for ADIOS2 beside SST and BP5 of the same wheel.

A writer of each engine puts the same arrays in deferred mode, by turns with the others; its time runs from the first
Put to the return of EndStep. A reader of each streaming engine gets every step whole before the next turn. BP5 writes
to a file in memory, which is not read.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from . import adios2_stream
from .agent_process import AgentProcess, AgentUnavailableError
from .intervals import median_interval
from .pool import Answering
from .programs import ProgramError, default_cores, empty_report
from .report import Claim, Report

LIBRARY = "liboffpath_adios2.so"
OURS, SNAPSHOT = "offpath", "offpath-snapshot"
PEERS = {"SST": "SST, read by another process", "BP5": "BP5, to a file in memory"}
SIZES = {"64 KiB": 64 << 10, "64 MiB": 64 << 20}
MEMORY_MIB_MAX = 16


def claims_of(sizes: dict[str, int]) -> list[tuple[str, str, str | None]]:
    """Name, unit and target of every claim."""
    return [
        *((f"adios2.step_vs_{peer.lower()} ({size})", "ms", ">= 1x") for size in sizes for peer in PEERS),
        *((f"adios2.step_snapshot ({size})", "ms", None) for size in sizes),
        *((f"adios2.read ({size})", "ms", None) for size in sizes),
        (f"adios2.writer_memory ({list(sizes)[-1]})", "MiB", f"<= {MEMORY_MIB_MAX} MiB"),
    ]


def engine_folder() -> Path | None:
    """The folder of the engine: that of the build, or of the environment where it is installed."""
    build = os.environ.get("OFFPATH_BUILD_DIR")
    folders = [*([Path(build) / "lib"] if build else []), Path(sys.prefix) / "lib"]
    return next((folder for folder in folders if (folder / LIBRARY).exists()), None)


class Ends:
    """Writer and reader of one engine."""

    def __init__(self, engine: str, where: str, size: int, resources: ExitStack) -> None:
        command = [sys.executable, "-m", adios2_stream.__name__]
        ends = [engine, where, str(size)]
        # SST's writer waits for its reader, and the reader for the writer's contact file.
        self.reader = Answering([*command, "read", *ends]) if engine != "BP5" else None
        if self.reader:
            resources.callback(self.reader.close)
        self.writer = Answering([*command, "write", *ends])
        resources.callback(self.writer.close)

    def step(self) -> tuple[float, float, float]:
        """Seconds of the writer and the reader, and the writer's memory in KiB."""
        seconds, (memory, *_) = self.writer.ask("step")
        read = self.reader.next()[0] if self.reader else 0.0
        return seconds, read, memory


@contextmanager
def ends_of(engines: list[str], size: int) -> Iterator[dict[str, Ends]]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with ExitStack() as resources:
        folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="offpath-bench-", dir=memory))
        places = {each: f"local:/{each}-{size}" for each in (OURS, SNAPSHOT)}
        yield {each: Ends(each, places.get(each, f"{folder}/{each}"), size, resources) for each in engines}


def compared(name: str, ours: list[float], peer: str, theirs: list[float], target: str | None) -> Claim:
    """A claim about seconds; the ratio, turn by turn, is above 1 where Offpath is faster."""
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    ratio = statistics.median(ratios)
    return Claim(
        claim=name, value=1e3 * statistics.median(ours), unit="ms", peer=PEERS[peer],
        peer_value=1e3 * statistics.median(theirs), ratio=ratio, target=target, holds=target is None or ratio >= 1,
        interval=median_interval(ratios), pairs=len(ratios),
    )  # fmt: skip


def measure(report: Report, label: str, size: int, turns: int) -> None:
    """Claims about steps of one size."""
    engines = [OURS, SNAPSHOT, *PEERS]
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    read: dict[str, list[float]] = {engine: [] for engine in engines}
    memory: dict[str, float] = {}
    with ends_of(engines, size) as ends:
        for turn in range(-2, turns):
            first = turn % len(engines)
            for engine in engines[first:] + engines[:first]:
                spent, reading, memory[engine] = ends[engine].step()
                if turn >= 0:
                    seconds[engine].append(spent)
                    read[engine].append(reading)
    for peer in PEERS:
        name = f"adios2.step_vs_{peer.lower()} ({label})"
        report.claims.append(compared(name, seconds[OURS], peer, seconds[peer], ">= 1x"))
    name = f"adios2.step_snapshot ({label})"
    report.claims.append(compared(name, seconds[SNAPSHOT], "SST", seconds["SST"], None))
    report.claims.append(compared(f"adios2.read ({label})", read[OURS], "SST", read["SST"], None))
    if label == list(SIZES)[-1]:
        mib = {engine: kib / 1024 for engine, kib in memory.items()}
        claim = Claim(f"adios2.writer_memory ({label})", mib[OURS], "MiB", f"SST; BP5 {mib['BP5']:.0f} MiB", mib["SST"])
        claim.target, claim.holds = f"<= {MEMORY_MIB_MAX} MiB", mib[OURS] <= MEMORY_MIB_MAX
        report.claims.append(claim)


def run(quick: bool, console: Console) -> Report:
    """Measures and prints the table. Returns the report."""
    report = empty_report("adios2")
    folder = engine_folder()
    if importlib.util.find_spec("adios2") is None or folder is None:
        report.add_unmeasured(claims_of(SIZES), f"left out: there is no adios2 wheel, or no {LIBRARY}")
        report.conclude(console, quick=quick)
        return report
    _, agent_core = default_cores()
    before = {name: os.environ.get(name) for name in ("ADIOS2_PLUGIN_PATH", "OFFPATH_AGENT")}
    try:
        with AgentProcess.start(agent_core) as agent:
            os.environ |= {"ADIOS2_PLUGIN_PATH": str(folder), "OFFPATH_AGENT": agent.address}
            for label, size in SIZES.items():
                with console.status(f"steps of {label}"):
                    measure(report, label, min(size, 1 << 20) if quick else size, 3 if quick else 21)
    except (AgentUnavailableError, ProgramError) as error:
        measured = {claim.claim for claim in report.claims}
        report.add_unmeasured([each for each in claims_of(SIZES) if each[0] not in measured], str(error))
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    report.conclude(console, quick=quick)
    return report
