"""The library as another project finds it where it was installed: by pkg-config, from C and from C++."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from agent_process import find_program

BUILD = Path(os.environ.get("OFFPATH_BUILD_DIR", find_program().parents[1]))

pytestmark = pytest.mark.skipif(
    not (BUILD / "cmake_install.cmake").exists() or shutil.which("pkg-config") is None,
    reason="needs a build tree and pkg-config",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("prefix") / "offpath"
    subprocess.run(
        ["cmake", "--install", str(BUILD), "--component", "sdk", "--prefix", str(prefix)],
        check=True,
        capture_output=True,
    )
    return prefix


def flags_of(installed: Path, *kinds: str) -> list[str]:
    (found,) = installed.rglob("offpath.pc")
    asked = subprocess.run(
        ["pkg-config", *kinds, "offpath"],
        check=True, capture_output=True, text=True, env={**os.environ, "PKG_CONFIG_PATH": str(found.parent)},
    )  # fmt: skip
    return asked.stdout.split()


def test_a_program_runs_without_a_path_to_the_library(installed: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "version.c", tmp_path / "version"
    source.write_text("#include <offpath/offpath.h>\n#include <stdio.h>\nint main(void) { puts(ofp_version()); }\n")
    subprocess.run(["cc", source, "-o", program, *flags_of(installed, "--cflags", "--libs")], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    ran = subprocess.run([program], check=True, capture_output=True, text=True, env=environment)
    (found,) = installed.rglob("offpath.pc")
    assert f"Version: {ran.stdout.strip()}" in found.read_text()


def test_the_flags_of_a_prefix_of_the_loader_name_no_run_path(tmp_path: Path) -> None:
    subprocess.run(
        ["cmake", "--install", str(BUILD), "--component", "sdk", "--prefix", "/usr"],
        check=True, capture_output=True, env={**os.environ, "DESTDIR": str(tmp_path)},
    )  # fmt: skip
    (found,) = tmp_path.rglob("offpath.pc")
    assert "rpath" not in found.read_text()


def test_cpp_before_20_is_told_what_it_needs(installed: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text("#include <offpath/stream.hpp>\n")
    check = ["c++", "-fsyntax-only", *flags_of(installed, "--cflags"), source]
    refused = subprocess.run([*check, "-std=c++17"], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "need C++20 (-std=c++20)" in refused.stderr
    subprocess.run([*check, "-std=c++20"], check=True)
