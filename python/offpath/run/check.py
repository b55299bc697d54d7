"""Checks that the frames equal LAMMPS's own dump, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .dump import DumpFrame
from .frames import AXES, Frame


@dataclass
class StepCheck:
    """One step: ``difference`` is None where every bit of id, type, x and v is the same."""

    step: int
    atoms: int
    difference: str | None

    @property
    def ok(self) -> bool:
        return self.difference is None


def check_frames(frames: Iterable[Frame], dump: Iterable[DumpFrame], steps: list[int]) -> list[StepCheck]:
    """Compares frames to dump frames of the same steps, both in the order of ``steps``.

    A step missing on either side is a difference. Atoms are matched by id, since LAMMPS sorts them now and then.
    """
    checks = []
    frame_of, dump_of = iter(frames), iter(dump)
    for step in steps:
        frame, reference = next(frame_of, None), next(dump_of, None)
        if frame is None or frame.step != step:
            checks.append(StepCheck(step, 0, f"no frame; {'the file ends' if frame is None else f'step {frame.step}'}"))
        elif reference is None or reference.step != step:
            found = "LAMMPS's dump ends before" if reference is None else f"LAMMPS's dump has step {reference.step}"
            checks.append(StepCheck(step, len(frame.id), found))
        else:
            checks.append(StepCheck(step, len(frame.id), find_difference(frame, reference)))
    return checks


def find_difference(frame: Frame, reference: DumpFrame) -> str | None:
    """The first differing column: how many atoms, and one of them with both values. None if all are equal."""
    ids = reference.take("id")[:, 0].astype(np.int64)
    if len(frame.id) != len(ids):
        return f"{len(frame.id):,} atoms, LAMMPS wrote {len(ids):,}"
    order, reference_order = np.argsort(frame.id, kind="stable"), np.argsort(ids, kind="stable")
    frame_ids, ids = frame.id[order].astype(np.int64), ids[reference_order]
    if differs := describe("id", frame_ids, ids, np.arange(len(ids)), "row"):
        return differs
    types = reference.take("type")[reference_order, 0].astype(np.int64)
    if differs := describe("type", frame.type[order].astype(np.int64), types, frame_ids, "id"):
        return differs
    for name, values in (("x", frame.x), ("v", frame.v)):
        expected = reference.take(*AXES[name])[reference_order]
        for axis, label in enumerate(AXES[name]):
            if differs := describe(label, values[order, axis], expected[:, axis], frame_ids, "id"):
                return differs
    return None


def describe(label: str, found: NDArray, expected: NDArray, names: NDArray[np.int64], name_kind: str) -> str | None:
    """Compares the bits of two columns of 8-byte values, so that NaN equals itself and -0.0 is not 0.0."""
    bits, expected_bits = (np.ascontiguousarray(column).view(np.uint64) for column in (found, expected))
    places = np.flatnonzero(bits != expected_bits)
    if len(places) == 0:
        return None
    first = places[0]
    return (
        f"{label} of {len(places):,} of {len(bits):,} atoms; first {name_kind} {names[first]}: "
        f"{found[first].item()!r} (bits {bits[first]:016x}), "
        f"LAMMPS wrote {expected[first].item()!r} (bits {expected_bits[first]:016x})"
    )
