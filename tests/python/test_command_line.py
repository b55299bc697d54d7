"""``offpath …`` as scripts use it."""

import json
import os
import subprocess
import sys

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.parquet
import pytest


@pytest.fixture
def run(agent):
    """Runs a command and returns what it printed; with ``fails`` what it complained. None: it may fail or not."""

    def call(*arguments, fails=False):
        environment = {**os.environ, "OFFPATH_AGENT": agent.address, "OFFPATH_AGENT_HTTP": agent.http_address}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, "-m", "offpath", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
        assert fails is None or (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return call


@pytest.fixture
def pool(session, name):
    stream = session.stream(name, pa.schema([pa.field("v", pa.int64(), nullable=False)]), rows_max=10)
    for step in range(3):
        stream.send({"v": np.full(10, step)}, key=(f"step{step}", "rank0")).wait_stored(5)
    return session.pool(stream.pool_name)


def test_version(run):
    assert json.loads(run("version", "--json")) == {"version": offpath.__version__}
    assert run("version").strip() == offpath.__version__


def test_a_topology_is_shown_before_anybody_runs_it(run, tmp_path):
    shown = run("exchange", "topology", "neighbourhoods(4)", 12)
    assert "dpu4  dpu5  dpu6  dpu7" in shown
    assert "12 members, 2 levels; parcels of a round: 9 up, 6 across, 9 down" in shown
    assert "the most has dpu0: it sends 5 and takes 5" in shown
    assert "16 members, 1 levels; parcels of a round: 0 up, 240 across" in run("exchange", "topology", "allgather", 16)
    tree = tmp_path / "tree"
    tree.write_text("rack0: a b\nrack1: c d\nrow: rack0 rack1\n")
    assert "rack1: 2 members, led by c" in run("exchange", "topology", "--file", tree)
    tree.write_text("rack0: a rack1\nrack1: rack0\n")
    assert "offpath-topology: " in run("exchange", "topology", "--file", tree, fails=True)
    assert "neighbourhoods(SIZE)" in run("exchange", "topology", "ring", 3, fails=True)
    run("exchange", "topology", fails=True)


def test_status(run, pool):
    status = json.loads(run("status", "--json"))
    assert pool.name in {each["name"] for each in status["pools"]}
    assert status["mover"]["frames"] >= 3
    assert pool.name in run("status")
    assert "# EOF" in run("status", "--metrics") or "offpath" in run("status", "--metrics")


def test_status_of_nobody(run):
    assert "--http" in run("status", "--http", "127.0.0.1:1", fails=True)


def test_pool_commands(run, pool, tmp_path):
    listed = json.loads(run("pool", "ls", pool.name, "--json"))
    assert [each["row"] for each in listed] == ["step0", "step1", "step2"]
    told = json.loads(run("pool", "get", pool.name, "step1", "rank0", "--json"))
    assert told["rows"] == 10 and told["schema"] == {"v": "int64"}
    path = tmp_path / "pool.arrows"
    assert json.loads(run("pool", "write", pool.name, path, "--json"))["bytes"] == path.stat().st_size
    assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 30
    assert json.loads(run("pool", "drop", pool.name, "--row", "step1", "--json")) == {"dropped": 1}
    assert len(pool) == 2
    assert "local:/absent" in run("pool", "ls", "local:/absent", fails=True)


def test_a_query_is_typed(run, pool, tmp_path):
    answer = json.loads(run("pool", "query", pool.name, "--where", "v >= 1", "--json"))
    assert answer == [{"v": 1}] * 10 + [{"v": 2}] * 10
    figures = run("pool", "query", pool.name, "--aggregate", "n=count", "--aggregate", "sum=sum(v)", "--json")
    assert json.loads(figures) == [{"n": 30, "sum": 30}]
    written = tmp_path / "answer.parquet"
    run("pool", "query", pool.name, "--select", "twice=v+v", "--rows", "step2", "--out", written)
    assert pa.parquet.read_table(written).to_pydict() == {"twice": [4] * 10}
    shown = run("pool", "query", pool.name)
    assert "2" in shown
    assert "means nothing" in run("pool", "query", pool.name, "--where", "v ** 2 > 1", fails=True)
    assert 'no column "w"' in run("pool", "query", pool.name, "--where", "w > 1", fails=True)


def test_a_pool_is_made_and_files_are_put(run, name, tmp_path):
    made = f"hash:/{name}?budget=1MiB"
    assert "is there" in run("pool", "create", made)
    assert "is there already" in run("pool", "create", f"hash:/{name}?budget=2MiB", fails=True)
    plain, table = tmp_path / "note.txt", tmp_path / "table.arrows"
    plain.write_bytes(b"as it is")
    with pa.ipc.new_stream(table, pa.schema([("v", pa.int64())])) as writer:
        writer.write_table(pa.table({"v": [1, 2, 3]}))
    run("pool", "put", f"hash:/{name}", "a", plain)
    run("pool", "put", f"hash:/{name}", "b", table, "--column", "t")
    assert json.loads(run("pool", "get", f"hash:/{name}", "a", "--json"))["nbytes"] == 8
    assert json.loads(run("pool", "get", f"hash:/{name}", "b", "t", "--json"))["schema"] == {"v": "int64"}
    assert "has a budget" in run("pool", "put", f"hash:/{name}", "c", write_large(tmp_path), fails=True)


def write_large(place):
    path = place / "large"
    path.write_bytes(bytes(2 << 20))
    return path


def test_info(run):
    assert json.loads(run("info", "--json"))["link"] == "local"


def test_doctor_proves_that_the_agent_reads_on_its_own(run):
    # It exits with 1 where something should be changed on this machine.
    diagnosis = json.loads(run("doctor", "--json", fails=None))
    findings = {finding["name"]: finding for finding in diagnosis["findings"]}
    assert findings["link"]["value"] == "local"
    assert findings["reads"]["value"] in ("one-sided", "staged")
    assert findings["silenced peer"]["good"], findings["silenced peer"]
    assert {"page size", "huge pages", "locked memory", "kernel", "versions"} <= set(findings)


def test_help_names_the_commands(run):
    text = run("--help")
    for command in ("agent", "run", "status", "top", "doctor", "bench", "pool", "version"):
        assert command in text


def test_agent_passes_arguments_on(run):
    assert "offpath-agent" in run("agent", "--version")


def test_tracks_by_identifier_and_by_an_expression(run, session, name, tmp_path):
    schema = pa.schema([("particle", pa.int64()), ("x", pa.float64())])
    pool = f"sift:/{name}"
    stream = session.stream(name, schema, rows_max=10, pool=f"{pool}?key=particle&age=10ms")
    for step in range(3):
        stream.send({"particle": np.arange(10), "x": np.arange(10) + step / 8}, key=f"step{step}").wait_stored(5)
    session.tracks(pool).flush(20)
    one = json.loads(run("track", pool, 4, "--key", "particle", "--json"))
    assert one == [{"step": step, "particle": 4, "x": 4 + step / 8} for step in range(3)]
    found = json.loads(run("track", pool, "--where", "x > 8.1", "--first", 1, "--last", 1, "--select", "x", "--json"))
    assert found == [{"x": 8.125}, {"x": 9.125}]
    whole = json.loads(run("track", pool, "--where", "x == 3.125", "--whole", "--key", "particle", "--json"))
    assert [(row["particle"], row["step"]) for row in whole] == [(3, 0), (3, 1), (3, 2)]
    out = tmp_path / "found.parquet"
    assert "3 rows written" in run("track", pool, 4, "--key", "particle", "--out", out)
    assert pyarrow.parquet.read_table(out).num_rows == 3
    assert "there is no column" in run("track", pool, "--where", "speed > 1", fails=True)
