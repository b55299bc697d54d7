"""Where a frame's bytes lie: mapped files without copies, stream files of many frames, plain arrays, lifetimes."""

from __future__ import annotations

import gc
from pathlib import Path

import arrow_strategies as arrow
import numpy as np
import polars
import pyarrow as pa
import pytest
from arrow_readers import written_by_pyarrow
from frame_probe import PAGE, Frame, FrameError, Stream, read_stream, stitch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_frame_random import assert_same, body_buffers

PARTICLES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
        pa.field("x", pa.float64()),
        pa.field("note", pa.string()),
    ]
)


def particles(step: int, rows: int) -> pa.RecordBatch:
    """A batch whose dictionary differs from step to step."""
    draw = np.random.default_rng(step)
    words = pa.array([f"species {step}.{i}" for i in range(3 + step)])
    kind = pa.DictionaryArray.from_arrays(pa.array(draw.integers(0, 3, rows), pa.int8()), words)
    x = pa.array(draw.random(rows), mask=draw.random(rows) < 0.1)
    note = pa.array([None if i % 7 == 0 else f"{step} {i}" for i in range(rows)])
    return pa.RecordBatch.from_arrays([pa.array(draw.integers(0, 99, rows)), kind, x, note], schema=PARTICLES)


def test_mapped_without_a_copy(tmp_path: Path) -> None:
    batch = particles(1, 5000)
    path = tmp_path / "frame.arrows"
    path.write_bytes(Stream(PARTICLES).frame(batch).buffer())
    with pa.memory_map(str(path)) as mapped:
        begin = mapped.read_buffer(1).address
        size = mapped.size()
        mapped.seek(0)
        read = pa.ipc.open_stream(mapped).read_next_batch()
        assert_same(batch, read)
        for buffer in body_buffers(read):
            assert begin <= buffer.address < begin + size
            assert buffer.address % PAGE == 0


@pytest.mark.parametrize("alignment", [8, PAGE])
def test_stream_file_of_many_frames(tmp_path: Path, alignment: int) -> None:
    batches = [particles(step, rows) for step, rows in enumerate([100, 1, 0, 5000, 513])]
    stream = Stream(PARTICLES, alignment)
    path = tmp_path / "steps.arrows"
    stitch(path, [stream.frame(batch) for batch in batches], alignment)
    with pa.memory_map(str(path)) as mapped:
        begin = mapped.read_buffer(1).address
        mapped.seek(0)
        found = list(pa.ipc.open_stream(mapped))
        assert len(found) == len(batches)
        for batch, read in zip(batches, found, strict=True):
            assert_same(batch, read)
            for buffer in body_buffers(read):
                assert begin <= buffer.address < begin + mapped.size()
                assert buffer.address % alignment == 0
    assert polars.read_ipc_stream(path)["note"].to_list() == [
        note for batch in batches for note in batch["note"].to_pylist()
    ]


@settings(arrow.many, max_examples=50)
@given(st.lists(arrow.batches(columns_max=2), min_size=1, max_size=1), st.sampled_from([8, PAGE]))
def test_stream_files_of_random_schemas(tmp_path: Path, batches: list[pa.RecordBatch], alignment: int) -> None:
    batch = batches[0]
    stream = Stream(batch.schema, alignment)
    pieces = [batch, batch.slice(batch.num_rows // 2), batch.slice(0, 0), batch]
    path = tmp_path / "random.arrows"
    stitch(path, [stream.frame(piece) for piece in pieces], alignment)
    found = list(pa.ipc.open_stream(path.read_bytes()))
    assert len(found) == len(pieces)
    for piece, read in zip(pieces, found, strict=True):
        read.validate(full=True)
        assert_same(piece, read)


FIXED = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 7, 8, 63, 1000])
def test_interleaved_positions_are_split(dtype: str, rows: int) -> None:
    x = np.arange(rows * 3).astype(dtype).reshape(rows, 3)
    kind = pa.from_numpy_dtype(x.dtype)
    stream = Stream(pa.schema([("x", kind), ("y", kind), ("z", kind)]))
    frame = stream.frame_of_arrays(rows, [x[:, 0], x[:, 1], x[:, 2]])
    if rows > 1:
        assert (frame.look.pulls, frame.look.blocks) == (0, 1)
    read = frame.read()
    for i in range(3):
        assert np.array_equal(read.column(i).to_numpy(zero_copy_only=rows > 0), x[:, i])


def test_interleaved_positions_stay_lists() -> None:
    x = np.random.default_rng(0).random((1000, 3))
    frame = Stream(pa.schema([("x", pa.list_(pa.float64(), 3))])).frame_of_arrays(1000, [x])
    assert (frame.look.pulls, frame.look.blocks, frame.look.steps) == (1, 0, 0)
    assert np.array_equal(frame.read()["x"].values.to_numpy().reshape(1000, 3), x)


@st.composite
def records(draw: st.DrawFn) -> np.ndarray:
    """A structured array of random columns, padding between them and any order in which they are sent."""
    kinds = draw(st.lists(st.sampled_from([*FIXED, "?"]), min_size=1, max_size=10))
    gaps = draw(st.lists(st.integers(0, 9), min_size=len(kinds) + 1, max_size=len(kinds) + 1))
    offsets, at = [], 0
    for kind, gap in zip(kinds, gaps, strict=False):
        offsets.append(at + gap)
        at = offsets[-1] + np.dtype(kind).itemsize
    dtype = np.dtype(
        {"names": [str(i) for i in range(len(kinds))], "formats": kinds, "offsets": offsets, "itemsize": at + gaps[-1]}
    )
    rows = draw(st.integers(0, 70))
    made = np.zeros(rows, dtype)
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    for name in dtype.names:
        made[name] = random.integers(0, 2 if dtype[name] == np.bool_ else 100, rows)
    return made


@arrow.many
@given(records(), st.randoms(use_true_random=False))
def test_arrays_of_records_are_split(table: np.ndarray, order: object) -> None:
    names = list(table.dtype.names)
    order.shuffle(names)
    schema = pa.schema([(name, pa.from_numpy_dtype(table.dtype[name])) for name in names])
    frame = Stream(schema, 8).frame_of_arrays(len(table), [table[name] for name in names])
    read = frame.read()
    for name in names:
        assert np.array_equal(read[name].to_numpy(zero_copy_only=False), table[name])


def test_bools_of_numpy_are_packed() -> None:
    flags = np.random.default_rng(1).random((1001, 2)) < 0.5
    both = np.ascontiguousarray(flags[:, 0])
    frame = Stream(pa.schema([("a", pa.bool_()), ("b", pa.bool_())])).frame_of_arrays(1001, [both, flags[:, 1]])
    read = frame.read()
    assert np.array_equal(read["a"].to_numpy(zero_copy_only=False), both)
    assert np.array_equal(read["b"].to_numpy(zero_copy_only=False), flags[:, 1])


def test_memory_lives_as_long_as_any_array() -> None:
    frame: Frame = Stream(PARTICLES).frame(particles(2, 100))
    assert frame.owners == 1
    batch = frame.export()
    assert frame.owners == 2
    note = batch["note"]
    expected = note.to_pylist()
    del batch
    gc.collect()
    assert frame.owners == 2
    address = frame.look.address
    del frame
    gc.collect()
    assert note.to_pylist() == expected
    assert note.buffers()[2].address > address


def test_schema_and_field_metadata_survive() -> None:
    field = pa.field("id", pa.uuid(), metadata={"unit": "none"})
    schema = pa.schema([field], metadata={b"binary \xff": b"\x00\xfe"})
    batch = pa.RecordBatch.from_arrays([pa.array([b"0123456789abcdef", None], pa.uuid())], schema=schema)
    frame = Stream(schema).frame(batch)
    assert_same(batch, frame.read())
    assert_same(batch, frame.export())


def test_a_thousand_columns() -> None:
    batch = pa.record_batch({f"column {i}": pa.array([i, None, i + 1], pa.int32()) for i in range(1000)})
    for alignment in (8, PAGE):
        assert_same(batch, Stream(batch.schema, alignment).frame(batch).read())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.string_view(), "has columns of views, which are not read"),
        (pa.binary_view(), "has columns of views, which are not read"),
        (pa.list_view(pa.int8()), "field 'x' is a list_view, "),
        (pa.large_list_view(pa.int8()), "field 'x' is a large_list_view, "),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "field 'x' is a run_end_encoded, "),
    ],
)
def test_types_that_are_not_in_frames_are_named(kind: pa.DataType, message: str) -> None:
    """In a stream that another library wrote, which is stored unchanged."""
    written = written_by_pyarrow(pa.record_batch({"x": pa.nulls(2, kind)}))
    with pytest.raises(FrameError, match=f"unsupported: .*{message}"):
        read_stream(written.to_pybytes())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            pa.record_batch({"a": pa.array([1], pa.int64()), "b": pa.array([1])}),
            "the batch has 2 columns, its schema 1",
        ),
        (pa.record_batch({"a": pa.array(["x"])}), "'a' has 3 buffers, int64 has 2"),
        (pa.record_batch({"a": pa.array([[1]])}), "'a' has 1 children, its schema 0"),
        (pa.record_batch({"a": pa.array([1, None])}), "'a' has 1 nulls, its schema allows none"),
    ],
)
def test_batches_that_do_not_fit_are_refused(given: pa.RecordBatch, message: str) -> None:
    stream = Stream(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    with pytest.raises(FrameError, match=message):
        stream.frame(given)
