"""The diagnostic of fbpic: in a simulation of fbpic, and with objects that look like fbpic's species."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from offpath.integrations.fbpic import QUANTITIES, ParticleDiagnostic

ROOT = Path(__file__).resolve().parents[2]


class Species:
    use_cuda = False

    def __init__(self, particles: int, seed: int) -> None:
        self.Ntot = particles
        for quantity in QUANTITIES:
            setattr(self, quantity, np.random.default_rng(seed).random(particles))


class Comm:
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def test_species_of_any_number_of_particles(session, name):
    electrons, ions = Species(10, 1), Species(0, 2)
    diagnostic = ParticleDiagnostic(session, 2, {"electrons": electrons, "ions": ions}, pool=f"local:/{name}")
    pool = session.pool(f"local:/{name}")
    for iteration in range(6):
        diagnostic.write(iteration)
        if iteration % 2 == 0:
            for each, kind in ((electrons, "electrons"), (ions, "ions")):
                table = pool.get(f"step{iteration}", f"{kind}.rank0", timeout=60)
                assert table.column_names == list(QUANTITIES)
                for quantity in QUANTITIES:
                    assert (table[quantity].to_numpy() == getattr(each, quantity)).all()
        for number, each in enumerate((electrons, ions)):
            each.__init__(each.Ntot * 3 + 5, 10 * iteration + number)  # more particles, in other memory
    diagnostic.close()
    assert {entry.row for entry in pool.list()} == {"step0", "step2", "step4"}


def test_a_step_appears_when_all_ranks_have_sent_it(session, name):
    ranks = [
        ParticleDiagnostic(session, 1, {"e": Species(4, rank)}, comm=Comm(rank, 2), pool=f"local:/{name}", timeout=60)
        for rank in range(2)
    ]
    pool = session.pool(f"local:/{name}")
    ranks[1].write(0)
    assert pool.list() == []
    ranks[0].write(0)
    assert pool.get("step0", "e.rank1", timeout=60).num_rows == 4
    assert sorted(entry.column for entry in pool.list("step0")) == ["e.rank0", "e.rank1"]


def test_what_cannot_be_sent_is_named(session):
    on_gpu = Species(1, 1)
    on_gpu.use_cuda = True
    with pytest.raises(ValueError, match="species 'e' is on a GPU"):
        ParticleDiagnostic(session, 1, {"e": on_gpu})
    with pytest.raises(ValueError, match="period is 0; at least 1 iteration"):
        ParticleDiagnostic(session, 0, {})


@pytest.mark.skipif(importlib.util.find_spec("fbpic") is None, reason="no fbpic (packages/simulations.txt)")
def test_the_example_runs_in_fbpic(agent, tmp_path):
    # numba compiles fbpic's kernels on the first run, which takes a minute.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/11_fbpic/plasma.py", agent.address],
        capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith("step")]
    assert [row[:3] for row in rows] == [[f"step{each}", "electrons.rank0", "512"] for each in (0, 2, 4)]
    assert float(rows[0][3]) == 0.1
