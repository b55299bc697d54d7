"""A plasma of fbpic whose electrons are in a pool while the simulation runs.

Usage: plasma.py [ADDRESS OF AN AGENT]
"""

import sys

import offpath
from fbpic.main import Simulation
from offpath.integrations.fbpic import ParticleDiagnostic
from scipy.constants import c

CELLS, LENGTH, STEPS, PERIOD = 16, 10e-6, 5, 2

with offpath.connect(sys.argv[1] if len(sys.argv) > 1 else None) as session:
    simulation = Simulation(
        CELLS, LENGTH, CELLS // 2, LENGTH / 2, 1, LENGTH / CELLS / c,
        p_zmin=0, p_zmax=LENGTH, p_rmin=0, p_rmax=LENGTH / 2, p_nz=1, p_nr=1, p_nt=4, n_e=1e24, verbose_level=0,
    )  # fmt: skip
    electrons = simulation.ptcl[0]
    electrons.uz[:] = 0.1
    simulation.diags = [ParticleDiagnostic(session, PERIOD, {"electrons": electrons}, comm=simulation.comm)]
    simulation.step(STEPS, show_progress=False)

    pool = session.pool("local:/fbpic")
    for entry in pool.list("step*"):
        table = pool.get(entry.row, entry.column)
        print(entry.row, entry.column, table.num_rows, f"{table['uz'].to_numpy().mean():.3f}")
