"""LAMMPS's binary dump (``dump custom FILE.bin``): the doubles as they were in memory, so bits can be compared.

One frame, all numbers as the machine has them (LAMMPS's dump_custom.cpp, header_binary and write_binary)::

    int64   -length of the magic string     int32   endian mark, 1
    char[]  "DUMPCUSTOM"                    int32   revision, 2
    int64   time step                       int64   atoms
    int32   triclinic                       int32   boundary[3][2]
    double  xlo xhi ylo yhi zlo zhi         double  xy xz yz             (triclinic only)
    int32   fields per atom                 int32   length, char[] unit style
    char    has time; if so double time     int32   length, char[] names of the columns
    int32   chunks, one per MPI rank; each  int32   doubles, double[] values
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC = b"DUMPCUSTOM"
REVISION = 2


class DumpError(Exception):
    """A file that is not such a dump; names the place."""


@dataclass
class DumpFrame:
    """One step: ``values`` (atoms, columns) doubles, ``columns`` their names in order."""

    step: int
    columns: list[str]
    values: NDArray[np.float64]

    def take(self, *names: str) -> NDArray[np.float64]:
        """The named columns, (atoms, len(names)). Raises DumpError where one is missing."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise DumpError(f"step {self.step} has no column {missing[0]!r}; it has {' '.join(self.columns)}")
        return self.values[:, [self.columns.index(name) for name in names]]


class Reader:
    """A cursor over the file's bytes that never reads past their end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.offset = data, 0

    def advance(self, length: int) -> int:
        """Moves on by ``length`` bytes; where it was."""
        start = self.offset
        if length < 0 or length > len(self.data) - start:
            raise DumpError(f"offset {start}: {length} bytes are announced, {len(self.data) - start} are left")
        self.offset += length
        return start

    def take(self, form: str) -> tuple:
        return struct.unpack_from(f"={form}", self.data, self.advance(struct.calcsize(f"={form}")))

    def text(self) -> str:
        (length,) = self.take("i")
        start = self.advance(length)
        return self.data[start : start + length].decode("ascii", "replace")

    def doubles(self, count: int) -> NDArray[np.float64]:
        return np.frombuffer(self.data, np.float64, count, self.advance(count * 8))


def read_dump(path: Path) -> Iterator[DumpFrame]:
    """The frames in the file's order; one of them in memory at a time. Raises DumpError, OSError."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return
        # Not closed here: arrays of a kept frame still use it.
        reader = Reader(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    while reader.offset < len(reader.data):
        yield read_frame(reader)


def read_frame(reader: Reader) -> DumpFrame:
    start = reader.offset
    (marker,) = reader.take("q")
    if marker != -len(MAGIC) or (magic := reader.take(f"{len(MAGIC)}s")[0]) != MAGIC:
        found = f"marker {marker}" if marker != -len(MAGIC) else repr(magic)
        raise DumpError(f"offset {start}: {found} where marker {-len(MAGIC)} and {MAGIC!r} are expected")
    endian, revision = reader.take("ii")
    if endian != 1 or revision != REVISION:
        raise DumpError(f"offset {start}: endian mark {endian}, revision {revision}; 1 and {REVISION} are expected")
    step, atoms = reader.take("qq")
    (triclinic,) = reader.take("i")
    reader.take("6i")
    reader.take("9d" if triclinic else "6d")
    (fields,) = reader.take("i")
    reader.text()
    if reader.take("b")[0]:
        reader.take("d")
    columns = reader.text().split()
    if fields < 1 or len(columns) != fields:
        raise DumpError(f"step {step}: {fields} fields, but columns {' '.join(columns)!r}")
    (chunks,) = reader.take("i")
    values = np.concatenate([reader.doubles(*reader.take("i")) for _ in range(chunks)] or [np.empty(0)])
    if values.size != atoms * fields:
        raise DumpError(f"step {step}: {atoms} atoms of {fields} fields, but {values.size} values")
    return DumpFrame(step, columns, values.reshape(atoms, fields))
