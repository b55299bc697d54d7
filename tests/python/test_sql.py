"""SQL over pools and tracks, by DuckDB: the texts, and the command."""

import json
import os
import subprocess
import sys

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("duckdb")
from offpath.sql import run_sql, with_tables


@pytest.fixture
def pool(session, name):
    pool = session.pool(f"local:/{name}")
    for step in range(3):
        rows = {"id": np.arange(10), "x": [None if n == 0 else float("nan") if n == 1 else n + step for n in range(10)]}
        pool.put(pa.table(rows), f"step{step}")
    return pool


def test_pools_are_tables(session, pool):
    found = run_sql(session, f"SELECT id, sum(x) AS s FROM pool('{pool.name}') WHERE x < 4 GROUP BY id ORDER BY id")
    assert found.to_pylist() == [{"id": 2, "s": 5.0}, {"id": 3, "s": 3.0}]
    found = run_sql(session, f"SELECT count(*) AS n FROM pool('{pool.name}', 'step[01]') AS p WHERE p.x IS NULL")
    assert found.to_pylist() == [{"n": 2}]
    joined = f"""
        SELECT a.id FROM pool('{pool.name}', 'step0') a  -- not a pool('of comments')
        JOIN Pool ( '{pool.name}' , 'step1' ) b USING (id)
        WHERE a.x + 1 = b.x AND 'pool(''é'')' <> 'è' AND NOT isnan(a.x) ORDER BY id LIMIT 2
    """
    assert run_sql(session, joined)["id"].to_pylist() == [2, 3]


def test_what_is_a_table():
    tables = {}
    text = with_tables("SELECT 'é', pool FROM pool('a''b'),pool('c','r*')p, pool ('c', 'r*') WHERE pool > 1", tables)
    assert text.split() == 'SELECT \'é\', pool FROM "pool 0" ,"pool 1" p, "pool 1" WHERE pool > 1'.split()
    assert tables == {("a'b",): "pool 0", ("c", "r*"): "pool 1"}
    tables = {}
    text = with_tables(
        'SELECT "local:/a""é".x, "y" FROM offpath . Pools."local:/a""é" JOIN "pools"."sift:/t" USING (x), pools.y',
        tables,
    )
    assert text == 'SELECT "pool 0".x, "y" FROM "pool 0" JOIN "pool 1" USING (x), pools.y'
    assert tables == {('local:/a"é',): "pool 0", ("sift:/t",): "pool 1"}
    for wrong in ("pool()", "pool('a', 'b', 'c')", "pool(name)", "pool('a' 'b')", "pool('a',)", "pool('a'"):
        with pytest.raises(offpath.Invalid, match="takes the name of a pool"):
            with_tables(f"SELECT * FROM {wrong}", {})


def test_tracks_are_tables(session, name):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64(), nullable=False)])
    stream = session.stream(name, schema, rows_max=10, pool=f"sift:/{name}?key=id")
    for step in range(3):
        stream.send({"id": np.arange(10), "x": np.arange(10.0) + step}, key=(f"step{step}", "0")).wait_stored(60)
    session.tracks(f"sift:/{name}").flush(60)
    found = run_sql(session, f"SELECT max(x) AS most FROM pool('sift:/{name}') WHERE step = 1 AND id < 5")
    assert found.to_pylist() == [{"most": 5.0}]
    with pytest.raises(offpath.Invalid, match="tracks have no rows to choose"):
        run_sql(session, f"SELECT * FROM pool('sift:/{name}', 'a')")


def test_errors(session, pool):
    for text, said in (
        (f"SELECT speed FROM pool('{pool.name}')", 'DuckDB: .*"speed" not found'),
        ("SELEC", "DuckDB: .*syntax error"),
        ("SELECT * FROM session", "DuckDB: .*session does not exist"),
        ("", "no query that returns rows"),
    ):
        with pytest.raises(offpath.Invalid, match=f"(?s){said}"):
            run_sql(session, text)
    with pytest.raises(offpath.NotFound, match="there is no pool"):
        run_sql(session, "SELECT * FROM pool('local:/nowhere')")
    pool.put(pa.table({"other": [1]}), "step3")
    with pytest.raises(offpath.NotFound, match='there is no column "other"; there are id, x'):
        run_sql(session, f"SELECT * FROM pool('{pool.name}')")


def test_the_command(agent, pool, tmp_path):
    environment = {**os.environ, "OFFPATH_AGENT": agent.address, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(*arguments):
        command = [sys.executable, "-m", "offpath", "sql", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)

    query = f"SELECT id, x FROM pool('{pool.name}', 'step2') WHERE id >= 8 ORDER BY id"
    assert json.loads(run(query, "--json").stdout) == [{"id": 8, "x": 10.0}, {"id": 9, "x": 11.0}]
    assert "11.0" in run(query).stdout
    file = tmp_path / "rows.parquet"
    assert run(query, "--out", file).stdout == f"2 rows written to {file}\n"
    assert pyarrow.parquet.read_table(file)["x"].to_pylist() == [10.0, 11.0]
    again = run(query, "--out", file)
    assert again.returncode == 1 and "exists already; --force replaces it" in again.stderr
    assert run(query, "--out", file, "--force").returncode == 0
    wrong = run("SELECT * FROM pool('local:/nowhere')")
    assert wrong.returncode == 1 and wrong.stderr.startswith("offpath: ") and "Traceback" not in wrong.stderr
