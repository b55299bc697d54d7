"""Nothing is lost or converted in silence, whether the schema is plain memory or has a column beside that is not."""

import array
import datetime

import numpy as np
import offpath
import pyarrow as pa
import pytest

TIMES = pa.timestamp("ns")


@pytest.fixture(params=["plain", "with text"])
def roundtrip(request, session, name):
    """Sends one column of three rows, and returns the column that arrived."""

    def send(value, kind, *, nullable=True, cast=False):
        fields, beside = [pa.field("x", kind, nullable=nullable)], {}
        if request.param == "with text":
            fields.append(pa.field("text", pa.string()))
            beside = {"text": ["a", None, "c"]}
        stream = session.stream(name, pa.schema(fields), rows_max=100)
        try:
            stream.send({"x": value, **beside}, "a", cast=cast).wait_stored(60)
            return session.pool(stream.pool_name).get("a")["x"].combine_chunks()
        finally:
            stream.close()

    return send


def masked(values, dtype, mask=(0, 1, 0)):
    return np.ma.array(np.array(values, dtype=dtype), mask=mask)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (masked([1, 2, 3], "i8"), pa.int64(), [1, None, 3]),
        (masked([1, 2, 3], "f4")[::1], pa.float32(), [1, None, 3]),
        (masked([1, 0, 1], bool), pa.bool_(), [True, None, True]),
        (masked([1, 2, 3], "M8[ns]"), TIMES, [1, None, 3]),
        (masked([1, 2, 3], "i8"), TIMES, [1, None, 3]),
        (masked([b"ab", b"cd", b"ef"], "S2"), pa.binary(2), [b"ab", None, b"ef"]),
        (masked(["a", "b", "c"], object), pa.string(), ["a", None, "c"]),
        (np.array([1, "NaT", 3], "M8[ns]"), TIMES, [1, None, 3]),
        (np.array([1, "NaT", 3], "m8[s]"), pa.duration("s"), [1, None, 3]),
        (np.array(["1970-01-02", "NaT", "1970-01-04"], "M8[D]"), pa.date32(), [1, None, 3]),
        (
            masked([[1, 2], [3, 4], [5, 6]], "i8", [[0, 1], [0, 0], [1, 1]]),
            pa.list_(pa.int64(), 2),
            [[1, None], [3, 4], [None, None]],
        ),
        ([np.ma.array([1, 2], mask=[0, 1]), None, np.array([3])], pa.list_(pa.int64()), [[1, None], None, [3]]),
    ],
)
def test_masked_values_and_dates_that_are_none_are_null(roundtrip, value, kind, expected):
    arrived = roundtrip(value, kind)
    arrived.validate(full=True)
    is_time = pa.types.is_temporal(arrived.type)
    values = arrived.cast(pa.int32() if arrived.type.bit_width == 32 else pa.int64()) if is_time else arrived
    assert values.to_pylist() == expected


@pytest.mark.parametrize("value", [masked([1, 2, 3], "i8"), [1, None, 3], pa.array([1, None, 3])])
def test_a_column_without_nulls_refuses_masked_values(roundtrip, value):
    with pytest.raises(offpath.SchemaError, match=r"'x'.*no nulls, given 1"):
        roundtrip(value, pa.int64(), nullable=False)


def test_a_list_without_nulls_refuses_masked_values(roundtrip):
    kind = pa.list_(pa.field("item", pa.int64(), nullable=False), 2)
    with pytest.raises(offpath.SchemaError, match=r"no nulls, given 1"):
        roundtrip(masked([[1, 2], [3, 4], [5, 6]], "i8", [[0, 1], [0, 0], [0, 0]]), kind)


def test_a_mask_that_hides_nothing_is_plain_memory(roundtrip):
    assert roundtrip(masked([1, 2, 3], "i8", mask=False), pa.int64(), nullable=False).to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "kind", "given", "converted"),
    [
        (np.array([1, 2, 3], "i4"), pa.int64(), "int32", [1, 2, 3]),
        (np.array([1, 2, 3], "u8"), pa.int64(), "uint64", [1, 2, 3]),
        (np.array([1, 2, 3], "f8"), pa.float32(), "float64", [1, 2, 3]),
        (np.array([1, 2, 3], "f8"), pa.int64(), "float64", [1, 2, 3]),
        (np.array([1, 0, 1], "u1"), pa.bool_(), "uint8", [True, False, True]),
        (np.array([1, 2, 3], ">i8"), pa.int64(), ">i8", [1, 2, 3]),
        (array.array("i", [1, 2, 3]), pa.int64(), "int32", [1, 2, 3]),
        (masked([1, 2, 3], "i4"), pa.int64(), "int32", [1, None, 3]),
        (pa.array([1, 2, 3], pa.int32()), pa.int64(), "int32", [1, 2, 3]),
        (pa.array([1, 2, 3], pa.float32()), pa.float64(), "float32", [1, 2, 3]),
        (np.array([1, 2, 3], "M8[s]"), TIMES, r"datetime64\[s\]", [10**9, 2 * 10**9, 3 * 10**9]),
        (np.array([1, 2, 3], "M8[D]"), pa.timestamp("s"), r"datetime64\[D\]", [86400, 172800, 259200]),
        (np.array([1, 2, 3], "M8[2s]"), pa.timestamp("s"), r"datetime64\[2s\]", [2, 4, 6]),
        (np.array([1, 2, 3], "M8[h]"), pa.timestamp("s", "UTC"), r"datetime64\[h\]", [3600, 7200, 10800]),
        (np.array([1, 2, 3], "m8[s]"), pa.duration("ms"), r"timedelta64\[s\]", [1000, 2000, 3000]),
        (np.array([1, 2, 3], "M8[s]"), pa.int64(), r"datetime64\[s\]", [1, 2, 3]),
        (np.array([[1, 2], [3, 4], [5, 6]], "i4"), pa.list_(pa.int64(), 2), "int32", [[1, 2], [3, 4], [5, 6]]),
        ([np.array([1], "i4"), np.array([2]), None], pa.list_(pa.int64()), "int32", [[1], [2], None]),
    ],
)
def test_other_types_are_refused_and_converted_with_cast(roundtrip, value, kind, given, converted):
    with pytest.raises(offpath.SchemaError, match=rf"'x'.*expected .*given .*{given}.*cast=True"):
        roundtrip(value, kind)
    arrived = roundtrip(value, kind, cast=True)
    assert arrived.type == kind
    arrived.validate(full=True)
    assert (arrived.cast(pa.int64()) if pa.types.is_temporal(kind) else arrived).to_pylist() == converted


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.array([1, 2, 2**40]), pa.int32()),
        (np.array([1, 2, 1.5]), pa.int64()),
        (np.array([-1, 2, 3]), pa.uint64()),
        (np.array([1, 2, 2**53 + 1]), pa.float64()),
        (np.array([0, 1, 2**40], "M8[s]"), TIMES),
        (np.array([0, 1, 1500], "M8[ms]"), pa.timestamp("s")),
        (np.array([0, 1, 2**40], "M8[D]"), pa.date32()),
        (np.array([1, 2, 3], "c16"), pa.float64()),
        (np.array(["abcd", "efgh", "ijkl"]), pa.binary(16)),
    ],
)
def test_cast_refuses_what_would_not_survive_it(roundtrip, value, kind):
    with pytest.raises(offpath.SchemaError, match="'x'"):
        roundtrip(value, kind, cast=True)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2, 1.5], pa.int64()),
        ([1, 2, 1e300], pa.float32()),
        (["1", "2", "3"], pa.int64()),
        ([1, 2, 3], pa.string()),
        ([True, False, True], pa.int64()),
        ([datetime.datetime(2020, 1, 1, 1, 1, 1, 5)] * 3, pa.timestamp("s")),
        ([[1], [2], [1.5]], pa.list_(pa.int64())),
        ([{"a": 1}, {"a": 2}, {"a": 3, "b": 4}], pa.struct([("a", pa.int64())])),
    ],
)
def test_python_values_become_the_columns_type_or_are_refused(roundtrip, value, kind):
    with pytest.raises(offpath.SchemaError, match="'x'"):
        roundtrip(value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, None, 3], pa.int32()),
        ([1, 2.0, None], pa.float32()),
        ([datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)], pa.date32()),
        ([[1], None, []], pa.list_(pa.int16())),
        ([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int8())])),
        (["u", "v", None], pa.dictionary(pa.int32(), pa.string())),
        ([b"ab", None, b"ef"], pa.binary(2)),
    ],
)
def test_python_values_that_fit_arrive(roundtrip, value, kind):
    arrived = roundtrip(value, kind)
    assert arrived.type == kind and arrived.to_pylist() == value


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.int64(), pa.duration("us")])
def test_integers_and_dates_of_the_columns_unit_are_its_memory(roundtrip, kind):
    values = np.array([1, -2, 3])
    given = {"timestamp": values.view("M8[us]"), "duration": values.view("m8[us]")}.get(str(kind).split("[")[0], values)
    for value in (values, given, given[::1]):
        assert roundtrip(value, kind, nullable=False).cast(pa.int64()).to_pylist() == [1, -2, 3]


@pytest.mark.parametrize("value", [np.zeros((3, 2, 2))[:, :, 0], np.zeros((3, 3)), np.zeros(3), np.float64(3)])
def test_shapes_are_compared(roundtrip, value):
    with pytest.raises(
        offpath.SchemaError, match=r"'x': expected float64 of shape \(rows, 2\), given float64 of shape"
    ):
        roundtrip(value, pa.list_(pa.float64(), 2))


def test_batches_and_records_follow_the_rule(session, name):
    stream = session.stream(name, pa.schema([("x", pa.int64()), ("text", pa.string())]), rows_max=10)
    narrow = pa.record_batch({"x": pa.array([1, 2], pa.int32()), "text": ["a", "b"]})
    for each in (narrow, pa.table(narrow)):
        with pytest.raises(offpath.SchemaError, match=r"'x': expected int64, given int32; cast=True"):
            stream.send(each, "a")
        stream.send(each, "a", cast=True).wait_stored(60)
        assert session.pool(stream.pool_name).get("a").to_pylist() == narrow.to_pylist()
    records = np.ma.array(np.array([(1, "a"), (2, "b")], [("x", "i8"), ("text", "U1")]), mask=[(1, 0), (0, 1)])
    stream.send(records, "b").wait_stored(60)
    assert session.pool(stream.pool_name).get("b").to_pylist() == [{"x": None, "text": "a"}, {"x": 2, "text": None}]


def test_bytes_have_no_place_for_a_mask(session, name):
    stream = session.stream(name, destination="native")
    value = masked([1, 2, 3], "u1")
    with pytest.raises(offpath.SchemaError, match="mask"):
        stream.send(value, "a")
    with pytest.raises(offpath.SchemaError, match="mask"):
        stream.move([(value, 0)], "a")
    stream.send(value.filled(0), "a").wait_stored(60)
    assert bytes(session.pool(stream.pool_name).get_bytes("a")) == bytes([1, 0, 3])
