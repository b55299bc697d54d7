"""Compressed frames in the readers that know Arrow's compression: equal to the plain ones.

As in test_frame_readers, a reader's result is compared with its result for pyarrow's stream with the same codec.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import arrow_strategies as arrow
import pyarrow as pa
import pytest
from arrow_readers import UNREADABLE, by_duckdb, by_nanoarrow, by_polars, by_pyarrow, same, written_by_pyarrow
from frame_probe import PAGE, Frame, FrameError, Stream
from hypothesis import given, reject
from hypothesis import strategies as st
from test_frame_readers import ROWS, TYPES, batch_of, values

codecs = pytest.mark.parametrize("codec", ["lz4", "zstd"])


def compressed(batch: pa.RecordBatch, codec: str, alignment: int = PAGE) -> Frame:
    stream = Stream(batch.schema, alignment)
    return stream.compressed(stream.frame(batch), codec)


@codecs
@pytest.mark.parametrize("variant", ["no nulls", "nulls", "sliced", "empty"])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_pyarrow(kind: pa.DataType, variant: str, codec: str) -> None:
    batch = batch_of(kind, variant)
    assert compressed(batch, codec).read().equals(batch, check_metadata=True)


@arrow.many
@given(arrow.batches(), st.sampled_from([8, PAGE]), st.sampled_from(["lz4", "zstd"]))
def test_random_batches_are_equal_in_pyarrow(batch: pa.RecordBatch, alignment: int, codec: str) -> None:
    found = compressed(batch, codec, alignment).read()
    assert found.schema.equals(batch.schema, check_metadata=True)
    assert found.num_rows == batch.num_rows
    assert found.equals(batch)


def has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


@codecs
@pytest.mark.parametrize("reader", [by_polars, by_nanoarrow])
@arrow.many
@given(batch=arrow.batches(columns_max=2))
def test_random_batches_are_equal_in_readers_of_streams(
    reader: Callable[[pa.Buffer], Any], codec: str, batch: pa.RecordBatch
) -> None:
    if reader is by_nanoarrow and any(has_dictionary(kind) for kind in batch.schema.types):
        reject()  # nanoarrow 0.9 takes a dictionary's compressed bytes for its values, pyarrow's as well
    try:
        expected = reader(written_by_pyarrow(batch, codec))
        same(expected, expected)  # polars cannot compare all the types that it reads
    except UNREADABLE:
        reject()
    assert same(reader(compressed(batch, codec).buffer()), expected)


def particles() -> pa.RecordBatch:
    draw = random.Random(7)
    names = ["id", "type", "x", "y", "z", "position", "alive", "species"]
    kinds = [pa.int64(), pa.int32(), *[pa.float64()] * 3, pa.list_(pa.float64(), 3), pa.bool_(), pa.string()]
    return pa.record_batch([values(kind, ROWS, draw, 0.2) for kind in kinds], names=names)


@codecs
@pytest.mark.parametrize("reader", [by_pyarrow, by_polars, by_nanoarrow])
def test_every_reader_reads_particles(reader: Callable[[pa.Buffer], Any], codec: str) -> None:
    """Nothing is skipped here."""
    assert same(reader(compressed(particles(), codec).buffer()), reader(written_by_pyarrow(particles())))


@codecs
def test_duckdb_reads_particles(codec: str) -> None:
    table = by_pyarrow(compressed(particles(), codec).buffer())
    assert by_duckdb(table).equals(by_duckdb(pa.table(particles())))


@codecs
def test_what_becomes_no_smaller_is_stored_as_it_is(codec: str) -> None:
    """Noise costs the eight bytes before it, and the frame's end has eight."""
    noise = random.Random(1).randbytes(8 * 10_000)
    batch = pa.record_batch({"noise": pa.Array.from_buffers(pa.uint64(), 10_000, [None, pa.py_buffer(noise)])})
    frame = compressed(batch, codec)
    assert frame.read().equals(batch)
    assert noise in frame.buffer().to_pybytes()
    assert frame.look.bytes - frame.look.body == len(noise) + 8 + 8
    mixed = pa.record_batch({"noise": batch["noise"], "zeros": pa.array([0] * 10_000, pa.int64())})
    assert compressed(mixed, codec).read().equals(mixed)
    assert compressed(mixed, codec).look.bytes < len(noise) + 2000


@codecs
def test_our_own_reader_says_that_it_reads_none(codec: str) -> None:
    with pytest.raises(FrameError, match=r"unsupported: .*compressed body"):
        compressed(particles(), codec).export()
