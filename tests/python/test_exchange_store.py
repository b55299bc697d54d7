"""The store of an exchange: every record once, in whole files, after a crash too, and no more files than the limit."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import offpath
import pyarrow.dataset as ds
import pytest
from offpath.exchange import Entry, Field
from offpath.exchange_store import ExchangeStore, schema_of

BEGAN = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FIELDS = (Field("power", "f64", "watts"), Field("jobs", "u64"))


class OneExchange:
    """The calls that a store makes to an exchange."""

    def __init__(self, fields=FIELDS, name="power/1"):
        self.name, self.fields = name, fields


class OneView:
    def __init__(self, entries):
        self.entries = {entry.member: entry for entry in entries}


def entry(member, epoch, power, jobs=None, age=0.5):
    present = (power is not None) | (jobs is not None) << 1
    record = struct.pack("<dQQ", power or 0.0, jobs or 0, present)
    return Entry(member, True, True, epoch, age, record, FIELDS)


def stored(store):
    return ds.dataset(store.files()).to_table().sort_by([("time", "ascending"), ("member", "ascending")])


def test_each_record_is_stored_once_with_its_time(tmp_path):
    nobody = Entry("c", False, False, 0, 0.0, b"", FIELDS)
    with ExchangeStore(OneExchange(), tmp_path) as store:
        assert store.add(OneView([entry("a", 1, 5.0, 2), entry("b", 1, None, 7), nobody]), BEGAN) == 2
        assert store.add(OneView([entry("a", 1, 5.0, 2, age=1.5), entry("b", 2, 6.5)]), BEGAN + MINUTE / 60) == 1
        assert store.files() == []  # the period is not over
    table = stored(store)
    assert table.schema.equals(schema_of(FIELDS)) and table.schema.field("power").metadata == {b"unit": b"watts"}
    half = timedelta(seconds=0.5)
    assert table.to_pylist() == [
        {"time": BEGAN - half, "epoch": 1, "member": "a", "power": 5.0, "jobs": 2},
        {"time": BEGAN - half, "epoch": 1, "member": "b", "power": None, "jobs": 7},
        {"time": BEGAN + half, "epoch": 2, "member": "b", "power": 6.5, "jobs": None},
    ]
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["power%2F1-20261127T120000.000000Z.parquet", "power%2F1.lock"]


def test_a_file_for_each_period_and_the_oldest_go(tmp_path):
    with ExchangeStore(OneExchange(), tmp_path, period=MINUTE, keep=3 * MINUTE) as store:
        for number in range(60):
            store.add(OneView([entry("a", number, float(number))]), BEGAN + number * MINUTE / 6)
    kept = stored(store)["epoch"].to_pylist()
    assert kept == list(range(kept[0], 60)) and 30 <= kept[0] <= 60 - 18  # three minutes at least, and files are whole
    size = store.files()[-1].stat().st_size
    with ExchangeStore(OneExchange(), tmp_path, period=MINUTE, bytes_max=2 * size) as bounded:
        bounded.add(OneView([entry("a", 60, 60.0)]), BEGAN + 10 * MINUTE)
        assert sum(file.stat().st_size for file in bounded.files()) <= 2 * size


def test_what_was_appended_before_a_crash_is_there(tmp_path):
    crashed = ExchangeStore(OneExchange(), tmp_path)
    for number in range(5):
        crashed.add(OneView([entry("a", number, 1.0)]), BEGAN + number * MINUTE / 60)
    (part,) = tmp_path.glob("*.part")
    whole = part.read_bytes()
    for number, (cut, rows) in enumerate(((0, 5), (7, 4), (len(whole) - 3, 0))):
        place = tmp_path / str(number)
        place.mkdir()
        (place / part.name).write_bytes(whole[: len(whole) - cut])
        with ExchangeStore(OneExchange(), place) as store:
            assert list(place.glob("*.part")) == []
            assert sum(ds.dataset(file).count_rows() for file in store.files()) == rows


def test_two_programs_do_not_store_one_exchange_in_one_place(tmp_path):
    with ExchangeStore(OneExchange(), tmp_path) as store:
        store.add(OneView([entry("a", 1, 5.0)]), BEGAN)
        with pytest.raises(offpath.Exists, match="another program stores exchange power/1"):
            ExchangeStore(OneExchange(), tmp_path)
        ExchangeStore(OneExchange(name="other"), tmp_path)
        store.add(OneView([entry("a", 2, 6.0)]), BEGAN + MINUTE / 60)
    assert stored(store)["epoch"].to_pylist() == [1, 2]


def test_other_fields_begin_another_file_and_bytes_are_kept_as_they_are(tmp_path):
    exchange = OneExchange()
    with ExchangeStore(exchange, tmp_path) as store:
        store.add(OneView([entry("a", 1, 5.0)]), BEGAN)
        exchange.fields = ()
        store.add(OneView([Entry("a", True, True, 2, 0.0, b"\x00\xff", ())]), BEGAN + MINUTE)
    first, second = (ds.dataset(file).to_table() for file in store.files())
    assert first["power"].to_pylist() == [5.0] and second["record"].to_pylist() == [b"\x00\xff"]
    with pytest.raises(offpath.Invalid, match="it must keep at least one file"):
        ExchangeStore(exchange, tmp_path, period=MINUTE, keep=MINUTE / 2)


def test_a_disk_without_room_is_an_error_and_earlier_records_stay(tmp_path):
    store = ExchangeStore(OneExchange(), tmp_path)
    store.add(OneView([entry("a", 1, 1.0)]), BEGAN)

    class FullWriter:
        def write_batch(self, batch):
            raise OSError(28, "No space left on device")

    store._file.write(b"half a batch")
    store._writer = FullWriter()
    with pytest.raises(OSError, match="No space"):
        store.add(OneView([entry("a", 2, 2.0)]), BEGAN + MINUTE / 60)
    assert store.add(OneView([entry("a", 2, 2.0)]), BEGAN + MINUTE / 60) == 1  # it was not lost
    store.close()
    assert stored(store)["epoch"].to_pylist() == [1, 2]
