"""The stream's columns, either layout, and frames read back from the written Arrow file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .settings import RunError
from .simulation import Arrays

TRIPLE = pa.list_(pa.field("item", pa.float64(), nullable=False), 3)
AXES = {"x": ("x", "y", "z"), "v": ("vx", "vy", "vz")}


def make_schema(layout: str, id_dtype: np.dtype[Any]) -> pa.Schema:
    """id, type, then x and v as three doubles a row ("list") or x, y, z, vx, vy, vz ("columns"). Nothing is null."""
    fields = [("id", pa.from_numpy_dtype(id_dtype)), ("type", pa.int32())]
    if layout == "list":
        fields += [("x", TRIPLE), ("v", TRIPLE)]
    else:
        fields += [(name, pa.float64()) for names in AXES.values() for name in names]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def make_columns(arrays: Arrays, layout: str) -> dict[str, NDArray[Any]]:
    """The columns of ``make_schema`` as views of the same memory; strided ones for "columns"."""
    columns: dict[str, NDArray[Any]] = {"id": arrays.id, "type": arrays.type}
    if layout == "list":
        return columns | {"x": arrays.x, "v": arrays.v}
    for name, values in (("x", arrays.x), ("v", arrays.v)):
        columns |= {axis: values[:, index] for index, axis in enumerate(AXES[name])}
    return columns


@dataclass
class Frame:
    """All atoms of one step, for any layout and number of ranks: as Arrays, in the order of the file."""

    step: int
    id: NDArray[Any]
    type: NDArray[Any]
    x: NDArray[np.float64]
    v: NDArray[np.float64]


def read_frames(path: Path, steps: Iterable[int]) -> Iterator[Frame]:
    """Frames of a stream file in the order of their first batch; one of them in memory at a time.

    ``steps`` names the step of each batch in the file's order: an Arrow stream has no place for keys. Batches of one
    step, one from each rank, are joined. Raises RunError where the file has more or fewer batches, or is not Arrow.
    """
    steps = list(steps)
    try:
        with pa.memory_map(str(path)) as source:
            offsets = batch_indices(steps)
            batches = list(pa.ipc.open_stream(source))
    except (pa.ArrowInvalid, OSError) as error:
        raise RunError(f"{path}: {error}") from error
    if len(batches) != len(steps):
        raise RunError(f"{path}: {len(batches)} batches, but {len(steps)} frames were handed over")
    for step, indices in offsets.items():
        yield join_batches(step, [batches[index] for index in indices])


def batch_indices(steps: list[int]) -> dict[int, list[int]]:
    indices: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        indices.setdefault(step, []).append(index)
    return indices


def join_batches(step: int, batches: list[pa.RecordBatch]) -> Frame:
    parts = [
        (batch.column("id").to_numpy(), batch.column("type").to_numpy(), vectors(batch, "x"), vectors(batch, "v"))
        for batch in batches
    ]
    if len(parts) == 1:
        return Frame(step, *parts[0])
    return Frame(step, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def vectors(batch: pa.RecordBatch, name: str) -> NDArray[np.float64]:
    """x or v as (rows, 3): a view for the list layout, gathered from three columns for the other."""
    if AXES[name][1] not in batch.schema.names:
        return batch.column(name).flatten().to_numpy().reshape(-1, 3)
    return np.stack([batch.column(axis).to_numpy() for axis in AXES[name]], axis=1)
