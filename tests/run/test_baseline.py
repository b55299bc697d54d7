"""The other side of the comparison does the same work: it serialises the simulation's data."""

import numpy as np
import pyarrow as pa
import pytest
from offpath.run.baseline import HostSerialiser
from offpath.run.frames import make_columns, make_schema, vectors
from offpath.run.simulation import Arrays


@pytest.mark.parametrize("layout", ["list", "columns"])
def test_both_ways_serialise_every_value(layout: str) -> None:
    random = np.random.default_rng(3)
    arrays = Arrays(
        random.permutation(999).astype(np.int32),
        np.ones(999, np.int32),
        random.normal(size=(999, 3)),
        random.normal(size=(999, 3)),
    )
    columns = make_columns(arrays, layout)
    assert all(np.shares_memory(columns[name], arrays.v) for name in columns if name.startswith("v"))
    serialiser = HostSerialiser(make_schema(layout, arrays.id.dtype), 10)
    serialiser.reserve(999 * 56)
    for made in (serialiser.serialise(columns), serialiser.serialise_again(columns)):
        (batch,) = pa.ipc.open_stream(made)
        np.testing.assert_array_equal(batch.column("id").to_numpy(), arrays.id)
        np.testing.assert_array_equal(batch.column("type").to_numpy(), arrays.type)
        np.testing.assert_array_equal(vectors(batch, "x"), arrays.x)
        np.testing.assert_array_equal(vectors(batch, "v"), arrays.v)
