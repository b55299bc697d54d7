"""``offpath …`` as scripts use it."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import warnings

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from offpath.agent_http import fetch_status

PATIENCE_S = 20  # less than puts wait for members


@pytest.fixture
def run(agent):
    """Runs a command and returns its output; with ``fails`` its complaint. None: it may fail or not."""

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
        stream.send({"v": np.full(10, step)}, key=(f"step{step}", "rank0")).wait_stored(60)
    return session.pool(stream.pool_name)


def test_version(run):
    assert json.loads(run("version", "--json")) == {"version": offpath.__version__}
    assert run("version").strip() == run("--version").strip() == offpath.__version__


def cells_joined(drawn):
    """The text in a box, whose lines are broken at the width of a terminal."""
    return " ".join(word for word in drawn.split() if not re.fullmatch(r"[│╭╮╰╯─]+", word))


def test_a_topology_is_shown_before_anybody_runs_it(run, tmp_path):
    shown = run("exchange", "topology", "grouped_allgather(4)", 12)
    assert "dpu4  dpu5  dpu6  dpu7" in shown
    assert "12 members, 2 levels; parcels of a round: 9 up, 6 across, 9 down" in shown
    assert "the busiest member is dpu0: it sends 5 and receives 5" in shown
    shown = run("exchange", "topology", "neighbourhoods(4)", 12)
    assert "12 members, led by dpu0, which gathers from all and scatters to all" in shown
    assert "parcels of a round: 11 up, 0 across, 11 down" in shown
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
    assert re.search(r"^offpath_frames_total [1-9]\d*$", run("status", "--metrics"), re.MULTILINE)


def test_status_of_nobody(run):
    assert "--http" in run("status", "--http", "127.0.0.1:1", fails=True)


def test_an_agent_that_was_named_is_named_in_the_error(run, tmp_path):
    """OFFPATH_AGENT_HTTP, which names another agent's pages, does not answer for it."""
    absent = f"unix:{tmp_path}/agent.sock"
    for words in (["status"], ["top", "--once"], ["pool", "ls"], ["pool", "ls", "local:/p"], ["info"]):
        assert absent in run(*words, "--agent", absent, fails=True)


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


def test_without_a_pool_the_pools_are_listed(run, session, pool, name):
    session.pool(f"hash:/{name}?budget=8GiB").create()
    pools = {each["name"]: each for each in json.loads(run("pool", "ls", "--json"))}
    assert pools[pool.name]["frames"] == 3 and f"hash:/{name}" in pools
    shown = run("pool", "ls")
    assert pool.name in shown and "budget=8.0 GiB" in shown and "8589934592" not in shown


def test_sizes_have_units(run):
    shown = run("info")
    assert "memory_bytes_max     2.0 GiB" in shown and "2147483648" not in shown
    assert json.loads(run("info", "--json"))["memory_bytes_max"] == 2 << 30


@pytest.mark.parametrize("words", [[], ["pool"], ["pool", "get"], ["ls"], ["exchange"], ["run"]], ids=" ".join)
def test_help_has_a_short_option(run, words):
    assert "--help" in run(*words, "--help") and run(*words, "-h") == run(*words, "--help")


def test_nothing_is_dropped_unless_it_is_named(run, pool):
    for words in ([], ["--row", ""], ["--all", "--row", "step1"]):
        assert "--row, --column or both, or --all" in cells_joined(run("pool", "drop", pool.name, *words, fails=True))
    assert len(pool) == 3
    assert json.loads(run("pool", "drop", pool.name, "--all", "--json")) == {"dropped": 3}


@pytest.mark.parametrize("option", ["--timeout", "--wait"])
def test_a_time_to_wait_has_one_name_and_the_old_one(run, pool, option):
    assert "absent" in run("pool", "get", pool.name, "absent", "rank0", option, "0.1", fails=True)
    assert len(json.loads(run("pool", "query", pool.name, option, "9", "--json"))) == 30
    assert "it is named plugin/function" in run("pool", "compute", pool.name, "mean", "a", option, "9", fails=True)
    assert 'no column "id"' in run("track", pool.name, "1", option, "9", fails=True)
    told = run("pool", "get", "--help")
    assert "--timeout" in told and "--wait" not in told


@pytest.mark.parametrize("option", ["--timeout", "--for"])
def test_a_watch_ends_when_it_is_told(run, pool, option):
    assert f"/pools/{pool.name}" in run("ls", "/pools", "--watch", option, "0.1")


@pytest.mark.parametrize("option", ["--row", "--rows"])
def test_rows_are_chosen_alike(run, pool, option):
    assert len(json.loads(run("pool", "ls", pool.name, option, "step1", "--json"))) == 1
    assert len(json.loads(run("pool", "query", pool.name, option, "step1", "--json"))) == 10
    columns = option.replace("row", "column")
    assert "(*, rank1)" in run("pool", "query", pool.name, columns, "rank1", fails=True)
    assert json.loads(run("pool", "ls", pool.name, columns, "rank1", "--json")) == []
    assert json.loads(run("pool", "drop", pool.name, option, "step1", "--json")) == {"dropped": 1}


def test_more_rows_than_are_shown(run, session, name):
    pool = session.pool(f"local:/{name}")
    pool.put(pa.table({"text": [f"[red]{number}" for number in range(12)]}), "long")
    pool.put(pa.table({"text": ["a", "b"]}), "short")
    shown = run("pool", "get", pool.name, "long")
    assert "[red]9" in shown and "[red]10" not in shown
    assert "and 2 more rows; --out FILE writes all of them" in shown
    assert "more rows" not in run("pool", "get", pool.name, "short")


READERS = {
    ".parquet": pyarrow.parquet.read_table,
    ".csv": lambda path: pyarrow.csv.read_csv(path),
    ".arrow": lambda path: pa.ipc.open_file(path.read_bytes()).read_all(),
    ".feather": lambda path: pa.ipc.open_file(path.read_bytes()).read_all(),
    ".arrows": lambda path: pa.ipc.open_stream(path.read_bytes()).read_all(),
}


@pytest.mark.parametrize("suffix", READERS)
def test_a_file_has_the_form_that_its_name_says(run, pool, tmp_path, suffix):
    out = tmp_path / f"object{suffix}"
    assert f"10 rows written to {out}" in run("pool", "get", pool.name, "step1", "rank0", "--out", out)
    assert READERS[suffix](out).to_pydict() == {"v": [1] * 10}
    queried = tmp_path / f"answer{suffix}"
    run("pool", "query", pool.name, "--row", "step2", "--out", queried)
    assert READERS[suffix](queried).to_pydict() == {"v": [2] * 10}


def test_a_file_is_replaced_only_by_force(run, pool, tmp_path):
    out = tmp_path / "object.csv"
    out.write_text("mine")
    for command in (["get", pool.name, "step1", "rank0"], ["query", pool.name, "--row", "step1"]):
        assert "--force replaces it" in run("pool", *command, "--out", out, fails=True)
        assert out.read_text() == "mine"
    run("pool", "get", pool.name, "step1", "rank0", "--out", out, "--force")
    assert pyarrow.csv.read_csv(out).num_rows == 10
    assert "--force replaces it" in run("pool", "write", pool.name, out, fails=True)
    run("pool", "write", pool.name, out, "--force")
    assert pa.ipc.open_stream(out.read_bytes()).read_all().num_rows > 10


def test_a_name_that_says_no_form_is_refused(run, session, pool, tmp_path):
    out = tmp_path / "object.txt"
    for command in (["get", pool.name, "step1", "rank0"], ["query", pool.name]):
        assert ".parquet, .csv, .arrows" in run("pool", *command, "--out", out, fails=True)
        assert not out.exists()
    session.pool(pool.name).put(b"plain bytes", "plain")
    run("pool", "get", pool.name, "plain", "--out", out)
    assert out.read_bytes() == b"plain bytes"


@pytest.mark.parametrize(
    "command",
    [
        ["pool", "put", "local:/p", "a", "MISSING"],
        ["pool", "put", "local:/p", "a", "BROKEN.parquet"],
        ["pool", "restore", "local:/p", "MISSING"],
        ["pool", "compute", "local:/p", "a.b", "row", "--arguments-file", "MISSING"],
        ["sockets", "--policy", "MISSING", "--", "true"],
        ["exchange", "topology", "--file", "MISSING"],
        ["info", "--agent", "unix:MISSING"],
        ["agent", "--config", "MISSING"],
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_file_that_is_missing_or_broken_is_one_line(run, tmp_path, command):
    (tmp_path / "BROKEN.parquet").write_text("no table")
    places = [word.replace(each, str(tmp_path / each)) for word in command for each in ["MISSING"] if each in word]
    words = [word.replace("MISSING", str(tmp_path / "MISSING")) for word in command]
    words = [str(tmp_path / word) if word.startswith("BROKEN") else word for word in words]
    said = run(*words, fails=True)
    assert "Traceback" not in said and len(said.strip().splitlines()) == 1
    assert not places or "MISSING" in said


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow", "arrows", "dat"])
def test_a_file_that_is_not_there_is_said_to_be(run, tmp_path, ending):
    said = run("pool", "put", "local:/p", "row", tmp_path / f"none.{ending}", fails=True)
    assert "No such file" in said and f"none.{ending}" in said


def test_the_usage_of_the_agent_is_what_was_typed(run):
    assert "Usage: offpath agent [OPTIONS]" in run("agent", "--help")


def test_a_table_that_its_form_cannot_hold_is_one_line(run, session, name, tmp_path):
    session.pool(f"local:/{name}").put(pa.table({"v": [[1, 2]]}), "nested")
    said = run("pool", "get", f"local:/{name}", "nested", "--out", tmp_path / "nested.csv", fails=True)
    assert "Traceback" not in said and "list" in said


def test_top_with_details_ends_after_one_picture_and_names_pools(run, agent, session):
    """At the default width of a terminal."""
    pool = "local:/positions-of-particles"
    stream = session.stream("positions", pa.schema([pa.field("v", pa.int64())]), rows_max=10, pool=pool)
    stream.send({"v": np.arange(10)}, key="step0").wait_stored(60)
    command = [sys.executable, "-m", "offpath", "top", "--details", "--once", "--interval", "0.1"]
    shown = on_a_terminal([*command, "--http", agent.http_address], columns=80)
    assert shown.count("up ") == 1 and "frames/s" in shown
    rows = [line for line in shown.splitlines() if pool in line]
    assert len(rows) == 3, shown  # of the streams, of the pools, of the steps
    assert all(len(line) <= 80 for line in shown.splitlines())
    (of_stream,) = [line for line in rows if re.match(r"│ positions +│", line)]
    assert " 80 B " in of_stream and "0 B/s" in of_stream, "a row is one line"
    assert "streams (more columns on a wider terminal)" in shown
    assert re.search(r"┃ stream +┃.* pool ┃.* bytes ┃ +now ┃", shown), "headings are not broken"
    wide = on_a_terminal([*command, "--http", agent.http_address], columns=200)
    assert "destination" in wide and "on disk alone" in wide and "wider terminal" not in wide


def test_live_details_show_the_pools_on_a_terminal_of_24_lines():
    """The screen while it runs: the rest is cut below."""
    pools = ["local:/positions-of-particles", "local:/velocities-of-particles"]
    schema = pa.schema([pa.field("v", pa.int64())])
    with offpath.Agent.start(memory="64MiB") as alone, offpath.connect(alone.address) as session:
        streams = [session.stream(pool[7:10], schema, rows_max=10, pool=pool) for pool in pools]
        for stream in streams:
            stream.send({"v": np.arange(10)}, key="step0").wait_stored(60)
        command = [sys.executable, "-m", "offpath", "top", "--details", "--http", alone.http_address]
        screen = on_a_terminal(command, 80, lines=24, ends_at=pools[1] + " ")
    for pool in pools:
        assert re.search(rf"│ {pool[7:10]} .*{pool} ", screen), screen  # of the streams
        assert re.search(rf"│ {pool} .* 10 ", screen), screen  # of the pools


def on_a_terminal(command, columns, lines=40, ends_at=None):
    """A program's output there. It is interrupted once it has shown ``ends_at``."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(command, stdout=its, stderr=its, stdin=its, env=environment) as running:
        os.close(its)
        stuck = threading.Timer(200, running.kill)
        stuck.start()
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
                if ends_at is not None and ends_at.encode() in shown:
                    running.send_signal(signal.SIGINT)
                    ends_at = None
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
            stuck.cancel()
        assert running.wait(60) == 0, shown.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())  # without colours and movements


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("unshare"), reason="no unshare")
def test_tools_find_the_agent_that_listens_by_default(tmp_path):
    """`offpath agent` alone, then the other commands, all without its address."""
    script = tmp_path / "first_hour.sh"
    script.write_text("""
place=${XDG_RUNTIME_DIR:-/run}/offpath
offpath agent &
trap 'kill %1' EXIT
for _ in $(seq 600); do [ -S $place/agent.sock ] && break; sleep 0.1; done
set -ex
offpath info
offpath pool put local:/p a $0
offpath pool ls local:/p
offpath status
offpath members
offpath pool ls
offpath top --once --interval 0.1
offpath doctor --json | grep $place/agent.sock
python3 -c 'import offpath; print(offpath.connect().info.agent_name)'
kill %1
wait %1
trap - EXIT
set +x
offpath status && exit 1
offpath pool ls local:/p && exit 1
offpath sockets -- true && exit 1
exit 0
""")
    programs = tmp_path / "bin"
    programs.mkdir()
    for program, words in (("offpath", "-m offpath"), ("python3", "")):
        (programs / program).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (programs / program).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("OFFPATH_AGENT", "OFFPATH_AGENT_HTTP")}
    environment = {**kept, "PATH": f"{programs}:{os.environ['PATH']}",
                   "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # fmt: skip
    command = ["bash", str(script)]
    if os.geteuid() == 0:  # root's agent listens in /run: in one of the test's own
        environment.pop("XDG_RUNTIME_DIR", None)
        command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec bash "$0"', str(script)]
    else:
        environment["XDG_RUNTIME_DIR"] = str(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    refusals = [line for line in done.stderr.splitlines() if "agent.sock" in line and "offpath agent" in line]
    assert len(refusals) == 3, done.stderr


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
    assert "exists already" in run("pool", "create", f"hash:/{name}?budget=2MiB", fails=True)
    plain, table = tmp_path / "note.txt", tmp_path / "table.arrows"
    plain.write_bytes(b"as it is")
    with pa.ipc.new_stream(table, pa.schema([("v", pa.int64())])) as writer:
        writer.write_table(pa.table({"v": [1, 2, 3]}))
    run("pool", "put", f"hash:/{name}", "a", plain)
    run("pool", "put", f"hash:/{name}", "b", table, "--column", "t")
    assert json.loads(run("pool", "get", f"hash:/{name}", "a", "--json"))["nbytes"] == 8
    assert json.loads(run("pool", "get", f"hash:/{name}", "b", "t", "--json"))["schema"] == {"v": "int64"}
    assert "has a budget" in run("pool", "put", f"hash:/{name}", "c", write_large(tmp_path), fails=True)


def test_bytes_have_no_rows(run, session, name, tmp_path):
    pool, alone = session.pool(f"local:/{name}"), session.pool(f"local:/{name}-alone")
    for each in (pool, alone):
        each.put(b"as it is", "a")
    pool.put(pa.concat_tables([pa.table({"v": [1, 2, 3]})] * 2), "b")
    pool.put(pa.table({"v": pa.array([], pa.int64())}), "none")
    pool.put(pa.table({"v": pa.array(["a view", "of two"], pa.string_view())}), "views")
    assert [entry.rows for entry in pool.list()] == [None, 6, 0, 2]
    assert [entry.rows for entry in pool.list_async().result(60)] == [None, 6, 0, 2]
    assert pool.get_frame("a").rows is None and pool.get_frame("b").rows == 6
    assert [entry["rows"] for entry in json.loads(run("pool", "ls", pool.name, "--json"))] == [None, 6, 0, 2]
    shown = [line.split() for line in run("pool", "ls", pool.name).splitlines()]
    assert any(words[1:] == ["-", "8", "B"] for words in map(cells, shown) if words[:1] == ["a"]), shown
    assert json.loads(run("pool", "get", pool.name, "a", "--json"))["rows"] is None
    told = {each["name"]: each["rows"] for each in json.loads(run("pool", "ls", "--json"))}
    assert (told[pool.name], told[alone.name]) == (8, None)
    assert any("-" in cells(line.split()) for line in run("pool", "ls").splitlines() if alone.name in line)


def test_a_csv_file_is_put_as_a_table_unless_its_bytes_are_asked_for(run, session, name, tmp_path):
    pool, file = session.pool(f"local:/{name}"), tmp_path / "table.csv"
    file.write_text("v,w\n1,a\n2,b\n")
    run("pool", "put", pool.name, "a", file)
    assert pool.get("a").to_pydict() == {"v": [1, 2], "w": ["a", "b"]}
    run("pool", "put", pool.name, "bytes", file, "--bytes")
    assert bytes(pool.get_bytes("bytes")) == file.read_bytes()
    for command in (["query", pool.name], ["write", pool.name, tmp_path / "all.arrows"]):
        complaint = run("pool", *command, fails=True)
        assert "object (bytes, ) is plain bytes" in complaint and "arrow_only leaves it out" in complaint
        run("pool", *command, "--arrow-only")
    assert pa.ipc.open_stream((tmp_path / "all.arrows").read_bytes()).read_all().num_rows == 2


def test_a_pool_without_members_is_told_at_once(run, session, agent, name, tmp_path):
    """Not after the 30 s for which puts wait for members that may come back."""
    pool = f"hash:/{name}?members=dpu*"
    note = tmp_path / "note"
    note.write_bytes(b"some")
    begun = session.stream(f"{name}-begun", destination="native", pool=pool)
    assert "no member's name matches" in run("pool", "put", pool, "a", note, fails=True)
    complaint = rf"no member's name matches members=dpu\*; the members are {session.info.agent_name}"
    with pytest.raises(offpath.NotFound, match=complaint):
        begun.send(b"some", key="a").wait_stored(PATIENCE_S)
    with pytest.raises(offpath.NotFound, match=complaint):
        begun.step_end("a").wait_stored(PATIENCE_S)
    environment = {**os.environ, "OFFPATH_AGENT": agent.address, "OFFPATH_AGENT_HTTP": agent.http_address}
    command = [sys.executable, "-m", "offpath", "pool", "create", f"hash:/{name}-made?members=dpu*"]
    created = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert created.returncode == 0 and "is there" in created.stdout
    assert f"members=dpu*; the members are {session.info.agent_name}" in created.stderr


def test_a_pool_without_members_is_told_to_who_makes_it(session, agent, name, monkeypatch):
    monkeypatch.setenv("OFFPATH_AGENT_HTTP", agent.http_address)
    pattern = rf"pool hash:/{name}\?.*members=dpu\*; the members are {session.info.agent_name}"
    fetch_status(agent.http_address)  # the agent gives its prepared answer to the next caller as well
    with pytest.warns(offpath.NoMembersWarning, match=pattern) as told:
        session.pool(f"hash:/{name}?members=dpu*").create()
    assert told[0].filename == __file__, "the line that makes the pool"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.pool(f"hash:/{name}-here?members={session.info.agent_name}").create()


def cells(words):
    """Of a row of a table."""
    return [word for word in words if word not in "│┃|"]


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


def test_usage_names_the_command(run):
    for words in ([], ["pool"], ["pool", "ls"], ["status"]):
        assert " ".join(["Usage: offpath", *words]) in run(*words, "--help")
    assert "Usage: offpath pool get" in run("pool", "get", fails=True)


def test_a_shell_completes_commands():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                   "_OFFPATH_COMPLETE": "complete_bash", "COMP_WORDS": "offpath pool q", "COMP_CWORD": "2"}  # fmt: skip
    command = [sys.executable, "-m", "offpath"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.stdout.split() == ["query"], done.stderr


def test_benchmarks_that_are_not_installed_are_one_line(run, monkeypatch, tmp_path):
    """As beside a wheel, whose environment has no programs of benchmarks."""
    monkeypatch.delenv("OFFPATH_BUILD_DIR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = benchmarks_elsewhere(tmp_path, "pool", "--quick")
    assert said.startswith("offpath: offpath bench needs its own programs") and len(said.splitlines()) == 1
    assert "--out" in run("bench", "task", "--help")


def benchmarks_elsewhere(place, *words):
    """`offpath bench` by an interpreter that has no programs beside it."""
    code = f"import sys; sys.executable = {str(place / 'python')!r}; from offpath.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", code, "bench", *words, "--out", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_agent_passes_arguments_on(run):
    assert "offpath-agent" in run("agent", "--version")


def test_tracks_by_identifier_and_by_an_expression(run, session, name, tmp_path):
    schema = pa.schema([("particle", pa.int64()), ("x", pa.float64())])
    pool = f"sift:/{name}"
    stream = session.stream(name, schema, rows_max=10, pool=f"{pool}?key=particle&age=10ms")
    for step in range(3):
        stream.send({"particle": np.arange(10), "x": np.arange(10) + step / 8}, key=f"step{step}").wait_stored(60)
    session.tracks(pool).flush(60)
    one = json.loads(run("track", pool, 4, "--key", "particle", "--json"))
    assert one == [{"step": step, "particle": 4, "x": 4 + step / 8} for step in range(3)]
    found = json.loads(run("track", pool, "--where", "x > 8.1", "--first", 1, "--last", 1, "--select", "x", "--json"))
    assert found == [{"x": 8.125}, {"x": 9.125}]
    whole = json.loads(run("track", pool, "--where", "x == 3.125", "--whole", "--key", "particle", "--json"))
    assert [(row["particle"], row["step"]) for row in whole] == [(3, 0), (3, 1), (3, 2)]
    out = tmp_path / "found.parquet"
    command = ["track", pool, 4, "--key", "particle", "--out", out]
    assert "3 rows written" in run(*command)
    out.write_bytes(b"mine")
    assert "--force replaces it" in run(*command, fails=True) and out.read_bytes() == b"mine"
    assert "3 rows written" in run(*command, "--force") and out.read_bytes() != b"mine"
    assert pyarrow.parquet.read_table(out).num_rows == 3
    assert "there is no column" in run("track", pool, "--where", "speed > 1", fails=True)
