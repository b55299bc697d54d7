"""Molecular dynamics on several ranks, each with a worker of the agent: the series of figures 6 to 8, 11 and 12 of
"Smarter NICs for faster molecular dynamics" (2022).

If ranks, threads and the agent are more than the cores, they wait for each other, and times mean nothing, unlike
results. So every run with forces elsewhere is compared with the same run on one rank, by the energy at its end.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..programs import ProgramError
from ..report import Claim, Report, Series
from .alone import DISPLACEMENT, ratio_claim, third_core
from .offloaded import gain, phase_shares, seconds_of
from .run import run_md

RANKS = (1, 2, 4, 8, 16)
INTERVALS = (1, 5, 10, 20)
# Cells, steps, at which intervals, on how many ranks. A run is as long as its interval at least, so it has a rebuild.
Size = tuple[int, int, tuple[int, ...], tuple[int, ...]]
SIZES: tuple[Size, ...] = (
    (10, 60, INTERVALS, RANKS),
    (20, 20, INTERVALS, RANKS),
    (32, 20, (1, 20), RANKS),
    (60, 5, (1, 5), RANKS),
)
QUICK_SIZES: tuple[Size, ...] = ((6, 20, (1, 20), (1, 2)),)
SLOW_CELLS_MAX = 60  # figure 6 is drawn to this size
AGREE_STEPS, AGREE_EVERY = 300, 50  # atoms are compared as often
AGREE = 1e-8  # of forces, relative to their mean size, and of temperatures
CONFIGURATIONS = ((1, (1, 2, 4, 8)), (2, (1, 2, 4)), (4, (1, 2)), (8, (1, 2)), (16, (1,)))  # ranks, threads of each
LARGE = (60, 5)  # cells, steps: 864,000 atoms
SAME = 5e-7  # seven digits

Run = Callable[[int, list[str]], dict[str, Any]]


def find_mpirun() -> str:
    # Not the one of this environment's wheel: its ranks spin where they share cores.
    own = str(Path(sys.prefix) / "bin")
    folders = [each for each in os.environ.get("PATH", "").split(os.pathsep) if each != own]
    path = os.pathsep.join(folders)
    found = shutil.which("mpirun.openmpi", path=path) or shutil.which("mpirun", path=path)
    if found is None:
        raise ProgramError("there is no mpirun: install Open MPI")
    return found


def label(what: str, wanted: int, cores: int) -> str:
    """A line's name; the figures draw oversubscribed runs in another way."""
    return f"{what}/oversubscribed" if wanted > cores else what


def rounds_of(ranks: int) -> int:
    """By turns with and without the agent; on one rank times mean something."""
    return 3 if ranks == 1 else 1


def measure_sizes(report: Report, run: Run, cores: int, sizes: tuple[Size, ...], agrees: list[bool]) -> None:
    """Figures 6, 7, 11 and 12."""
    for cells, steps, intervals, ranks in sizes:
        atoms = 4 * cells**3
        slow_at = [each for each in intervals if each in (intervals[0], intervals[-1])]
        expected: dict[int, float] = {}  # energy on one rank
        for count in ranks:
            gains, slower, hidden = [], [], []
            for interval in intervals:
                words = ["-s", str(cells), "-n", str(steps), "--every", str(interval), "--thermo", "0"]
                pairs = []
                for _ in range(rounds_of(count)):
                    alone = run(count, words)
                    force = run(count, [*words, "--offload", "force"])
                    pairs.append(gain(seconds_of(alone), seconds_of(force)))
                gains.append(median(pairs))
                shares = phase_shares(alone)
                hidden.append(shares["communicate"])
                if interval == intervals[-1] and count <= cores:  # ranks that share a core mostly wait for each other
                    name = f"{atoms} atoms, {count} ranks, interval {interval}"
                    phases = Series("md_fig7_ranks", name, "phase", "%", [*range(len(shares))], [*shares.values()])
                    report.series.append(phases)
                first = expected.setdefault(interval, force["energy_last"])
                agrees.append(force["forces_by_agent"] > 0 and abs(force["energy_last"] - first) <= SAME * abs(first))
                if interval in slow_at and cells <= SLOW_CELLS_MAX:
                    narrow = run(count, [*words, "--kernels", "scalar"])
                    slower.append(seconds_of(narrow) / seconds_of(alone))
            name = label(f"{atoms} atoms, {count} ranks", 2 * count, cores)
            report.series.append(Series("md_fig11_ranks", name, "interval", "%", [*intervals], gains))
            name = label(f"{atoms} atoms, {count} ranks", count, cores)
            report.series.append(Series("md_fig12_ranks", name, "interval", "%", [*intervals], hidden))
            if slower:
                report.series.append(Series("md_fig6", name, "interval", "times as long", [*slow_at], slower))


def measure_configurations(report: Report, run: Run, cores: int, cells: int, steps: int, most: int) -> None:
    """Figure 8: so many ranks with so many threads each, beside one rank with a thread on every core."""
    words = ["-s", str(cells), "-n", str(steps), "--thermo", "0"]
    whole = run(1, [*words, "-t", str(cores)])["atom_steps_per_s"] if cores > 1 else None
    for ranks, threads in CONFIGURATIONS:
        for each in threads:
            if ranks * each > most:
                continue
            rate = run(ranks, [*words, "-t", str(each)])["atom_steps_per_s"]
            name = label(f"{4 * cells**3} atoms, {each} threads", ranks * each, cores)
            report.series.append(Series("md_fig8", name, "ranks", "of one host", [ranks], [rate / (whole or rate)]))


def measure_ranks(report: Report, cores: tuple[int, int], address: str, quick: bool, console: Console) -> None:
    host, agent = cores
    mpirun = find_mpirun()
    both = f"{host},{agent}" if host != agent else str(host)
    cores_there = len(set(cores))
    sizes = QUICK_SIZES if quick else SIZES
    most = 4 if quick else 16
    runs = sum(
        2 * rounds_of(count) * len(intervals) + (min(2, len(intervals)) if cells <= SLOW_CELLS_MAX else 0)
        for cells, _, intervals, ranks in sizes
        for count in ranks
    )
    runs += 1 + sum(ranks * each <= most for ranks, threads in CONFIGURATIONS for each in threads)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    agrees: list[bool] = []
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("ranks", total=runs)

        def run(ranks: int, words: list[str]) -> dict[str, Any]:
            progress.update(bar, description=f"{ranks} ranks, {4 * int(words[1]) ** 3} atoms")
            launcher = (mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(ranks))
            threads = int(words[words.index("-t") + 1]) if "-t" in words else 1
            one = run_md(words, str(host) if ranks * threads == 1 else both, address, launcher)
            progress.advance(bar)
            return one

        measure_sizes(report, run, cores_there, sizes, agrees)
        measure_configurations(report, run, cores_there, *((8, 20) if quick else LARGE), most)
    report.claims.append(
        Claim(
            "md.force_mode_ranks_agree",
            100 * sum(agrees) / len(agrees),
            "%",
            "one rank, seven digits of energy",
            target="100 %",
            holds=all(agrees),
            pairs=len(agrees),
        )
    )


def atoms_of(path: Path) -> dict[int, np.ndarray]:
    """step -> velocities and forces, a row for each atom in the order of ids."""
    found = {}
    for part in path.read_text(encoding="utf-8").split("ITEM: TIMESTEP\n")[1:]:
        head, _, rows = part.partition("fx fy fz\n")
        found[int(head.split("\n", 1)[0])] = np.loadtxt(io.StringIO(rows), ndmin=2)[:, 5:11]
    return found


def share_alike(ours: dict[int, np.ndarray], one_rank: dict[int, np.ndarray]) -> float:
    """The share of atoms, over all steps compared, whose velocity (so the temperature) and force are alike."""
    alike = []
    for step, atoms in one_rank.items():
        if step == 0:  # the lattice: all forces are zero to rounding
            continue
        mean_size = np.array([np.abs(atoms[:, :3]).mean(), np.abs(atoms[:, 3:]).mean()])
        apart = np.abs(ours[step] - atoms).reshape(len(atoms), 2, 3).max(axis=2)
        alike.append((apart <= AGREE * mean_size).all(axis=1).mean())
    return float(np.mean(alike))


def measure_agreement(report: Report, cores: tuple[int, int], address: str, quick: bool) -> None:
    """Forces elsewhere on several ranks, atom by atom beside one rank; lists elsewhere on ranks, in time."""
    both = ",".join(map(str, dict.fromkeys(cores)))
    mpirun = (find_mpirun(), "--oversubscribe", "--bind-to", "none", "-n")
    words = ["-s", "6" if quick else "10", "-n", str(AGREE_STEPS), "--every", "5", "--offload", "force"]
    shares = []
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        expected: dict[int, np.ndarray] = {}
        for ranks in (1, 2) if quick else (1, 2, 4, 8):
            path = Path(folder) / f"dump{ranks}"
            dumped = [*words, "--dump", str(path), "--dump_every", str(AGREE_EVERY)]
            one = run_md(dumped, both, address, (*mpirun, str(ranks)))
            if one["forces_by_agent"] == 0:
                raise ProgramError("the agent has computed no forces")
            expected = expected or atoms_of(path)
            shares.append(share_alike(atoms_of(path), expected))
    worst = 100 * min(shares[1:])
    report.claims.append(
        Claim("md.force_mode_atoms_agree", worst, "%", f"one rank: velocity and force of each atom, to {AGREE:g}",
              target="100 %", holds=worst == 100, pairs=len(shares) - 1)
    )  # fmt: skip
    size = ["-s", "8" if quick else "20", "-n", "40" if quick else "100", "--thermo", "0", *DISPLACEMENT]
    third = third_core(cores)
    where = both if third is None else f"{cores[0]},{third}"
    times: dict[str, list[float]] = {"none": [], "list": []}
    for number in range(1 if quick else 21):
        for mode in times if number % 2 else reversed(list(times)):
            run = run_md([*size, "--offload", mode], where, address, (*mpirun, "2"))
            times[mode].append(seconds_of(run))
    claim = ratio_claim("md.list_on_two_ranks", times["list"], "two ranks alone, lists by displacement", times["none"],
                        None, "ranks and the agent share two cores" if third is None else None)  # fmt: skip
    report.claims.append(claim)
