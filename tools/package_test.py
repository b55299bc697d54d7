"""Packages are built from compiled objects, and show their progress."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import building
import pytest
import wheels

ROOT = Path(__file__).resolve().parent.parent
# Whole programs and libraries, not flags.
LEAVES_OUT = {
    "OFFPATH_TESTS",
    "OFFPATH_EXAMPLES",
    "OFFPATH_FORTRAN",
    "OFFPATH_BENCH",
    "OFFPATH_ADIOS2",
    "OFFPATH_LAMMPS",
    "OFFPATH_XDP",
}


def test_a_wheel_is_compiled_with_the_flags_of_the_release_preset() -> None:
    """ccache finds an object only if every flag is the same."""
    presets = {each["name"]: each for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    release = presets["base"]["cacheVariables"] | presets["release"]["cacheVariables"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    wheel = {**project["cmake"]["define"], "CMAKE_BUILD_TYPE": project["cmake"]["build-type"]}
    wheel |= dict(each.split("=", 1) for each in wheels.WHEEL_DEFINES)
    assert {name: value for name, value in wheel.items() if name not in LEAVES_OUT} == release


def test_a_wheel_is_compiled_by_the_names_that_cmake_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """ccache takes a compiler of another name for another one."""
    told: dict[str, str] = {}
    monkeypatch.setattr(wheels, "build_wheel_for", lambda *_, ldpaths, **environment: told.update(environment))
    wheels.build_wheel()
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    assert not any("COMPILER" in name for each in presets if each["name"] in ("base", "release")
                   for name in each["cacheVariables"])  # fmt: skip
    assert told == {"CC": "cc", "CXX": "c++"}  # CMake's first choices


def test_sources_that_git_does_not_list_are_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an archive of the sources, or where the clone belongs to another user."""
    monkeypatch.setattr(building, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(building.PackageError, match="not a git repository"):
        building.copy_sources(tmp_path / "to")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(building.PackageError, match=r"git .* install it"):
        building.copy_sources(tmp_path / "to")


def built(tmp_path: Path, code: str) -> None:
    building.run_building(tmp_path / "logs/build.log", sys.executable, "-c", code)


def test_a_build_shows_how_far_it_is_and_keeps_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "SHOWN_SECONDS", 0.0)
    built(tmp_path, "print('configured'); print('  [1/2] Building a'); print('[2/2] Linking b')")
    assert capsys.readouterr().out.splitlines()[-2:] == ["1 of 2", "2 of 2"]
    assert (tmp_path / "logs/build.log").read_text() == "configured\n  [1/2] Building a\n[2/2] Linking b\n"


def test_a_build_that_fails_shows_the_end_of_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(building.PackageError, match=r"exit status 3.*build\.log"):
        built(tmp_path, "print('\\n'.join(map(str, range(100)))); raise SystemExit(3)")
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "99" and len(said) == building.LOG_LINES_SHOWN
