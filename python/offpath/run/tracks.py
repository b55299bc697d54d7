"""The run's tracks: every particle through all steps handed over, as a sift pool made them, checked and drawn."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from .dump import DumpFrame
from .frames import AXES
from .paths import unwrap

SIFT_OPTIONS = "key=id&stages=1&fanout=16&threshold=4MiB&age=500ms"
FLUSH_S = 60.0
DRAWN = 14  # tracks


@dataclass
class TracksFound:
    """The result of sifting: ``rows`` counts those of all tracks; ``difference`` is None if a plain sort of the dump is
    equal bit for bit, or if ``checked`` is not set."""

    particles: int
    rows: int
    flush_s: float
    written_bytes: int
    checked: bool = False
    difference: str | None = None

    @property
    def ok(self) -> bool:
        return self.difference is None


def collect(session: Any, pool: str, path: Path) -> TracksFound:
    """Waits until all that was handed over is in its track, and writes the tracks to a Parquet file."""
    began = time.perf_counter()
    tracks = session.tracks(pool)
    tracks.flush(FLUSH_S)
    flush_s = time.perf_counter() - began
    rows = tracks.write(path)
    particles = len(pyarrow.parquet.read_table(path, columns=["id"])["id"].unique())
    return TracksFound(particles, rows, flush_s, path.stat().st_size)


def read_sorted(path: Path) -> pa.Table:
    """The written tracks, ordered by identifier and step: each element's are, this puts elements together."""
    table = pyarrow.parquet.read_table(path)
    return table.sort_by([("id", "ascending"), ("step", "ascending")])


def vectors(table: pa.Table, name: str) -> NDArray[np.float64]:
    """x or v as (rows, 3), whichever layout."""
    if AXES[name][1] not in table.column_names:
        return table[name].combine_chunks().flatten().to_numpy().reshape(-1, 3)
    return np.stack([table[axis].to_numpy() for axis in AXES[name]], axis=1)


def find_difference(table: pa.Table, dump: Iterable[DumpFrame]) -> str | None:
    """The tracks against a plain sort of LAMMPS's dump by identifier and step; None where every bit is the same."""
    frames = list(dump)
    ids = np.concatenate([frame.take("id")[:, 0].astype(np.int64) for frame in frames])
    steps = np.concatenate([np.full(len(frame.values), frame.step, np.int64) for frame in frames])
    order = np.lexsort((steps, ids))
    found_ids, found_steps = table["id"].to_numpy().astype(np.int64), table["step"].to_numpy()
    if len(found_ids) != len(ids):
        return f"{len(found_ids):,} rows, the dump has {len(ids):,}"
    for label, found, expected in (("identifier", found_ids, ids[order]), ("step", found_steps, steps[order])):
        if len(wrong := np.flatnonzero(found != expected)):
            return f"row {wrong[0]}: {label} {found[wrong[0]]}, a plain sort has {expected[wrong[0]]}"
    for name in ("x", "v"):
        expected = np.concatenate([frame.take(*AXES[name]) for frame in frames])[order]
        differs = vectors(table, name).view(np.uint64) != np.ascontiguousarray(expected).view(np.uint64)
        if differs.any():
            row, axis = np.argwhere(differs)[0]
            return f"{AXES[name][axis]} of particle {found_ids[row]} at step {found_steps[row]}"
    return None


def draw_tracks(table: pa.Table, boxes: dict[int, tuple[float, float, float]], path: Path) -> None:
    """Writes one PNG: how far all particles have come with time, and where some of them went. Needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps = np.unique(table["step"].to_numpy())
    ids, counts = np.unique(table["id"].to_numpy(), return_counts=True)
    whole = ids[counts == len(steps)]  # a particle that was lost has no whole track
    positions = vectors(table, "x")[np.isin(table["id"].to_numpy(), whole)]
    # Ordered by identifier, then step: (particles, steps, 3), then time first.
    positions = positions.reshape(len(whole), len(steps), 3).swapaxes(0, 1)
    positions = unwrap(positions, np.array([boxes[int(step)] for step in steps]))
    moved = positions - positions[0]
    squared = (moved**2).sum(axis=2)
    figure, (spread, places) = plt.subplots(1, 2, figsize=(13, 5.6), layout="constrained", width_ratios=(1.15, 1))
    spread.fill_between(steps, *np.quantile(squared, (0.05, 0.95), axis=1), color="#66ccee", alpha=0.35, linewidth=0)
    spread.plot(steps, squared.mean(axis=1), color="#4477aa", marker="o", markersize=4)
    spread.set_xlabel("time step of the simulation")
    spread.set_ylabel("squared displacement")
    spread.set_title(f"{len(whole):,} tracks: mean squared displacement, and 90 % of them", loc="left")
    spread.grid(alpha=0.3)
    spread.spines[["top", "right"]].set_visible(False)
    far = np.argsort(squared[-1])[-DRAWN:]
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(far)))
    for colour, track in zip(colours, far, strict=True):
        places.plot(moved[:, track, 0], moved[:, track, 1], color=colour, linewidth=1.4)
        places.plot(*moved[-1, track, :2], "o", color=colour, markersize=5)
    places.plot(0, 0, "o", markerfacecolor="none", markeredgecolor="#666666", markersize=8)
    places.set_aspect("equal", adjustable="datalim")
    places.set_xlabel("x from where it began")
    places.set_ylabel("y from where it began")
    places.set_title(f"the {len(far)} tracks that went farthest", loc="left")
    places.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
