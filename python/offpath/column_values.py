"""One column of a batch: an Arrow array out of a NumPy array, another buffer, Arrow data or Python values.

One rule holds for all of them. Values keep their type and their unit, or are refused; ``cast=True`` converts them, and
refuses values that would change. Masked values and NaT become nulls. Python values have no width: they become the
column's type if it holds them.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .errors import SchemaError
from .layouts import relaid, same_values, stored_type

TIME_UNITS = ("s", "ms", "us", "ns")
CONTIGUOUS = "(numpy.ascontiguousarray copies them so)"


def type_name(kind: pa.DataType) -> str:
    """The name by which a type is made in pyarrow and known in NumPy: float64, where pyarrow prints double."""
    return f"float{kind.bit_width}" if pa.types.is_floating(kind) else str(kind)


def letter_of(kind: pa.DataType) -> str | None:
    """The kind of NumPy array whose memory is that of an Arrow type; b: a byte for each bit."""
    types = pa.types
    if types.is_boolean(kind):
        return "b"
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


def row_of(kind: pa.DataType) -> tuple[pa.DataType, int]:
    """The type of a row's values, and how many there are: of a fixed-size list several."""
    return (kind.value_type, kind.list_size) if pa.types.is_fixed_size_list(kind) else (kind, 1)


def expected_of(kind: pa.DataType) -> str:
    """The expected type in errors."""
    value, values = row_of(kind)
    words = f"bytes of {value.bit_width // 8}" if letter_of(value) == "x" else type_name(value)
    return f"{words} of shape {'(rows,)' if value is kind else f'(rows, {values})'}"


def as_array(value: Any, field: pa.Field, cast: bool = False) -> pa.Array:
    """Raises SchemaError, which names the column and both types."""
    try:
        array = relaid(array_of(value, field, cast), field.type)
        if array.type != field.type:
            if not cast:
                raise SchemaError(
                    f"column '{field.name}': expected {type_name(field.type)}, given {type_name(array.type)}; "
                    "cast=True converts"
                )
            array = relaid(array, stored_type(array.type)).cast(field.type)
    except SchemaError:
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        raise SchemaError(
            f"column '{field.name}': expected {type_name(field.type)}, given {type(value).__name__}: {error}"
        ) from error
    refuse_nulls(array, field)
    return array


def refuse_nulls(array: pa.Array, field: pa.Field) -> None:
    """Nulls in a column, or in a fixed-size list, that has no place for them."""
    if not field.nullable and array.null_count:
        raise SchemaError(f"column '{field.name}': expected no nulls, given {array.null_count}")
    if pa.types.is_fixed_size_list(field.type) and not field.type.value_field.nullable:
        refuse_nulls(array.flatten(), field.type.value_field.with_name(f"{field.name}.{field.type.value_field.name}"))


def array_of(value: Any, field: pa.Field, cast: bool) -> pa.Array:
    if isinstance(value, pa.Array):
        return value
    if isinstance(value, pa.ChunkedArray):
        return one_chunk(value, field)
    given = as_numpy(value)
    if given is not None:
        if given.dtype.kind in "OU" or (given.dtype.kind == "S" and letter_of(row_of(field.type)[0]) != "x"):
            return of_values(given.tolist(), field, cast)
        return of_numpy(given, field, cast)
    if hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_array__"):
        return pa.array(value)
    if hasattr(value, "__arrow_c_stream__"):
        return one_chunk(pa.chunked_array(value), field)
    return of_values(value, field, cast)


def one_chunk(value: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Arrow joins chunks of the stored layouts, but not of all layouts."""
    kind = field.type if same_values(value.type, field.type) else stored_type(value.type)
    return pa.chunked_array([relaid(each, kind) for each in value.chunks], type=kind).combine_chunks()


def as_numpy(value: Any) -> np.ndarray | None:
    """Arrays, and holders of one, without a copy; None for Arrow data and Python values."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(getattr(value, "dtype", None), np.dtype) and value.dtype.kind != "O":
        return np.asarray(value)
    if any(hasattr(value, f"__arrow_{each}__") for each in ("c_array", "c_stream", "array")):
        return None
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        return np.asarray(value) if hasattr(value, "__array__") else None


def hidden_of(value: np.ndarray) -> np.ndarray | None:
    """Which values a masked array hides, or None."""
    mask = getattr(value, "mask", None)
    return np.broadcast_to(mask, value.shape) if mask is not None and np.any(mask) else None


def of_numpy(value: np.ndarray, field: pa.Field, cast: bool) -> pa.Array:
    """Numbers, times and bytes of a fixed width. The array shares the memory where it is contiguous."""
    hidden, given = hidden_of(value), np.asarray(value)

    def refuse(hint: str) -> NoReturn:
        strides = f", strides {given.strides}" if "side by side" in hint or "upwards" in hint else ""
        name = value.dtype.name if value.dtype.isnative else value.dtype.str
        raise SchemaError(
            f"column '{field.name}': expected {expected_of(field.type)}, given {name} of shape "
            f"{value.shape}{strides}{hint}"
        )

    kind, values = row_of(field.type)
    if not given.dtype.isnative and cast:
        given = given.astype(given.dtype.newbyteorder("="))
    if given.dtype.kind in "Mm":
        hidden = hidden_dates(given, hidden)
        if cast and natural_type(given.dtype) is None:
            given = given.astype(f"{given.dtype.kind}8[s]")
    stored = kind if fits(given.dtype, kind) else None
    if stored is None and cast:
        stored = natural_type(given.dtype)
        if stored is not None and pa.types.is_timestamp(stored) and pa.types.is_timestamp(kind):
            stored = pa.timestamp(stored.unit, kind.tz)
    if stored is None:
        refuse("" if cast else "; cast=True converts")
    if given.dtype.kind == "M" and pa.types.is_date32(stored):
        given = days_of(given, hidden, field)
    width = max(1, stored.bit_width // 8)
    if given.ndim < 1 or math.prod(given.shape[1:]) * given.itemsize != values * width:
        refuse("")
    if not cast:
        if not given[:1].flags.c_contiguous or (values > 1 and not given.flags.c_contiguous):
            refuse(f"; the values of a row, and such rows, must lie side by side {CONTIGUOUS}")
        if len(given) > 1 and given.strides[0] < values * width:
            refuse(f"; rows must follow each other upwards {CONTIGUOUS}")
    array = of_memory(given, hidden, stored, len(given) * values)
    if kind is field.type:
        return array
    return pa.FixedSizeListArray.from_arrays(array, type=field.type if stored == kind else pa.list_(stored, values))


def of_memory(given: np.ndarray, hidden: np.ndarray | None, kind: pa.DataType, count: int) -> pa.Array:
    """``count`` values of one after the other; a value of which a byte is hidden is null."""
    flat = np.ascontiguousarray(given).reshape(-1)
    known = None if hidden is None else pa.array(~hidden.reshape(count, -1).any(axis=1)).buffers()[1]
    data = pa.array(flat).buffers()[1] if pa.types.is_boolean(kind) else pa.py_buffer(flat.view(np.uint8))
    return pa.Array.from_buffers(kind, count, [known, data])


def fits(given: np.dtype, kind: pa.DataType) -> bool:
    """Memory of ``given`` is memory of ``kind``: the check of the extension module, and times with their units."""
    letter, width = letter_of(kind), 1 if pa.types.is_boolean(kind) else 0
    if letter is None or not given.isnative:
        return False
    width = width or kind.bit_width // 8
    if letter == "x":
        return given.kind in "SVu" and given.itemsize > 0 and width % given.itemsize == 0
    if given.kind in "Mm":
        natural = natural_type(given)
        if natural is not None and pa.types.is_timestamp(natural) and pa.types.is_timestamp(kind):
            return natural.unit == kind.unit
        return natural == kind
    return given.itemsize == width and (given.kind == letter or (letter == "t" and given.kind == "i"))


def natural_type(given: np.dtype) -> pa.DataType | None:
    """The Arrow type that is the same as a type of NumPy, or None."""
    if given.kind in "Mm":
        unit, steps = np.datetime_data(given)
        if (given.kind, unit, steps) == ("M", "D", 1):
            return pa.date32()
        if unit not in TIME_UNITS or steps != 1:
            return None
        return pa.timestamp(unit) if given.kind == "M" else pa.duration(unit)
    return pa.from_numpy_dtype(given) if given.kind in "biuf" and given.isnative else None


def hidden_dates(given: np.ndarray, hidden: np.ndarray | None) -> np.ndarray | None:
    """NaT is Arrow's null as well."""
    never = np.isnat(given)
    return (never if hidden is None else never | hidden) if never.any() else hidden


def days_of(given: np.ndarray, hidden: np.ndarray | None, field: pa.Field) -> np.ndarray:
    """NumPy counts days in 64 bits, Arrow in 32."""
    days = given.view(np.int64)
    if hidden is not None:
        days = np.where(hidden, 0, days)
    beyond = days[(days < -(2**31)) | (days >= 2**31)]
    if beyond.size:
        raise SchemaError(
            f"column '{field.name}': {type_name(field.type)} has no day {beyond[0]}, only 32 bits of them"
        )
    return days.astype(np.int32)


def of_values(values: Any, field: pa.Field, cast: bool) -> pa.Array:
    """Python values, and lists of arrays."""
    is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
    if is_list and any(isinstance(each, np.ndarray) for each in values):
        return of_arrays(values, field, cast)
    array = pa.array(values, type=field.type)
    try:
        natural = pa.array(values)
    except (TypeError, ValueError, NotImplementedError):
        return array
    if loses(natural, field.type):
        raise SchemaError(
            f"column '{field.name}': expected {type_name(field.type)}, given {type_name(natural.type)} with values "
            "that it does not hold"
        )
    return array


def loses(natural: pa.Array, kind: pa.DataType) -> bool:
    """Arrow made values of ``kind`` out of Python's, of which it drops fractions, microseconds and fields."""
    types, given = pa.types, natural.type
    if given == kind:
        return False
    if types.is_nested(given) and (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return types.is_list(given) and loses(natural.flatten(), kind.value_type)
    if types.is_struct(given) and types.is_struct(kind):
        return any(
            kind.get_field_index(each.name) < 0 or loses(natural.field(each.name), kind.field(each.name).type)
            for each in given
        )
    if not all(types.is_integer(each) or types.is_floating(each) or types.is_temporal(each) for each in (given, kind)):
        return False
    try:
        made = natural.cast(kind)
    except pa.ArrowInvalid:
        return True
    except pa.ArrowNotImplementedError:
        return False
    return types.is_floating(kind) and types.is_floating(given) and not pc.is_inf(made).equals(pc.is_inf(natural))


def of_arrays(values: Any, field: pa.Field, cast: bool) -> pa.Array:
    """Lists of which each is an array, or None: their values by the rule of arrays."""
    arrays = [np.zeros(0) if each is None else each for each in values]
    present = [each for each, value in zip(arrays, values, strict=True) if value is not None]
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in present):
        raise SchemaError(f"column '{field.name}': expected one-dimensional arrays or None, one a row")
    dtypes = {each.dtype for each in present}
    if len(dtypes) > 1 and not cast:
        names = ", ".join(sorted(str(each) for each in dtypes))
        raise SchemaError(f"column '{field.name}': expected arrays of one type, given {names}; cast=True converts")
    inner = field.type.value_field
    child = as_array(np.ma.concatenate(present), inner.with_name(f"{field.name}.{inner.name}"), cast)
    kind = pa.int64() if pa.types.is_large_list(field.type) else pa.int32()
    offsets = pa.array(np.cumsum([0, *map(len, arrays)])).cast(kind)
    missing = np.array([each is None for each in values])
    maker = pa.LargeListArray if pa.types.is_large_list(field.type) else pa.ListArray
    return maker.from_arrays(offsets, child, type=field.type, mask=pa.array(missing) if missing.any() else None)
