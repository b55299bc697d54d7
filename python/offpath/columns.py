"""From what people hold (NumPy arrays, Arrow, structured arrays, objects) to what a stream sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from .errors import SchemaError

# What the extension module checks a buffer against: name, kind (NumPy's letter; t: temporal, x: bytes, *: anything),
# bytes of a value, values of a row, and the words for an error.
ColumnSpec = tuple[str, str, int, int, str]

BYTES: list[ColumnSpec] = [("bytes", "*", 1, 1, "any contiguous buffer")]


def plain_columns(schema: pa.Schema) -> list[ColumnSpec] | None:
    """How plain memory has to look for each column, or None if the schema has columns that are no plain memory."""
    specs = [plain_column(field) for field in schema]
    return None if None in specs else specs  # type: ignore[return-value]


def plain_column(field: pa.Field) -> ColumnSpec | None:
    """The same for one field: fixed width, or a fixed-size list of such."""
    kind_of_list, values, shape = field.type, 1, "(rows,)"
    if pa.types.is_fixed_size_list(kind_of_list):
        values, kind_of_list, shape = (
            kind_of_list.list_size,
            kind_of_list.value_type,
            f"(rows, {kind_of_list.list_size})",
        )
    if pa.types.is_boolean(kind_of_list):
        return None if values != 1 else (field.name, "b", 1, 1, f"bool of shape {shape}")
    letter = letter_of(kind_of_list)
    if letter is None:
        return None
    width = kind_of_list.bit_width // 8
    words = f"bytes of {width}" if letter == "x" else f"{kind_of_list}"
    return field.name, letter, width, values, f"{words} of shape {shape}"


def letter_of(kind: pa.DataType) -> str | None:
    """The kind of NumPy array whose memory is that of an Arrow type."""
    types = pa.types
    if types.is_signed_integer(kind):
        return "i"
    if types.is_unsigned_integer(kind):
        return "u"
    if types.is_floating(kind):
        return "f"
    if types.is_temporal(kind) and not types.is_interval(kind):
        return "t"
    if types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return "x"
    return None


def as_mapping(data: Any, names: Iterable[str]) -> Any:
    """Columns by name out of a structured array or an object with attributes; anything else as it is."""
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


def temporal_as_integers(data: dict[str, Any]) -> dict[str, Any]:
    """NumPy's datetime64 and timedelta64 arrays refuse the buffer protocol; their integers do not."""
    return {
        name: value.view("i8") if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m") else value
        for name, value in data.items()
    }


def as_batch(data: Any, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of `schema`, sharing the memory of `data` where Arrow can.

    Raises SchemaError naming the first field that differs.
    """
    if isinstance(data, dict):
        return batch_of_columns(data, schema)
    if isinstance(data, pa.RecordBatch):
        batch = data
    elif isinstance(data, pa.Table) or hasattr(data, "__arrow_c_stream__"):
        batches = pa.table(data).combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
    elif hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
    else:
        raise SchemaError(f"cannot send a {type(data).__name__}")
    check_schema(batch.schema, schema)
    return batch


def check_schema(given: pa.Schema, expected: pa.Schema) -> None:
    """Names and types in the same order; nullability and metadata may differ."""
    if given.names != expected.names:
        raise SchemaError(f"columns: expected {', '.join(expected.names)}; given {', '.join(given.names)}")
    for ours, theirs in zip(given, expected, strict=True):
        if ours.type != theirs.type:
            raise SchemaError(f"column '{theirs.name}': expected {theirs.type}, given {ours.type}")


def batch_of_columns(data: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    missing = [name for name in schema.names if name not in data]
    unknown = [name for name in data if name not in schema.names]
    if missing or unknown:
        raise SchemaError(f"columns: expected {', '.join(schema.names)}; given {', '.join(data)}")
    arrays = [as_array(data[field.name], field) for field in schema]
    rows = {len(array) for array in arrays}
    if len(rows) > 1:
        lengths = ", ".join(f"'{field.name}' {len(array)}" for field, array in zip(schema, arrays, strict=True))
        raise SchemaError(f"columns of different lengths: {lengths}")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_array(value: Any, field: pa.Field) -> pa.Array:
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    try:
        if not isinstance(value, pa.Array):
            value = array_of(value, field.type)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise SchemaError(
            f"column '{field.name}': expected {field.type}, given {type(value).__name__}: {error}"
        ) from error
    if value.type != field.type:
        raise SchemaError(f"column '{field.name}': expected {field.type}, given {value.type}")
    if not field.nullable and value.null_count:
        raise SchemaError(f"column '{field.name}': expected no nulls, given {value.null_count}")
    return value


def array_of(value: Any, kind: pa.DataType) -> pa.Array:
    """NumPy's rows of several values become lists without a copy; the rest is Arrow's to convert."""
    if pa.types.is_fixed_size_list(kind) and getattr(value, "ndim", 1) == 2 and value.shape[1] == kind.list_size:
        return pa.FixedSizeListArray.from_arrays(pa.array(value.reshape(-1), type=kind.value_type), type=kind)
    return pa.array(value, type=kind)
