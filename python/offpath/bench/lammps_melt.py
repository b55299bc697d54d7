"""Atoms in LAMMPS for ``offpath bench lammps``, in a process of its own.

``python -m offpath.bench.lammps_melt WAY PLUGIN CELLS FOLDER`` says ``ready``, and answers each line that it reads by a
turn of the run: ``CPU_NANOSECONDS WALL_NANOSECONDS 0 0`` of this process. All ways of one problem compute the same
trajectory.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ATOMS = """
plugin load {plugin}
units lj
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
{forces}
fix integrated all nve
"""
# Without forces a step costs so little that fractions of a millisecond beside it are seen.
MELT = "pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5"
DRIFT = "comm_modify cutoff 2.8\nneigh_modify delay 0 every 10 check no"


@dataclass(frozen=True)
class Problem:
    """The common settings of compared ways: forces, steps from one hand-over to the next, hand-overs of a turn.

    The agent is done with a hand-over before the next one.
    """

    forces: str
    every: int
    hand_overs: int


ONCE = Problem(DRIFT, 10, 60)  # for work that passes over the atoms once
PAIRS = Problem(MELT, 4, 7)
BONDS = Problem(MELT, 10, 2)

BINS, CUTOFF, BONDED = 100, 2.5, 1.434
WRITTEN = "variable none equal 0\nfix out all ave/time {every} 1 {every} v_none file {folder}/none.txt"


def correlated(what: str) -> dict[str, tuple[Problem, str]]:
    """An analysis of four values, by the agent and by LAMMPS."""
    average = "fix out all ave/time {every} 1 {every} "
    return {
        what: (ONCE, f"fix hand all offpath/analyse {{every}} {what} lag yes\n"
                     f"{average}f_hand[4] file {{folder}}/agent.txt"),
        f"compute {what}": (ONCE, f"compute hand all {what}\n{average}c_hand[4] file {{folder}}/own.txt"),
    }  # fmt: skip


# Compared runs follow each other, so that little time is between them.
WAYS: dict[str, tuple[Problem, str]] = {
    "hand-over": (ONCE, "fix hand all offpath {every} pool local:/bench-melt keep 2 columns id type x v"),
    "plain": (ONCE, ""),
    "dump": (ONCE, "dump hand all custom {every} {folder}/*.bin id type x y z vx vy vz"),
    **correlated("msd"),
    "plain-written": (ONCE, WRITTEN),
    **correlated("vacf"),
    "rdf": (PAIRS, "fix hand all offpath/analyse {every} rdf {bins} cutoff {cutoff} lag yes\n"
            "fix out all ave/time {every} 1 {every} f_hand[1] f_hand[2] f_hand[3] file {folder}/agent.txt mode vector"),
    "plain rdf": (PAIRS, WRITTEN),
    "compute rdf": (PAIRS, "compute hand all rdf {bins}\n"
                    "fix out all ave/time {every} 1 {every} c_hand[*] file {folder}/own.txt mode vector"),
    "cna": (BONDS, "fix hand all offpath/analyse {every} cna {bonded} lag yes\n"
            "fix out all ave/time {every} 1 {every} f_hand[1] f_hand[5] file {folder}/agent.txt"),
    "plain cna": (BONDS, WRITTEN),
    "compute cna/atom": (BONDS, "compute hand all cna/atom {bonded}\n"
                         "variable fcc atom c_hand==1\nvariable other atom c_hand==5\n"
                         "compute sums all reduce sum v_fcc v_other\n"
                         "fix out all ave/time {every} 1 {every} c_sums[1] c_sums[2] file {folder}/own.txt"),
}  # fmt: skip


def main(way: str, plugin: str, cells: str, folder: str) -> None:
    from offpath.run.simulation import load_lammps

    problem, commands = WAYS[way]
    melt = load_lammps().lammps(cmdargs=["-log", "none", "-screen", "none", "-nocite"])
    melt.commands_string(ATOMS.format(plugin=plugin, cells=cells, forces=problem.forces))
    melt.commands_string(commands.format(every=problem.every, folder=folder, bins=BINS, cutoff=CUTOFF, bonded=BONDED))
    melt.command(f"run {problem.every // 2}")
    print("ready", flush=True)
    for _ in sys.stdin:
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        melt.command(f"run {problem.every * problem.hand_overs} pre no post no")
        print(time.process_time_ns() - cpu, time.perf_counter_ns() - wall, 0, 0, flush=True)
        for written in Path(folder).glob("*.bin"):
            os.unlink(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
