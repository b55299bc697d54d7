"""The modules that an installed agent loads on demand: two files of its own build, in a place that the program
knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

TABLES = {"arrow": {"ofp_query", "ofp_serialise"}, "flight": {"ofp_flight"}}
NEEDED = {"arrow": {"libarrow", "libarrow_compute", "libarrow_acero"}, "flight": {"libarrow", "libarrow_flight"}}


def told(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def check_modules(program: Path, folder: Path, libraries: Path | None = None, nm: str = "nm") -> None:
    """`program`: the agent; `folder`: where the package has its modules; `libraries`: where it has libarrow (None: in a
    folder of the system); `nm`: the program that reads this processor's symbols."""
    modules = {file.name.split("-")[0]: file for file in folder.glob("liboffpath_*-*.so")}
    assert modules.keys() == {f"liboffpath_{each}" for each in TABLES}, modules
    (build,) = {file.stem.rpartition("-")[2] for file in modules.values()}
    assert build.encode() in program.read_bytes()
    place = re.search(rb"\.\./lib(64)?/offpath\0", program.read_bytes())  # where it looks, from its own folder
    assert place and (program.parent / place[0][:-1].decode()).resolve() == folder.resolve()
    for name, tables in TABLES.items():
        file = modules[f"liboffpath_{name}"]
        assert file.stat().st_mode & 0o7022 == 0, f"{file} has mode {file.stat().st_mode:o}"
        defined = told(nm, "-D", "--defined-only", file).splitlines()
        assert {line.split()[-1].partition("@")[0] for line in defined} == tables
        dynamic = told("readelf", "-d", file)
        arrow = set(re.findall(r"NEEDED.*\[((libarrow\w*)\.so\.\d+)\]", dynamic))
        assert {stem for _, stem in arrow} == NEEDED[name]
        found = re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", dynamic)
        if libraries is None:
            assert found == []
            continue
        assert ".symtab" not in told("readelf", "-W", "--sections", file), f"{file} is not stripped"
        path = found[0].split(":")
        assert all(each.startswith("$ORIGIN") for each in path), path
        assert libraries.resolve() in {Path(each.replace("$ORIGIN", str(folder))).resolve() for each in path}, path
        assert [each for each, _ in arrow if not (libraries / each).exists()] == []
