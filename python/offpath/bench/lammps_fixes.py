"""``offpath bench lammps``: the cost for LAMMPS of a hand-over and of an analysis on the agent.

Processes of LAMMPS compute the same trajectory by turns: one plain, one each with ``fix offpath``, with a binary dump,
with ``fix offpath/analyse``, and with LAMMPS's own compute of the same. The cost of a way is its process's time beyond
the plain one in the same turn, divided by the hand-overs of a turn. Pairs and bonds are those of a melt. Work that
passes over the atoms once costs less than the variation of a melt's steps, so it is measured beside atoms without
forces. Analyses write a file by ``fix ave/time``, at whose steps LAMMPS always sums up energy and virial; so the plain
run beside them writes one too. Processor time is that of LAMMPS's process; the total has the agent's with it.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from . import lammps_melt
from .agent_process import AgentProcess, AgentUnavailableError
from .intervals import median_interval
from .pool import Answering
from .process_cost import cpu_seconds
from .programs import ProgramError, default_cores, empty_report
from .report import Claim, Report

LIBRARY = "offpathplugin.so"
CELLS = 20  # 32,000 atoms
# The peer of a way, its name, and the run that both are compared with.
PEERS = {
    "hand-over": ("dump", "a binary dump to memory", "plain"),
    "rdf": ("compute rdf", "compute rdf", "plain rdf"),
    "cna": ("compute cna/atom", "compute cna/atom", "plain cna"),
    "msd": ("compute msd", "compute msd", "plain-written"),
    "vacf": ("compute vacf", "compute vacf", "plain-written"),
}
CLAIMS = [
    ("lammps.hand_over_cpu", "ms", "<= 0.5x"),
    ("lammps.hand_over_total_cpu", "ms", None),
    ("lammps.hand_over_wall", "ms", None),
    *(
        claim
        for analysis in ("rdf", "cna", "msd", "vacf")
        for claim in (
            (f"lammps.{analysis}_cpu", "ms", "<= 0.1x"),
            (f"lammps.{analysis}_total_cpu", "ms", None),
            (f"lammps.{analysis}_wall", "ms", None),
        )
    ),
]


def plugin_path() -> Path | None:
    """The path of the plug-in: in the build, or in the environment where it is installed."""
    build = os.environ.get("OFFPATH_BUILD_DIR")
    folders = [*([Path(build) / "lib"] if build else []), Path(sys.prefix) / "lib"]
    return next((folder / LIBRARY for folder in folders if (folder / LIBRARY).exists()), None)


def take_turns(
    plugin: Path, cells: int, turns: int, core: int, agent: int
) -> dict[str, list[tuple[float, float, float]]]:
    """Seconds of each way and turn, on ``core``: processor, wall, processor with that of the process ``agent``. Raises
    ProgramError."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    spent: dict[str, list[tuple[float, float, float]]] = {way: [] for way in lammps_melt.WAYS}
    with ExitStack() as resources:
        ways: dict[str, Answering] = {}
        for way in lammps_melt.WAYS:
            folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="offpath-bench-", dir=memory))
            command = ["taskset", "-c", str(core), sys.executable, "-m", lammps_melt.__name__, way, str(plugin)]
            command += [str(cells), folder]
            ways[way] = Answering(command)
            resources.callback(ways[way].close)
        order = list(ways)
        for turn in range(-1, turns):
            first = turn % len(order)
            for way in order[first:] + order[:first]:
                before = cpu_seconds(agent)
                cpu, (wall_ns, *_) = ways[way].ask("run")
                if turn >= 0:
                    spent[way].append((cpu, wall_ns / 1e9, cpu + cpu_seconds(agent) - before))
    return spent


def ratio_interval(ours: list[float], theirs: list[float]) -> list[float]:
    """Of two intervals, the second of which is above zero."""
    ends = [mine / other for mine in ours for other in theirs]
    return [min(ends), max(ends)]


def compared(name: str, ours: list[float], peer: str, theirs: list[float], target: str | None) -> Claim:
    """Milliseconds for each hand-over. The ratio is that of the two median costs beyond the plain run; its interval
    follows from the intervals of both medians. A peer whose cost does not differ from zero has no ratio. A target is
    met by the interval's end, missed by its beginning, and otherwise not decided."""
    value, peer_value = statistics.median(ours), statistics.median(theirs)
    of_peer = median_interval(theirs)
    claim = Claim(claim=name, value=1e3 * value, unit="ms", peer=peer, peer_value=1e3 * peer_value, target=target,
                  pairs=len(ours))  # fmt: skip
    if of_peer[0] <= 0:
        claim.why = f"the turns differ by more than {peer} costs"
        return claim
    claim.ratio, claim.interval = value / peer_value, ratio_interval(median_interval(ours), of_peer)
    claim.holds = True
    if target is not None:
        claim.judge_by_interval()
    return claim


def claims_from(spent: dict[str, list[tuple[float, float, float]]]) -> list[Claim]:
    claims = []
    for name, unit, target in CLAIMS:
        assert unit == "ms"
        way = name.removeprefix("lammps.").partition("_")[0].replace("hand", "hand-over")
        clock = 2 if name.endswith("total_cpu") else 0 if name.endswith("cpu") else 1
        peer, called, without = PEERS[way]
        beyond = {
            each: [
                (turn[clock] - plain[clock]) / lammps_melt.WAYS[each][0].hand_overs
                for turn, plain in zip(spent[each], spent[without], strict=True)
            ]
            for each in (way, peer)
        }
        claims.append(compared(name, beyond[way], called, beyond[peer], target))
    return claims


def run(quick: bool, console: Console) -> Report:
    """Measures and prints the table. Returns the report."""
    report = empty_report("lammps")
    plugin = plugin_path()
    if importlib.util.find_spec("lammps") is None or plugin is None:
        report.add_unmeasured(CLAIMS, f"left out: there is no lammps wheel, or no {LIBRARY}")
        report.conclude(console, quick=quick)
        return report
    core, agent_core = default_cores()
    before = os.environ.get("OFFPATH_AGENT")
    try:
        with AgentProcess.start(agent_core, others=("task.user_plugins=own",)) as agent:
            os.environ["OFFPATH_AGENT"] = agent.address
            with console.status("LAMMPS by turns"):
                spent = take_turns(plugin, 6 if quick else CELLS, 3 if quick else 25, core, agent.process.pid)
                report.claims += claims_from(spent)
    except (AgentUnavailableError, ProgramError) as error:
        report.add_unmeasured(CLAIMS, str(error))
    finally:
        os.environ.pop("OFFPATH_AGENT", None)
        if before is not None:
            os.environ["OFFPATH_AGENT"] = before
    report.conclude(console, quick=quick)
    return report
