"""Series that openPMD-api writes and reads, in a pool. In processes of their own: openPMD-api has an ADIOS2 in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import offpath
import pytest
from offpath.integrations.openpmd import KEY
from waiting import until

ROOT = Path(__file__).resolve().parents[2]

# As WarpX writes: positions with a constant offset, a constant charge, a vector mesh and a scalar one.
WRITE = """
import sys
import numpy as np
import openpmd_api as openpmd

def store(component, values):
    component.reset_dataset(openpmd.Dataset(values.dtype, values.shape))
    component.store_chunk(values)

def constant(component, value, shape):
    component.reset_dataset(openpmd.Dataset(np.dtype("float64"), shape))
    component.make_constant(value)

series = openpmd.Series(sys.argv[1], openpmd.Access.create_linear)
for step in (0, 50):
    iteration = series.snapshots()[step]
    iteration.time, iteration.time_unit_SI = step * 0.5, 1e-15
    electrons = iteration.particles["electrons"]
    n = 5 + step
    for axis in "xyz":
        store(electrons["position"][axis], np.random.default_rng(step + ord(axis)).random(n))
        constant(electrons["positionOffset"][axis], 0.0, [n])
    electrons["position"]["x"].unit_SI = 1e-6
    store(electrons["weighting"], np.arange(n, dtype=np.float32))
    store(electrons["id"], np.arange(n, dtype=np.uint64) + 2**63)
    constant(electrons["charge"], -1.5, [n])
    E = iteration.meshes["E"]
    E.axis_labels, E.grid_spacing = ["z", "x"], [0.25, 0.5]
    for axis in "xyz":
        store(E[axis], np.random.default_rng(step).random((3, 4)) + ord(axis))
        E[axis].position = [0.5, 0.0]
    store(iteration.meshes["rho"], np.full((3, 4), step, np.float32))
    if "complex" in sys.argv[2:]:
        store(iteration.meshes["psi"], np.ones((2, 2), np.complex128))
    iteration.close()
    if "line by line" in sys.argv[2:]:
        print(step, flush=True)
        sys.stdin.readline()
series.close()
"""


@pytest.fixture(params=["json", "bp", "h5"])
def series(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    place = tmp_path / f"series.{request.param}"
    subprocess.run([sys.executable, "-c", WRITE, place], check=True, timeout=120)
    return place


def example(series: Path, agent: offpath.Agent) -> list[str | Path]:
    return [sys.executable, ROOT / "examples/13_openpmd/series.py", series, agent.address]


def run_example(series: Path, agent: offpath.Agent) -> subprocess.CompletedProcess[str]:
    return subprocess.run(example(series, agent), capture_output=True, text=True, timeout=120)


def check(pool: offpath.Pool, steps: tuple[int, ...] = (0, 50), streamed: bool = False) -> None:
    """The pool has these iterations of the series, to the bit. Streams lose lists of texts (openPMD-api 0.17.1)."""
    for step in steps:
        electrons = pool.get(f"step{step}", "electrons")
        columns = {"position_x", "position_y", "position_z", "weighting", "id"}
        assert set(electrons.column_names) == columns
        for axis in "xyz":
            expected = np.random.default_rng(step + ord(axis)).random(5 + step)
            assert (electrons[f"position_{axis}"].to_numpy() == expected).all()
        assert (electrons["id"].to_numpy() == np.arange(5 + step, dtype=np.uint64) + 2**63).all()
        assert electrons["weighting"].to_numpy().dtype == np.float32
        units = electrons.schema.field("position_x").metadata
        assert float(units[b"unitSI"]) == 1e-6
        about = json.loads(electrons.schema.metadata[KEY])
        assert about["time"] == step * 0.5 * 1e-15
        assert about["constant"]["charge"]["value"] == -1.5 and "positionOffset_z" in about["constant"]
        field = pool.get(f"step{step}", "mesh.E")
        told = json.loads(field.schema.metadata[KEY])
        assert (told["shape"], told["gridSpacing"]) == ([3, 4], [0.25, 0.5])
        assert told.get("axisLabels") == ["z", "x"] or (streamed and "axisLabels" not in told)
        assert (told["dataOrder"], told["geometry"], told["position"]["x"]) == ("C", "cartesian", [0.5, 0.0])
        for axis in "xyz":
            expected = np.random.default_rng(step).random((3, 4)) + ord(axis)
            assert (field[axis].to_numpy().reshape(told["shape"]) == expected).all()
        assert (pool.get(f"step{step}", "mesh.rho")["rho"].to_numpy() == step).all()


def test_iterations_are_rows_of_the_pool(agent: offpath.Agent, session: offpath.Session, series: Path) -> None:
    ran = run_example(series, agent)
    assert ran.returncode == 0, ran.stderr
    assert "step50 mesh.E 12 ['x', 'y', 'z']" in ran.stdout
    pool = session.pool("local:/openpmd")
    check(pool)
    pool.drop("step*")


def test_a_series_is_followed_while_it_is_streamed(
    agent: offpath.Agent, session: offpath.Session, tmp_path: Path
) -> None:
    """By SST. The writer goes on with its next iteration when the one before is in the pool."""
    place, pool = tmp_path / "series.sst", session.pool("local:/openpmd").create()
    write = [sys.executable, "-c", WRITE, place, "line by line"]
    with (
        subprocess.Popen(write, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer,
        subprocess.Popen(example(place, agent), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader,
    ):
        try:
            assert writer.stdin is not None and writer.stdout is not None
            for step in (0, 50):
                assert writer.stdout.readline() == f"{step}\n"
                assert until(lambda step=step: pool.list(f"step{step}", "mesh.rho") != [], 60), "the last one put"
                check(pool, (step,), streamed=True)
                writer.stdin.write("\n")
                writer.stdin.flush()
            shown, errors = reader.communicate(timeout=60)
            assert reader.returncode == 0, errors
            assert "step50 mesh.E 12 ['x', 'y', 'z']" in shown
            assert writer.wait(60) == 0
        finally:
            for process in (writer, reader):
                process.kill()
    pool.drop("step*")


def test_a_complex_component_is_named_before_anything_is_put(
    agent: offpath.Agent, session: offpath.Session, tmp_path: Path
) -> None:
    place = tmp_path / "series.json"
    subprocess.run([sys.executable, "-c", WRITE, place, "complex"], check=True, timeout=120)
    ran = run_example(place, agent)
    assert ran.returncode == 1 and "component 'psi' is of type complex128" in ran.stderr, ran.stderr
    assert session.pool("local:/openpmd").list("step*") == []
