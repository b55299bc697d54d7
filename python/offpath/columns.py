"""Converts users' data (NumPy arrays, Arrow, structured arrays, objects) to the columns of a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from .column_values import as_array, as_numpy, fits, hidden_dates, hidden_of, letter_of, row_of
from .errors import SchemaError
from .layouts import same_values

# The properties of a buffer that the extension module checks: name, kind (NumPy's letter; t: temporal, x: bytes, *:
# anything), bytes of a value, and values of a row.
ColumnSpec = tuple[str, str, int, int]

BYTES: list[ColumnSpec] = [("bytes", "*", 1, 1)]


def plain_columns(schema: pa.Schema) -> list[ColumnSpec] | None:
    """The form of plain memory for each column, or None if some columns of the schema are not plain memory."""
    specs = [plain_column(field) for field in schema]
    return None if None in specs else specs  # type: ignore[return-value]


def plain_column(field: pa.Field) -> ColumnSpec | None:
    """The same for one field: fixed width, or a fixed-size list of such."""
    kind, values = row_of(field.type)
    letter = letter_of(kind)
    if letter is None or (letter == "b" and values != 1):
        return None
    return field.name, letter, max(1, kind.bit_width // 8), values


def as_mapping(data: Any, names: Iterable[str]) -> Any:
    """Columns by name out of a structured array or an object with attributes; anything else unchanged."""
    if isinstance(data, dict) or hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__"):
        return data
    if isinstance(data, Mapping):
        return dict(data)
    fields = getattr(getattr(data, "dtype", None), "names", None)
    if fields is not None:
        return {name: data[name] for name in fields}
    missing = [name for name in names if not hasattr(data, name)]
    if missing:
        raise SchemaError(f"{type(data).__name__}: expected a mapping, Arrow data or an object with attributes, "
                          f"but it has no {', '.join(missing)}")  # fmt: skip
    return {name: getattr(data, name) for name in names}


def schema_of(given: Any) -> pa.Schema:
    """A schema of pyarrow, of another library, types by name, or that of a first batch."""
    if isinstance(given, pa.Schema):
        return given
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).schema
    if hasattr(given, "__arrow_c_array__"):
        return pa.record_batch(given).schema
    fields = getattr(getattr(given, "dtype", None), "names", None)
    columns = {name: given[name] for name in fields} if fields is not None else given
    if not isinstance(columns, Mapping):
        raise SchemaError(f"schema: expected a schema, types by name or a first batch, given {type(given).__name__}")
    return pa.schema([(name, type_of(value, name)) for name, value in columns.items()])


def type_of(value: Any, column: str) -> pa.DataType:
    """A type that is given, by Arrow, by NumPy or by a name of either's, or that of a column."""
    if isinstance(value, pa.DataType):
        return value
    if isinstance(value, str):
        for named in (lambda: pa.from_numpy_dtype(np.dtype(value)), lambda: pa.type_for_alias(value)):
            with contextlib.suppress(TypeError, ValueError, pa.ArrowException):
                return named()
        raise SchemaError(
            f"column '{column}': '{value}' names no type of NumPy's or of Arrow's, as float64, string or timestamp[us] "
            "do; types such as pyarrow.list_(…) are taken as they are"
        )
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return pa.from_numpy_dtype(np.dtype(value))
    array = as_numpy(value)
    if array is not None and array.ndim == 2:
        return pa.list_(pa.from_numpy_dtype(array.dtype), array.shape[1])
    return pa.from_numpy_dtype(array.dtype) if array is not None and array.dtype.kind != "O" else pa.array(value).type


def whole_dates(data: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """NumPy's datetime64 and timedelta64 arrays refuse the buffer protocol. Their integers do not, and say the same
    where the unit is the column's and no value is NaT or masked."""
    return {name: dates_as_integers(value, schema.field(name)) if name in schema.names else value
            for name, value in data.items()}  # fmt: skip


def dates_as_integers(value: Any, field: pa.Field) -> Any:
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind not in "Mm"
        or not fits(value.dtype, row_of(field.type)[0])
    ):
        return value
    hidden = hidden_dates(np.asarray(value), hidden_of(value))
    return (
        value if hidden is not None or value.dtype.itemsize * 8 != row_of(field.type)[0].bit_width else value.view("i8")
    )


def as_batch(data: Any, schema: pa.Schema, cast: bool = False) -> pa.RecordBatch:
    """A record batch of `schema`, sharing the memory of `data` where Arrow can. ``cast`` converts types that differ.

    Raises SchemaError naming the first field that differs.
    """
    if isinstance(data, dict):
        return batch_of_columns(data, schema, cast)
    if isinstance(data, pa.RecordBatch | pa.Table):
        batch = data
    elif hasattr(data, "__arrow_c_stream__"):
        batch = pa.RecordBatchReader.from_stream(data, requested_schema(data, schema, cast)).read_all()
    elif hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data, requested_schema(data, schema, cast))
    else:
        raise SchemaError(f"cannot send a {type(data).__name__}")
    if batch.schema.names != schema.names:
        raise SchemaError(f"columns: expected {', '.join(schema.names)}; given {', '.join(batch.schema.names)}")
    if (
        isinstance(batch, pa.RecordBatch)
        and batch.schema.types == schema.types
        and all(each.nullable for each in schema)
    ):
        return batch
    arrays = [as_array(array, field, cast) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def requested_schema(data: Any, schema: pa.Schema, cast: bool) -> pa.Schema | None:
    """The schema to request from a producer. Producers may convert values for it, so without ``cast`` only another
    layout of the same values is requested."""
    if cast:
        return schema
    if not hasattr(data, "__arrow_c_schema__"):
        return None
    given = pa.schema(data)
    is_same = given.names == schema.names and all(map(same_values, given.types, schema.types))
    return schema if is_same else None


def batch_of_columns(data: dict[str, Any], schema: pa.Schema, cast: bool) -> pa.RecordBatch:
    for name in schema.names:
        if name not in data:
            raise SchemaError(
                f"column '{name}' is missing: expected {', '.join(schema.names)}; given {', '.join(data)}"
            )
    for name in data:
        if name not in schema.names:
            raise SchemaError(f"column '{name}' is not in the stream's schema, which has {', '.join(schema.names)}")
    if len(data) != len(schema.names):
        raise SchemaError("two columns of the stream's schema have the same name; send a RecordBatch")
    arrays = [as_array(data[field.name], field, cast) for field in schema]
    for field, array in zip(schema, arrays, strict=True):
        if len(array) != len(arrays[0]):
            raise SchemaError(
                f"column '{field.name}' has {len(array)} rows, column '{schema.names[0]}' has {len(arrays[0])} rows"
            )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
