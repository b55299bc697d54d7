"""Pyarrow reads from frames the random schemas and data that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arrow_strategies as arrow
import pyarrow as pa
import pytest
from arrow_readers import UNREADABLE, by_duckdb, by_nanoarrow, by_polars, by_pyarrow, same, written_by_pyarrow
from frame_probe import PAGE, Stream, read_stream
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st


def assert_same(given: pa.RecordBatch, found: pa.RecordBatch) -> None:
    """Equal schemas (metadata included), lengths and values."""
    assert found.schema.equals(given.schema, check_metadata=True)
    assert found.num_rows == given.num_rows
    assert found.equals(given), (given.to_pydict(), found.to_pydict())


def body_buffers(batch: pa.RecordBatch) -> list[pa.Buffer]:
    """All buffers of a batch that have bytes, dictionaries included."""
    found: list[pa.Buffer] = []

    def walk(array: pa.Array) -> None:
        found.extend(buffer for buffer in array.buffers() if buffer is not None and buffer.size > 0)
        if isinstance(array, pa.DictionaryArray):
            walk(array.dictionary)

    for column in batch.columns:
        walk(column)
    return found


@arrow.many
@given(arrow.batches(), st.sampled_from([8, 64, PAGE]))
def test_equal_in_pyarrow(batch: pa.RecordBatch, alignment: int) -> None:
    frame = Stream(batch.schema, alignment).frame(batch)
    read = frame.read()
    assert_same(batch, read)
    assert_same(batch, frame.export())
    look = frame.look
    for buffer in body_buffers(read):
        assert look.address <= buffer.address < look.address + look.bytes, "copied"
        assert buffer.address % alignment == 0
    assert look.body % alignment == 0


def dictionary_within_a_dictionary() -> pa.RecordBatch:
    """pyarrow numbers the outer dictionary first and writes the inner one first."""
    inner = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([False]))
    values = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array([1, 2], pa.int32()), inner)
    return pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), values)], names=["d"])


@arrow.many
@given(arrow.batches())
@example(dictionary_within_a_dictionary())
def test_reads_what_pyarrow_writes(batch: pa.RecordBatch) -> None:
    assert_same(batch, read_stream(written_by_pyarrow(batch).to_pybytes()))


@pytest.mark.parametrize("reader", [by_polars, by_nanoarrow])
@arrow.many
@given(batch=arrow.batches(columns_max=2))
def test_equal_in_readers_of_streams(reader: Callable[[pa.Buffer], Any], batch: pa.RecordBatch) -> None:
    try:
        expected = reader(written_by_pyarrow(batch))
        same(expected, expected)  # polars cannot compare all the types that it reads
    except UNREADABLE:
        reject()
    assert same(reader(Stream(batch.schema).frame(batch).buffer()), expected)


@settings(arrow.many, max_examples=50)
@given(arrow.batches(arrow.leaf_types, columns_max=3))
def test_equal_in_duckdb(batch: pa.RecordBatch) -> None:
    batch = batch.rename_columns([f"column {i}" for i in range(batch.num_columns)])
    try:
        expected = by_duckdb(pa.table(batch))
    except UNREADABLE:
        reject()
    frame = Stream(batch.schema).frame(batch)
    assert by_duckdb(pa.table(frame.export())).equals(expected)
    assert by_duckdb(by_pyarrow(frame.buffer())).equals(expected)


@arrow.many
@given(st.lists(arrow.batches(columns_max=2), min_size=1, max_size=1), st.data())
def test_slices_of_one_batch(batches: list[pa.RecordBatch], data: st.DataObject) -> None:
    batch = batches[0]
    stream = Stream(batch.schema, 8)
    for _ in range(3):
        begin = data.draw(st.integers(0, batch.num_rows))
        length = data.draw(st.integers(0, batch.num_rows - begin))
        piece = batch.slice(begin, length)
        assert_same(piece, stream.frame(piece).read())
