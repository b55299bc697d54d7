"""A melting crystal in LAMMPS for ``offpath bench lammps``, in a process of its own.

``python -m offpath.bench.lammps_melt WAY PLUGIN CELLS FOLDER`` says ``ready``, and answers each line that it reads by
STEPS steps of the run, with HAND_OVERS hand-overs: ``CPU_NANOSECONDS WALL_NANOSECONDS 0 0`` of this process. All ways
compute the same trajectory.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

EVERY, HAND_OVERS = 10, 2
STEPS = EVERY * HAND_OVERS
BINS, CUTOFF, BONDED = 100, 2.5, 1.434
WAYS = {
    "plain": "",
    "plain-written": "variable none equal 0\nfix out all ave/time {every} 1 {every} v_none file {folder}/none.txt",
    "hand-over": "fix hand all offpath {every} pool local:/bench-melt keep 2 columns id type x v",
    "dump": "dump hand all custom {every} {folder}/*.bin id type x y z vx vy vz",
    "rdf": "fix hand all offpath/analyse {every} rdf {bins} cutoff {cutoff} lag yes\n"
    "fix out all ave/time {every} 1 {every} f_hand[1] f_hand[2] f_hand[3] file {folder}/agent.txt mode vector",
    "compute rdf": "compute hand all rdf {bins}\n"
    "fix out all ave/time {every} 1 {every} c_hand[*] file {folder}/own.txt mode vector",
    "cna": "fix hand all offpath/analyse {every} cna {bonded} lag yes\n"
    "fix out all ave/time {every} 1 {every} f_hand[1] f_hand[5] file {folder}/agent.txt",
    "compute cna/atom": "compute hand all cna/atom {bonded}\n"
    "variable fcc atom c_hand==1\nvariable other atom c_hand==5\ncompute sums all reduce sum v_fcc v_other\n"
    "fix out all ave/time {every} 1 {every} c_sums[1] c_sums[2] file {folder}/own.txt",
    "msd": "fix hand all offpath/analyse {every} msd lag yes\n"
    "fix out all ave/time {every} 1 {every} f_hand[4] file {folder}/agent.txt",
    "compute msd": "compute hand all msd\nfix out all ave/time {every} 1 {every} c_hand[4] file {folder}/own.txt",
}
MELT = """
plugin load {plugin}
units lj
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix integrated all nve
"""


def main(way: str, plugin: str, cells: str, folder: str) -> None:
    from offpath.run.simulation import load_lammps

    melt = load_lammps().lammps(cmdargs=["-log", "none", "-screen", "none", "-nocite"])
    melt.commands_string(MELT.format(plugin=plugin, cells=cells))
    melt.commands_string(WAYS[way].format(every=EVERY, folder=folder, bins=BINS, cutoff=CUTOFF, bonded=BONDED))
    melt.command(f"run {EVERY // 2}")
    print("ready", flush=True)
    for _ in sys.stdin:
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        melt.command(f"run {STEPS} pre no post no")
        print(time.process_time_ns() - cpu, time.perf_counter_ns() - wall, 0, 0, flush=True)
        for written in Path(folder).glob("*.bin"):
            os.unlink(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
