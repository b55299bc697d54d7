"""Paths of single particles through the frames, continued across periodic boundaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .frames import Frame

SLAB_THICKNESS = 0.75  # of the mean distance of atoms: about one lattice layer
WINDOW_ATOMS = 8.5  # mean distances across the window


@dataclass
class Paths:
    """``positions`` (frames, particles, 3), unwrapped; ``steps`` (frames,); ``ids`` (particles,).

    ``centre`` (3,) and ``half_width`` are the window they were chosen from.
    """

    steps: NDArray[np.int64]
    ids: NDArray[np.int64]
    positions: NDArray[np.float64]
    centre: NDArray[np.float64]
    half_width: float


def unwrap(positions: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undoes jumps across periodic boundaries: of all images the one nearest to where the particle was before.

    ``positions`` (frames, particles, 3), ``boxes`` (frames, 3) lengths. Right as long as no particle moves by more
    than half a box between frames.
    """
    steps = np.diff(positions, axis=0)
    lengths = boxes[1:, None, :]
    steps -= lengths * np.round(steps / lengths)
    return np.concatenate([positions[:1], positions[:1] + np.cumsum(steps, axis=0)])


def choose_ids(frame: Frame, box: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Particles of one thin layer in the middle of the box; the window's centre and half its width."""
    spacing = (box.prod() / len(frame.id)) ** (1 / 3)
    centre = frame.x.min(axis=0) + box / 2
    half_width = min(WINDOW_ATOMS * spacing / 2, box[:2].min() / 2)
    # A layer through atoms, not between two: the height of the atom nearest to the centre.
    centre[2] = frame.x[np.argmin(np.abs(frame.x - centre).max(axis=1)), 2]
    distance = np.abs(frame.x - centre)
    inside = (distance[:, :2] <= half_width).all(axis=1) & (distance[:, 2] <= SLAB_THICKNESS * spacing / 2)
    return np.sort(frame.id[inside]).astype(np.int64), centre, half_width


def follow(frames: Iterable[Frame], boxes: dict[int, tuple[float, float, float]]) -> Paths:
    """The paths of one layer's particles through all frames. ``boxes`` has the box lengths of each step.

    A particle that is missing in a frame (lost, or evaporated) is left out of all.
    """
    steps: list[int] = []
    found: list[NDArray[np.float64]] = []
    ids = np.empty(0, np.int64)
    centre, half_width = np.zeros(3), 1.0
    for frame in frames:
        if not steps:
            ids, centre, half_width = choose_ids(frame, np.array(boxes[frame.step]))
        steps.append(frame.step)
        found.append(positions_of(frame, ids))
    positions = np.stack(found)
    present = ~np.isnan(positions).any(axis=(0, 2))
    lengths = np.array([boxes[step] for step in steps])
    return Paths(np.array(steps), ids[present], unwrap(positions[:, present], lengths), centre, half_width)


def positions_of(frame: Frame, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Positions of ``ids`` (len(ids), 3); NaN where the frame has no such particle."""
    order = np.argsort(frame.id)
    places = np.searchsorted(frame.id, ids, sorter=order)
    places = order[np.minimum(places, len(order) - 1)]
    return np.where((frame.id[places] == ids)[:, None], frame.x[places], np.nan)
