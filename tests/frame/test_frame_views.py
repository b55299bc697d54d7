"""Views and runs of random schemas and data arrive as pyarrow reads them, in the layouts that are stored."""

from __future__ import annotations

from typing import Any

import arrow_strategies as arrow
import pyarrow as pa
import pytest
from frame_probe import FrameError, Stream
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from offpath.layouts import relaid, stored_schema, stored_type

TEXTS = ["a", None, "longer than the twelve bytes that a view holds by itself", ""]


def read(batch: pa.RecordBatch) -> pa.RecordBatch:
    return Stream(batch.schema, 8).frame(batch).read()


def values_of(batch: pa.RecordBatch) -> list[list[Any]]:
    """By column, for names may be there twice."""
    return [column.to_pylist() for column in batch.columns]


@settings(arrow.many, max_examples=400)
@given(arrow.batches(arrow.given_types, columns_max=3), st.data())
def test_every_layout_becomes_what_python_stores(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """The schema is that of the Python package, the values are those that pyarrow reads from the same input."""
    found = read(batch)
    if batch.num_columns:
        assert found.schema.equals(stored_schema(batch.schema), check_metadata=True)
    assert values_of(found) == values_of(batch)
    begin = data.draw(st.integers(0, batch.num_rows))
    piece = batch.slice(begin, data.draw(st.integers(0, batch.num_rows - begin)))
    assert values_of(read(piece)) == values_of(piece)


@settings(arrow.many, max_examples=400)
@given(arrow.batches(arrow.given_types, columns_max=2))
def test_the_package_keeps_values_of_every_layout(batch: pa.RecordBatch) -> None:
    """Its own conversion, whose batches may differ in layout from their stream's schema."""
    for column in batch.columns:
        kind = stored_type(column.type)
        try:
            stored = relaid(column, kind)
        except pa.ArrowNotImplementedError:  # of dictionaries of lists, in views of lists: such a send is refused
            assume(False)
        stored.validate(full=True)
        assert stored.type == kind
        assert stored.to_pylist() == column.to_pylist()


@pytest.mark.parametrize("make", [pa.sparse_union, pa.dense_union])
def test_a_union_without_rows_may_have_no_buffers(make: Any) -> None:
    given = make([pa.field("text", pa.string_view())], [0])
    buffers = [None] * (2 if make is pa.sparse_union else 3)
    empty = pa.Array.from_buffers(given, 0, buffers, children=[pa.array([], pa.string_view())])
    stored = relaid(empty, stored_type(given))
    assert stored.type == stored_type(given) and not len(stored)


LISTS = [TEXTS, None, [], TEXTS[::-1]]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array(TEXTS, pa.string_view()), pa.large_string()),
        (pa.array([text and text.encode() for text in TEXTS], pa.binary_view()), pa.large_binary()),
        (pa.array(LISTS, pa.list_view(pa.string())), pa.list_(pa.string())),
        (pa.array(LISTS, pa.large_list_view(pa.string())), pa.large_list(pa.string())),
        (pa.RunEndEncodedArray.from_arrays([2, 3, 7], pa.array([1, None, 3])), pa.int64()),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)
@pytest.mark.parametrize(("begin", "rows"), [(0, 4), (1, 2), (3, 1), (2, 0)])
def test_it_is_what_pyarrow_and_the_package_make_of_it(
    given: pa.Array, kind: pa.DataType, begin: int, rows: int
) -> None:
    piece = given.slice(begin, rows)
    found = read(pa.record_batch({"x": piece}))["x"]
    assert found.type == kind and found.equals(relaid(piece, kind))
    if pa.types.is_run_end_encoded(given.type):
        assert found.equals(pa.compute.run_end_decode(piece))
    elif not pa.types.is_nested(kind):  # pyarrow's cast of views of lists makes an array that is not valid
        assert found.equals(piece.cast(kind))


def view_of(length: int, buffer: int, offset: int) -> bytes:
    return b"".join(each.to_bytes(4, "little", signed=True) for each in (length, 0, buffer, offset))


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (view_of(20, 1, 0), "'x', row 1: a view into buffer 1 of 1"),
        (view_of(20, 0, 1), "'x', row 1: a view of 20 bytes at 1 of buffer 0, which has 20"),
        (view_of(20, 0, -1), "'x', row 1: a view of 20 bytes at -1 of buffer 0, which has 20"),
        (view_of(-1, 0, 0), "'x', row 1: a view of -1 bytes"),
    ],
)
def test_views_out_of_bounds_are_refused(view: bytes, message: str) -> None:
    views = pa.py_buffer(view_of(20, 0, 0) + view)
    array = pa.Array.from_buffers(pa.string_view(), 2, [None, views, pa.py_buffer(b"x" * 20)])
    with pytest.raises(FrameError, match=message):
        read(pa.record_batch({"x": array}))


def test_runs_of_a_million_values_take_what_their_values_do() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([1_000_000], pa.array([7], pa.int8()))
    assert read(pa.record_batch({"x": runs}))["x"].equals(pa.array([7] * 1_000_000, pa.int8()))
    many = pa.RunEndEncodedArray.from_arrays(pa.array([1 << 62], pa.int64()), pa.array([7], pa.int8()))
    with pytest.raises(FrameError, match="too_large: 'x': with views and runs expanded, the batch takes more than "):
        read(pa.record_batch({"x": many}))
