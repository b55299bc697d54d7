"""openPMD-api's wheel has an older ADIOS2 of its own: it tries to load the engine, whose message says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import adios2

PROGRAM = """
import json
import sys
import numpy as np
import openpmd_api as openpmd
parameters = {"PluginName": "offpath", "PluginLibrary": "offpath_adios2", "Pool": "local:/openpmd"}
engine = {"type": "plugin", "pretend_engine": "sst", "parameters": parameters}
how = json.dumps({"backend": "adios2", "adios2": {"engine": engine}})
series = openpmd.Series(sys.argv[1], openpmd.Access.create_linear, how)
field = series.snapshots()[0].meshes["E"]["x"]
field.reset_dataset(openpmd.Dataset(np.dtype("float64"), [10]))
field.store_chunk(np.arange(10.0))
series.close()
"""


def test_the_wheel_of_openpmd_is_refused_by_name(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "series.bp"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert "Offpath: the ADIOS2 of this program is in " in ran.stderr
    assert "openpmd_api_cxx" in ran.stderr
    assert f"built for ADIOS2 {adios2.__version__}" in ran.stderr
