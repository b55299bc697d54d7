"""Queries: an agent's answers equal pyarrow's over the same table, and queries that it cannot answer fail with a
message."""

import gc
import os
import signal

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest

FLOATS = ("x", "y", "z", "vx", "vy", "vz")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.uint64(), nullable=False),
        *(pa.field(name, pa.float32(), nullable=False) for name in FLOATS),
        pa.field("type", pa.uint8(), nullable=False),
    ]
)
ROWS = 20_000
V2 = pc.field("vx") * pc.field("vx") + pc.field("vy") * pc.field("vy") + pc.field("vz") * pc.field("vz")
BOX = (pc.field("x") < 0.5) & (pc.field("y") < 0.5) & (pc.field("z") < 0.5)


def particles(seed):
    random = np.random.default_rng(seed)
    columns = {"id": np.arange(ROWS, dtype=np.uint64) + seed * ROWS}
    columns |= {name: random.random(ROWS, dtype=np.float32) for name in FLOATS}
    return columns | {"type": random.integers(0, 4, ROWS, dtype=np.uint8)}


def fill(session, name):
    stream = session.stream(name, SCHEMA, rows_max=ROWS)
    for step in range(3):
        stream.send(particles(step), key=(f"step{step}", "rank0")).wait_stored(60)
    return session.pool(stream.pool_name)


@pytest.fixture
def pool(session, name):
    return fill(session, name)


@pytest.fixture(scope="module")
def table():
    return pa.concat_tables([pa.table(particles(step), schema=SCHEMA) for step in range(3)])


def test_rows_of_a_box(pool, table):
    assert pool.query(BOX).equals(table.filter(BOX))


def test_columns_by_name_and_computed(pool, table):
    answer = pool.query(BOX, {"id": "id", "v2": V2})
    chosen = table.filter(BOX)
    assert answer["id"].equals(chosen["id"])
    expected = sum(chosen[name].to_numpy() ** 2 for name in ("vx", "vy", "vz"))
    assert np.array_equal(answer["v2"].to_numpy(), expected)
    assert pool.query(columns=["type", "x"]).equals(table.select(["type", "x"]))


def test_aggregates(pool, table):
    answer = pool.query(
        pc.field("type") == 2,
        aggregates={
            "least": ("min", V2),
            "most": ("max", V2),
            "mean": ("mean", "x"),
            "ids": ("sum", "id"),
            "n": "count",
        },
    ).to_pylist()
    chosen = table.filter(pc.field("type") == 2)
    v2 = sum(chosen[name].to_numpy() ** 2 for name in ("vx", "vy", "vz"))
    assert len(answer) == 1
    assert answer[0]["least"] == v2.min() and answer[0]["most"] == v2.max()
    assert answer[0]["n"] == chosen.num_rows and answer[0]["ids"] == pc.sum(chosen["id"]).as_py()
    assert answer[0]["mean"] == pytest.approx(pc.mean(chosen["x"]).as_py())


def test_objects_by_pattern(pool, table):
    assert pool.query(rows="step[!1]", aggregates={"n": "count"})["n"].to_pylist() == [2 * ROWS]
    assert pool.query(rows="step1").equals(table.slice(ROWS, ROWS))
    with pytest.raises(offpath.NotFound, match=r"no objects whose keys match \(step9, \*\)"):
        pool.query(rows="step9")
    with pytest.raises(offpath.NotFound, match="there is no pool"):
        pool.session.pool("local:/nowhere").query()


def test_nothing_chosen(pool):
    answer = pool.query(pc.field("x") > 2)
    assert answer.num_rows == 0 and answer.schema.equals(SCHEMA)
    assert pool.query(pc.field("x") > 2, aggregates={"n": "count", "most": ("max", "x")}).to_pylist() == [
        {"n": 0, "most": None}
    ]


def test_every_function(session, name):
    schema = pa.schema(
        [("n", pa.int32()), ("t", pa.string()), ("f", pa.float64()), ("b", pa.bool_()), ("at", pa.timestamp("us"))]
    )
    rows = [
        {"n": n if n % 3 else None, "t": f"t{n % 4}", "f": float("nan") if n == 5 else n / 4, "b": n % 2 == 0, "at": n}
        for n in range(40)
    ]
    table = pa.Table.from_pylist(rows, schema)
    stream = session.stream(name, schema, rows_max=40)
    stream.send(table.to_batches()[0], key="a").wait_stored(60)
    pool = session.pool(stream.pool_name)
    n, t, f, b = (pc.field(each) for each in ("n", "t", "f", "b"))
    at, twenty = pc.field("at"), pa.scalar(20, pa.timestamp("us"))
    filters = [
        n.is_null(), n.is_valid() & ~b, t.isin(["t1", "t2"]), n.isin([1, 2, None]),
        pc.is_in(n, options=pc.SetLookupOptions(pa.array([1, 2, None], pa.int32()), skip_nulls=True)),
        f.is_nan() | (f > 4), n == 7,
        n != 7, n >= 7, n <= 7, pc.negate(n) < -10, (n + 2) * 3 - 1 > 50, n / 2 == 3, f.cast(pa.float32()) < 2,
        pc.sqrt(f) > 1.5, pc.abs(n) == 4, pc.if_else(b, n, 0) > 3, t == "t3", at < twenty, b & (n > 3), pc.scalar(True),
    ]  # fmt: skip
    for condition in filters:
        assert pool.query(condition)["at"].to_pylist() == table.filter(condition)["at"].to_pylist(), condition


def test_what_cannot_be_computed_is_named(pool):
    with pytest.raises(offpath.NotFound, match='there is no column "speed"; there are id, x, y, z, vx, vy, vz, type'):
        pool.query(pc.field("speed") > 1)
    with pytest.raises(offpath.SchemaError, match="the filter is of type float, not bool"):
        pool.query(pc.field("x"))
    with pytest.raises(offpath.Unsupported, match="no function 'utf8_upper'"):
        pool.query(pc.utf8_upper(pc.field("x")) == "A")
    with pytest.raises(offpath.Unsupported, match="of type decimal"):
        pool.query(pc.field("x") == pa.scalar(1, pa.decimal128(5, 2)))
    with pytest.raises(offpath.Unsupported, match="kind 'nested_field_ref'"):
        pool.query(pc.field("a", "b") == 1)
    with pytest.raises(offpath.Invalid, match="not both"):
        pool.query(columns=["x"], aggregates={"n": "count"})
    with pytest.raises(offpath.Invalid, match="'median' is not one of sum, min"):
        pool.query(aggregates={"m": ("median", "x")})
    with pytest.raises(offpath.Error, match="divide by zero"):
        pool.query(pc.field("id") / 0 == 1)
    deep = pc.field("x")
    for _ in range(60):
        deep = deep + 1
    with pytest.raises(offpath.TooLarge, match="nested deeper"):
        pool.query(deep > 0)


def test_an_answer_outlives_the_pools_objects(pool, table):
    answer = pool.query(BOX)
    pool.drop()
    gc.collect()
    assert answer.equals(table.filter(BOX))


def test_an_answer_left_unread_is_given_up(pool):
    for _ in range(40):  # more than a program may have open
        frames = pool.query_frames()
        next(frames)
        frames.close()
        del frames
        gc.collect()


def test_plain_bytes_are_no_table(session, name):
    stream = session.stream(name, destination="native")
    stream.send(b"plain", key="a").wait_stored(60)
    with pytest.raises(offpath.SchemaError, match="plain bytes"):
        session.pool(stream.pool_name).query()


def test_a_time_that_is_over(agent, pool):
    # Otherwise the answer may be there before this program looks for the first time.
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        with pytest.raises(offpath.Timeout):
            next(iter(pool.query_frames(timeout=0.0)))
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def test_over_tcp_frames_are_pushed(tcp_agent, name, table):
    _, address, key = tcp_agent
    with offpath.connect(address, key_file=key) as session:
        pool = fill(session, name)
        assert pool.query(BOX).equals(table.filter(BOX))
        assert pool.query(aggregates={"n": "count"})["n"].to_pylist() == [3 * ROWS]
        assert not any(frame.mapped for frame in pool.query_frames())


def test_plain_bytes_among_arrow_are_named_and_may_be_left_out(session, name, tmp_path):
    pool = session.pool(f"local:/{name}")
    pool.put(pa.table({"v": [1, 2]}), "a")
    pool.put(b"v\n3\n", "note.csv", "text")
    pool.put(pa.table({"v": [4]}), "b")
    with pytest.raises(offpath.SchemaError, match=r"object \(note.csv, text\) is plain bytes.*arrow_only"):
        pool.query()
    assert pool.query(arrow_only=True)["v"].to_pylist() == [1, 2, 4]
    assert pool.query_async(arrow_only=True).result(60)["v"].to_pylist() == [1, 2, 4]
    assert pool.query(aggregates={"n": "count"}, arrow_only=True).to_pylist() == [{"n": 3}]
    with pytest.raises(offpath.NotFound, match="no Arrow objects"):
        pool.query(rows="note*", arrow_only=True)
    written = tmp_path / "all.arrows"
    with pytest.raises(offpath.SchemaError, match=r"object \(note.csv, text\) is plain bytes.*arrow_only"):
        pool.write(written)
    assert not written.exists()
    assert pool.write(written, arrow_only=True) == written.stat().st_size
    assert pa.ipc.open_stream(written.read_bytes()).read_all()["v"].to_pylist() == [1, 2, 4]
    pool.put(pa.table({"w": [4]}), "c")
    with pytest.raises(offpath.SchemaError, match=r"object \(c, \).* has another schema than .*\(a, \)"):
        pool.write(written, arrow_only=True)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint64", "int8"])
def test_histograms_are_numpys(session, name, dtype):
    """Edges too: a third of the values lie on them."""
    random = np.random.default_rng(5)
    values = random.normal(scale=30, size=30_000)
    values[::3] = np.linspace(-7, 41, 25)[random.integers(0, 25, 10_000)]
    values = (np.abs(values) if dtype == "uint64" else values).astype(dtype)
    missing = np.arange(len(values)) % 11 == 0
    pool = session.pool(f"local:/{name}").create()
    pool.put(pa.table({"v": pa.array(values, mask=missing), "w": random.random(len(values))}), "step0")
    kept = values[~missing].astype(np.float64)
    for bins, limits in ((24, (-7.0, 41.0)), (1, (0.0, 1.0)), (1000, (-50.0, 50.0)), (7, None)):
        counts, edges = pool.histogram("v", bins, limits)
        expected = np.histogram(kept, bins, limits)
        assert np.array_equal(counts, expected[0])
        assert np.array_equal(edges, expected[1])
        assert counts.dtype == np.int64
    counts, x, y = pool.histogram2d("v", "w", (24, 3), ((-7.0, 41.0), (0.0, 1.0)))
    assert counts.shape == (24, 3) and len(x) == 25 and len(y) == 4
    assert np.array_equal(counts.sum(axis=1), np.histogram(kept, 24, (-7.0, 41.0))[0])


def test_histograms_of_little(session, name):
    pool = session.pool(f"local:/{name}").create()
    pool.put(pa.table({"v": pa.array([2.0, 2.0, None, np.nan]), "t": ["a"] * 4}), "step0")
    counts, edges = pool.histogram("v", 4)
    assert counts.tolist() == [0, 0, 2, 0] and edges.tolist() == [1.5, 1.75, 2.0, 2.25, 2.5]
    counts, edges = pool.histogram("v", 2, filter="v > 5")
    assert counts.tolist() == [0, 0] and edges.tolist() == [0.0, 0.5, 1.0]
    for bins, limits, why in ((0, None, "0"), (4, (1.0, 1.0), "range"), (1 << 21, (0.0, 1.0), "1048576 bins")):
        with pytest.raises(offpath.Error, match=why):
            pool.histogram("v", bins, limits)
    with pytest.raises(offpath.SchemaError, match="numbers"):
        pool.histogram("t", 4, (0.0, 1.0))
    with pytest.raises(offpath.Invalid, match="one number"):
        pool.histogram2d("v", "v", (4, 0))
    with pytest.raises(offpath.NotFound, match="no objects"):
        pool.histogram("v", 4, rows="none")
