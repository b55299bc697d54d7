"""Wheels of the client alone, without an agent, for glibc 2.28 and later.

No libarrow is in them or wanted by them, so they need no compiler of this machine: the one of the PyPI package ziglang
compiles for an older glibc and for other processors, and links the C++ library in. Its headers are its own. Of a
system's come only those of libraries, and Python's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import wheel_notices
from building import FOLDER, ROOT, PackageError, copy_sources, run, run_building, version
from debian_packages import listed
from pythons import Python, builders, installed

GLIBC = "2.28"
HOST = os.uname().machine
HOST_TRIPLET = f"{HOST}-linux-gnu"
BUILD_PACKAGES, TOOLS = ROOT / "packages" / "client.txt", ROOT / "packages" / "wheel.txt"

# The parts of the library for programs, and of the extension for Python.
FOLDERS = "src/base;src/wire;src/link;src/channel;src/frame;src/telemetry/host_sampler;src/host;python"
TARGETS = ("offpath", "offpath_openssl_module", "_native", "man/offpath.1")
COMPONENTS = ("sdk", "python")

# Libraries of which only headers are used, and OpenSSL, which is loaded when it is needed.
HEADERS = ("fmt", "tl", "toml++", "flatbuffers", "infiniband", "rdma")
SYSTEM_HEADERS = Path("/usr/include")

# pyproject.toml has the requirements of the whole package; the client's has these lines instead.
CHANGES = {
    r'requires = \[.*\]': 'requires = ["scikit-build-core>=1.1", "nanobind>=3.1"]',
    r'requires-python = ".*"': 'requires-python = ">=3.10"',
    r'dependencies = \["pyarrow.*\]': 'dependencies = ["pyarrow>=16", "numpy>=1.26"]',
    r'offpath-agent = .*\n': "",
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """The target of a wheel: a processor, as wheels name it, and the root of a system with libraries for it."""

    processor: str
    root: Path

    @property
    def triplet(self) -> str:
        return f"{self.processor}-linux-gnu"

    @property
    def target(self) -> str:
        return f"{self.triplet}.{GLIBC}"

    @property
    def platform(self) -> str:
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.processor}"

    @property
    def is_host(self) -> bool:
        return self.processor == HOST

    @property
    def libraries(self) -> Path:
        return self.root / "usr/lib" / self.triplet

    def tool(self, name: str) -> str:
        """A program of GCC or binutils for it, of Debian's packages."""
        return name if self.is_host else f"{self.triplet}-{name}"

    def compiler(self, name: str) -> list[str]:
        return [self.tool(name)] if self.is_host else [self.tool(name), f"--sysroot={self.root}"]


def tool(folder: Path, name: str, command: str) -> Path:
    """A program of zig's, under a name that CMake and ccache take for a compiler."""
    made = folder / name
    made.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    made.chmod(0o755)
    return made


def make_headers(machine: Machine, folder: Path) -> Path:
    """A folder of links to the headers of libraries, without those of the system's libc."""
    (folder / "openssl").mkdir(parents=True)
    theirs = machine.root / SYSTEM_HEADERS.relative_to("/")
    for name in HEADERS:
        (folder / name).symlink_to(SYSTEM_HEADERS / name)
    for place in (theirs / "openssl", theirs / machine.triplet / "openssl"):
        for header in place.glob("*.h"):
            (folder / "openssl" / header.name).symlink_to(header)
    for python in (theirs / machine.triplet).glob("python3.*"):  # Debian's pyconfig.h is there
        (folder / machine.triplet).mkdir(exist_ok=True)
        (folder / machine.triplet / python.name).symlink_to(python)
    return folder


def headers_of(python: Python, machine: Machine) -> Path:
    """Those of the system for its Python; of others the machine's own, which name no processor of 64 bits."""
    system = f"/usr/include/python{python.version[0]}.{python.version[1]}"
    return machine.root / system[1:] if str(python.headers) == system else python.headers


def changed(project: str) -> str:
    """pyproject.toml for the client."""
    for pattern, replacement in CHANGES.items():
        project, count = re.subn(pattern, replacement, project, count=1)
        if count != 1:
            raise PackageError(f"pyproject.toml has no line that matches {pattern}")
    return project


def make_sources(folder: Path) -> None:
    copy_sources(folder)
    project = folder / "pyproject.toml"
    project.write_text(changed(project.read_text()))


def compiler_settings(machine: Machine, zig: Path, scratch: Path) -> dict[str, str | Path]:
    """The options for CMake, for every Python. Makes the folders in them."""
    tools = scratch / "tools"
    tools.mkdir(parents=True)
    compile_flags = f"-isystem {make_headers(machine, scratch / 'include')} -fno-sanitize=undefined"
    after_project = tools / "after_project.cmake"
    # CMake gives no -I for the compiler's own directories, so this machine's libc stays out. Only Debian's own
    # compilers know the place of Debian's CMake files.
    after_project.write_text("".join([
        *(f"list(APPEND CMAKE_{each}_IMPLICIT_INCLUDE_DIRECTORIES {SYSTEM_HEADERS})\n" for each in ("C", "CXX")),
        f"set(CMAKE_LIBRARY_ARCHITECTURE {HOST_TRIPLET})\n",
        # CMake asks this machine's linker whether it knows --push-state; zig's does not.
        "set(CMAKE_LINK_LIBRARY_USING_WHOLE_ARCHIVE LINKER:--whole-archive <LINK_ITEM> LINKER:--no-whole-archive)\n",
    ]))  # fmt: skip
    defines: dict[str, str | Path] = {
        "CMAKE_C_COMPILER": tool(tools, "zig-cc", f"{zig} cc -target {machine.target}"),
        "CMAKE_CXX_COMPILER": tool(tools, "zig-c++", f"{zig} c++ -target {machine.target}"),
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
        "OFFPATH_MAN_PYTHON": sys.executable,
    }
    if not machine.is_host:
        defines |= {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": machine.processor,
            "OPENSSL_INCLUDE_DIR": SYSTEM_HEADERS,
            "OPENSSL_CRYPTO_LIBRARY": machine.libraries / "libcrypto.so",
            "OPENSSL_SSL_LIBRARY": machine.libraries / "libssl.so",
        }
    return defines


def environment_of(python: Python) -> Path:
    """A Python of this version with the requirements of scikit-build-core."""
    if python.version == sys.version_info[:2]:
        return Path(sys.executable)
    place = FOLDER / f"python{python.version[0]}.{python.version[1]}"
    stamp, wanted = place / "offpath-stamp", f"{python.program}\n{BUILD_PACKAGES.read_text()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        run(python.program, "-m", "venv", place)
        run(place / "bin/python", "-m", "pip", "install", "--quiet", "pip>=22.1", "-r", BUILD_PACKAGES)
        stamp.write_text(wanted)
    return place / "bin/python"


def environment_for(machine: Machine, python: Python) -> dict[str, str]:
    """The environment for scikit-build-core and ccache."""
    zig = next(line for line in listed(TOOLS) if line.startswith("ziglang=="))
    environment = {"CCACHE_COMPILERTYPE": "clang", "CCACHE_COMPILERCHECK": f"string:{zig} {machine.target}"}
    if not machine.is_host:  # the values that Python's own configuration would have there
        environment["_PYTHON_HOST_PLATFORM"] = f"linux-{machine.processor}"
        environment["SETUPTOOLS_EXT_SUFFIX"] = f".cpython-{''.join(map(str, python.version))}-{machine.triplet}.so"
    return environment


def repair(
    wheel: Path,
    machine: Machine,
    result: Path,
    auditwheel: Path,
    excluded: tuple[str, ...],
    libraries: Path | None = None,
) -> Path:
    """The same wheel in `result`, with its platform and the libraries that it brings (from `libraries`, if given)."""
    # auditwheel has no platform names for other processors; the one that it finds has to be this one.
    places = [] if machine.is_host or libraries is None else ["--ldpaths", libraries]
    run(auditwheel, "repair", "--plat", machine.platform if machine.is_host else "auto", "--only-plat", *places,
        *(word for pattern in excluded for word in ("--exclude", pattern)), "--wheel-dir", result, wheel,
        PATH=f"{auditwheel.parent}:{os.environ['PATH']}")  # fmt: skip
    name, release, *tags = wheel.stem.split("-")
    repaired = result / f"{name}-{release}-{tags[0]}-{tags[1]}-{machine.platform}.whl"
    if not repaired.exists():
        raise PackageError(f"auditwheel does not take {wheel.name} for {machine.platform}")
    return repaired


def build_client(machine: Machine, folder: str, zig: Path, auditwheel: Path, excluded: tuple[str, ...]) -> None:
    """Makes build/package/FOLDER/offpath-VERSION-PYTHON-ABI-manylinux_2_28_….whl for every Python there is."""
    scratch, result = FOLDER / f"{folder}-build", FOLDER / folder
    pythons = builders(installed())
    if not pythons:
        raise PackageError("there is no Python from 3.10 on with its headers and venv; OFFPATH_PYTHONS names others")
    for tags in {"cp310-cp310", "cp311-cp311", "cp312-abi3"} - {each.tags for each in pythons}:
        print(f"no wheel {tags}: there is no such Python with its headers and venv (OFFPATH_PYTHONS)", flush=True)
    for old in (scratch, result):
        shutil.rmtree(old, ignore_errors=True)
    make_sources(scratch / "sources")
    defines = compiler_settings(machine, zig, scratch)
    for python in pythons:
        # In one folder by turns: Ninja then recompiles only files that differ between Pythons.
        (scratch / "build/CMakeCache.txt").unlink(missing_ok=True)
        own = {} if machine.is_host else {"Python_INCLUDE_DIR": headers_of(python, machine)}
        settings = [
            f"build-dir={scratch / 'build'}",
            *(f"cmake.define.{name}={value}" for name, value in (defines | own).items()),
            "wheel.py-api=cp312",  # nothing for an older Python, whose wheel is for it alone
            f"build.targets={';'.join(TARGETS)}",
            f"install.components={';'.join(COMPONENTS)}",
        ]
        plain = scratch / "plain" / python.tags
        run_building(
            ROOT / f"build/logs/package-{folder}-{python.tags}.log", environment_of(python), "-m", "pip", "wheel",
            "--verbose", "--no-build-isolation", "--no-deps", "--wheel-dir", plain,
            *(f"--config-settings={setting}" for setting in settings), scratch / "sources",
            **environment_for(machine, python),
        )  # fmt: skip
        (wheel,) = plain.glob(f"offpath-{version()}-{python.tags}-*.whl")
        repaired = repair(wheel, machine, result, auditwheel, excluded)
        wheel_notices.add(repaired, wheel_notices.of_client())
