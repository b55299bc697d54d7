"""Teams of MPI's communicators, in every language, and all that the Fortran modules have. Programs are compiled as
users compile them."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import offpath
import pytest
from agent_process import AgentProcess, agent, find_program, until
from built import needs_built
from md_program import on_ranks

BUILD = find_program().parents[1]
PLUGIN = BUILD / "tests" / "task_plugin.so"
INCLUDE = Path(__file__).resolve().parents[2] / "include"
PROGRAMS = Path(__file__).parent / "programs"
MODULES = [INCLUDE / "offpath" / f"offpath{name}.f90" for name in ("", "_tasks", "_exchange")]
MPI_MODULE = INCLUDE / "offpath" / "offpath_mpi.f90"
PATIENCE_S = 200.0
EXCHANGE = """
[[exchange]]
name = "load"
members = ["a"]
grant_total = 100
grant_ttl = "1s"
grant_lease = "2s"
interval = "100ms"
deadline = "50ms"
fields = ["power:f64:watts", "jobs:u64"]
reductions = ["sum(power)"]
"""

pytestmark = needs_built(PLUGIN)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentProcess]:
    plugin = shutil.copy(PLUGIN, tmp_path)
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[[plugin]]\nname = "t"\npath = "{plugin}"\nworkers = 4\n{EXCHANGE}')
    with agent(tmp_path, "--name", "a", "--config", str(settings)) as started:
        monkeypatch.setenv("OFFPATH_AGENT", started.ready["address"])
        yield started


def compiled(folder: Path, compiler: str, *sources: Path | str) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    program = folder / "program"
    libraries = BUILD / "lib"
    linked = [f"-I{INCLUDE}", f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-loffpath"]
    subprocess.run(
        [compiler, "-Wall", "-Wextra", *sources, "-o", program, *linked], cwd=folder, check=True, timeout=300
    )
    return program


@pytest.mark.parametrize(
    ("compiler", "sources", "ranks", "output"),
    [
        ("mpicc.openmpi", ["-std=c11", "-Werror", "mpi_team.c"], 4, "2 teams of 2 lanes\n"),
        ("mpicxx.openmpi", ["-std=c++20", "-DOMPI_SKIP_MPICXX", "mpi_team.cc"], 3, "a team of 3 lanes\n"),
        ("mpif90.openmpi", [*MODULES, MPI_MODULE, "mpi_team.f90"], 3, "a team of 3 lanes\n"),
    ],
    ids=["c", "cc", "f90"],
)
def test_ranks_of_a_communicator_are_a_team(
    running: AgentProcess, tmp_path: Path, compiler: str, sources: list[Path | str], ranks: int, output: str
) -> None:
    *options, source = sources
    program = compiled(tmp_path, compiler, *options, PROGRAMS / source)
    done = subprocess.run([*on_ranks(ranks), program], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_ranks_of_a_communicator_of_mpi4py_are_a_team() -> None:
    names: list[str] = []
    told = threading.Barrier(2)

    class Communicator:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def Get_rank(self) -> int:
            return self.rank

        def Get_size(self) -> int:
            return 2

        def bcast(self, name: str | None, root: int) -> str:
            if self.rank == root:
                assert name
                names.append(name)
            told.wait(PATIENCE_S)
            return names[-1]

    made: dict[int, dict[str, object]] = {}
    for _ in range(2):
        ranks = [
            threading.Thread(target=lambda rank=rank: made.update({rank: offpath.team_of(Communicator(rank))}))
            for rank in range(2)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        assert made == {rank: {"lane": rank, "lanes": 2, "team": names[-1]} for rank in range(2)}
    assert names[0] != names[1]


def test_a_stream_tasks_gauges_and_an_exchange_from_fortran(running: AgentProcess, tmp_path: Path) -> None:
    program = compiled(tmp_path, "gfortran", *MODULES, PROGRAMS / "whole_interface.f90")

    def values() -> dict[str, float]:
        lines = [line for line in running.get("/metrics")[2].splitlines() if line.startswith("offpath_program_")]
        return {line.partition("{")[0].removeprefix("offpath_program_"): float(line.split()[-1]) for line in lines}

    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as started:
        assert started.stdin is not None and started.stdout is not None

        def says(what: str) -> None:
            assert started.stdout.readline() == f"{what}\n"

        def go_on() -> None:
            started.stdin.write("\n")
            started.stdin.flush()

        says("tasks")
        go_on()
        says("gauges")
        assert until(lambda: values() == {"iterations_total": 17, "residual_seconds": 0.25, "left": -3}, PATIENCE_S)
        go_on()
        says("cleared")
        assert until(lambda: values() == {"iterations_total": 17, "residual_seconds": 0.25}, PATIENCE_S)
        go_on()
        says("exchange")
        go_on()
        assert started.wait(PATIENCE_S) == 0
