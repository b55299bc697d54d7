"""Iterations of an `openPMD <https://www.openpmd.org>`_ series in a pool, for every reader of pools.

WarpX, PIConGPU, HiPACE++ and others write such series. A program reads each iteration of a finished series, or of one
that is streamed (ADIOS2's SST) while the simulation runs, with openPMD-api::

    for iteration in series.read_iterations():
        put_iteration(pool, iteration)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from ..pool import Pool

SCALAR = "\vScalar"  # openPMD-api's name of the only component of a record
KEY = b"openPMD"  # of the metadata of a table's schema


def put_iteration(pool: Pool, iteration: Any, timeout: float | None = None) -> None:
    """Puts the data of iteration N into the pool, as row ``stepN``. ``timeout`` in seconds bounds each put.

    A species is a table of its name with a row for each particle and a column for each component (``position_x``,
    ``weighting``). A mesh is the table ``mesh.NAME`` with a row for each cell in row-major order and a column for each
    component (``x``; of a scalar mesh its name). A column's metadata has its ``unitSI``. The metadata ``openPMD`` of
    the schema is JSON: ``time`` in seconds, ``constant`` components with their ``shape`` and, of a mesh, ``shape``,
    ``dataOrder``, ``geometry``, ``axisLabels`` (if the series has one for each axis), ``gridSpacing``,
    ``gridGlobalOffset``, ``gridUnitSI`` and the ``position`` of each component in its cell.

    Raises ValueError for components of types that no column has, such as complex numbers, before anything is put, and
    the errors of ``Pool.put``.
    """
    row, time = f"step{iteration.iteration_index}", iteration.time * iteration.time_unit_SI
    objects: list[tuple[str, list[tuple[str, Any]], dict[str, Any]]] = []
    for name, species in iteration.particles.items():
        objects.append((name, list(_components(species)), {"time": time}))
    for name, mesh in iteration.meshes.items():
        components = [(name if part == SCALAR else part, each) for part, each in mesh.items()]
        shape, labels = list(components[0][1].shape), mesh.axis_labels
        about = {
            "time": time,
            "shape": shape,
            "dataOrder": mesh.data_order,
            "geometry": mesh.geometry_string,
            "gridSpacing": mesh.grid_spacing,
            "gridGlobalOffset": mesh.grid_global_offset,
            "gridUnitSI": mesh.grid_unit_SI,
            "position": {part: each.position for part, each in components},
        }
        if len(labels) == len(shape) and all(labels):  # a stream of SST loses them
            about["axisLabels"] = labels
        objects.append((f"mesh.{name}", components, about))
    for _, components, _ in objects:
        for name, component in components:
            _column_type(name, component)
    for name, components, about in objects:
        pool.put(_table(iteration, components, about), row, name, timeout)


def _components(species: Any) -> Iterator[tuple[str, Any]]:
    for name, record in species.items():
        for part, component in record.items():
            yield name if part == SCALAR else f"{name}_{part}", component


def _column_type(name: str, component: Any) -> pa.DataType:
    try:
        return pa.from_numpy_dtype(component.dtype)
    except pa.ArrowNotImplementedError:
        raise ValueError(f"component {name!r} is of type {component.dtype}, which no column of a table has") from None


def _table(iteration: Any, components: list[tuple[str, Any]], about: dict[str, Any]) -> pa.Table:
    fields, chunks, constant = [], [], {}
    for name, component in components:
        if component.constant:
            value, shape = component.get_attribute("value"), list(component.shape)
            constant[name] = {"value": value, "unitSI": component.unit_SI, "shape": shape}
            continue
        unit = {"unitSI": repr(component.unit_SI)}
        fields.append(pa.field(name, _column_type(name, component), nullable=False, metadata=unit))
        chunks.append(component.load_chunk())
    iteration.series_flush()  # reads all of them
    schema = pa.schema(fields, {KEY: json.dumps(about | {"constant": constant})})
    return pa.table([pa.array(np.ravel(each)) for each in chunks], schema=schema)
