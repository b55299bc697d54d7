"""The check finds a single bit, and nothing where there is nothing."""

import numpy as np
import pytest
from offpath.run.check import check_frames, find_difference
from offpath.run.dump import DumpFrame
from offpath.run.frames import Frame

NAMES = ["id", "type", "x", "y", "z", "vx", "vy", "vz"]


def make_pair(step: int = 0, atoms: int = 50, seed: int = 1) -> tuple[Frame, DumpFrame]:
    """The same atoms twice, in different orders, with values that only bits tell apart among them."""
    random = np.random.default_rng(seed)
    ids = random.permutation(atoms).astype(np.int32) + 1
    types = random.integers(1, 4, atoms, dtype=np.int32)
    x, v = random.normal(size=(atoms, 3)), random.normal(size=(atoms, 3))
    x[0, 0], x[1, 1], v[2, 2] = -0.0, np.nan, np.inf
    values = np.column_stack([ids, types, x, v])
    return Frame(step, ids, types, x, v), DumpFrame(step, NAMES, values[random.permutation(atoms)])


def test_the_same_atoms_in_another_order_are_the_same() -> None:
    assert find_difference(*make_pair()) is None


@pytest.mark.parametrize("name", ["x", "v"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_finds_one_bit(name: str, axis: int) -> None:
    frame, reference = make_pair()
    bits = getattr(frame, name).view(np.uint64)
    bits[17, axis] ^= 1
    difference = find_difference(frame, reference)
    assert difference is not None
    column = ("x", "y", "z")[axis] if name == "x" else ("vx", "vy", "vz")[axis]
    assert difference.startswith(f"{column} of 1 of 50 atoms; first id {frame.id[17]}: ")
    assert f"{bits[17, axis]:016x}" in difference
    assert f"{bits[17, axis] ^ np.uint64(1):016x}" in difference


def test_zero_has_a_sign() -> None:
    frame, reference = make_pair()
    frame.x[0, 0] = 0.0
    assert "0.0" in (find_difference(frame, reference) or "")


def test_finds_types_ids_and_missing_atoms() -> None:
    frame, reference = make_pair()
    frame.type[3] += 1
    assert (find_difference(frame, reference) or "").startswith("type of 1 of 50")
    frame, reference = make_pair()
    frame.id[3] = 51
    assert (find_difference(frame, reference) or "").startswith("id of ")
    frame, reference = make_pair()
    reference.values = reference.values[:-1]
    assert find_difference(frame, reference) == "50 atoms, LAMMPS wrote 49"


def test_steps_that_are_missing_or_swapped_differ() -> None:
    frames, dumps = zip(*(make_pair(step, seed=step) for step in (0, 5, 10)), strict=True)
    steps = [0, 5, 10]
    assert [check.ok for check in check_frames(frames, dumps, steps)] == [True, True, True]
    assert [check.ok for check in check_frames(frames[:2], dumps, steps)] == [True, True, False]
    assert [check.ok for check in check_frames(frames, dumps[:2], steps)] == [True, True, False]
    swapped = check_frames((frames[1], frames[0], frames[2]), dumps, steps)
    assert [check.ok for check in swapped] == [False, False, True]
