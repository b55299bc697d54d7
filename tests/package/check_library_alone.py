"""The parts for programs, without the agent: built as the Spack recipe's ~agent builds it, and installed.

Run by `./dev test --long` (tools/suite.py).
"""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "packaging" / "spack" / "package.py"


def folders_without_agent() -> list[str]:
    """The recipe's first list of folders."""
    lists = [node for node in ast.walk(ast.parse(RECIPE.read_text())) if isinstance(node, ast.List) and node.elts]
    folders: list[str] = next(each for each in map(ast.literal_eval, lists[:1]))
    return folders


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_the_library_and_the_samplers_are_built_without_an_agent(tmp_path: Path) -> None:
    off = [f"-DOFFPATH_{part}=OFF" for part in ("TESTS", "BENCH", "EXAMPLES", "PYTHON", "FORTRAN")]
    build, installed = tmp_path / "build", tmp_path / "installed"
    folders = f"-DOFFPATH_FOLDERS={';'.join(folders_without_agent())}"
    rpath = f"-DCMAKE_INSTALL_RPATH={installed}/lib;{installed}/lib64"  # as Spack says
    options = ["-DCMAKE_BUILD_TYPE=Release", folders, "-DOFFPATH_ARROW=off", rpath, *off]
    run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON", *options)
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", installed)
    programs = {path.name for path in (installed / "bin").iterdir()}
    assert programs == {"offpath-sampler", "offpath-region-sampler"}
    for program in programs:
        assert run(installed / "bin" / program, "--help").startswith(f"usage: {program} ")
    assert list(installed.rglob("liboffpath.so")) and (installed / "include/offpath/offpath.h").exists()

    # A program finds it by CMake's and by pkg-config's files, which say where the library went.
    (pkgconfig,) = installed.rglob("offpath.pc")
    flags = run("env", f"PKG_CONFIG_PATH={pkgconfig.parent}", "pkg-config", "--cflags", "--libs", "offpath").split()
    run("cc", "-o", tmp_path / "program", ROOT / "examples/01_c/particles.c", *flags)
