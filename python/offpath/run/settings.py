"""The settings of ``offpath run``, checked before anything is started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LAYOUTS = ("list", "columns")  # x as one column of three doubles a row; as three columns

ATOMS_DEFAULT = 32_000
ATOMS_MIN = 256  # four lattice cells a side; LAMMPS's cutoff needs about two
RANKS_MAX = 256
AGENTS_MAX = 64  # of one machine, each with memory of its own
# Each ends as Arrow on the agent. "native" and "serialised" keep bytes without columns, which nothing here could read.
DESTINATIONS = ("ipc-page", "ipc", "arrays", "record-batch", "c-abi", "agent-serialise")
ADDRESS_SCHEMES = ("unix:", "tcp:", "tls:", "verbs:", "doca:")


class RunError(Exception):
    """Why the run cannot start or go on, for the person who started it."""


@dataclass(frozen=True)
class Settings:
    """The options of ``offpath run``.

    ``steps`` and ``every`` count time steps of the simulation. ``atoms`` is the requested number; None stands for
    ATOMS_DEFAULT, or for the atoms of ``input``. ``agent`` is an address, None stands for ``agents`` started for this
    run, a group of which ranks have one each in turn. Agents beyond the number of ranks keep their part of the data.
    ``view`` serves a page while the simulation runs.
    """

    atoms: int | None = None
    steps: int = 100
    every: int = 5
    agent: str | None = None
    agents: int = 1
    snapshot: bool = False
    layout: str = "list"
    destination: str = "ipc-page"
    out: Path = Path("offpath-run")
    ranks: int = 1
    json_path: Path | None = None
    input: Path | None = None
    check: bool = True
    view: bool = False

    @property
    def stream_path(self) -> Path:
        return self.out / "particles.arrows"

    @property
    def figure_path(self) -> Path:
        return self.out / "run.png"

    @property
    def tracks_path(self) -> Path:
        return self.out / "tracks.parquet"

    @property
    def tracks_figure_path(self) -> Path:
        return self.out / "tracks.png"

    @property
    def log_path(self) -> Path:
        return self.out / "lammps.log"

    @property
    def dump_path(self) -> Path:
        return self.out / "reference.bin"

    @property
    def handovers(self) -> int:
        """How often the arrays are handed over: at step 0 and at every multiple of ``every`` up to ``steps``."""
        return self.steps // self.every + 1

    @property
    def agent_address(self) -> str | None:
        """``agent`` with its scheme: HOST:PORT alone means TCP."""
        if self.agent is None or self.agent.startswith(ADDRESS_SCHEMES):
            return self.agent
        return f"tcp:{self.agent}"

    def validate(self) -> None:
        """Raises RunError with the first invalid option, its value and the allowed values."""
        if self.every < 1:
            raise RunError(f"--every {self.every}: at least 1 step lies between two hand-overs")
        if self.steps < self.every:
            raise RunError(
                f"--steps {self.steps} is less than --every {self.every}: only step 0 would be handed over; "
                f"at least {self.every} steps are needed"
            )
        if self.atoms is not None and self.input is not None:
            raise RunError(f"--atoms {self.atoms} goes with LAMMPS's in.lj, not with --input {self.input}")
        if self.atoms is not None and self.atoms < ATOMS_MIN:
            raise RunError(f"--atoms {self.atoms}: at least {ATOMS_MIN}")
        if not 1 <= self.ranks <= RANKS_MAX:
            raise RunError(f"--ranks {self.ranks}: 1 to {RANKS_MAX}")
        if self.agents != 1 and self.agent is not None:
            raise RunError(f"--agents {self.agents} starts agents, --agent {self.agent} names one: give one of the two")
        if not 1 <= self.agents <= AGENTS_MAX:
            raise RunError(f"--agents {self.agents}: 1 to {AGENTS_MAX}")
        if self.layout not in LAYOUTS:
            raise RunError(f"--layout {self.layout!r}: one of {', '.join(LAYOUTS)}")
        if self.destination not in DESTINATIONS:
            raise RunError(f"--destination {self.destination!r}: one of {', '.join(DESTINATIONS)}")
        if self.input is not None and not self.input.is_file():
            raise RunError(f"--input {self.input}: no such file")
        self.validate_agent()

    def validate_agent(self) -> None:
        address = self.agent_address
        if address is None or address.startswith("unix:"):
            return
        host, colon, port = address.partition(":")[2].rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise RunError(f"--agent {self.agent!r}: HOST:PORT or unix:PATH is expected")

    def prepare_out(self) -> None:
        """Makes the directory and proves that it can be written. Raises RunError."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            probe = self.out / f".offpath-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise RunError(f"--out {self.out}: cannot be written: {error.strerror or error}") from error
