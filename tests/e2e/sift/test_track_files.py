"""Tracks that the members of a group write to a directory: each writes its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import offpath
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from agent_group import LINKS, PATIENCE_S, Group, joined_group
from agent_process import find_program, until
from offpath.tracks import Tracks, Written

NAMES = ["a", "b", "c"]
ATOMS, STEPS = 20_000, 6
POOL = "sift:/tracks?key=id&stages=2&fanout=4&threshold=64KiB&budget=8MiB&age=200ms"
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("type", pa.int32())])
NOBODY = 65534
BUILT = find_program().parents[1]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    # Members that a test stops are late, not dead.
    with joined_group(tmp_path, NAMES, "local", "--set", "group.dead_after=20s") as made:
        yield made


def fill(session: offpath.Session, pool: str = POOL) -> Tracks:
    """Particles in no order, and with negative identifiers."""
    random = np.random.default_rng(7)
    stream = session.stream("particles", SCHEMA, rows_max=ATOMS, pool=pool)
    for step in range(STEPS):
        ids = random.permutation(ATOMS) - ATOMS // 3
        columns = {"id": ids, "x": ids + step / 1024, "type": (ids % 3).astype(np.int32)}
        stream.send(columns, key=(f"step{step:06}", "rank0"), snapshot=True).wait_stored(PATIENCE_S)
    tracks = session.tracks("sift:/tracks")
    tracks.flush(PATIENCE_S)
    return tracks


def assert_same_tracks(directory: Path, tracks: Tracks) -> None:
    read = pyarrow.dataset.dataset(directory).to_table()
    read = read.sort_by([("id", "ascending"), ("step", "ascending")])
    assert read.combine_chunks().equals(tracks.table().combine_chunks())
    seen: set[int] = set()
    for path in sorted(directory.glob("part-*.parquet")):
        table = pa.parquet.read_table(path)
        assert table.equals(table.sort_by([("id", "ascending"), ("step", "ascending")])), path
        ids = set(table["id"].unique().to_pylist())
        assert not ids & seen, f"identifiers of {path} are in another file"
        seen |= ids


def files_of(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def moved_bytes(group: Group) -> int:
    """Between agents and programs, and between members."""
    channels = [each for name in NAMES for each in group.running[name].status()["channels"]]
    return sum(each["bytes_pushed"] + each["bytes_pulled"] for each in channels)


@pytest.mark.parametrize("link", LINKS)
def test_members_write_what_a_table_has_and_no_row_moves(
    tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined_group(tmp_path, NAMES, link) as group, group.connect("b") as session:
        tracks = fill(session)
        expected = tracks.table()
        before = moved_bytes(group)
        told: list[Written] = []
        directory = tmp_path / "tracks"
        with monkeypatch.context() as patched:
            patched.setattr(Tracks, "_read", None)
            patched.setattr(Tracks, "_answer", None)
            assert tracks.write(directory, progress=told.append, timeout=PATIENCE_S) == ATOMS * STEPS
        assert files_of(directory) == [f"part-{name}-0000.parquet" for name in NAMES]
        sizes = sum(each.stat().st_size for each in directory.iterdir())
        assert told[-1] == Written(True, 3, 3, 3, ATOMS * STEPS, sizes)

        def written(what: str) -> int:
            return sum(group.running[name].status()["track_files"][what] for name in NAMES)

        assert until(lambda: written("rows") == ATOMS * STEPS)
        assert written("bytes") == sizes
        assert written("files") == 3
        assert all(group.running[name].status()["track_files"]["rows"] > 0 for name in NAMES)
        assert moved_bytes(group) - before < expected.nbytes / 20
        assert "offpath_sift_written_rows_total" in group.running["a"].get("/metrics")[2]
        assert_same_tracks(directory, tracks)


def test_a_directory_that_has_files_is_refused(group: Group, tmp_path: Path) -> None:
    directory = tmp_path / "tracks"
    with group.connect("a") as session:
        tracks = fill(session)
        tracks.write(directory)
        (directory / "part-gone-0000.parquet").write_bytes(b"of a member that is no more")
        before = files_of(directory)
        with pytest.raises(offpath.Exists, match=r"member [abc]: directory .* has files already"):
            tracks.write(directory)
        assert files_of(directory) == before


def test_what_is_wrong_is_said_with_the_members_name(group: Group, tmp_path: Path) -> None:
    with group.connect("a") as session:
        with pytest.raises(offpath.NotFound, match="no pool"):
            session.tracks("sift:/tracks").write(tmp_path / "tracks")
        tracks = fill(session)
        with pytest.raises(offpath.Error, match=r"member [abc]: making the directory .*none/tracks"):
            tracks.write(tmp_path / "none" / "tracks")
        with pytest.raises(offpath.Invalid, match="not an absolute path"):
            session._native.sift_write("sift:/tracks", "tracks", 1)
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o555)
        with pytest.raises(offpath.Denied, match=r"member [abc]: making the file"):
            tracks.write(closed)
        assert files_of(closed) == []
        with pytest.raises(offpath.NotFound, match="no write of tracks of number"):
            session._native.sift_written(77, 1)
        nothing = session.pool("sift:/nothing?key=id")
        nothing.create()
        with pytest.raises(offpath.NotFound, match="has no tracks"):
            session.tracks("sift:/nothing").write(tmp_path / "nothing")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
def test_a_full_disk_leaves_nothing(group: Group, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", small], check=True)
    try:
        with group.connect("a") as session:
            tracks = fill(session)
            with pytest.raises(offpath.NoSpace, match=rf"member [abc]: writing to directory {small}/tracks: "):
                tracks.write(small / "tracks")
            assert until(lambda: files_of(small / "tracks") == [])
            assert tracks.write(tmp_path / "tracks") == ATOMS * STEPS
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_directory_is_refused(group: Group, tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir()
    directory.chmod(0o777)
    os.chown(directory, NOBODY, NOBODY)
    with group.connect("a") as session:
        tracks = fill(session)
        with pytest.raises(offpath.Denied, match=rf"directory {directory} belongs to user {NOBODY}"):
            tracks.write(directory)
        assert files_of(directory) == []


OTHER_USER = """
import offpath, sys
import numpy as np, pyarrow as pa
with offpath.connect(sys.argv[1]) as session:
    schema = pa.schema([("id", pa.int64())])
    stream = session.stream("theirs", schema, rows_max=10, pool="sift:/theirs?key=id&age=100ms")
    stream.send({"id": np.arange(10)}, key=("step1", "r"), snapshot=True).wait_stored(60)
    tracks = session.tracks("sift:/theirs")
    tracks.flush(60)
    try:
        tracks.write(sys.argv[2])
    except offpath.Denied as denied:
        print(denied)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs of other users")
def test_roots_agents_write_for_no_other_user(tmp_path: Path) -> None:
    """Neither where that user may write nor where only root may."""
    group = Group(tmp_path)
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:-1]:
        parent.chmod(parent.stat().st_mode | 0o011)
    try:
        allow = ["--set", f"security.allow_uids={NOBODY}"]
        group.start("a", *allow)
        for name in ("b", "c"):
            group.start(name, "--join", group.address("a"), *allow)
        assert until(lambda: group.all_know(NAMES, dict.fromkeys(NAMES, "alive")), PATIENCE_S)
        (tmp_path / "a").chmod(0o755)
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, NOBODY, NOBODY)
        roots = tmp_path / "roots"
        roots.mkdir(mode=0o700)
        for directory in (theirs, theirs / "new", roots, roots / "new"):
            done = subprocess.run(
                [sys.executable, "-c", OTHER_USER, group.address("a"), str(directory)],
                user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, timeout=200, check=True,
                cwd="/",
            )  # fmt: skip
            assert f"writes files for that user alone, not for user {NOBODY}" in done.stdout, done
        assert files_of(theirs) == files_of(roots) == []
    finally:
        group.stop_all()


def test_a_member_that_is_killed_while_it_writes_is_named_and_leaves_no_file_of_a_name(
    group: Group, tmp_path: Path
) -> None:
    directory = tmp_path / "tracks"
    with group.connect("a") as session:
        tracks = fill(session)
        # The write cannot end while b is stopped; c is killed when it has begun its file, and may have ended it.
        os.kill(group.running["b"].pid, signal.SIGSTOP)
        stopped = time.monotonic()
        failures: list[Exception] = []

        def write() -> None:
            with pytest.raises(offpath.Error) as failed:
                tracks.write(directory, timeout=PATIENCE_S)
            failures.append(failed.value)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert until(lambda: directory.exists() and any(directory.glob(".part-c-*")), PATIENCE_S)
            group.running["c"].process.kill()
        finally:
            os.kill(group.running["b"].pid, signal.SIGCONT)
            is_late = time.monotonic() - stopped > 4  # on a slow machine it does not answer in time either
            writer.join(PATIENCE_S)
        assert "member c" in str(failures[0]) or (is_late and "member b" in str(failures[0]))

        def left() -> list[str]:
            return [name for name in files_of(directory) if not name.startswith(".part-c-")]

        assert until(lambda: left() == [], PATIENCE_S)
        assert pyarrow.dataset.dataset(directory, format="parquet").files == []


def test_a_member_that_does_not_answer_ends_a_write_that_has_all_the_time(group: Group, tmp_path: Path) -> None:
    failures: list[Exception] = []

    def write(tracks: Tracks) -> None:
        with pytest.raises(offpath.Timeout) as failed:
            tracks.write(tmp_path / "tracks")
        failures.append(failed.value)

    with group.connect("a") as session:
        tracks = fill(session)
        os.kill(group.running["b"].pid, signal.SIGSTOP)
        try:
            writer = threading.Thread(target=write, args=(tracks,), daemon=True)
            writer.start()
            writer.join(PATIENCE_S)
            assert "member b" in str(failures[0])
        finally:
            os.kill(group.running["b"].pid, signal.SIGCONT)


@pytest.mark.parametrize("stopped", ["a", "c"])
def test_an_agent_that_is_stopped_while_it_writes_removes_its_files_before_it_ends(
    group: Group, tmp_path: Path, stopped: str
) -> None:
    """The agent that the program has asked, or another one."""
    directory = tmp_path / "tracks"
    with group.connect("a") as session:
        tracks = fill(session)
        os.kill(group.running["b"].pid, signal.SIGSTOP)  # the write cannot end
        failures: list[Exception] = []

        def write() -> None:
            with pytest.raises(offpath.Error) as failed:
                tracks.write(directory, timeout=PATIENCE_S)
            failures.append(failed.value)

        def own() -> list[Path]:
            return list(directory.glob(f".part-{stopped}-*"))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert until(lambda: directory.exists() and bool(own()), PATIENCE_S)
            group.running[stopped].process.terminate()
            assert group.running[stopped].process.wait(PATIENCE_S) == 0
            assert own() == []
            writer.join(PATIENCE_S)
            assert not writer.is_alive()
            assert until(lambda: files_of(directory) == [], PATIENCE_S), "the claim, too, without the stopped member"
        finally:
            os.kill(group.running["b"].pid, signal.SIGCONT)
            writer.join(PATIENCE_S)
        if stopped == "c":
            assert "member c" in str(failures[0])


def test_a_write_that_takes_too_long_or_is_interrupted_leaves_nothing(group: Group, tmp_path: Path) -> None:
    with group.connect("a") as session:
        tracks = fill(session)

        def interrupted(written: Written) -> None:
            raise KeyboardInterrupt

        ends: list[tuple[dict[str, Any], type[BaseException]]] = [
            ({"timeout": 1}, offpath.Timeout),
            ({"progress": interrupted}, KeyboardInterrupt),
        ]
        for number, (arguments, raised) in enumerate(ends):
            directory = tmp_path / f"tracks{number}"  # the stopped member may begin its part when the next one begins
            os.kill(group.running["c"].pid, signal.SIGSTOP)
            try:
                with pytest.raises(raised):
                    tracks.write(directory, **arguments)
            finally:
                os.kill(group.running["c"].pid, signal.SIGCONT)
            assert until(lambda at=directory: not at.exists() or files_of(at) == [], PATIENCE_S)
            assert until(lambda: group.all_know(NAMES, dict.fromkeys(NAMES, "alive")), PATIENCE_S)
        assert tracks.write(tmp_path / "tracks") == ATOMS * STEPS


def test_an_agent_that_answers_late_does_not_end_a_write(group: Group, tmp_path: Path) -> None:
    directory = tmp_path / "tracks"
    with group.connect("a") as session:
        tracks = fill(session)
        asked = group.running["a"].pid
        timers: list[threading.Timer] = []

        def stop(written: Written) -> None:
            if not timers:
                os.kill(asked, signal.SIGSTOP)
                timers.append(threading.Timer(3, os.kill, (asked, signal.SIGCONT)))
                timers[0].start()

        os.kill(group.running["c"].pid, signal.SIGSTOP)
        threading.Timer(1, os.kill, (group.running["c"].pid, signal.SIGCONT)).start()
        assert tracks.write(directory, progress=stop, timeout=PATIENCE_S) == ATOMS * STEPS
        timers[0].join()
        assert_same_tracks(directory, tracks)


def test_every_type_is_read_back(group: Group, tmp_path: Path) -> None:
    """Read by pyarrow with the types of the stream; plain types also by DuckDB and Polars."""
    rows = 1000
    random = np.random.default_rng(1)
    bits = {size: random.integers(0, 256, rows * size, dtype=np.uint8) for size in (1, 2, 4, 8)}
    whole = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    columns: dict[str, pa.Array] = {"id": pa.array(random.permutation(rows).astype(np.uint32))}
    for kind in [*whole, pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.time32("ms"), pa.time64("us"),
                 pa.time64("ns"), pa.duration("s"), pa.duration("ns"), pa.timestamp("ms"), pa.timestamp("us", "UTC"),
                 pa.timestamp("ns", "Europe/Berlin")]:  # fmt: skip
        size = kind.bit_width // 8
        values = bits[size].view(f"u{size}")
        if pa.types.is_floating(kind):
            made = pa.array(random.normal(size=rows).astype(kind.to_pandas_dtype()))
        elif pa.types.is_integer(kind):
            made = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)])
        else:
            made = pa.array(random.integers(0, 80_000, rows), pa.int64()).cast(f"int{8 * size}").cast(kind)
        columns[str(kind)] = made
    columns["bytes"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(5), rows, [None, pa.py_buffer(bytes(rows * 5))])
    columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=3 * rows)), 3)
    columns["cell"] = pa.FixedSizeListArray.from_arrays(
        pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6 * rows, dtype=np.int16)), 3), 2
    )
    table = pa.table(columns)
    fields = [table.schema.field(i).with_nullable(i % 2 == 1) for i in range(table.num_columns)]
    table = table.cast(pa.schema([each.with_metadata({"unit": "none"}) for each in fields]))
    directory = tmp_path / "tracks"
    with group.connect("a") as session:
        stream = session.stream("types", table.schema, rows_max=rows, pool="sift:/types?key=id&fanout=4&age=100ms")
        for step in range(2):
            stream.send(table.to_batches()[0], key=(f"step{step}", "r"), snapshot=True).wait_stored(PATIENCE_S)
        tracks = session.tracks("sift:/types")
        tracks.flush(PATIENCE_S)
        assert tracks.write(directory) == 2 * rows
        expected = tracks.table()
        read = pyarrow.dataset.dataset(directory).to_table().sort_by([("id", "ascending"), ("step", "ascending")])
        for name in expected.column_names:
            assert read[name].type == expected[name].type, name
            assert read[name].combine_chunks().equals(expected[name].combine_chunks()), name
            assert read.schema.field(name).nullable == expected.schema.field(name).nullable, name
            assert read.schema.field(name).metadata == expected.schema.field(name).metadata, name
        read.validate(full=True)
        everything = f"{directory}/*.parquet"
        query = f"SELECT id, step, int8, uint64, \"float\", x, cell FROM '{everything}' ORDER BY id, step"
        relation = duckdb.sql(query)
        assert relation is not None
        by_duckdb = relation.to_arrow_table().to_pylist()
        wanted = expected.select(["id", "step", "int8", "uint64", "float", "x", "cell"]).to_pylist()
        assert by_duckdb == wanted
        by_polars = polars.read_parquet(everything).sort("id", "step")
        assert by_polars.select("id", "step", "int8", "uint64", "float").rows(named=True) == [
            {name: row[name] for name in ("id", "step", "int8", "uint64", "float")} for row in wanted
        ]
        for path in directory.glob("*.parquet"):
            group_of = pa.parquet.ParquetFile(path).metadata.row_group(0)
            place = next(i for i in range(group_of.num_columns) if group_of.column(i).path_in_schema == "id")
            statistics = group_of.column(place).statistics
            ids = pa.parquet.read_table(path, columns=["id"])["id"].to_pylist()
            assert (statistics.min, statistics.max) == (min(ids), max(ids))


def test_types_that_have_no_form_in_parquet_are_named(group: Group, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("sold", pa.timestamp("s"))])
    prices = [Decimal("1.25"), Decimal("-2.50")]
    table = pa.table({"id": [1, 2], "price": prices, "sold": [3, 4]}, schema=schema)
    with group.connect("a") as session:
        for pool, columns in (("sold", ["id", "sold"]), ("prices", ["id", "price"])):
            some = table.select(columns)
            stream = session.stream(pool, some.schema, rows_max=2, pool=f"sift:/{pool}?key=id&age=100ms")
            stream.send(some.to_batches()[0], key=("step1", "r"), snapshot=True).wait_stored(PATIENCE_S)
            session.tracks(f"sift:/{pool}").flush(PATIENCE_S)
        sold = session.tracks("sift:/sold")
        with pytest.raises(offpath.Unsupported, match=r"member [abc]: column 'sold' has the type timestamp"):
            sold.write(tmp_path / "sold")
        assert sold.write(tmp_path / "sold.parquet") == 2
        assert session.tracks("sift:/prices").write(tmp_path / "prices") == 2
        written = pyarrow.dataset.dataset(tmp_path / "prices", format="parquet").to_table().sort_by("id")
        assert written["price"].to_pylist() == prices


@pytest.mark.skipif(not (BUILT / "tests" / "track_files_program").exists(), reason="the program is not built")
@pytest.mark.parametrize("file_bytes", [1, 30_000, 1 << 30])
def test_all_rows_of_an_identifier_are_in_one_file(tmp_path: Path, file_bytes: int) -> None:
    directory = tmp_path / "tracks"
    subprocess.run([BUILT / "tests" / "track_files_program", directory, str(file_bytes)], check=True, timeout=60)
    rows: list[dict[str, Any]] = []
    for path in sorted(directory.iterdir()):
        assert path.stat().st_size < file_bytes + 60_000
        rows += pa.parquet.read_table(path, columns=["id", "step"]).to_pylist()
    assert rows == [{"id": id, "step": step} for id in range(1000) for step in range(7)]
    assert (len(list(directory.iterdir())) > 5) == (file_bytes < 1 << 20)
    firsts = [pa.parquet.read_table(path)["step"][0].as_py() for path in directory.iterdir()]
    assert set(firsts) == {0}, "each file begins with a whole identifier"


def test_the_command_writes_a_directory(group: Group, tmp_path: Path) -> None:
    directory = tmp_path / "tracks"
    command = [sys.executable, "-m", "offpath", "pool", "write", "sift:/tracks", str(directory)]
    agent = ["--agent", group.address("b")]
    with group.connect("a") as session:
        tracks = fill(session)
        done = subprocess.run([*command, *agent], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert f"{ATOMS * STEPS} rows" in done.stdout
        refused = subprocess.run([*command, *agent], capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode != 0
        assert "has files already" in refused.stderr
        assert_same_tracks(directory, tracks)
