"""LAMMPS's binary dump, byte by byte: valid files are read, and others are refused."""

import struct
from pathlib import Path

import numpy as np
import pytest
from offpath.run.dump import DumpError, read_dump

COLUMNS = b"id type x"


def frame_bytes(step: int, chunks: list[list[tuple]], triclinic: bool = False, time: float | None = None) -> bytes:
    """One frame as LAMMPS writes it, one chunk for each rank."""
    atoms = sum(map(len, chunks))
    header = struct.pack("=q10siiqqi6i", -10, b"DUMPCUSTOM", 1, 2, step, atoms, int(triclinic), *[0] * 6)
    header += struct.pack(f"={9 if triclinic else 6}d", *range(9 if triclinic else 6))
    header += struct.pack("=ii2s", 3, 2, b"lj")
    header += struct.pack("=b", 0) if time is None else struct.pack("=bd", 1, time)
    header += struct.pack(f"=i{len(COLUMNS)}si", len(COLUMNS), COLUMNS, len(chunks))
    for chunk in chunks:
        values = [value for row in chunk for value in row]
        header += struct.pack(f"=i{len(values)}d", len(values), *values)
    return header


def write(path: Path, *frames: bytes) -> Path:
    path.write_bytes(b"".join(frames))
    return path


def test_reads_frames_of_several_ranks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.bin",
        frame_bytes(0, [[(1, 1, 0.5)], [(3, 2, -0.25), (2, 1, 1e300)]]),
        frame_bytes(5, [[], [(2, 1, 7.0)]], triclinic=True, time=0.025),
    )
    first, second = read_dump(path)
    assert (first.step, second.step) == (0, 5)
    assert first.columns == ["id", "type", "x"]
    np.testing.assert_array_equal(first.take("id", "x"), [[1, 0.5], [3, -0.25], [2, 1e300]])
    np.testing.assert_array_equal(second.values, [[2, 1, 7.0]])
    with pytest.raises(DumpError, match="'vx'"):
        first.take("id", "vx")


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    whole = frame_bytes(0, [[(1, 1, 0.5)], [(2, 1, 0.75)]])
    assert len(list(read_dump(write(tmp_path / "d.bin", whole)))) == 1
    for length in range(1, len(whole)):
        with pytest.raises(DumpError):
            list(read_dump(write(tmp_path / "d.bin", whole[:length])))


@pytest.mark.parametrize(
    ("offset", "replacement", "words"),
    [
        (0, struct.pack("=q", 100), "marker 100"),
        (8, b"DUMPATOMIC", "DUMPATOMIC"),
        (18, struct.pack("=i", 1 << 24), "endian mark"),
        (22, struct.pack("=i", 3), "revision 3"),
        (34, struct.pack("=q", 3), "3 atoms of 3 fields"),
        (26 + 16 + 4 + 24 + 48, struct.pack("=i", 4), "4 fields"),
        (26 + 16 + 4 + 24 + 48 + 4, struct.pack("=i", -1), "-1 bytes"),
    ],
)
def test_names_what_is_wrong(tmp_path: Path, offset: int, replacement: bytes, words: str) -> None:
    data = bytearray(frame_bytes(0, [[(1, 1, 0.5), (2, 1, 0.75)]]))
    data[offset : offset + len(replacement)] = replacement
    with pytest.raises(DumpError, match=words):
        list(read_dump(write(tmp_path / "d.bin", bytes(data))))


def test_an_empty_file_has_no_frames(tmp_path: Path) -> None:
    assert list(read_dump(write(tmp_path / "d.bin"))) == []
