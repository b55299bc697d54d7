"""Snapshots of pools: written by one program and put back by another; errors in them are named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import PATIENCE_S, Group
from agent_process import until

TABLE = pa.table({"id": np.arange(5000), "x": np.arange(5000) * 0.5})
ODD = {"": b"", "../up": b"x", "a/b\n*?": os.urandom(100_000), "ü" * 100: os.urandom(7)}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    made.start_by_list("a", "b", "c")
    assert until(lambda: made.all_know(["a", "b", "c"], dict.fromkeys("abc", "alive")), PATIENCE_S)
    yield made
    made.stop_all()


def fill(pool: offpath.Pool) -> None:
    for row, data in ODD.items():
        pool.put(data, row, "bytes")
    for step in range(5):
        pool.put(TABLE.slice(step), f"step{step}")


def check(pool: offpath.Pool) -> None:
    assert len(pool) == len(ODD) + 5
    for row, data in ODD.items():
        assert pool.get_bytes(row, "bytes").to_pybytes() == data
    for step in range(5):
        assert pool.get(f"step{step}").equals(TABLE.slice(step))


def test_all_members_objects_come_back(group: Group, tmp_path: Path) -> None:
    place, seen = tmp_path / "backup", []
    with group.connect("a") as session:
        fill(session.pool("hash:/p?replicas=2"))
        manifest = session.pool("hash:/p").snapshot(place, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == sum(each["bytes"] for each in manifest["objects"])
    assert {each.name for each in place.iterdir()} == {each["file"] for each in manifest["objects"]} | {"manifest.json"}
    for each in manifest["objects"]:
        if each["arrow"]:
            assert pa.ipc.open_stream(pa.memory_map(str(place / each["file"]))).read_all().num_rows > 4000
    with group.connect("b") as session:
        assert session.pool("hash:/q").restore(place) == len(ODD) + 5
        check(session.pool("hash:/q"))
        with pytest.raises(FileExistsError):
            session.pool("hash:/q").snapshot(place)


def test_half_directories_are_refused_before_anything_is_put(group: Group, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with group.connect("a") as session:
        fill(session.pool("local:/p"))
        session.pool("local:/p").snapshot(place)
        target, manifest = session.pool("local:/q"), place / "manifest.json"
        entries = json.loads(manifest.read_text())
        with pytest.raises(offpath.Invalid, match=r"has no manifest\.json"):
            target.restore(tmp_path)
        last = place / entries["objects"][-1]["file"]
        whole = last.read_bytes()
        last.write_bytes(whole[:-1])
        with pytest.raises(offpath.Invalid, match=rf"{last.name} has {len(whole) - 1} bytes"):
            target.restore(place)
        last.unlink()
        with pytest.raises(offpath.Invalid, match=rf"{last.name} is missing"):
            target.restore(place)
        elsewhere = {**entries["objects"][0], "file": "../x"}
        for wrong in ({"format": "other"}, {"version": 2}, {"objects": [{"file": "x"}]}, {"objects": [elsewhere]}):
            manifest.write_text(json.dumps({**entries, **wrong}))
            with pytest.raises(offpath.Invalid):
                target.restore(place)
        assert target.keys() == []
        manifest.write_text(json.dumps(entries))
        last.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(offpath.Invalid, match=rf"{last.name} is corrupt: its checksum"):
            target.restore(place)


def test_an_object_that_cannot_be_put_is_named(group: Group, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with group.connect("a") as session:
        session.pool("local:/p").put(TABLE, "step0", "rank0")
        (entry,) = session.pool("local:/p").snapshot(place)["objects"]
        target = session.pool("local:/q")
    with pytest.raises(offpath.Error, match=rf"{entry['file']}: object \(step0, rank0\): .+; 0 objects were put"):
        target.restore(place)  # after the end of its session


def test_the_command_line_writes_and_restores(group: Group, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "offpath", "pool", *arguments, "--agent", group.address("a")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    place = tmp_path / "backup"
    with group.connect("a") as session:
        fill(session.pool("hash:/p"))
        done = run("snapshot", "hash:/p", str(place), "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["objects"] == len(ODD) + 5, done.stderr
        assert run("restore", "hash:/q", str(place)).returncode == 0
        check(session.pool("hash:/q"))
    again = run("snapshot", "hash:/p", str(place))
    assert again.returncode == 1 and again.stderr.startswith("offpath: ") and "exists already" in again.stderr
    half = run("restore", "hash:/q", str(tmp_path))
    assert half.returncode == 1 and "not a complete snapshot" in half.stderr
