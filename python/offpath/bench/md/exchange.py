"""Steps with forces elsewhere on ranks, whose agents exchange positions and forces by messages between their lanes,
beside those whose hosts do: figure 10 of "Smarter NICs for faster molecular dynamics" (2022), as measured.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..programs import ProgramError
from ..report import Claim, Report, Series
from .alone import ratio_claim
from .offloaded import seconds_of
from .ranks import AGREE_EVERY, AGREE_STEPS, atoms_of, find_mpirun
from .run import agent_with_functions, run_md

WAYS = {"host": "through the hosts", "agent": "by messages between lanes"}
# Of a step: the agent begins after the halo of the host, if that makes one.
PHASES = ("halo", "communicate", "sort", "neighbour", "wait", "agent_moved", "agent_computed")
RANKS = 2
# Cells, steps, rounds; cells and numbers of ranks where atoms are compared.
Sizes = tuple[int, int, int, int, tuple[int, ...]]
SIZES: Sizes = (20, 60, 21, 10, (2, 4, 8))
QUICK_SIZES: Sizes = (8, 20, 1, 6, (2,))


def cores_of(cores: tuple[int, int]) -> tuple[str, str | None]:
    """The hosts' cores, and the cores that they share with the agent; None: none."""
    others = sorted(os.sched_getaffinity(0) - set(cores))
    if not others:
        return ",".join(map(str, dict.fromkeys(cores))), "two ranks and their agent share two cores"
    return f"{cores[0]},{others[0]}", None


def measure_exchange(report: Report, cores: tuple[int, int], quick: bool) -> None:
    """Both ways by turns, with lists at every step; then atom by atom."""
    cells, steps, rounds, agree_cells, agree_ranks = QUICK_SIZES if quick else SIZES
    launcher = (find_mpirun(), "--oversubscribe", "--bind-to", "none", "-n")
    where, note = cores_of(cores)
    words = ["-s", str(cells), "-n", str(steps), "--every", "1", "--thermo", "0", "--offload", "force", "--exchange"]
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with agent_with_functions(cores[1], workers=max(RANKS, *agree_ranks)) as agent:
        for number in range(rounds):
            for way in WAYS if number % 2 else reversed(WAYS):
                one = run_md([*words, way], where, agent.address, (*launcher, str(RANKS)))
                if one["exchange"] != way or one["forces_by_agent"] < steps:
                    raise ProgramError(f"forces were not exchanged {WAYS[way]}")
                runs[way].append(one)
        add_phases(report, f"{4 * cells**3} atoms, {RANKS} ranks", runs)
        times = {way: [seconds_of(one) for one in of] for way, of in runs.items()}
        peer = "the same through the hosts"
        claim = ratio_claim("md.exchange_by_agents", times["agent"], peer, times["host"], None, note)
        report.claims.append(replace(claim, shown=True))
        measure_same_atoms(report, agree_cells, agree_ranks, launcher, where, agent.address)


def add_phases(report: Report, name: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Milliseconds of a step's phases, medians over the runs."""
    for way, of in runs.items():
        steps = [one["force_steps"] for one in of]
        phases = [median(1e3 * step[f"{phase}_s"] / step["count"] for step in steps) for phase in PHASES]
        report.series.append(Series("md_fig10", f"{name}/{way}", "phase", "ms a step", [*range(len(PHASES))], phases))


def share_same(ours: dict[int, np.ndarray], theirs: dict[int, np.ndarray]) -> float:
    """The share of atoms, over all steps compared, whose velocity and force have the same bits."""
    return float(np.mean([(ours[step] == atoms).all(axis=1).mean() for step, atoms in theirs.items()]))


def measure_same_atoms(
    report: Report, cells: int, ranks: tuple[int, ...], launcher: tuple[str, ...], where: str, address: str
) -> None:
    words = ["-s", str(cells), "-n", str(AGREE_STEPS), "--every", "5", "--offload", "force"]
    shares = []
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        for count in ranks:
            found = {}
            for way in WAYS:
                path = Path(folder) / f"{way}{count}"
                dumped = [*words, "--exchange", way, "--dump", str(path), "--dump_every", str(AGREE_EVERY)]
                one = run_md(dumped, where, address, (*launcher, str(count)))
                if one["exchange"] != way or one["forces_by_agent"] == 0:
                    raise ProgramError(f"forces were not exchanged {WAYS[way]}")
                found[way] = atoms_of(path)
            shares.append(share_same(found["agent"], found["host"]))
    worst = 100 * min(shares)
    report.claims.append(
        Claim("md.exchange_atoms_agree", worst, "%", "through the hosts: velocity and force of each atom, to the bit",
              target="100 %", holds=worst == 100, pairs=len(shares))
    )  # fmt: skip
