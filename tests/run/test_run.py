"""``offpath run`` from one end to the other: LAMMPS, an agent process, the file, the check, other readers."""

import json
import mmap
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import offpath
import polars
import pyarrow as pa
import pytest
import typer
from offpath.run import driver, run_command
from offpath.run.frames import read_frames
from offpath.run.handover import drive
from offpath.run.settings import DESTINATIONS, RunError, Settings
from typer.testing import CliRunner

ATOMS, STEPS, EVERY = 4000, 20, 5
ATOM_BYTES = 4 + 4 + 24 + 24


def invoke(out: Path, *options: str) -> Any:
    app = typer.Typer()
    app.command()(run_command)
    return CliRunner().invoke(app, ["--out", str(out), *options])


def run_small(out: Path, *options: str) -> dict:
    """Runs the command, which has to succeed; returns its JSON."""
    sizes = ["--atoms", str(ATOMS), "--steps", str(STEPS), "--every", str(EVERY)]
    result = invoke(out, *sizes, "--json", str(out / "run.json"), *options)
    assert result.exit_code == 0, result.output
    assert "bit for bit" in result.output
    return json.loads((out / "run.json").read_text())


@pytest.mark.parametrize("layout", ["list", "columns"])
@pytest.mark.parametrize("snapshot", [False, True])
def test_every_step_arrives_bit_for_bit(tmp_path: Path, layout: str, snapshot: bool) -> None:
    found = run_small(tmp_path, "--layout", layout, *["--snapshot"] * snapshot)
    assert found["simulation"]["atoms"] == ATOMS
    assert found["check"]["ok"] and [check["step"] for check in found["check"]["steps"]] == [0, 5, 10, 15, 20]
    assert [check["atoms"] for check in found["check"]["steps"]] == [ATOMS] * 5
    summary = found["summary"]
    assert summary["handovers"] == 5
    assert summary["payload_bytes"] == 5 * ATOMS * ATOM_BYTES
    assert summary["written_bytes"] == (tmp_path / "particles.arrows").stat().st_size > summary["payload_bytes"]
    for handover in found["handovers"]:
        assert 0 < handover["post_ns"] <= handover["own_again_ns"]
        waited = handover["meanwhile_ns"] + handover["waiting_ns"]
        assert waited == 0 if snapshot else handover["post_ns"] + waited <= handover["own_again_ns"]
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "reference.bin").exists()
    compare_readers(tmp_path / "particles.arrows", layout)


def test_a_page_draws_steps_while_the_simulation_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "offpath", "run", "--view", "--no-check", "--atoms", str(ATOMS), "--steps", "4000",
               "--every", str(EVERY), "--out", str(tmp_path)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            page = next(line for line in running.stdout if line.startswith("the page: ")).split()[-1]
            told: dict[str, Any] = {}
            while "counts" not in told and running.poll() is None:
                try:
                    with urllib.request.urlopen(f"{page}density?pool=local:/particles&x=x&y=vy&bins=8") as answer:
                        told = json.load(answer)
                except urllib.error.HTTPError as error:
                    assert error.code == 404, error.read()  # the pool does not exist yet
            assert np.sum(told["counts"]) == told["counted"] == told["rows"] == ATOMS
        finally:
            running.kill()


def compare_readers(path: Path, layout: str) -> None:
    """polars and DuckDB see the same in the file as pyarrow."""
    with pa.memory_map(str(path)) as source:
        written = pa.ipc.open_stream(source).read_all()
    assert written.num_rows == 5 * ATOMS
    assert written.schema.names[2:] == (["x", "v"] if layout == "list" else ["x", "y", "z", "vx", "vy", "vz"])
    with duckdb.connect() as connection:  # the default one is every test's of this process
        in_duckdb = connection.sql("select * from written").to_arrow_table()
    in_polars = polars.read_ipc_stream(path)
    for name in written.schema.names:
        expected = np.stack(written[name].to_numpy()) if name in "xv" and layout == "list" else written[name].to_numpy()
        np.testing.assert_array_equal(in_polars[name].to_numpy(), expected)
        seen = in_duckdb[name].to_numpy()
        np.testing.assert_array_equal(np.stack(seen) if seen.dtype == object else seen, expected)


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_every_destination(tmp_path: Path, destination: str) -> None:
    result = invoke(tmp_path, "--atoms", "500", "--steps", "5", "--destination", destination)
    assert result.exit_code == 0, result.output
    assert "2 steps (0 to 5)" in result.output


def test_several_ranks_are_one_step(tmp_path: Path) -> None:
    found = run_small(tmp_path, "--ranks", "2")
    assert found["simulation"]["ranks"] == 2
    assert found["summary"]["handovers"] == 10
    assert sorted({handover["rank"] for handover in found["handovers"]}) == [0, 1]
    assert [check["atoms"] for check in found["check"]["steps"]] == [ATOMS] * 5


@pytest.mark.parametrize(("ranks", "agents"), [(3, 2), (3, 3), (3, 5), (4, 8)])
def test_ranks_with_agents_of_their_own_are_one_step_and_have_common_tracks(
    tmp_path: Path, ranks: int, agents: int
) -> None:
    found = run_small(tmp_path, "--ranks", str(ranks), "--agents", str(agents))
    assert (found["simulation"]["ranks"], found["simulation"]["agents"]) == (ranks, agents)
    assert found["summary"]["handovers"] == 5 * ranks
    assert [check["atoms"] for check in found["check"]["steps"]] == [ATOMS] * 5
    assert found["tracks"]["difference"] is None and found["tracks"]["rows"] == 5 * ATOMS


def test_an_agent_that_is_there_already_is_left_as_it_was(tmp_path: Path) -> None:
    with offpath.Agent.start() as agent:
        found = run_small(tmp_path, "--agent", agent.address)
        assert agent.running
        with offpath.connect(agent.address) as session:
            assert session.pool(found["agent"]["pool"]).keys() == []


def test_over_tcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    monkeypatch.setenv("OFFPATH_KEY_FILE", str(key))
    with offpath.Agent.start(listen=["tcp:127.0.0.1:0"], settings={"security.key_file": key}) as agent:
        address = next(address for address in agent.addresses if address.startswith("tcp:"))
        found = run_small(tmp_path, "--agent", address.removeprefix("tcp:"))
    assert found["agent"]["link"] == "tcp"
    assert found["agent"]["cpu_s"] is None


def test_frames_are_page_aligned_and_mapped_where_they_lie(tmp_path: Path) -> None:
    settings = Settings(atoms=500, steps=10, every=5, out=tmp_path, check=False)
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        pool = session.pool("local:/particles")
        drive(settings, session, pool.name, lambda *_: None)
        assert pool.keys() == [("step0", "rank0"), ("step5", "rank0"), ("step10", "rank0")]
        for frame in pool.frames():
            assert frame.mapped
            for column in frame.batch().columns:
                for buffer in filter(None, column.buffers()):
                    assert buffer.address % mmap.PAGESIZE == 0
                    assert frame.address <= buffer.address < frame.address + frame.nbytes


def test_an_agent_that_dies_ends_the_run(tmp_path: Path) -> None:
    settings = Settings(atoms=500, steps=20, every=5, out=tmp_path, check=False)
    reached: list[int] = []
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:

        def kill_at_second(step: int, _: int) -> None:
            reached.append(step)
            if step == 5:
                agent.kill()

        with pytest.raises(offpath.PeerLost):
            drive(settings, session, "local:/particles", kill_at_second)
    assert reached == [0, 5]


def test_one_wrong_bit_in_the_file_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = driver.check

    def check_corrupted(settings: Settings, *others: object) -> object:
        steps = others[1]
        frame = list(read_frames(settings.stream_path, steps))[2]
        wanted = frame.v[123].tobytes()
        data = bytearray(settings.stream_path.read_bytes())
        assert data.count(wanted) == 1
        data[data.index(wanted)] ^= 1
        settings.stream_path.write_bytes(data)
        return honest(settings, *others)

    monkeypatch.setattr(driver, "check", check_corrupted)
    result = invoke(tmp_path, "--atoms", "500", "--steps", "20")
    assert result.exit_code == 1
    assert "step 10: differs vx of 1 of 500 atoms" in result.output
    assert "1 of 5 steps differ" in result.output
    assert (tmp_path / "reference.bin").exists()


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    assert invoke(tmp_path, "--atoms", "500", "--steps", "10", "--no-check").exit_code == 0
    path = tmp_path / "particles.arrows"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=r"particles\.arrows"):
        list(read_frames(path, [0, 5, 10]))
    path.write_bytes(whole)
    with pytest.raises(RunError, match="3 batches, but 4 frames"):
        list(read_frames(path, [0, 5, 10, 15]))


def test_an_input_of_ones_own(tmp_path: Path) -> None:
    source = tmp_path / "in.gas"
    source.write_text(
        "units lj\natom_style atomic\nregion box block 0 12 0 12 0 12\ncreate_box 2 box\n"
        "create_atoms 1 random 300 4711 box overlap 0.9\ncreate_atoms 2 random 200 4712 box overlap 0.9\n"
        "mass * 1.0\nvelocity all create 1.0 815\npair_style lj/cut 2.5\npair_coeff * * 1.0 1.0\nfix 1 all nve\n"
        "thermo 50\nrun 1000\n"
    )
    result = invoke(tmp_path / "out", "--input", str(source), "--steps", "60", "--every", "20", "--layout", "columns")
    assert result.exit_code == 0, result.output
    assert "4 steps (0 to 60)" in result.output


def test_what_cannot_be_ends_with_2(tmp_path: Path) -> None:
    result = invoke(tmp_path, "--steps", "2")
    assert result.exit_code == 2
    assert "--steps 2 is less than --every 5" in result.output


def test_an_agent_that_is_not_there_ends_with_1(tmp_path: Path) -> None:
    result = invoke(tmp_path / "out", "--agent", f"unix:{tmp_path}/nobody.sock")
    assert result.exit_code == 1
    assert "nobody.sock" in result.output
