"""Particles of a real simulation: a LAMMPS dump whose atoms come in another order with each step becomes the tracks
that a plain sort makes of it.

The dump (SPC/E water, 1,500 molecules, 11 steps) is one of the test data of MDAnalysis, which is of the LGPL: nothing
of it is kept here. It is taken from the package ``MDAnalysisTests`` if that is installed, or from the archive that
OFFPATH_MDANALYSIS_TESTS names. ``./dev test --long`` fetches the archive (60 MB, so not with every run) by pip.
"""

from __future__ import annotations

import bz2
import importlib.util
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import PATIENCE_S, Group
from agent_process import until

PACKAGE = "MDAnalysisTests==2.11.0"
MEMBER = "data/lammps/spce_all_coords.lammpstrj.bz2"
ATOMS, STEPS, MEMBERS = 4500, 11, ["a", "b"]
COLUMNS = ("x", "y", "z", "xu", "yu", "zu")
POOL = "sift:/water?key=id&stages=2&fanout=4&threshold=256KiB&age=200ms"
FETCH_SECONDS_MAX = 300
SCHEMA = pa.schema([("id", pa.int64()), *((name, pa.float64()) for name in COLUMNS), ("type", pa.int32())])


def fetch(directory: Path) -> Path:
    """The package's archive, as pip finds it; nothing of it is installed or run by us."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(directory), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    if done.returncode != 0:
        pytest.skip(f"{PACKAGE} cannot be had: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return next(directory.iterdir())


def read_member(archive: Path) -> bytes:
    with tarfile.open(archive) as packed:
        member = next(name for name in packed.getnames() if name.endswith(MEMBER))
        content = packed.extractfile(member)
        assert content is not None
        return content.read()


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = importlib.util.find_spec("MDAnalysisTests")
    if found is not None and found.origin is not None:
        packed = (Path(found.origin).parent / MEMBER).read_bytes()
    elif archive := os.environ.get("OFFPATH_MDANALYSIS_TESTS"):
        packed = read_member(Path(archive))
    elif os.environ.get("OFFPATH_LONG"):
        packed = read_member(fetch(tmp_path_factory.mktemp("package")))
    else:
        pytest.skip("needs the test data of MDAnalysis, 60 MB: ./dev test --long fetches them")
    return bz2.decompress(packed).decode()


def read_steps(dump: str) -> Iterator[tuple[int, pa.Table]]:
    """Each step of the dump, its rows in the order of the file."""
    for step in dump.split("ITEM: TIMESTEP\n")[1:]:
        head, _, rows = step.partition("ITEM: ATOMS ")
        names, _, values = rows.partition("\n")
        table = np.array([line.split() for line in values.splitlines()])
        assert table.shape == (ATOMS, len(names.split()))
        of = {name: table[:, place] for place, name in enumerate(names.split())}
        columns = {"id": of["id"].astype(np.int64), "type": of["type"].astype(np.int32)}
        columns |= {name: of[name].astype(np.float64) for name in COLUMNS}
        yield int(head.split()[0]), pa.table(columns).select(SCHEMA.names).cast(SCHEMA)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        made.start("a")
        made.start("b", "--join", made.address("a"))
        assert until(lambda: made.all_know(MEMBERS, dict.fromkeys(MEMBERS, "alive")), PATIENCE_S)
        yield made
    finally:
        made.stop_all()


def plain_sort(steps: list[tuple[int, pa.Table]]) -> pa.Table:
    """By identifier, then by step."""
    every = [table.add_column(0, "step", pa.array(np.full(len(table), step))) for step, table in steps]
    return pa.concat_tables(every).sort_by([("id", "ascending"), ("step", "ascending")])


def test_an_unsorted_dump_becomes_the_tracks_of_a_plain_sort(dump: str, group: Group) -> None:
    steps = list(read_steps(dump))
    assert len(steps) == STEPS
    assert any(not np.array_equal(table["id"].to_numpy(), np.sort(table["id"].to_numpy())) for _, table in steps)
    sessions = [group.connect(name) for name in MEMBERS]
    try:
        streams = [session.stream("water", SCHEMA, rows_max=ATOMS, pool=POOL) for session in sessions]
        tickets, sent = [], []  # arrays stay until they are pulled
        for step, table in steps:  # each member's rank has every other atom of the file
            for rank, stream in enumerate(streams):
                sent.append(table.take(np.arange(rank, ATOMS, len(streams))).combine_chunks())
                tickets.append(stream.send(sent[-1], (f"step{step}", f"rank{rank}")))
        for ticket in tickets:
            ticket.wait_stored(PATIENCE_S)
        tracks: offpath.Tracks = sessions[1].tracks("sift:/water")
        tracks.flush(PATIENCE_S)
        expected = plain_sort(steps)
        found = tracks.table().select(expected.column_names)
        assert found.cast(expected.schema).equals(expected)  # they differ in whether there could be nulls
        atom = int(steps[0][1]["id"][0].as_py())
        one = tracks.track(atom)
        assert one["step"].to_pylist() == [step for step, _ in steps]
        assert one["x"].to_pylist() == [table["x"][table["id"].to_pylist().index(atom)].as_py() for _, table in steps]
    finally:
        for session in sessions:
            session.close()
