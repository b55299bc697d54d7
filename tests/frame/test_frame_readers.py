"""Frames in four independent readers: pyarrow, polars, DuckDB and nanoarrow.

Each reader is compared with itself: it has to read the same from a frame as from the stream that pyarrow writes for the
same batch. A type it cannot read there either is skipped.
"""

from __future__ import annotations

import decimal
import random
from collections.abc import Callable
from typing import Any

import arrow_strategies as arrow
import pyarrow as pa
import pytest
from arrow_readers import UNREADABLE, by_duckdb, by_nanoarrow, by_polars, by_pyarrow, same, written_by_pyarrow
from frame_probe import PAGE, Frame, Stream

ROWS = 137

NESTED: list[pa.DataType] = [
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.float64(), 3),
    pa.list_(pa.bool_(), 3),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.list_(pa.struct([("x", pa.float32()), ("y", pa.list_(pa.int8()))])),
    pa.struct([("p", pa.list_(pa.float64(), 3)), ("q", pa.list_(pa.large_string()))]),
    pa.map_(pa.string(), pa.int64()),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64(), ordered=True),
    pa.list_(pa.dictionary(pa.int16(), pa.string())),
    pa.sparse_union([pa.field("a", pa.int32()), pa.field("b", pa.string())]),
    pa.dense_union([pa.field("a", pa.int32()), pa.field("b", pa.string())], [5, 0]),
    pa.list_(pa.dense_union([pa.field("a", pa.int32())])),
    pa.dictionary(pa.int32(), pa.struct([("name", pa.dictionary(pa.int8(), pa.string())), ("mass", pa.float64())])),
]

TYPES = [*arrow.LEAVES, *NESTED]


def values(kind: pa.DataType, rows: int, draw: random.Random, nulls: float) -> pa.Array:
    """An array of `rows` random values, of which the share `nulls` is null."""
    mask = [draw.random() < nulls for _ in range(rows)]
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(rows)
    if types.is_dictionary(kind):
        words = values(kind.value_type, 50, draw, nulls / 2)
        indices = [None if null else draw.randrange(50) for null in mask]
        return pa.DictionaryArray.from_arrays(pa.array(indices, kind.index_type), words, ordered=kind.ordered)
    if types.is_union(kind):
        children = [values(field.type, rows, draw, nulls) for field in kind]
        codes = pa.array([draw.choice(kind.type_codes) for _ in range(rows)], pa.int8()).buffers()[1]
        places = pa.array(range(rows), pa.int32()).buffers()[1]
        buffers = [None, codes, places] if kind.mode == "dense" else [None, codes]
        return pa.Array.from_buffers(kind, rows, buffers, children=children)
    if types.is_struct(kind):
        children = [values(field.type, rows, draw, nulls) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(mask, pa.bool_()))
    if types.is_fixed_size_list(kind):
        child = values(kind.value_type, rows * kind.list_size, draw, nulls)
        return pa.FixedSizeListArray.from_arrays(child, type=kind, mask=pa.array(mask, pa.bool_()))
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        starts = [0]
        for _ in range(rows):
            starts.append(starts[-1] + draw.randrange(4))
        if types.is_map(kind):
            keys = pa.array(range(starts[-1]), pa.int64()).cast(kind.key_type)
            items = values(kind.item_type, starts[-1], draw, nulls)
            return pa.MapArray.from_arrays(
                pa.array(starts, pa.int32()), keys, items, type=kind, mask=pa.array(mask, pa.bool_())
            )
        made = pa.ListArray if types.is_list(kind) else pa.LargeListArray
        child = values(kind.value_type, starts[-1], draw, nulls)
        width = pa.int32() if types.is_list(kind) else pa.int64()
        return made.from_arrays(pa.array(starts, width), child, type=kind, mask=pa.array(mask, pa.bool_()))
    return pa.array([None if null else scalar(kind, draw) for null in mask], kind)


def scalar(kind: pa.DataType, draw: random.Random) -> Any:
    """A value of a type without children, well inside the range all readers agree on."""
    types = pa.types
    if types.is_boolean(kind):
        return draw.random() < 0.5
    if types.is_decimal(kind):
        return decimal.Decimal(draw.randrange(-(10**5), 10**5)).scaleb(-kind.scale)
    if types.is_floating(kind):
        return draw.randrange(-1000, 1000) / 8
    if types.is_integer(kind):
        return draw.randrange(0, 128)
    if types.is_date64(kind):
        return draw.randrange(0, 20_000) * 86_400_000
    if types.is_temporal(kind) and not types.is_interval(kind):
        return draw.randrange(0, 20_000)
    if types.is_interval(kind):
        return pa.MonthDayNano([draw.randrange(9), draw.randrange(9), draw.randrange(9)])
    if types.is_fixed_size_binary(kind):
        return draw.randbytes(kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return draw.randbytes(draw.randrange(30))
    return "".join(draw.choice("aäß€𝄞 ") for _ in range(draw.randrange(30)))


def batch_of(kind: pa.DataType, variant: str) -> pa.RecordBatch:
    """A column of the type between two others: without nulls, with nulls, sliced, or without rows."""
    draw = random.Random(f"{kind} {variant}")
    nulls = 0.0 if variant == "no nulls" else 0.3
    before = 11 if variant == "sliced" else 0
    rows = 0 if variant == "empty" else ROWS
    columns = {
        "step": pa.array(range(before + rows), pa.int64()),
        "column": values(kind, before + rows, draw, nulls),
        "name": values(pa.string(), before + rows, draw, nulls),
    }
    return pa.record_batch(columns).slice(before, rows)


variants = pytest.mark.parametrize("variant", ["no nulls", "nulls", "sliced", "empty"])
types = pytest.mark.parametrize("kind", TYPES, ids=str)


def frame_of(batch: pa.RecordBatch, alignment: int = PAGE) -> Frame:
    return Stream(batch.schema, alignment).frame(batch)


@variants
@types
@pytest.mark.parametrize("alignment", [8, PAGE])
def test_pyarrow(kind: pa.DataType, variant: str, alignment: int) -> None:
    batch = batch_of(kind, variant)
    frame = frame_of(batch, alignment)
    assert frame.read().equals(batch, check_metadata=True)
    assert frame.export().equals(batch, check_metadata=True)


@variants
@types
@pytest.mark.parametrize("reader", [by_polars, by_nanoarrow])
def test_reader_of_streams(reader: Callable[[pa.Buffer], Any], kind: pa.DataType, variant: str) -> None:
    batch = batch_of(kind, variant)
    try:
        expected = reader(written_by_pyarrow(batch))
    except UNREADABLE as error:
        pytest.skip(f"cannot read what pyarrow writes: {type(error).__name__}: {error}"[:120])
    assert same(reader(frame_of(batch).buffer()), expected)


@variants
@types
def test_duckdb(kind: pa.DataType, variant: str) -> None:
    batch = batch_of(kind, variant)
    try:
        expected = by_duckdb(pa.table(batch))
    except UNREADABLE as error:
        pytest.skip(f"cannot read the type: {error}"[:120])
    frame = frame_of(batch)
    assert by_duckdb(pa.table(frame.export())).equals(expected)
    assert by_duckdb(by_pyarrow(frame.buffer())).equals(expected)


@pytest.mark.parametrize("reader", [by_pyarrow, by_polars, by_nanoarrow])
def test_every_reader_reads_particles(reader: Callable[[pa.Buffer], Any]) -> None:
    """Nothing is skipped here: the columns of a simulation in all readers."""
    draw = random.Random(7)
    names = ["id", "type", "x", "y", "z", "position", "alive", "species"]
    kinds = [pa.int64(), pa.int32(), *[pa.float64()] * 3, pa.list_(pa.float64(), 3), pa.bool_(), pa.string()]
    batch = pa.record_batch([values(kind, ROWS, draw, 0.2) for kind in kinds], names=names)
    for alignment in (8, PAGE):
        assert same(reader(frame_of(batch, alignment).buffer()), reader(written_by_pyarrow(batch)))


def test_duckdb_reads_particles() -> None:
    draw = random.Random(8)
    batch = pa.record_batch({"id": values(pa.int64(), ROWS, draw, 0), "x": values(pa.float64(), ROWS, draw, 0.5)})
    exported = pa.table(frame_of(batch).export())
    assert by_duckdb(exported).equals(pa.table(batch))
