"""Data of every kind of holder arrives, and data that does not fit is refused with both values."""

import decimal

import numpy as np
import offpath
import pyarrow as pa
import pytest

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("x", pa.list_(pa.float64(), 3), nullable=False),
        pa.field("vz", pa.float32(), nullable=False),
        pa.field("fixed", pa.bool_(), nullable=False),
    ]
)
ROWS = 1001


@pytest.fixture
def data():
    rng = np.random.default_rng(7)
    velocity = rng.normal(size=(ROWS, 3)).astype(np.float32)
    return {
        "id": np.arange(ROWS, dtype=np.int32),
        "x": rng.normal(size=(ROWS, 3)),
        "vz": velocity[:, 2],  # strided
        "fixed": rng.integers(0, 2, ROWS).astype(bool),
    }


def assert_arrived(table, data):
    assert table["id"].to_numpy().tolist() == data["id"].tolist()
    values = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, 3)
    assert np.array_equal(values, data["x"])
    assert np.array_equal(table["vz"].to_numpy(), data["vz"])
    assert table["fixed"].to_pylist() == data["fixed"].tolist()


def test_numpy_arrays_arrive_as_arrow(any_session, name, data):
    stream = any_session.stream(name, SCHEMA, rows_max=ROWS)
    ticket = stream.send(data, key=("step0", "rank0"))
    ticket.wait_pulled(60)
    assert ticket.pulled
    ticket.wait_stored(60)
    table = any_session.pool(stream.pool_name).get("step0", "rank0")
    assert table.schema.names == SCHEMA.names
    assert [field.type for field in table.schema] == [field.type for field in SCHEMA]
    assert_arrived(table, data)


@pytest.mark.parametrize("destination", ["ipc-page", "ipc", "record-batch", "arrays", "c-abi", "agent-serialise"])
def test_every_destination(session, name, data, destination):
    stream = session.stream(name, SCHEMA, rows_max=ROWS, destination=destination)
    stream.send(data, key="a").wait_stored(60)
    assert_arrived(session.pool(stream.pool_name).get("a"), data)


def test_holders_of_columns(any_session, name, data):
    batch = offpath.columns.as_batch(data, SCHEMA)
    records = np.zeros(ROWS, dtype=[("id", "i4"), ("x", "f8", 3), ("vz", "f4"), ("fixed", "?")])
    for column, values in data.items():
        records[column] = values
    # Lists inside of records are not side by side: they are refused, not copied in silence.
    records_without_lists = {"id": records["id"], "x": data["x"], "vz": records["vz"], "fixed": records["fixed"]}

    class Particles:
        id, x, vz, fixed = data["id"], data["x"], data["vz"], data["fixed"]

    stream = any_session.stream(name, SCHEMA, rows_max=ROWS)
    holders = {
        "dict": data,
        "batch": batch,
        "table": pa.Table.from_batches([batch]),
        "records": records_without_lists,
        "object": Particles(),
        "mixed": {**data, "id": pa.array(data["id"])},
    }
    for row, holder in holders.items():
        stream.send(holder, key=row).wait_stored(60)
        assert_arrived(any_session.pool(stream.pool_name).get(row), data)


def test_any_type(any_session, name):
    batch = pa.RecordBatch.from_pydict(
        {
            "text": pa.array(["a", None, "ccc", ""]),
            "list": pa.array([[1, 2], None, [], [3]], pa.list_(pa.int16())),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}]),
            "word": pa.array(["u", "v", "u", None]).dictionary_encode(),
            "money": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.50"), decimal.Decimal("0.00")]),
            "time": pa.array([1, 2, None, 4], pa.timestamp("us", tz="UTC")),
            "flag": pa.array([True, None, False, True]),
        }
    )
    stream = any_session.stream(name, batch.schema, rows_max=4)
    stream.send(batch, key="whole").wait_stored(60)
    stream.send(batch.slice(1, 2), key="slice").wait_stored(60)
    pool = any_session.pool(stream.pool_name)
    assert pool.get("whole").to_pylist() == batch.to_pylist()
    assert pool.get("slice").to_pylist() == batch.slice(1, 2).to_pylist()


def test_datetimes_of_numpy(session, name):
    schema = pa.schema([pa.field("t", pa.timestamp("ns"), nullable=False)])
    stream = session.stream(name, schema, rows_max=10)
    times = np.arange("2020-01-01", "2020-01-11", dtype="datetime64[D]").astype("datetime64[ns]")
    stream.send({"t": times}, key="a").wait_stored(60)
    assert session.pool(stream.pool_name).get("a")["t"].to_numpy().tolist() == times.tolist()


def test_empty_batch(any_session, name):
    stream = any_session.stream(name, SCHEMA, rows_max=10)
    empty = {"id": np.zeros(0, "i4"), "x": np.zeros((0, 3)), "vz": np.zeros(0, "f4"), "fixed": np.zeros(0, bool)}
    stream.send(empty, key="none").wait_stored(60)
    assert any_session.pool(stream.pool_name).get("none").num_rows == 0


def test_bytes_as_they_are(any_session, name):
    stream = any_session.stream(name, destination="native")
    payload = np.random.default_rng(1).integers(0, 256, 100_000).astype(np.uint8)
    stream.send(payload, key=("blob", "1")).wait_stored(60)
    assert bytes(any_session.pool(stream.pool_name).get_bytes("blob", "1")) == payload.tobytes()
    with pytest.raises(offpath.SchemaError, match="plain bytes"):
        any_session.pool(stream.pool_name).get("blob", "1")


def test_serialised_by_the_host(session, name, data):
    stream = session.stream(name, destination="serialised")
    stream.send(offpath.columns.as_batch(data, SCHEMA), key="a").wait_stored(60)
    assert_arrived(session.pool(stream.pool_name).get("a"), data)


def test_snapshot_lets_the_arrays_change_at_once(any_session, name):
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    stream = any_session.stream(name, schema, rows_max=100_000)
    values = np.zeros(100_000, np.int64)
    tickets = []
    for step in range(20):
        values[:] = step
        ticket = stream.send({"v": values}, key=f"s{step}", snapshot=True)
        assert ticket.pulled
        ticket.wait_pulled(0)
        values[:] = -1
        tickets.append(ticket)
    tickets[-1].wait_stored(60)
    for step in range(20):
        got = any_session.pool(stream.pool_name).get(f"s{step}")["v"].to_numpy()
        assert (got == step).all()


def test_snapshot_of_interleaved_columns(session, name):
    schema = pa.schema([pa.field(axis, pa.float64(), nullable=False) for axis in "xyz"])
    stream = session.stream(name, schema, rows_max=1000)
    x = np.random.default_rng(3).normal(size=(1000, 3))
    kept = x.copy()
    wide = np.random.default_rng(4).normal(size=(1000, 40))
    stream.send({"x": x[:, 0], "y": x[:, 1], "z": x[:, 2]}, key="a", snapshot=True)
    stream.send({"x": wide[:, 0], "y": wide[:, 20], "z": wide[:, 39]}, key="b", snapshot=True).wait_stored(60)
    x[:] = 0
    pool = session.pool(stream.pool_name)
    assert all(np.array_equal(pool.get("a")[axis].to_numpy(), kept[:, i]) for i, axis in enumerate("xyz"))
    columns = dict(zip("xyz", (0, 20, 39), strict=True))
    assert all(np.array_equal(pool.get("b")[axis].to_numpy(), wide[:, i]) for axis, i in columns.items())


def test_a_snapshot_beyond_the_staging_memory_names_both_sizes(agent, name):
    with offpath.connect(agent.address, staging_bytes_max=1 << 20) as session:
        stream = session.stream(name, destination="native")
        with pytest.raises(offpath.TooLarge, match=r"2097152.*1048576"):
            stream.send(np.zeros(2 << 20, np.uint8), key="a", snapshot=True)


@pytest.mark.parametrize(
    ("change", "expected", "given"),
    [
        ({"id": np.zeros(ROWS, np.int64)}, "int32", "given int64"),
        ({"x": np.zeros((ROWS, 2))}, r"\(rows, 3\)", rf"\({ROWS}, 2\)"),
        ({"x": np.zeros((ROWS, 6))[:, :3]}, "side by side", r"\(48, 8\)"),
        ({"vz": np.zeros(ROWS, np.float32)[::-1]}, "upwards", r"\(-4,\)"),
        ({"vz": np.zeros(ROWS, ">f4")}, "float32", "given >f4"),
        ({"vz": np.zeros(5, np.float32)}, f"{ROWS}", "5 rows"),
        ({"other": np.zeros(ROWS)}, "other", "schema"),
        ({"fixed": None}, "bool", "None"),
    ],
)
def test_misfits_name_both_sides(session, name, data, change, expected, given):
    stream = session.stream(name, SCHEMA, rows_max=ROWS)
    with pytest.raises(offpath.SchemaError) as caught:
        stream.send({**data, **change}, key="a")
    for part in (expected, given):
        caught.match(part)


def test_a_missing_column_is_named(session, name, data):
    stream = session.stream(name, SCHEMA, rows_max=ROWS)
    del data["x"]
    with pytest.raises(offpath.SchemaError, match="'x' is missing"):
        stream.send(data, key="a")


def test_rows_beyond_the_largest_batch(session, name, data):
    stream = session.stream(name, SCHEMA, rows_max=1000)
    with pytest.raises(offpath.TooLarge, match=r"1001.*1000"):
        stream.send(data, key="a")


def test_a_stream_grows_while_batches_are_under_way(any_session, name):
    with any_session.stream(name, {"v": "int64"}, rows_max=10) as stream:
        rows = [10, 11, 12, 5000, 400_000, 7, 2_000_000]
        batches = [np.arange(each) + each for each in rows]
        tickets, most = [], 10
        for step, batch in enumerate(batches):
            if len(batch) > most:
                with pytest.raises(offpath.TooLarge, match=f"{len(batch)} rows.* has rows_max {most}"):
                    stream.send({"v": batch}, f"s{step}")
                stream.grow(len(batch))
                most = len(batch)
            tickets.append(stream.send({"v": batch}, f"s{step}"))  # earlier ones may not be pulled yet
        stream.grow(3)
        tickets.append(stream.send({"v": batches[-1]}, "as before"))
        with pytest.raises(offpath.TooLarge, match=r"column \"v\": 2199023255552 rows of 8 bytes"):
            stream.grow(1 << 41)
        for ticket in tickets:
            ticket.wait_stored(60)
        pool = any_session.pool(stream.pool_name)
        for step, batch in enumerate(batches):
            assert np.array_equal(pool.get(f"s{step}")["v"].to_numpy(), batch)
        assert pool.get("as before").num_rows == rows[-1]
    with pytest.raises(offpath.Closed):
        stream.grow(1 << 41)


def test_keys(session, name, data):
    stream = session.stream(name, SCHEMA, rows_max=ROWS)
    with pytest.raises(offpath.TooLarge, match="the row key has more than 65536 bytes"):
        stream.send(data, key="k" * 65537)
    with pytest.raises(offpath.Invalid, match="key"):
        stream.send(data, key=5)
    for length in (255, 65536):
        stream.send(data, key=("k" * length, "c" * length)).wait_stored(60)
    assert session.pool(stream.pool_name).keys() == [("k" * length, "c" * length) for length in (255, 65536)]


def test_stream_options(session, agent, name):
    with pytest.raises(offpath.Invalid, match=r"nowhere.*ipc-page"):
        session.stream(name, SCHEMA, rows_max=1, destination="nowhere")
    with pytest.raises(offpath.Invalid, match="rows_max is 0"):
        session.stream(name, SCHEMA)
    with pytest.raises(offpath.Invalid, match="rank 4 of 4"):
        session.stream(name, SCHEMA, rows_max=1, ranks=4, rank=4)
    with pytest.raises(offpath.Unsupported):
        session.stream(
            name, pa.schema({"d": pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.string()))}), rows_max=1
        )
    stream = session.stream(name, SCHEMA, rows_max=1)
    with offpath.connect(agent.address, name="another") as another, pytest.raises(offpath.Exists, match=name):
        another.stream(name, SCHEMA, rows_max=1)
    stream.close()
    with pytest.raises(offpath.Closed):
        stream.send({}, key="a")


def test_keep_lets_the_oldest_go(session, name):
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    stream = session.stream(name, schema, rows_max=10, keep=3)
    for step in range(10):
        ticket = stream.send({"v": np.full(10, step)}, key=f"s{step}")
    ticket.wait_stored(60)
    assert [row for row, _ in session.pool(stream.pool_name).keys()] == ["s7", "s8", "s9"]


def test_many_temporary_arrays(session, name):
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    stream = session.stream(name, schema, rows_max=2000, keep=5)
    for step in range(6000):
        rows = 1 + step % 2000
        ticket = stream.send({"v": np.full(rows, step)}, key=f"s{step}")
    ticket.wait_stored(60)
    got = session.pool(stream.pool_name).get("s5999")["v"].to_numpy()
    assert len(got) == 2000 and (got == 5999).all()
    assert stream._native.held == 0


def test_arrays_live_until_they_are_pulled(session, name):
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    stream = session.stream(name, schema, rows_max=4_000_000)
    ticket = stream.send({"v": np.arange(4_000_000)}, key="a")  # no other reference exists
    junk = [np.zeros(4_000_000, np.int64) for _ in range(4)]
    ticket.wait_stored(60)
    del junk
    assert np.array_equal(session.pool(stream.pool_name).get("a")["v"].to_numpy(), np.arange(4_000_000))


def test_sends_from_several_threads(session, name):
    import threading

    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    stream = session.stream(name, schema, rows_max=1000)
    errors = []

    def work(thread):
        try:
            values = np.full(1000, thread)
            for step in range(100):
                stream.send({"v": values}, key=(f"s{step}", f"t{thread}")).wait_pulled(60)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    stream.step_end("s0").wait_stored(60)
    pool = session.pool(stream.pool_name)
    assert len(pool) == 400
    assert all((pool.get("s99", f"t{thread}")["v"].to_numpy() == thread).all() for thread in range(4))
