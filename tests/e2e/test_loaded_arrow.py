"""libarrow is in an agent once a request has needed it, and not before; without its file the request says so."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from agent_process import AgentProcess, agent, find_program
from built import needs_built

PATIENCE_S = 60
ROWS = 1000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64(), nullable=False)])
DATA = {"id": np.arange(ROWS), "x": np.arange(ROWS) / ROWS}
MODULES = find_program().parents[1] / "lib" / "offpath"


def module_of(name: str) -> Path:
    """The newest one: a build tree keeps those of earlier sources."""
    found = sorted(MODULES.glob(f"liboffpath_{name}-*.so"), key=lambda file: file.stat().st_mtime)
    return found[-1] if found else MODULES / f"liboffpath_{name}-.so"


ARROW, FLIGHT = module_of("arrow"), module_of("flight")
pytestmark = needs_built(ARROW, FLIGHT)


def loaded(running: AgentProcess) -> set[str]:
    """Libarrow and the libraries that load it: names without version."""
    lines = Path(f"/proc/{running.pid}/maps").read_text().splitlines()
    names = {re.split(r"[.-]", Path(line.split()[-1]).name)[0] for line in lines if ".so" in line}
    return {name for name in names if "arrow" in name or name in ("libparquet", "liboffpath_flight")}


def send(session: offpath.Session, name: str, destination: str = "ipc-page") -> None:
    with session.stream(name, SCHEMA, rows_max=ROWS, destination=destination) as stream:
        stream.send(DATA, key="row").wait_stored(PATIENCE_S)


def get(session: offpath.Session, name: str) -> pa.Table:
    return pa.table(session.pool(f"local:/{name}").get("row", timeout=PATIENCE_S))


def filtered(session: offpath.Session, name: str) -> int:
    return int(session.pool(f"local:/{name}").query(pc.field("id") < 10, timeout=PATIENCE_S).num_rows)


def test_moving_keeping_sifting_and_writing_parquet_need_none(tmp_path: Path) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        send(session, "plain")
        assert get(session, "plain").num_rows == ROWS
        pool = "sift:/tracks?key=id&stages=1&fanout=2&age=50ms"
        with session.stream("sifted", SCHEMA, rows_max=ROWS, pool=pool) as stream:
            stream.send(DATA, key="step0", snapshot=True).wait_stored(PATIENCE_S)
        tracks = session.tracks("sift:/tracks")
        tracks.flush(PATIENCE_S)
        tracks.write(tmp_path / "tracks", timeout=PATIENCE_S)
        assert list((tmp_path / "tracks").glob("**/*.parquet"))
        assert loaded(running) == set()


def query(session: offpath.Session) -> None:
    send(session, "queried")
    assert filtered(session, "queried") == 10


def count(session: offpath.Session) -> None:
    send(session, "counted")
    counted = session.pool("local:/counted").query(aggregates={"n": "count"}, timeout=PATIENCE_S)
    assert counted["n"].to_pylist() == [ROWS]


def serialise(session: offpath.Session) -> None:
    send(session, "arrays", "arrays")
    assert get(session, "arrays").num_rows == ROWS


@pytest.mark.parametrize("first", [query, count, serialise])
def test_the_first_that_needs_it_loads_it(tmp_path: Path, first: Callable[[offpath.Session], None]) -> None:
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        assert loaded(running) == set()
        first(session)
        assert {"libarrow", "liboffpath_arrow"} <= loaded(running)
        assert "libarrow_flight" not in loaded(running)


def test_many_first_requests_at_once_load_it_once(tmp_path: Path) -> None:
    with agent(tmp_path) as running, ThreadPoolExecutor(8) as programs:
        with offpath.connect(running.ready["address"]) as session:
            send(session, "queried")

        def ask(number: int) -> int:
            with offpath.connect(running.ready["address"]) as session:
                if number % 4 == 3:
                    send(session, f"arrays{number}", "arrays")
                return filtered(session, "queried")

        assert list(programs.map(ask, range(8))) == [10] * 8
        assert "liboffpath_arrow" in loaded(running)


def flight_settings(directory: Path) -> list[str]:
    token = directory / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0o600)
    return ["--set", "flight.listen=tcp:127.0.0.1:0", "--set", f"flight.token_file={token}"]


def test_an_agent_that_serves_flight_has_it_from_the_start(tmp_path: Path) -> None:
    fl = pytest.importorskip("pyarrow.flight")
    with agent(tmp_path, *flight_settings(tmp_path)) as running:
        assert {"libarrow_flight", "liboffpath_flight"} <= loaded(running)
        assert "liboffpath_arrow" not in loaded(running)
        token = (tmp_path / "token").read_text()
        options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=PATIENCE_S)
        client = fl.connect(running.ready["flight"])
        writer, _ = client.do_put(fl.FlightDescriptor.for_path("local:/put", "row"), SCHEMA, options)
        with writer:
            writer.write_table(pa.table(DATA, schema=SCHEMA))
        (flight,) = client.list_flights(options=options)
        assert client.do_get(flight.endpoints[0].ticket, options).read_all().num_rows == ROWS


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for an agent's modules: the agent is a copy somewhere else."""
    program = tmp_path / "prefix/bin/offpath-agent"
    program.parent.mkdir(parents=True)
    shutil.copy(find_program(), program)
    monkeypatch.setenv("OFFPATH_AGENT_PROGRAM", str(program))
    modules = tmp_path / "prefix/lib/offpath"
    modules.mkdir(parents=True)
    return modules


def test_a_missing_module_is_named_with_what_brings_it_until_it_is_there(alone: Path, tmp_path: Path) -> None:
    needs = {query: "queries need Arrow", count: "queries need Arrow", serialise: "destination arrays needs Arrow"}
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        for fails, need in needs.items():
            with pytest.raises(offpath.Error) as failed:
                fails(session)
            said = str(failed.value)
            assert need in said and f"{alone}/{ARROW.name}: cannot open" in said, said
            assert "install offpath-agent again" in said, said
        assert get(session, "queried").num_rows == ROWS
        shutil.copy(ARROW, alone)
        assert filtered(session, "queried") == 10


def test_a_module_of_another_version_is_refused(alone: Path, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text('const struct { const char *version; void *calls[8]; } ofp_query = {"0.0.1", {0}};\n')
    other = alone / ARROW.name
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    with agent(tmp_path) as running, offpath.connect(running.ready["address"]) as session:
        said = f"{other} has version 0.0.1, and the offpath-agent of this process"
        with pytest.raises(offpath.Unsupported, match=said):
            query(session)


def test_flight_without_its_module_ends_the_start(alone: Path, tmp_path: Path) -> None:
    said = f"flight.listen needs Arrow Flight, loaded from {alone}/{FLIGHT.name}"
    with pytest.raises(RuntimeError, match=said):
        with agent(tmp_path, *flight_settings(tmp_path)):
            pass
