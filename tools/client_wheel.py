"""The wheel of the client alone, without an agent, for glibc 2.28 and later.

No libarrow is in it or wanted by it, so it needs no compiler of this machine: the one of the PyPI package ziglang
compiles for an older glibc, and links the C++ library in. Its headers are its own. Of this machine's come only those
of the libraries that are used by their headers, and Python's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from building import FOLDER, ROOT, PackageError, copy_sources, run, run_building, version

GLIBC = "2.28"
TARGET = f"x86_64-linux-gnu.{GLIBC}"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}_x86_64"

# The parts of the library for programs, and of what is compiled for Python.
FOLDERS = "src/base;src/wire;src/link;src/channel;src/frame;src/telemetry/host_sampler;src/host;python"
TARGETS = ("offpath", "offpath_openssl_module", "_native", "man")
COMPONENTS = ("sdk", "python")

# Libraries of which only headers are used, and OpenSSL, which is loaded when it is needed.
HEADERS = ("fmt", "tl", "toml++", "flatbuffers", "infiniband", "rdma")
SYSTEM_HEADERS = Path("/usr/include")
MULTIARCH = "x86_64-linux-gnu"

# pyproject.toml says what the whole package needs; in the client's, these lines read otherwise.
CHANGES = {
    r'requires = \[.*\]': 'requires = ["scikit-build-core>=1.1", "nanobind>=3.1"]',
    r'dependencies = \["pyarrow.*\]': 'dependencies = ["pyarrow>=16", "numpy>=1.26"]',
    r'offpath-agent = .*\n': "",
}  # fmt: skip


def tool(folder: Path, name: str, command: str) -> Path:
    """A program of zig's, under a name that CMake and ccache take for a compiler."""
    made = folder / name
    made.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    made.chmod(0o755)
    return made


def make_headers(folder: Path) -> Path:
    """A folder of links to the headers of libraries, without those of this machine's libc."""
    (folder / "openssl").mkdir(parents=True)
    for name in HEADERS:
        (folder / name).symlink_to(SYSTEM_HEADERS / name)
    for place in (SYSTEM_HEADERS / "openssl", SYSTEM_HEADERS / MULTIARCH / "openssl"):
        for header in place.glob("*.h"):
            (folder / "openssl" / header.name).symlink_to(header)
    if (SYSTEM_HEADERS / MULTIARCH).is_dir():  # Debian's pyconfig.h is there
        python = f"python{sysconfig.get_python_version()}"
        (folder / MULTIARCH).mkdir()
        (folder / MULTIARCH / python).symlink_to(SYSTEM_HEADERS / MULTIARCH / python)
    return folder


def make_sources(folder: Path) -> None:
    copy_sources(folder)
    project = folder / "pyproject.toml"
    text = project.read_text()
    for pattern, replacement in CHANGES.items():
        text, count = re.subn(pattern, replacement, text, count=1)
        if count != 1:
            raise PackageError(f"pyproject.toml has no line that matches {pattern}")
    project.write_text(text)


def settings(zig: Path, scratch: Path) -> list[str]:
    """What scikit-build-core and CMake are told."""
    tools = scratch / "tools"
    tools.mkdir(parents=True)
    headers = make_headers(scratch / "include")
    compile_flags = f"-isystem {headers} -fno-sanitize=undefined"
    after_project = tools / "after_project.cmake"
    # CMake gives no -I for what the compiler searches anyway: so this machine's libc stays out.
    # Where Debian's CMake files of libraries are is known to its own compilers alone.
    after_project.write_text("".join([
        *(f"list(APPEND CMAKE_{each}_IMPLICIT_INCLUDE_DIRECTORIES {SYSTEM_HEADERS})\n" for each in ("C", "CXX")),
        f"set(CMAKE_LIBRARY_ARCHITECTURE {MULTIARCH})\n",
        # CMake asks this machine's linker whether it knows --push-state; zig's does not.
        "set(CMAKE_LINK_LIBRARY_USING_WHOLE_ARCHIVE LINKER:--whole-archive <LINK_ITEM> LINKER:--no-whole-archive)\n",
    ]))  # fmt: skip
    defines = {
        "CMAKE_C_COMPILER": tool(tools, "zig-cc", f"{zig} cc -target {TARGET}"),
        "CMAKE_CXX_COMPILER": tool(tools, "zig-c++", f"{zig} c++ -target {TARGET}"),
        "CMAKE_AR": tool(tools, "zig-ar", f"{zig} ar"),
        "CMAKE_RANLIB": tool(tools, "zig-ranlib", f"{zig} ranlib"),
        "CMAKE_C_FLAGS": compile_flags,
        "CMAKE_CXX_FLAGS": compile_flags,
        # OpenSSL wants symbols of a newer glibc, which the machine that has it has as well.
        "CMAKE_SHARED_LINKER_FLAGS": "-Wl,--allow-shlib-undefined",
        "CMAKE_MODULE_LINKER_FLAGS": "-Wl,--allow-shlib-undefined",
        "CMAKE_PROJECT_INCLUDE": after_project,
        "OFFPATH_FOLDERS": FOLDERS,
        "OFFPATH_ARROW": "off",
        "OFFPATH_VERBS": "on",
        "OFFPATH_BENCH": "OFF",
    }
    return [
        f"build-dir={scratch / 'build'}",
        *(f"cmake.define.{name}={value}" for name, value in defines.items()),
        "wheel.py-api=cp312",  # nothing for an older Python, whose wheel is for it alone
        f"build.targets={';'.join(TARGETS)}",
        f"install.components={';'.join(COMPONENTS)}",
    ]


def build_client(zig: Path, auditwheel: Path, excluded: tuple[str, ...]) -> None:
    """Makes build/package/client/offpath-VERSION-…-manylinux_2_28_….whl with this Python."""
    scratch, result = FOLDER / "client-build", FOLDER / "client"
    for folder in (scratch, result):
        shutil.rmtree(folder, ignore_errors=True)
    make_sources(scratch / "sources")
    run_building(
        ROOT / "build/logs/package-client.log", sys.executable, "-m", "pip", "wheel", "--verbose",
        "--no-build-isolation", "--no-deps", "--wheel-dir", scratch / "plain",
        *(f"--config-settings={setting}" for setting in settings(zig, scratch)), scratch / "sources",
        CCACHE_COMPILERTYPE="clang",
    )  # fmt: skip
    (wheel,) = (scratch / "plain").glob(f"offpath-{version()}-*.whl")
    run(auditwheel, "repair", "--plat", PLATFORM, "--only-plat",
        *(word for pattern in excluded for word in ("--exclude", pattern)), "--wheel-dir", result, wheel,
        PATH=f"{auditwheel.parent}:{os.environ['PATH']}")  # fmt: skip
