"""A pool of two members in Spark: a partition for each part, read from its member by Flight. For the long suite."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_group import PATIENCE_S, Group, joined_group
from agent_process import until
from page_blocks import ROOT, blocks_of
from pool_of_two import NAMES, filled

pyspark = pytest.importorskip("pyspark")
offpath_spark = pytest.importorskip("offpath.spark")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Two tasks at a time. Each process of Python that Spark starts sees this package."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
        builder = pyspark.sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    made = tmp_path / "token"
    made.touch(mode=0o600)
    made.write_text(secrets.token_hex(16))
    return made


@pytest.fixture
def group(tmp_path: Path, token: Path) -> Iterator[Group]:
    flight = ["--set", "flight.listen=tcp:127.0.0.1:0", "--set", f"flight.token_file={token}"]
    with joined_group(tmp_path, NAMES, "local", *flight) as made:
        yield made


def flight_of(group: Group, name: str, token: Path) -> dict[str, str]:
    return {"flight": group.running[name].ready["flight"], "token_file": str(token)}


def answered(group: Group) -> dict[str, int]:
    """The bytes that each member has answered."""
    return {name: int(group.running[name].status()["queries"]["answered_bytes"]) for name in NAMES}


def rows_of(table: pa.Table) -> list[str]:
    """In any order, with NaN equal to NaN, and apart from null."""
    return sorted(map(repr, table.to_pylist()))


def test_each_part_is_read_from_its_member(group: Group, token: Path, spark: Any) -> None:
    with group.connect("a") as session:
        chosen = filled(session).filter((pc.field("x") < 0.5) & (pc.field("y") > -0.9)).select(["id", "x"])
        frame = offpath_spark.read_pool(spark, "rank:/p", ["id", "x"], "x < 0.5 and y > -0.9",
                                        **flight_of(group, "b", token))  # fmt: skip
        assert frame.columns == ["id", "x"] and frame.rdd.getNumPartitions() == len(NAMES)
        before = answered(group)
        assert rows_of(frame.toArrow()) == rows_of(chosen)

        def read() -> dict[str, int]:
            return {name: answered(group)[name] - before[name] for name in NAMES}

        half = chosen.nbytes / 2  # its own part, and nothing for the other member
        assert until(lambda: min(read().values()) > 0.8 * half, PATIENCE_S), read()
        assert max(read().values()) < 1.2 * half + 20_000, read()


def test_all_rows_by_sql(group: Group, token: Path, spark: Any) -> None:
    with group.connect("a") as session:
        table = filled(session)
        spark.dataSource.register(offpath_spark.PoolDataSource)
        place = ", ".join(f"{name} '{value}'" for name, value in flight_of(group, "a", token).items())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW p USING offpath OPTIONS (path 'rank:/p', {place})")
        ((rows, top, nulls, nans),) = spark.sql(
            "SELECT count(*), max(id), count_if(x IS NULL), count_if(isnan(x)) FROM p"
        ).collect()
    x = table["x"]
    assert (rows, top, nulls) == (table.num_rows, table.num_rows - 1, x.null_count)
    assert nans == pc.sum(pc.is_nan(x)).as_py() > 0


def test_types_that_spark_does_not_have_are_widened(group: Group, token: Path, spark: Any) -> None:
    columns = {
        "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
        "small": pa.array([255, 0], pa.uint8()),
        "place": pa.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], pa.list_(pa.float64(), 3)),
        "counts": pa.array([[2**32 - 1], []], pa.list_(pa.uint32())),
        "kind": pa.array(["ion", "electron"]).dictionary_encode(),
        "text": pa.array(["é", ""], pa.large_string()),
    }
    with group.connect("a") as session:
        session.pool("hash:/types").put(pa.table(columns), "step0", timeout=PATIENCE_S)
        frame = offpath_spark.read_pool(spark, "hash:/types", **flight_of(group, "a", token))
        first, second = frame.collect()
    assert first.asDict() == {"unsigned": Decimal(2**64 - 1), "small": 255, "place": [1.0, 2.0, 3.0],
                              "counts": [2**32 - 1], "kind": "ion", "text": "é"}  # fmt: skip
    assert (second.unsigned, second.counts, second.kind) == (None, [], "electron")


def test_a_member_that_is_killed_is_named(group: Group, token: Path, spark: Any) -> None:
    with group.connect("a") as session:
        filled(session)
        frame = offpath_spark.read_pool(spark, "rank:/p", ["id"], **flight_of(group, "a", token))
        assert frame.rdd.getNumPartitions() == len(NAMES)
        group.running["b"].stop(signal.SIGKILL)
        with pytest.raises(Exception, match=r"\bb\b.*rows that no other member has|member b"):
            frame.toArrow()


def test_errors_are_those_of_the_pool(group: Group, token: Path, spark: Any) -> None:
    place = flight_of(group, "a", token)
    with pytest.raises(Exception, match="there is no pool"):
        offpath_spark.read_pool(spark, "hash:/none", **place)
    with pytest.raises(Exception, match="the option token_file is missing"):
        spark.read.format("offpath").options(flight=place["flight"]).load("hash:/none")
    with group.connect("a") as session:
        session.pool("hash:/few").put(pa.table({"x": [1.0]}), "step0", timeout=PATIENCE_S)
        with pytest.raises(Exception, match="speed"):
            offpath_spark.read_pool(spark, "hash:/few", ["speed"], **place)


def test_the_block_of_the_guide_runs(
    group: Group, token: Path, spark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the particles that the page's first block puts, at an agent of this test."""
    monkeypatch.setenv("OFFPATH_AGENT", group.address("a"))
    blocks = blocks_of(ROOT / "docs/guides/engines.md")
    (block,) = [each for each in blocks if each.marker == "Spark"]
    place = flight_of(group, "a", token)
    code = block.code.replace("grpc+tcp://127.0.0.1:9478", place["flight"]).replace("flight.token", str(token))
    assert code.count(place["flight"]) == code.count(str(token)) == 1
    exec(compile(blocks[0].code, blocks[0].place, "exec"), {})
    exec(compile(code, block.place, "exec"), {})
    assert "999" in capsys.readouterr().out
