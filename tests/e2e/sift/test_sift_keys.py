"""Sift pools over identifiers of every type that they take, by hash and by ranges: the tracks are those of pyarrow's
own sort of the same rows, for any values."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NUMBER = itertools.count()

integers = {
    each: st.integers(-(2 ** (each.bit_width - 1)), 2 ** (each.bit_width - 1) - 1)
    for each in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
} | {each: st.integers(0, 2**each.bit_width - 1) for each in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}
others = {
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("ns"): st.integers(-(2**63), 2**63 - 1),
    pa.timestamp("ms", "UTC"): st.integers(-(2**40), 2**40),
    pa.duration("s"): st.integers(-(2**40), 2**40),
    pa.decimal64(12, 3): st.decimals(-1000, 1000, places=3),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(8): st.binary(min_size=8, max_size=8),
    pa.binary(9): st.binary(min_size=9, max_size=9),
    pa.binary(16): st.uuids().map(lambda each: each.bytes) | st.binary(min_size=16, max_size=16),
    pa.binary(64): st.binary(min_size=64, max_size=64),
    pa.decimal128(30, 4): st.decimals(-(10**20), 10**20, places=4),
    pa.decimal256(50, 2): st.decimals(-(10**40), 10**40, places=2),
    pa.string(): st.text(max_size=20),
    pa.large_string(): st.text("ab\0", max_size=10),
    pa.binary(): st.binary(max_size=20),
}

NOT_ASKED_FOR = {pa.time64("us"), pa.timestamp("ms", "UTC"), pa.duration("s"), pa.decimal64(12, 3),
                 pa.decimal128(20, 0), pa.decimal128(30, 4), pa.decimal256(50, 2)}  # by their value  # fmt: skip


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with joined_group(tmp_path_factory.mktemp("group"), ["a", "b"], "local") as made:
        yield made


def sorted_plainly(rows: pa.Table) -> pa.Table:
    if pa.types.is_decimal64(rows.schema.field("key").type):  # pyarrow 26 sorts negative ones of 64 bits last
        rows = rows.set_column(1, "key", rows["key"].cast(pa.decimal128(12, 3)))
    return rows.sort_by([("key", "ascending"), ("step", "ascending"), ("order", "ascending")])


def as_told(rows: pa.Table) -> list[tuple[object, ...]]:
    """Rows as Python has them, by bits where NaN is not equal to itself."""
    return [tuple("nan" if isinstance(each, float) and math.isnan(each) else each for each in row.values())
            for row in rows.select(["step", "key", "order"]).to_pylist()]  # fmt: skip


def sifted(group: Group, key: pa.Array, options: str) -> tuple[pa.Table, pa.Table]:
    """The rows that two members sent in three steps, and their tracks."""
    name = f"sift:/keys{next(NUMBER)}"
    schema = pa.schema([pa.field("key", key.type, nullable=False), pa.field("order", pa.int32(), nullable=False)])
    sent = []
    with group.connect("a") as a, group.connect("b") as b:
        for step in range(3):
            with (a, b)[step % 2].stream(f"{name}{step}", schema, rows_max=max(len(key), 1),
                                         pool=f"{name}?key=key&stages=2&fanout=4&{options}") as stream:  # fmt: skip
                batch = pa.record_batch([key, pa.array(range(len(key)), pa.int32())], schema=schema)
                stream.send(batch, key=(f"step{step}", "")).wait_stored(PATIENCE_S)
            steps = pa.array([step] * len(key), pa.int64())
            sent.append(pa.table([steps, key, batch["order"]], names=["step", "key", "order"]))
        tracks = a.tracks(name, "key")
        tracks.flush(PATIENCE_S)
        found = pa.concat_tables(tracks.select(None))
        whole = tracks.table()
        assert as_told(sorted_plainly(whole)) == as_told(sorted_plainly(found))
        for value in (key[0], key[-1]):
            if key.type in NOT_ASKED_FOR:
                with pytest.raises(offpath.Unsupported, match="does not travel to agents"):
                    tracks.track(value)
                continue
            one = tracks.track(value.as_py() if not pa.types.is_temporal(key.type) else value)
            assert one.num_rows == 3 * pc.sum(same_as(key, value)).as_py(), value
        tracks.drop()
    return pa.concat_tables(sent), found


def same_as(key: pa.Array, value: pa.Scalar) -> pa.Array:
    if pa.types.is_floating(key.type) and math.isnan(value.as_py()):
        return pc.is_nan(key)
    return pc.equal(key, value)


@pytest.mark.parametrize("kind", [*integers, *others], ids=str)
def test_tracks_of_any_identifiers_are_a_plain_sort(group: Group, kind: pa.DataType) -> None:
    strategy = st.lists((integers | others)[kind], min_size=1, max_size=60)

    @settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(values=strategy, by=st.sampled_from(["hash", "bits"] if kind in integers else ["hash"]))
    def compare(values: list[object], by: str) -> None:
        sent, found = sifted(group, pa.array(values, kind), f"by={by}")
        assert as_told(found) == as_told(sorted_plainly(sent))

    compare()


@pytest.mark.parametrize("kind", [pa.int16(), pa.uint64(), pa.float64(), pa.timestamp("ns")], ids=str)
def test_ranges_hold_together_what_is_close(group: Group, kind: pa.DataType, tmp_path: Path) -> None:
    values = [-7, 3, 5, 900, 5, 12, 44] if kind != pa.uint64() else [7, 3, 5, 900, 5, 12, 2**64 - 1]
    key = pa.array(values, pa.int64() if kind != pa.uint64() else kind).cast(kind)
    sent, found = sifted(group, key, "by=range&ranges=4,10,100")
    assert as_told(found) == as_told(sorted_plainly(sent))
    name = "sift:/close?key=key&by=range&ranges=4,10,100&fanout=4"
    schema = pa.schema([pa.field("key", kind, nullable=False)])
    with group.connect("b") as session:
        session.stream("close", schema, rows_max=100, pool=name).send(
            pa.record_batch([key], schema=schema), key=("1", "")
        ).wait_stored(PATIENCE_S)
        tracks = session.tracks(name)
        tracks.flush(PATIENCE_S)
        ranges = [sorted(table["key"].cast(pa.int64() if kind != pa.uint64() else kind).to_pylist())
                  for table in tracks.tables()]  # fmt: skip
        bounds = [(each[0], each[-1]) for each in ranges]
        assert sorted(itertools.chain(*ranges)) == sorted(values)
        assert all(low[1] < high[0] for low, high in itertools.pairwise(sorted(bounds))), "each element has one range"
        assert tracks.write(tmp_path / "files", timeout=PATIENCE_S) == len(values)
        assert pyarrow.dataset.dataset(tmp_path / "files", format="parquet").count_rows() == len(values)
        tracks.drop()


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.float64(), pa.timestamp("us"), pa.binary(4), pa.binary(16), pa.decimal128(20, 0),
             pa.string()],
    ids=str)  # fmt: skip
def test_ranges_of_a_sample_split_the_rows_evenly(group: Group, kind: pa.DataType) -> None:
    numbers = [each * each for each in range(4000)]  # not even at all
    if kind == pa.binary(4):
        key = pa.array([each.to_bytes(4, "big") for each in numbers], kind)
    elif kind == pa.binary(16):
        key = pa.array([bytes(8) + each.to_bytes(8, "big") for each in numbers], kind)
    elif kind == pa.string():
        key = pa.array([f"particle {each:012}" for each in numbers], kind)
    else:
        key = pa.array(numbers, pa.int64()).cast(kind)
    sent, found = sifted(group, key, "by=range&ranges=sample")
    assert as_told(found) == as_told(sorted_plainly(sent))
    name = f"sift:/sampled{next(NUMBER)}"
    schema = pa.schema([pa.field("key", kind, nullable=False)])
    options = f"{name}?key=key&by=range&ranges=sample&fanout=4"
    with group.connect("a") as a, group.connect("b") as b:
        for number, session in enumerate((a, b)):  # each names the pool, and the first rows determine the ranges
            session.stream(f"{name}{number}", schema, rows_max=4000, pool=options).send(
                pa.record_batch([key], schema=schema), key=(f"step{number}", "")
            ).wait_stored(PATIENCE_S)
        tracks = b.tracks(name, "key")
        tracks.flush(PATIENCE_S)
        rows = [table.num_rows for table in tracks.tables()]
        assert sum(rows) == 8000 and all(1900 < each < 2100 for each in rows), rows
        tracks.drop()


def test_zero_and_nan_are_found_however_they_are_asked_for(group: Group) -> None:
    schema = pa.schema([pa.field("key", pa.float64(), nullable=False), pa.field("x", pa.int32(), nullable=False)])
    with group.connect("a") as session:
        batch = pa.record_batch([pa.array([-0.0, math.nan, 2.5]), pa.array([1, 2, 3], pa.int32())], schema=schema)
        stream = session.stream("zero", schema, rows_max=3, pool="sift:/zero?key=key&by=hash")
        stream.send(batch, key=("1", "")).wait_stored(PATIENCE_S)
        tracks = session.tracks("sift:/zero", "key")
        tracks.flush(PATIENCE_S)
        for value, x in ((0.0, 1), (-0.0, 1), (math.nan, 2)):
            assert tracks.track(value)["x"].to_pylist() == [x]
            assert tracks.tracks([value], columns=["x"])["x"].to_pylist() == [x]
            assert tracks.tracks(pc.field("x") == x, whole=True)["x"].to_pylist() == [x]
        tracks.drop()


def test_identifiers_that_are_asked_for_twice_have_each_row_once(group: Group) -> None:
    schema = pa.schema([pa.field("key", pa.float64(), nullable=False)])
    with group.connect("a") as session:
        stream = session.stream("twice", schema, rows_max=3, pool="sift:/twice?key=key&by=hash")
        batch = pa.record_batch([pa.array([0.0, math.nan, 2.5])], schema=schema)
        stream.send(batch, key=("1", "")).wait_stored(PATIENCE_S)
        tracks = session.tracks("sift:/twice", "key")
        tracks.flush(PATIENCE_S)
        many = [float(each) for each in range(5000)]  # more than one query takes
        found = tracks.tracks([float("nan"), 2.5, *many, 2.5, -0.0, float("nan")])["key"].to_pylist()
        assert found[:2] == [0.0, 2.5] and len(found) == 3 and math.isnan(found[2])
        tracks.drop()


@pytest.mark.parametrize("kind", integers, ids=str)
def test_files_are_filtered_by_integers_of_every_width(group: Group, kind: pa.DataType, tmp_path: Path) -> None:
    values = pa.array(range(100), pa.int64()) if str(kind).startswith("u") else pa.array(range(-50, 50), pa.int64())
    schema = pa.schema([pa.field("key", kind, nullable=False)])
    name = f"sift:/filtered{next(NUMBER)}"
    with group.connect("a") as session:
        stream = session.stream("filtered", schema, rows_max=100, pool=f"{name}?key=key&fanout=2")
        stream.send(pa.record_batch([values.cast(kind)], schema=schema), key=("1", "")).wait_stored(PATIENCE_S)
        tracks = session.tracks(name, "key")
        tracks.flush(PATIENCE_S)
        assert tracks.write(tmp_path / "files", timeout=PATIENCE_S) == 100
        written = pyarrow.dataset.dataset(tmp_path / "files", format="parquet")
        for each in values.to_pylist():
            assert written.to_table(filter=pc.field("key") == pa.scalar(each, kind)).num_rows == 1, each
        tracks.drop()


def test_what_is_no_identifier_is_refused_by_name(group: Group) -> None:
    with group.connect("a") as session:
        for kind, options, said in (
            (pa.float64(), "", "the identifier 'key' is float64"),
            (pa.string(), "", "the identifier 'key' is string"),
            (pa.decimal128(20, 2), "", "the identifier 'key' is decimal128"),
            (pa.binary(1025), "&by=hash", "binary of at most 1024 bytes"),
            (pa.binary(), "&by=hash", "the identifier 'key' of row 0 has 1025 bytes, at most 1024 are allowed"),
            (pa.int8(), "&by=range&ranges=1,500", "'500' is no value of the identifier 'key', which is int8"),
        ):
            schema = pa.schema([pa.field("key", kind, nullable=False)])
            name = f"sift:/refused{next(NUMBER)}"
            value = {pa.float64(): 0.5, pa.string(): "x", pa.decimal128(20, 2): decimal.Decimal("1.00"),
                     pa.int8(): 1}.get(kind, bytes(1025))  # fmt: skip
            with session.stream("refused", schema, rows_max=1, pool=f"{name}?key=key{options}") as stream:
                ticket = stream.send(pa.record_batch([pa.array([value], kind)], schema=schema), key=("1", ""))
                with pytest.raises(offpath.SchemaError, match=said):
                    ticket.wait_stored(PATIENCE_S)
        for options, said in (("by=range", "needs ranges="), ("ranges=1", "needs by=range"), ("by=size", "bits, hash")):
            with pytest.raises(offpath.Error, match=said):
                session.pool(f"sift:/wrong?key=key&{options}").create()


@pytest.mark.parametrize("kind", [pa.binary(16), pa.decimal128(38, 6), pa.string(), pa.large_binary()], ids=str)
def test_tracks_of_long_identifiers_are_read_and_written_as_a_plain_sort(
    group: Group, kind: pa.DataType, tmp_path: Path
) -> None:
    random = np.random.default_rng(7)
    if kind == pa.binary(16):
        values = [uuid.UUID(bytes=random.bytes(16)).bytes for _ in range(3000)]
    elif pa.types.is_decimal(kind):
        values = [decimal.Decimal(int(each)).scaleb(-6) * 10**12 for each in random.integers(-(2**62), 2**62, 3000)]
    elif kind == pa.string():
        values = [f"rank{each % 7}/atom-{each}" for each in range(3000)]
    else:
        values = [random.bytes(each % 40) for each in range(3000)]
    name = f"sift:/long{next(NUMBER)}"
    schema = pa.schema([pa.field("x", pa.float32(), nullable=False), pa.field("key", kind, nullable=False)])
    sent = []
    with group.connect("a") as a, group.connect("b") as b:
        options = "key=key&by=hash&stages=2&fanout=8&threshold=64KiB&budget=8MiB"
        for step in range(6):
            session = (a, b)[step % 2]
            with session.stream(f"{name}{step}", schema, rows_max=3000, pool=f"{name}?{options}") as stream:
                key = pa.array([values[each] for each in random.permutation(3000)], kind)
                x = pa.array(random.normal(size=3000).astype(np.float32))
                stream.send(pa.record_batch([x, key], schema=schema), key=(f"{step}", "")).wait_stored(PATIENCE_S)
            sent.append(pa.table([pa.array([step] * 3000, pa.int64()), x, key], names=["step", "x", "key"]))
        tracks = b.tracks(name, "key")
        tracks.flush(PATIENCE_S)
        expected = pa.concat_tables(sent).sort_by([("key", "ascending"), ("step", "ascending")])
        found = pa.concat_tables(tracks.select(None)).select(["step", "x", "key"])
        assert found.to_pylist() == expected.to_pylist(), "over two agents, in order"
        assert tracks.write(tmp_path / "files", timeout=PATIENCE_S) == expected.num_rows
        written = pyarrow.dataset.dataset(tmp_path / "files", format="parquet").to_table(columns=["step", "x", "key"])
        assert written.schema.field("key").type == kind
        assert written.sort_by([("key", "ascending"), ("step", "ascending")]).to_pylist() == expected.to_pylist()
        for part in sorted((tmp_path / "files").iterdir()):  # each file is in order
            rows = pyarrow.parquet.read_table(part)
            assert rows.to_pylist() == rows.sort_by([("key", "ascending"), ("step", "ascending")]).to_pylist()
        late = pa.concat_tables(tracks.select("step >= 4 and x > 0"))
        assert late.num_rows == expected.filter((pc.field("step") >= 4) & (pc.field("x") > 0)).num_rows
        if not pa.types.is_decimal(kind):
            asked = [values[0], values[1234], values[2999]]
            some = tracks.tracks(asked, 1, 4)
            wanted = expected.filter(pc.field("key").isin(pa.array(asked, kind)) & (pc.field("step") >= 1)
                                     & (pc.field("step") <= 4))  # fmt: skip
            assert some.select(["step", "x", "key"]).to_pylist() == wanted.to_pylist()
            with pytest.raises(offpath.NotFound):
                tracks.track("none" if kind == pa.string() else b"\0" * 16)
        if kind == pa.binary(16):
            assert tracks.track(uuid.UUID(bytes=values[5]))["key"].to_pylist() == [values[5]] * 6
        tracks.drop()


@pytest.mark.parametrize("kind", [pa.binary(16), pa.string()], ids=str)
def test_identifiers_that_are_null_are_refused_by_name(group: Group, kind: pa.DataType) -> None:
    with group.connect("a") as session:
        schema = pa.schema([pa.field("key", kind)])
        name = f"sift:/refused{next(NUMBER)}?key=key&by=hash"
        with session.stream("nulls", schema, rows_max=2, pool=name) as stream:
            value = "0123456789abcdef"
            batch = pa.record_batch(
                [pa.array([value if kind == pa.string() else value.encode(), None], kind)], schema=schema
            )
            with pytest.raises(offpath.SchemaError, match="the identifier 'key' has 1 nulls"):
                stream.send(batch, key=("1", "")).wait_stored(PATIENCE_S)


def test_the_command_finds_a_track_by_its_value(group: Group) -> None:
    with group.connect("a") as session:
        schema = pa.schema([pa.field("key", pa.float64(), nullable=False)])
        stream = session.stream("told", schema, rows_max=4, pool="sift:/told?key=key&by=hash")
        batch = pa.record_batch([pa.array([1.5, 2.5, -0.5])], schema=schema)
        stream.send(batch, key=("1", "")).wait_stored(PATIENCE_S)
        session.tracks("sift:/told").flush(PATIENCE_S)
        command = [sys.executable, "-m", "offpath", "track", "sift:/told", "1.5", "2.5", "--key", "key",
                   "--agent", group.address("a"), "--json"]  # fmt: skip
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "1.5" in told and "2.5" in told and "-0.5" not in told
        moment = datetime.date(2026, 11, 29)
        with pytest.raises(offpath.SchemaError):
            session.tracks("sift:/told", "key").track(moment)
