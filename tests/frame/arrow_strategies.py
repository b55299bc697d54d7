"""Hypothesis strategies: Arrow types, arrays of them, and record batches, sliced at every level."""

from __future__ import annotations

import datetime
import decimal
import itertools
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# A decorator: enough examples, however slow the machine.
many = settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))

UNITS = ["s", "ms", "us", "ns"]

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]

LEAVES: list[pa.DataType] = [
    pa.null(),
    pa.bool_(),
    *INTEGERS,
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal32(7, 2),
    pa.decimal64(16, 3),
    pa.decimal128(33, 4),
    pa.decimal256(70, -3),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *[pa.timestamp(unit) for unit in UNITS],
    *[pa.timestamp(unit, "Europe/Berlin") for unit in UNITS],
    *[pa.duration(unit) for unit in UNITS],
    pa.month_day_nano_interval(),
    pa.binary(0),
    pa.binary(5),
    pa.binary(16),
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
]

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@st.composite
def fields(draw: st.DrawFn, inner: st.SearchStrategy[pa.DataType]) -> pa.Field:
    """A field with a name, now and then not nullable, now and then with metadata."""
    kind = draw(inner)
    nullable = pa.types.is_null(kind) or draw(st.sampled_from([True, True, False]))
    metadata = draw(st.none() | st.dictionaries(names, names, max_size=2))
    return pa.field(draw(names), kind, nullable=nullable, metadata=metadata)


def _struct(children: list[pa.Field]) -> pa.DataType:
    # pyarrow finds children by name.
    unique = {child.name: child for child in children}
    return pa.struct(list(unique.values()))


def _extend(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    child = fields(inner)
    key = st.sampled_from([pa.int32(), pa.string(), pa.binary(4)])
    return st.one_of(
        st.builds(pa.list_, child),
        st.builds(pa.large_list, child),
        st.builds(pa.list_, child, st.integers(0, 4)),
        st.builds(_struct, st.lists(child, max_size=3)),
        st.builds(pa.map_, key, inner, keys_sorted=st.booleans()),
        st.builds(pa.dictionary, st.sampled_from(INTEGERS), inner.filter(_can_be_values), ordered=st.booleans()),
        _unions(child),
    )


@st.composite
def _unions(draw: st.DrawFn, child: st.SearchStrategy[pa.Field]) -> pa.DataType:
    children = list(_struct(draw(st.lists(child, min_size=1, max_size=3))))
    codes = draw(st.permutations(range(len(children))) | st.permutations([127, 0, 64][: len(children)]))
    return draw(st.sampled_from([pa.sparse_union, pa.dense_union]))(children, codes)


def _extend_given(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    child = fields(inner)
    run_ends = st.sampled_from([pa.int16(), pa.int32(), pa.int64()])
    runs = st.builds(pa.run_end_encoded, run_ends, inner)
    return st.one_of(_extend(inner), st.builds(pa.list_view, child), st.builds(pa.large_list_view, child), runs)


def _can_be_values(values: pa.DataType) -> bool:
    """pyarrow builds dictionaries by hand below, so any type but another dictionary or null is possible."""
    return not pa.types.is_dictionary(values) and not pa.types.is_null(values)


leaf_types = st.sampled_from(LEAVES)
types = st.recursive(leaf_types, _extend, max_leaves=5)
# With the layouts that programs give and agents do not store.
given_types = st.recursive(
    leaf_types | st.sampled_from([pa.string_view(), pa.binary_view()]), _extend_given, max_leaves=5
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values of a type without children."""
    types_ = pa.types
    if types_.is_boolean(kind):
        return st.booleans()
    if types_.is_integer(kind):
        low = 0 if types_.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
        return st.integers(low, low + (1 << kind.bit_width) - 1)
    if types_.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=False)
    if types_.is_decimal(kind):
        digits = st.integers(-(10 ** (kind.precision - 1)), 10 ** (kind.precision - 1))
        context = decimal.Context(prec=80)
        return digits.map(lambda number: decimal.Decimal(number).scaleb(-kind.scale, context))
    if types_.is_date(kind):
        return st.dates(datetime.date(1800, 1, 1), datetime.date(2200, 1, 1))
    if types_.is_time(kind):
        return st.integers(0, 86_399).map(lambda second: datetime.time(second // 3600, second // 60 % 60, second % 60))
    if types_.is_timestamp(kind) or types_.is_duration(kind):
        return st.integers(-(10**9), 10**9)
    if types_.is_interval(kind):
        small = st.integers(-1000, 1000)
        return st.tuples(small, small, small).map(pa.MonthDayNano)
    if types_.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if types_.is_binary(kind) or types_.is_large_binary(kind) or types_.is_binary_view(kind):
        return st.binary(max_size=20)
    return st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def masks(draw: st.DrawFn, length: int, nullable: bool) -> list[bool]:
    """Which values are null: none, some, or all."""
    if not nullable or draw(st.booleans()):
        return [False] * length
    return draw(st.lists(st.booleans(), min_size=length, max_size=length))


@st.composite
def offsets(draw: st.DrawFn, length: int) -> list[int]:
    """Ascending offsets that need not begin at 0."""
    sizes = draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
    at = draw(st.integers(0, 2))
    result = [at]
    for size in sizes:
        at += size
        result.append(at)
    return result


def bitmap(mask: list[bool]) -> pa.Buffer | None:
    """The validity bitmap of a mask of nulls."""
    if not any(mask):
        return None
    return pa.array([not null for null in mask]).buffers()[1]


@st.composite
def arrays(draw: st.DrawFn, kind: pa.DataType, length: int, nullable: bool = True) -> pa.Array:
    """An array of a type, often a slice of a longer one."""
    before = draw(st.integers(0, 11)) if draw(st.booleans()) else 0
    after = draw(st.integers(0, 3)) if before else 0
    total = before + length + after
    array = draw(_whole(kind, total, nullable))
    return array.slice(before, length)


@st.composite
def _whole(draw: st.DrawFn, kind: pa.DataType, length: int, nullable: bool) -> pa.Array:
    types_ = pa.types
    if types_.is_null(kind):
        return pa.nulls(length)
    if types_.is_union(kind):
        return draw(_union_arrays(kind, length))
    if types_.is_run_end_encoded(kind):
        return draw(_runs(kind, length, nullable))
    mask = draw(masks(length, nullable))
    if types_.is_list_view(kind) or types_.is_large_list_view(kind):
        return draw(_list_views(kind, mask))
    if types_.is_dictionary(kind):
        count = draw(st.integers(1, 5))
        limit = min(count, 100)
        values = draw(arrays(kind.value_type, count))
        indices = draw(st.lists(st.integers(0, limit - 1), min_size=length, max_size=length))
        picked = pa.array([None if null else index for index, null in zip(indices, mask, strict=True)], kind.index_type)
        return pa.DictionaryArray.from_arrays(picked, values, ordered=kind.ordered)
    if types_.is_struct(kind):
        children = [draw(arrays(field.type, length, field.nullable)) for field in kind]
        return pa.Array.from_buffers(kind, length, [bitmap(mask)], children=children)
    if types_.is_fixed_size_list(kind):
        field = kind.value_field
        child = draw(arrays(field.type, length * kind.list_size, field.nullable))
        return pa.Array.from_buffers(kind, length, [bitmap(mask)], children=[child])
    if types_.is_list(kind) or types_.is_large_list(kind) or types_.is_map(kind):
        starts = draw(offsets(length))
        spare = draw(st.integers(0, 2))
        width = pa.int64() if types_.is_large_list(kind) else pa.int32()
        if types_.is_map(kind):
            entries = pa.struct([kind.key_field, kind.item_field])
            child = draw(_entries(entries, starts[-1] + spare))
        else:
            field = kind.value_field
            child = draw(arrays(field.type, starts[-1] + spare, field.nullable))
        return pa.Array.from_buffers(
            kind, length, [bitmap(mask), pa.array(starts, width).buffers()[1]], children=[child]
        )
    values = draw(st.lists(values_of(kind), min_size=length, max_size=length))
    return pa.array([None if null else value for value, null in zip(values, mask, strict=True)], kind)


@st.composite
def _union_arrays(draw: st.DrawFn, kind: pa.DataType, length: int) -> pa.Array:
    """Values of a dense one ascend in their child, of which some are not shown, and some several times."""
    dense = kind.mode == "dense"
    sizes = [draw(st.integers(1, 5)) if dense else length for _ in kind]
    children = [draw(arrays(field.type, size, field.nullable)) for field, size in zip(kind, sizes, strict=True)]
    picked = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=length, max_size=length))
    codes = pa.array([kind.type_codes[each] for each in picked], pa.int8()).buffers()[1]
    if not dense:
        return pa.Array.from_buffers(kind, length, [None, codes], children=children)
    at, places = [0] * len(sizes), []
    for each in picked:
        at[each] = draw(st.integers(at[each], sizes[each] - 1))
        places.append(at[each])
    return pa.Array.from_buffers(
        kind, length, [None, codes, pa.array(places, pa.int32()).buffers()[1]], children=children
    )


@st.composite
def _runs(draw: st.DrawFn, kind: pa.DataType, length: int, nullable: bool) -> pa.Array:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=length + 1))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    ends[-1] = max(ends[-1], length)
    values = draw(arrays(kind.value_type, len(ends), nullable))
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind.run_end_type), values).slice(0, length)


@st.composite
def _list_views(draw: st.DrawFn, kind: pa.DataType, mask: list[bool]) -> pa.Array:
    """Lists in the order of their values, or in any order, overlapping."""
    width, length = pa.int32() if pa.types.is_list_view(kind) else pa.int64(), len(mask)
    if draw(st.booleans()):
        starts = draw(offsets(length))
        places = [(low, high - low) for low, high in itertools.pairwise(starts)]
        count = starts[-1]
    else:
        count = draw(st.integers(0, 6))
        begins = [draw(st.integers(0, count)) for _ in mask]
        places = [(low, draw(st.integers(0, min(3, count - low)))) for low in begins]
    child = draw(arrays(kind.value_type, count, kind.value_field.nullable))
    where = [pa.array([each[i] for each in places], width).buffers()[1] for i in range(2)]
    return pa.Array.from_buffers(kind, length, [bitmap(mask), *where], children=[child])


@st.composite
def _entries(draw: st.DrawFn, entries: pa.DataType, length: int) -> pa.Array:
    children = [draw(arrays(field.type, length, field.nullable)) for field in entries]
    return pa.Array.from_buffers(entries, length, [None], children=children)


@st.composite
def batches(draw: st.DrawFn, types: st.SearchStrategy[pa.DataType] = types, columns_max: int = 4) -> pa.RecordBatch:
    """A record batch of random schema and data, now and then a slice of a longer one."""
    columns = draw(st.lists(fields(types), max_size=columns_max))
    metadata = draw(st.none() | st.dictionaries(names, names, max_size=2))
    before = draw(st.sampled_from([0, 0, 0, 1, 8, 13]))
    length = draw(st.integers(0, 20) | st.integers(60, 140))
    data = [draw(arrays(column.type, before + length, column.nullable)) for column in columns]
    batch = (
        pa.RecordBatch.from_arrays(data, schema=pa.schema(columns, metadata))
        if columns
        else empty(metadata, before + length)
    )
    return batch.slice(before, length)


def empty(metadata: dict[str, str] | None, rows: int) -> pa.RecordBatch:
    """A batch of rows without columns."""
    none = pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(none).replace_schema_metadata(metadata)
