"""An installation works for other projects: the C library by pkg-config and find_package, the package by pip."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from header_version import header_version, library_headers

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"

PROGRAM = """
#include <offpath/offpath.h>
#include <stdio.h>
int main(void) { return puts(ofp_version()) < 0; }
"""

# A plug-in needs its one header and no library.
PLUGIN = """
#include <offpath/plugin.h>
static int32_t nothing(ofp_context *context) { return OFP_HAS(context, log) ? 0 : 1; }
static const ofp_function functions[] = {{"nothing", nothing, "Does nothing."}};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "nothing", 1, functions};
OFP_PLUGIN_EXPORT const ofp_plugin *offpath_plugin(void) { return &plugin; }
"""

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(offpath 0.1 REQUIRED)
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE offpath::offpath)
"""


def run(*command: str | Path, **environment: str) -> str:
    """The output of a command; if the command fails, the test fails with it."""
    result = subprocess.run(
        [str(word) for word in command], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout.strip()


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert (BUILD / "build.ninja").exists(), "build it first: ./dev build"
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def test_pkg_config(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "consumer.c").write_text(PROGRAM)
    search = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    assert run("pkg-config", "--modversion", "offpath", **search) == header_version()
    flags = run("pkg-config", "--cflags", "--libs", "offpath", **search).split()
    run("cc", "-std=c11", tmp_path / "consumer.c", "-o", tmp_path / "consumer", *flags)
    assert run(tmp_path / "consumer", LD_LIBRARY_PATH=str(prefix / "lib")) == header_version()


def test_find_package(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "consumer.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build/consumer") == header_version()


@pytest.mark.parametrize(("compiler", "standard", "suffix"), [("cc", "c11", "c"), ("c++", "c++11", "cc")])
def test_a_plugin_needs_one_header(prefix: Path, tmp_path: Path, compiler: str, standard: str, suffix: str) -> None:
    source, plugin = tmp_path / f"plugin.{suffix}", tmp_path / "plugin.so"
    source.write_text(PLUGIN)
    strict = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fvisibility=hidden"]
    run(compiler, *strict, "-shared", "-fPIC", f"-I{prefix / 'include'}", source, "-o", plugin)
    assert exported(plugin) == {"offpath_plugin"}
    included = {name for name in re.findall(r"#include <(.*)>", (prefix / "include/offpath/plugin.h").read_text())}
    assert included == {"offpath/plugin.h", "stddef.h", "stdint.h"}  # the first in its example


def exported(file: Path) -> set[str]:
    return {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", file).splitlines()}


def test_programs_have_manual_pages(prefix: Path) -> None:
    pages = {page.name for page in (prefix / "share/man/man1").iterdir()}
    programs = {program.name for program in (prefix / "bin").iterdir()} - {"offpath-worker"}
    assert pages == {f"{program}.1" for program in programs}


def test_what_leaves_the_library_is_what_the_header_declares(prefix: Path) -> None:
    header = re.sub(r"/\*.*?\*/", "", library_headers(prefix / "include"), flags=re.DOTALL)
    declared = set(re.findall(r"OFP_API[^;(]*?\b(ofp_\w+)\(", header))
    assert len(declared) > 40 and declared == exported(library(prefix))
    assert exported(openssl_part(prefix)) == {"ofp_crypto"}
    assert "[liboffpath.so.0]" in run("readelf", "-d", library(prefix))


def test_the_library_needs_little(prefix: Path) -> None:
    """libc, libstdc++ and their own dependencies; OpenSSL only through the module that is loaded on demand."""
    little = {"libc", "libm", "libgcc_s", "libstdc", "ld"}
    assert needed(library(prefix)) <= little
    assert {"libcrypto", "libssl"} <= needed(openssl_part(prefix)) <= little | {"libcrypto", "libssl"}


def test_the_agent_needs_no_arrow_until_it_loads_it(prefix: Path) -> None:
    assert not any("arrow" in name for name in needed(prefix / "bin/offpath-agent"))
    arrow, flight = arrow_parts(prefix)
    assert exported(arrow) == {"ofp_query", "ofp_serialise"} and exported(flight) == {"ofp_flight"}
    assert {"libarrow", "libarrow_compute", "libarrow_acero"} <= needed(arrow)
    assert {name for name in needed(flight) if "arrow" in name} == {"libarrow", "libarrow_flight"}
    for file in (arrow, flight):
        assert "libcrypto" not in needed(file) and "liboffpath" not in needed(file)


def test_the_rpm_spec_names_every_file(prefix: Path) -> None:
    """Apart from files that it installs itself, and those that the build leaves out for it."""
    spec = (ROOT / "packaging/rpm/offpath.spec").read_text().split("%changelog")[0]
    places = {"bindir": "bin", "libdir": "lib", "includedir": "include", "mandir": "share/man"}
    named = [f"{places[place]}/{name}" for place, name in re.findall(r"^%{_(\w+)}/(\S+)$", spec, re.MULTILINE)
             if place in places]  # fmt: skip
    left_out = re.compile(r"lib/python.*|bin/offpath|share/man/man1/offpath\.1|lib/(liboffpath_adios2|offpath\w+)\.so")
    installed = {file.relative_to(prefix).as_posix() for file in prefix.rglob("*") if not file.is_dir()}

    def belongs(file: str, to: str) -> bool:
        return fnmatch.fnmatch(file, to) or file.startswith(f"{to}/")

    unnamed = {file for file in installed if not any(belongs(file, each) for each in named)}
    assert {file for file in unnamed if not left_out.fullmatch(file)} == set()
    assert [each for each in named if not any(belongs(file, each) for file in installed)] == []


def test_nothing_installed_points_into_the_build(prefix: Path) -> None:
    """Programs find libraries relative to their own location, so that the prefix can be moved."""
    for file in [*(prefix / "bin").iterdir(), library(prefix), openssl_part(prefix), *arrow_parts(prefix)]:
        if file.read_bytes()[:4] != b"\x7fELF":
            continue
        for path in re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", run("readelf", "-d", file)):
            assert all(entry.startswith("$ORIGIN") for entry in path.split(":")), f"{file.name}: {path}"


PYARROW = "site-packages/pyarrow"
LAYOUTS = {  # how packages lay out an installation: (options for CMake, the place of libarrow)
    "a prefix": ({}, f"lib/python3.11/{PYARROW}"),
    "an rpm": ({"CMAKE_INSTALL_LIBDIR": "lib64"}, f"lib/python3.11/{PYARROW}"),
    "a Debian package": (
        {"CMAKE_INSTALL_LIBDIR": "lib/x86_64-linux-gnu", "OFFPATH_BUNDLE_ARROW": "ON"}, "lib/offpath"),
    "the wheel of an agent": ({"OFFPATH_BUNDLE_ARROW": "ON"}, "lib/offpath"),
    "a library elsewhere": ({"CMAKE_INSTALL_LIBDIR": "/elsewhere/lib", "OFFPATH_BUNDLE_ARROW": "ON"}, "lib/offpath"),
    "a wheel": ({"SKBUILD": "2", "SKBUILD_PLATLIB_DIR": "site-packages"}, PYARROW),
}  # fmt: skip
SHOWS_LAYOUT = """
include({root}/cmake/OffpathLayout.cmake)
foreach(name IN ITEMS BIN_DIR MODULES_FROM_BIN MODULE_INSTALL_DIR ARROW_RPATH)
  message("${{OFFPATH_${{name}}}}")
endforeach()
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_agent_finds_its_modules_and_these_find_libarrow(layout: str, tmp_path: Path) -> None:
    told, arrow = LAYOUTS[layout]
    (tmp_path / "layout.cmake").write_text(SHOWS_LAYOUT.format(root=ROOT))
    python = {"Python_VERSION_MAJOR": "3", "Python_VERSION_MINOR": "11", "PROJECT_SOURCE_DIR": str(tmp_path)}
    defines = [f"-D{name}={value}" for name, value in (python | told).items()]
    asked = subprocess.run(
        ["cmake", *defines, "-P", tmp_path / "layout.cmake"], capture_output=True, text=True, check=True
    )
    bin_folder, from_bin, modules, rpath = asked.stderr.splitlines()
    assert os.path.normpath(f"{bin_folder}/{from_bin}") == modules
    places = [os.path.normpath(each.replace("$ORIGIN", modules)) for each in rpath.split(";")]
    assert arrow in places


def test_the_library_alone_needs_little(tmp_path: Path) -> None:
    """No Ninja, no Arrow, no GoogleTest; a newer compiler's warnings do not stop the build."""
    run("cmake", "--preset", "sdk", "-S", ROOT, "-B", tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_Arrow=ON",
        "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")  # fmt: skip
    known = (tmp_path / "CMakeCache.txt").read_text()
    assert "CMAKE_GENERATOR:INTERNAL=Unix Makefiles" in known
    assert "OFFPATH_WERROR:BOOL=OFF" in known
    if "OFFPATH_LONG" in os.environ:
        run("cmake", "--build", tmp_path)
        run("cmake", "--install", tmp_path, "--prefix", tmp_path / "prefix")
        test_find_package(tmp_path / "prefix", tmp_path)


@pytest.mark.parametrize(("fmt", "header_only"), [("9.1.0", False), ("12.1.0", True)])
def test_a_later_fmt_is_used_by_its_headers_alone(fmt: str, header_only: bool, tmp_path: Path) -> None:
    """The instantiations in its sources differ from version to version: src/base/format.cc knows one."""
    (tmp_path / "fmt").mkdir()
    (tmp_path / "fmt/fmt-config.cmake").write_text("add_library(fmt::fmt-header-only INTERFACE IMPORTED)\n")
    version = f'set(PACKAGE_VERSION "{fmt}")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n'
    (tmp_path / "fmt/fmt-config-version.cmake").write_text(version)
    build = tmp_path / "build"
    run("cmake", "--preset", "sdk", "-S", ROOT, "-B", build, f"-Dfmt_DIR={tmp_path / 'fmt'}")
    flags = (build / "src/base/CMakeFiles/offpath_base.dir/flags.make").read_text()
    assert ("FMT_HEADER_ONLY" in flags) == header_only


def test_pip_install(tmp_path: Path) -> None:
    """A wheel made only from the sources, in an environment with only the package's requirements."""
    build = ["-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", tmp_path]
    # The compilers by the names that the build tree knows them by: ccache has compiled most of it already.
    run(sys.executable, *build, "--config-settings=cmake.define.OFFPATH_WERROR=ON", ROOT, CC="cc", CXX="c++")
    (wheel,) = tmp_path.glob("offpath-*.whl")
    assert wheel.name.startswith(f"offpath-{header_version()}-")

    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    (site,) = environment.glob("lib/python3.*/site-packages")
    (here,) = Path(sys.prefix).glob("lib/python3.*/site-packages")
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--prefix",
        environment,
        "--ignore-installed",
        wheel,
    )
    # The dependencies are taken from this environment, but not the package itself.
    for entry in here.iterdir():
        if not entry.name.startswith("offpath") and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)

    python = environment / "bin/python"
    program = "import offpath; print(offpath.__file__, offpath.__version__)"
    where, version = run(python, "-P", "-c", program, PYTHONPATH="").split()
    assert Path(where).is_relative_to(environment)
    assert version == header_version()
    assert "agent" in run(environment / "bin/offpath", "--help")
    assert openssl_part(environment).exists()


def needed(file: Path) -> set[str]:
    return set(re.findall(r"NEEDED.*\[(\w+)", run("readelf", "-d", file)))


def library(prefix: Path) -> Path:
    return prefix / "lib" / "liboffpath.so"


def arrow_parts(prefix: Path) -> tuple[Path, Path]:
    """The modules that the agent loads; src/mover/arrow_modules.h has their places."""
    (arrow,), (flight,) = ((prefix / "lib/offpath").glob(f"liboffpath_{name}-*.so") for name in ("arrow", "flight"))
    return arrow, flight


def openssl_part(prefix: Path) -> Path:
    return prefix / "lib" / "liboffpath_openssl.so.0"
