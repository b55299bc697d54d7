"""Pools and tracks as datasets: other programs' readers hand columns and filters down, and get the rows of a full
read."""

import datetime
import math
import time
from decimal import Decimal

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from offpath.agent_http import fetch_status
from offpath.dataset import AgentDataset, Plan

ROWS = 200
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("small", pa.int8()), ("big", pa.uint64()), ("count", pa.uint32()),
        ("x", pa.float64()), ("y", pa.float32()),
        ("name", pa.string()), ("flag", pa.bool_()), ("day", pa.date32()), ("at", pa.timestamp("us")),
        ("price", pa.decimal128(7, 2)), ("pair", pa.list_(pa.float32(), 2)),
    ]
)  # fmt: skip
FLOATS = [0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 1e300]
VALUES = {
    "id": [0, 1, 7, -3, 2**62],
    "small": [0, 1, -128, 127],
    "big": [0, 1, 2**64 - 1, 2**63],
    "count": [0, 1, 2**32 - 1],
    "x": FLOATS,
    "y": [np.float32(each) for each in (0.0, -0.0, 0.1, 2.5, math.nan, math.inf)],
    "name": ["", "a", "b", "ab", "é"],
    "flag": [True, False],
    "day": [datetime.date(1970, 1, 1), datetime.date(2026, 11, 26)],
    "at": [datetime.datetime(1969, 12, 31), datetime.datetime(2026, 11, 26, 1, 2, 3, 4)],
}


def made_table(seed):
    random = np.random.default_rng(seed)
    columns = {}
    for name, values in VALUES.items():
        chosen = [values[each] if each < len(values) else None for each in random.integers(0, len(values) + 1, ROWS)]
        columns[name] = pa.array(chosen, SCHEMA.field(name).type, from_pandas=False)
    columns["price"] = pa.array(list(map(Decimal, range(ROWS))), pa.decimal128(7, 2))
    columns["pair"] = pa.FixedSizeListArray.from_arrays(pa.array(random.random(2 * ROWS, dtype=np.float32)), 2)
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def table():
    return pa.concat_tables([made_table(seed) for seed in range(3)])


@pytest.fixture(scope="module")
def module_session(agent):
    with offpath.connect(agent.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def pool(module_session):
    pool = module_session.pool("local:/dataset-rows")
    for seed in range(3):
        pool.put(made_table(seed), f"step{seed}")
    return pool


@pytest.fixture(scope="module")
def dataset(pool):
    return pool.dataset(rows="step*")


def same(one, other):
    """Equal with NaN equal to NaN, which tables' ``equals`` has not."""
    return one.schema.equals(other.schema) and repr(one.to_pylist()) == repr(other.to_pylist())


def scalar(name, value):
    return pa.scalar(value, SCHEMA.field(name).type)


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    field, value = pc.field(name), draw(st.sampled_from(VALUES[name]))
    made = [
        field.is_null(), field.is_valid(), field == scalar(name, value), field != scalar(name, value),
        field < scalar(name, value), field <= scalar(name, value), field > scalar(name, value),
        field >= scalar(name, value), pc.less(pc.scalar(scalar(name, value)), field),
    ]  # fmt: skip
    chosen = draw(st.lists(st.sampled_from([*VALUES[name], None]), max_size=4))
    values = pa.array(chosen, SCHEMA.field(name).type)
    made += [field.isin(values), pc.is_in(field, options=pc.SetLookupOptions(values, skip_nulls=True))]
    made.append(pc.if_else(field.is_valid(), field.isin(values), pa.scalar(None, pa.bool_())))
    if name in ("x", "y", "count"):
        made += [field < 1, field >= 1, pc.field("id") == 1, pc.scalar(1) != field]
    if name in ("x", "y"):
        made += [field > -1, field < pa.scalar(0.1, pa.float32())]
        made += [pc.is_nan(field), field.is_null(nan_is_null=True), pc.add(field, field) > scalar(name, value)]
    if name == "small":
        made += [pc.add(field, pc.scalar(scalar("small", 1))) > scalar(name, value), field.cast(pa.float64()) < 0.5,
                 field < 0.5, field < 300]  # fmt: skip
    if name == "name":
        made += [pc.starts_with(field, "a"), pc.utf8_length(field) > 1]
    if name == "flag":
        made += [field, ~field]
    return draw(st.sampled_from(made))


filters = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filter=filters, columns=st.one_of(st.none(), st.lists(st.sampled_from(SCHEMA.names), max_size=3, unique=True)))
@example(filter=pc.field("name").isin(pa.array([], pa.string())), columns=None)
@example(filter=~pc.field("name").isin(pa.array([None], pa.string())), columns=["id"])
def test_any_filter_gives_the_rows_of_a_full_read(dataset, table, filter, columns):
    expected = ds.dataset(table).to_table(columns=columns, filter=filter)
    found = dataset.to_table(columns=columns, filter=filter)
    assert found.num_rows == expected.num_rows and same(found, expected)
    assert dataset.count_rows(filter) == expected.num_rows


X, NAME = pc.field("x"), pc.field("name")


@pytest.mark.parametrize(
    ("filter", "pushed"),
    [
        (X < 1.0, True), (X < -1, True), (pc.field("count") > 1, True), ((X >= 0.0) & (NAME == "a"), True),
        (~(X.is_null() | pc.is_nan(X)), True), (pc.field("id").isin([1, None]), True), (pc.field("flag"), True),
        (X + 1.0 < 2.0, False), (pc.starts_with(NAME, "a") & (X < 1.0), False),
        (pc.field("price") > pa.scalar(Decimal("3.00"), pa.decimal128(7, 2)), False),
        (X.is_null(nan_is_null=True), False), (pc.field("id").isin(list(range(5000))), False),
        (pc.add(pc.field("small"), pc.scalar(pa.scalar(1, pa.int8()))) > 0, False),
    ],
)  # fmt: skip
def test_what_travels_is_known_before(dataset, table, filter, pushed):
    assert dataset.is_pushed(filter) == pushed
    assert dataset.to_table(["id"], filter).equals(ds.dataset(table).to_table(["id"], filter))


def test_a_filter_travels_in_part():
    plan = Plan(SCHEMA, ["id"], pc.starts_with(NAME, "a") & (X < 1.0))
    assert plan.pushed.value == "less" and plan.remaining is not None and plan.columns == ["id", "x", "name"]
    assert Plan(SCHEMA, ["id"], X < 1.0).columns == ["id"]
    assert Plan(SCHEMA, [], None).columns == ["flag"]  # how many rows there are, by a bit of each


def test_many_and_deep_conditions(dataset, table):
    many = X < 1.0
    for number in range(1500):
        many = many & (pc.field("id") != number + 100)
    deep = X < 1.0
    for number in range(60):
        deep = (deep | (pc.field("id") == number)) & X.is_valid()
    for filter in (many, deep):
        assert same(dataset.to_table(["id"], filter), ds.dataset(table).to_table(["id"], filter))


def test_only_named_columns_move():
    """By the counters of an agent of its own: each scan is one query."""
    rows, column = 100_000, 800_000  # and bytes of a column
    with offpath.Agent.start(memory="1GiB") as agent, offpath.connect(agent.address) as session:
        pool = session.pool("local:/columns")
        pool.put(pa.table({f"c{number}": np.arange(rows, dtype=np.float64) for number in range(20)}), "step0")
        dataset = pool.dataset()
        queries, before = 1, counted(agent, 1)
        assert before["answered_bytes"] < 10_000  # the schema

        def moved(scan):
            nonlocal queries, before
            result = scan()
            queries += 1
            earlier, before = before, counted(agent, queries)
            return result, *(before[name] - earlier[name] for name in ("read_bytes", "answered_bytes"))

        few = pc.field("c4") < 100.0
        table, read, answered = moved(lambda: dataset.to_table(columns=["c3"]))
        assert table.num_rows == rows and column <= answered < 1.1 * column and read <= 1.1 * column
        table, read, answered = moved(lambda: dataset.to_table(["c3"], few))
        assert table.num_rows == 100 and answered < 0.1 * column and read < 2.2 * column
        table, read, answered = moved(lambda: dataset.to_table(["c3"], few & (pc.sqrt(pc.field("c5")) < 5.0)))
        assert table.num_rows == 25 and answered < 0.1 * column and read < 3.3 * column  # a part is also pushed
        count, read, answered = moved(lambda: dataset.count_rows(few))
        assert count == 100 and answered < 0.1 * column and read < 1.1 * column
        duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
        with duckdb.connect() as connection:
            connection.register("rows", dataset)
            ask = connection.execute
            found, read, answered = moved(lambda: ask("SELECT sum(c3) FROM rows WHERE c4 < 100").fetchone())
        assert found == (4950,) and answered < 0.1 * column and read < 2.2 * column
        asked = polars.scan_pyarrow_dataset(dataset).filter(polars.col("c4") < 100).select("c3")
        found, read, answered = moved(lambda: asked.collect())
        assert found["c3"].sum() == 4950 and answered < 0.1 * column and read < 2.2 * column
        datafusion = pytest.importorskip("datafusion")
        context = datafusion.SessionContext()
        context.register_dataset("rows", dataset)
        asked = context.sql("SELECT sum(c3) AS s FROM rows WHERE c4 < 100")
        found, read, answered = moved(lambda: asked.to_pylist())
        assert found == [{"s": 4950.0}] and answered < 0.1 * column and read < 2.2 * column
        frame, read, answered = moved(lambda: dataset.to_table(["c3"], few).to_pandas())
        assert frame["c3"].sum() == 4950 and answered < 0.1 * column and read < 2.2 * column
        sql = pytest.importorskip("offpath.sql")
        queries += 1  # for the schema, which reads one object
        text = "SELECT sum(c3) AS s FROM pool('local:/columns') WHERE c4 < 100"
        table, read, answered = moved(lambda: sql.run_sql(session, text))
        assert table.to_pylist() == [{"s": 4950.0}] and answered < 0.1 * column


def test_only_named_columns_of_tracks_move():
    rows, columns = 1000, [f"c{number}" for number in range(20)]
    schema = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in columns])
    schema = schema.insert(0, pa.field("id", pa.int64(), nullable=False))
    with offpath.Agent.start(memory="1GiB") as agent, offpath.connect(agent.address) as session:
        stream = session.stream("s", schema, rows_max=rows, pool="sift:/tracks?key=id")
        for step in range(10):
            values = {name: np.arange(rows) + float(step) for name in columns}
            stream.send({"id": np.arange(rows), **values}, key=(f"step{step}", "0"), snapshot=True).wait_stored(60)
        tracks = session.tracks("sift:/tracks")
        tracks.flush(60)
        dataset = tracks.dataset()
        before = counted(agent, 1)["answered_bytes"]
        found = dataset.to_table(["c3"], (pc.field("step") >= 5) & (pc.field("c4") < 105.0))
        expected = [track + step for track in range(rows) for step in range(5, 10) if track + step < 105]
        assert found["c3"].to_pylist() == expected
        assert 8 * len(expected) <= counted(agent, 2)["answered_bytes"] - before < 8 * len(expected) + 5_000
        assert dataset.to_table(["c3"]).num_rows == 10 * rows
        moved = counted(agent, 3)["answered_bytes"] - before
        assert 80 * rows < moved < 1.5 * 80 * rows  # of 22 columns


def test_a_histogram_moves_its_bins_and_no_rows():
    rows, column, bins = 200_000, 1_600_000, (64, 48)  # and bytes of a column
    random = np.random.default_rng(1)
    x, y = random.normal(size=rows), random.normal(size=rows)
    with offpath.Agent.start(memory="1GiB") as agent, offpath.connect(agent.address) as session:
        pool = session.pool("local:/rows")
        pool.put(pa.table({"x": x, "y": y, "z": x + y}), "step0")
        counts, *edges = pool.histogram2d("x", "y", bins, ((-3.0, 3.0), (-2.0, 2.0)))
        now = counted(agent, 1)
        assert np.array_equal(counts, np.histogram2d(x, y, bins, ((-3.0, 3.0), (-2.0, 2.0)))[0])
        assert counts.nbytes <= now["answered_bytes"] < counts.nbytes + 4096
        assert 2 * column <= now["read_bytes"] < 2.1 * column
        counts, *edges = pool.histogram2d("x", "y", bins)  # two queries: the first one finds out the ranges
        before, now = now, counted(agent, 3)
        assert all(map(np.array_equal, (counts, *edges), np.histogram2d(x, y, bins)))
        assert counts.nbytes <= now["answered_bytes"] - before["answered_bytes"] < counts.nbytes + 8192


def counted(agent, queries):
    """The counters of queries, when so many have ended; the status page is renewed from time to time."""
    for _ in range(3000):
        counters = fetch_status(agent.http_address)["queries"]
        if counters["queries"] >= queries and counters["open"] == 0:
            assert counters["queries"] == queries
            return counters
        time.sleep(0.02)
    raise AssertionError(f"{counters} after {queries} queries")


QUERIES = [
    "SELECT id, x FROM rows WHERE x > 1 ORDER BY ALL",
    "SELECT id, x FROM rows WHERE x < 1 AND name IN ('a', 'ab') ORDER BY ALL",
    "SELECT name, count(*), sum(id) FROM rows WHERE flag OR x IS NULL GROUP BY name ORDER BY ALL",
    "SELECT count(*) FROM rows",
    "SELECT count(*) FROM rows WHERE NOT (small BETWEEN 0 AND 3) AND big >= 9223372036854775808",
    "SELECT count(*), max(price) FROM rows WHERE price > 100 AND day = DATE '2026-11-26' AND name LIKE 'a%'",
    "SELECT id, name FROM rows WHERE rows.at < TIMESTAMP '1970-01-01' AND id NOT IN (1, 7) ORDER BY ALL LIMIT 10",
]


@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_finds_what_it_finds_in_a_full_read(dataset, table, query):
    duckdb = pytest.importorskip("duckdb")
    found = []
    for source in (dataset, table):
        with duckdb.connect() as connection:
            connection.register("rows", source)
            found.append(sorted(map(repr, connection.execute(query).fetchall())))  # 0.0 and -0.0 have no order
    assert found[0] == found[1]


def test_polars_finds_what_it_finds_in_a_dataset_of_arrows(dataset, table):
    polars = pytest.importorskip("polars")
    col = polars.col
    for condition in (
        col("x") < 1, col("x").is_nan(), col("name").is_in(["a", "b"]) & col("flag"), col("id").is_null(),
        (col("small") + 1) > 0, ~(col("y") >= 0.1), col("at") < datetime.datetime(2000, 1, 1),
    ):  # fmt: skip
        found, expected = (
            polars.scan_pyarrow_dataset(source).filter(condition).select("id", "x").collect()
            for source in (dataset, ds.dataset(table))
        )
        assert found.equals(expected) or repr(found.rows()) == repr(expected.rows()), condition
    assert polars.scan_pyarrow_dataset(dataset).head(5).collect().height == 5


def test_datafusion_reads_it(dataset, table):
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_dataset("rows", dataset)
    found = context.sql("SELECT count(*) AS n, sum(id) AS s FROM rows WHERE x < 1 AND name IS NOT NULL").to_pylist()
    chosen = table.select(["id", "x", "name"]).filter((X < 1) & NAME.is_valid())
    assert found == [{"n": chosen.num_rows, "s": pc.sum(chosen["id"]).as_py()}]
    assert context.sql("SELECT id FROM rows WHERE name = 'a'").to_pylist() == (
        table.filter(NAME == "a").select(["id"]).to_pylist()
    )


def test_pandas_reads_it(dataset, table):
    pytest.importorskip("pandas")
    frame = dataset.to_table(["id"], (X < 1) & pc.field("id").is_valid()).to_pandas()
    assert frame["id"].tolist() == table.filter((X < 1) & pc.field("id").is_valid())["id"].to_pylist()


def test_datasets_do_what_arrows_do(dataset, table, tmp_path):
    assert isinstance(dataset, ds.Dataset) and dataset.schema.equals(SCHEMA)
    assert dataset.head(5, columns=["id"]).equals(table.select(["id"]).slice(0, 5))
    assert dataset.take([3, 1], columns=["id"]).equals(table.select(["id"]).take([3, 1]))
    assert dataset.to_table({"twice": pc.field("id") * 2, "n": NAME}, pc.field("id") < 9).equals(
        ds.dataset(table).to_table({"twice": pc.field("id") * 2, "n": NAME}, pc.field("id") < 9)
    )
    narrow = dataset.filter(X < 1.0).filter(NAME == "a")
    assert same(narrow.to_table(["id", "name"]), table.filter((X < 1.0) & (NAME == "a")).select(["id", "name"]))
    assert narrow.count_rows() == table.filter((X < 1.0) & (NAME == "a")).num_rows
    (fragment,) = dataset.get_fragments(X < 1.0)
    assert fragment.physical_schema.equals(SCHEMA) and fragment.count_rows() == table.num_rows
    assert same(fragment.to_table(columns=["x"]), table.select(["x"]))
    assert sum(batch.num_rows for batch in fragment.to_batches(columns=["x"], batch_size=10)) == table.num_rows
    ds.write_dataset(dataset, tmp_path / "written", format="parquet")
    assert ds.dataset(tmp_path / "written").count_rows() == table.num_rows
    assert dataset.sort_by("small").head(1, columns=["small"])["small"].to_pylist() == [-128]
    names = pa.table({"name": ["a", "b"], "long": ["one", "two"]})
    plain = AgentDataset(dataset.name, SCHEMA.remove(SCHEMA.get_field_index("pair")), lambda filter, columns, count: (
        iter([table.select(columns)])
    ))  # fmt: skip
    assert plain.join(ds.dataset(names), "name", join_type="inner").count_rows() == (
        table.filter(NAME.isin(["a", "b"])).num_rows
    )


def test_what_arrow_reads_behind_python_is_an_error_and_no_wrong_row(dataset, table):
    arrows = ds.dataset(table.select(["id"]))
    with pytest.raises(NotImplementedError, match=r"cannot reach pool local:/dataset-rows: use dataset\.to_table"):
        arrows.join(AgentDataset(dataset.name, pa.schema([SCHEMA.field("id"), SCHEMA.field("x")]), None), "id")
    with pytest.raises(offpath.Unsupported, match="its schema is set by the agents"):
        ds.dataset([dataset, dataset])
    with pytest.raises(TypeError, match="belongs to its session"):
        dataset.__reduce__()
    with pytest.raises(offpath.Unsupported, match="its schema is set by the agents"):
        dataset.replace_schema(SCHEMA)
    (fragment,) = dataset.get_fragments()
    with pytest.raises(offpath.Unsupported, match="read with its own schema"):
        fragment.scanner(pa.schema([("id", pa.int8())]))


def test_errors_are_those_of_a_query(session, name):
    with pytest.raises(offpath.NotFound, match="there is no pool"):
        session.pool("local:/nowhere").dataset()
    pool = session.pool(f"local:/{name}")
    pool.put(pa.table({"x": [1.0]}), "a")
    with pytest.raises(offpath.NotFound, match="no objects whose keys match"):
        pool.dataset(rows="b*")
    dataset = pool.dataset()
    with pytest.raises(pa.ArrowInvalid, match="speed"):
        dataset.to_table(["speed"])
    pool.put(pa.table({"y": [1.0]}), "b")
    with pytest.raises(offpath.Error, match="has the columns y double"):
        dataset.to_table(["x"])
    pool.drop()
    with pytest.raises(offpath.NotFound):
        dataset.to_table()
    pool.put(pa.table({"x": [1]}), "a")
    with pytest.raises(offpath.SchemaError, match="other columns than when this dataset was made"):
        dataset.to_table()
    pool.put(b"plain", "b")
    with pytest.raises(offpath.SchemaError):
        pool.dataset()
    assert pool.dataset(arrow_only=True).to_table().to_pydict() == {"x": [1]}


def test_keys_that_look_like_patterns(session, name):
    pool = session.pool(f"local:/{name}")
    pool.put(pa.table({"x": [1.0]}), "step1")
    pool.put(pa.table({"x": [2.0]}), "step[1]*?")
    assert pool.dataset().to_table()["x"].to_pylist() == [1.0, 2.0]
    assert pool.dataset(rows="step1").to_table()["x"].to_pylist() == [1.0]


def test_a_scan_left_early_ends_its_query(agent, session, name):
    pool = session.pool(f"local:/{name}")
    for step in range(40):
        pool.put(pa.table({"x": np.arange(50_000.0)}), f"step{step}")
    batches = pool.dataset().to_batches(columns=["x"])
    assert next(iter(batches)).num_rows > 0
    del batches
    assert pool.dataset().count_rows() == 40 * 50_000


def test_tracks_as_a_dataset(session, name):
    schema = pa.schema([pa.field("id", pa.uint64(), nullable=False), pa.field("x", pa.float64(), nullable=False)])
    stream = session.stream(name, schema, rows_max=100, pool=f"sift:/{name}?key=id")
    for step in range(5):
        rows = {"id": np.arange(100, dtype=np.uint64), "x": np.arange(100.0) + step}
        stream.send(rows, key=(f"step{step}", "rank0")).wait_stored(60)
    tracks = session.tracks(f"sift:/{name}")
    tracks.flush(60)
    dataset = tracks.dataset()
    assert dataset.schema.names == ["step", "id", "x"] and dataset.count_rows() == 500
    condition = (pc.field("step") >= 2) & (pc.field("id") == pa.scalar(7, pa.uint64()))
    assert dataset.is_pushed(condition)
    assert dataset.to_table(["step", "x"], condition).to_pydict() == {"step": [2, 3, 4], "x": [9.0, 10.0, 11.0]}
    assert dataset.count_rows(condition) == 3
