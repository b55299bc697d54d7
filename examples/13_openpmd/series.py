"""An openPMD series, as WarpX and others write it, whose iterations are in a pool.

Usage: series.py SERIES [ADDRESS OF AN AGENT]
"""

import sys

import offpath
import openpmd_api
from offpath.integrations.openpmd import put_iteration

with offpath.connect(sys.argv[2] if len(sys.argv) > 2 else None) as session:
    pool = session.pool("local:/openpmd").create()
    series = openpmd_api.Series(sys.argv[1], openpmd_api.Access.read_linear)
    for iteration in series.read_iterations():
        put_iteration(pool, iteration)
    series.close()

    for entry in pool.list("step*"):
        print(entry.row, entry.column, entry.rows, pool.get(entry.row, entry.column).column_names)
