"""Flight SQL over pools by Arrow's driver for JDBC: it reads and lists the same as ``offpath sql`` and ADBC."""

import secrets
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow.flight")

from offpath.flight_sql import FlightSqlServer
from offpath.sql import run_sql
from page_blocks import ROOT, blocks_of

TOKEN = secrets.token_hex(16)
ROWS = 1000
CLIENT = Path(__file__).parent / "JdbcClient.java"
JARS = ROOT / "build/jars"
# The driver reads memory through java.nio; code that runs for a second is compiled once.
JAVA = ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-XX:TieredStopAtLevel=1", "-cp"]


@pytest.fixture(scope="module")
def jar():
    found = sorted(JARS.glob("flight-sql-jdbc-driver-*.jar"))
    if not found:
        pytest.skip("there is no driver of JDBC: tools/programs.py copies it where there is Maven")
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("there is no Java that compiles")
    return found[-1]


@pytest.fixture(scope="module")
def server(agent):
    with FlightSqlServer("grpc+tcp://127.0.0.1:0", TOKEN, agent=agent.address) as started:
        yield started


@pytest.fixture
def pool(session, name):
    pool = session.pool(f"local:/{name}")
    for step in range(2):
        x = pa.array(np.where(np.arange(ROWS) % 5 == 0, np.nan, np.arange(ROWS) + step), mask=np.arange(ROWS) % 3 == 0)
        pool.put(pa.table({"id": np.arange(ROWS), "x": x, "name": [f"n{n % 7}" for n in range(ROWS)]}), f"step{step}")
    return pool


def said_by_client(jar, server, *questions, token=TOKEN):
    url = f"jdbc:arrow-flight-sql://127.0.0.1:{server.port}"
    done = subprocess.run(
        [*JAVA, jar, CLIENT, url, token],
        input="".join(f"{question}\n" for question in questions),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(jar, server, *questions):
    """The rows of each answer, as lists of texts."""
    found, rows = [], []
    for line in said_by_client(jar, server, *questions).splitlines():
        if line == ".":
            found.append(rows)
            rows = []
        else:
            rows.append(line.split("|"))
    assert len(found) == len(questions), rows
    return found


def as_java(value):
    """An integer, a short double or a text as Java prints it."""
    return "null" if value is None else "NaN" if value != value else str(value)


def test_jdbc_reads_what_offpath_sql_answers(jar, server, session, pool):
    queries = [
        f"SELECT id, x, name FROM pool('{pool.name}') WHERE id < 500 AND name IN ('n1', 'n2') ORDER BY ALL",
        f"SELECT name, count(*) AS n, max(id) AS most FROM pool('{pool.name}', 'step[01]') GROUP BY name ORDER BY name",
        f"SELECT count(*) AS n FROM pool('{pool.name}') WHERE x IS NULL",
        f"SELECT id FROM pool('{pool.name}') WHERE id > 1000000",
        f"SELECT a.id FROM pool('{pool.name}', 'step0') a, range(100) ORDER BY a.id",
    ]
    found = answers(jar, server, *(f"query {each}" for each in queries), f"prepared {queries[1]}")
    for query, rows in zip(queries, found, strict=False):
        assert rows == [[as_java(value) for value in row.values()] for row in run_sql(session, query).to_pylist()]
    assert found[-1] == 2 * found[1], "a prepared statement may be asked again"


def test_database_tools_find_pools_by_jdbc(jar, server, session, pool, name):
    tracked = f"{name}-tracks"
    stream = session.stream(name, {"key": "int64", "v": "float64"}, rows_max=10, pool=f"sift:/{tracked}?key=key")
    stream.send({"key": np.arange(10), "v": np.arange(10.0)}, ("step0", "0")).wait_stored(60)
    session.tracks(f"sift:/{tracked}").flush(60)
    server_, unknown, catalogs, schemas, types, tables, columns, keys, rows = answers(
        jar, server, "server", "unknown", "catalogs", "schemas", "types", f"tables %{name}%", f"columns {pool.name}",
        f"keys {pool.name}", f'query SELECT count(*) FROM offpath.pools."{pool.name}" WHERE id < 10',
    )  # fmt: skip
    assert server_ == [["Offpath", "true", '"', "false"]]
    assert unknown == []
    assert catalogs == [["offpath"]] and types == [["TABLE"]]
    assert [each[0] for each in schemas] == ["pools"]
    assert tables == [["offpath", "pools", each, "TABLE"] for each in (pool.name, f"sift:/{tracked}")]
    assert columns == [[pool.name, each, str(at)] for at, each in enumerate(("id", "x", "name"), 1)]
    assert keys == [] and rows == [["20"]]


def test_errors_are_those_of_the_query_and_strangers_get_nothing(jar, server, pool):
    wrong, then = answers(jar, server, f"query SELECT speed FROM pool('{pool.name}')", "query SELECT 7")
    assert '"speed" not found' in "|".join(wrong[0]) and then == [["7"]]
    assert "no connection: " in (said := said_by_client(jar, server, token="x" * 32)) and "token" in said


def test_the_block_of_the_guide_runs(jar, server, session, tmp_path):
    session.pool("local:/particles").put(pa.table({"x": np.arange(1500.0)}), "step0")
    (block,) = [each for each in blocks_of(ROOT / "docs/guides/readers.md") if each.language == "java"]
    code = block.code.replace(":32010", f":{server.port}").replace("at-least-sixteen-characters", TOKEN)
    program = tmp_path / "Guide.java"
    main = "public static void main(String[] arguments) throws Exception"
    program.write_text(f"class Guide {{\n  {main} {{\n{code}}}\n}}\n")
    done = subprocess.run([*JAVA, jar, program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "1500 particles\n"), done.stderr
