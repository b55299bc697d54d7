"""The wheel of the agent alone, offpath-agent: its programs with a libarrow of their own, for any Python.

The libarrow is a copy of the one in pyarrow, as in the Debian package, and the wheel serves the systems that this
libarrow does. older_system.py says how.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import wheel_notices
from building import FOLDER, ROOT, PackageError, run, run_building, version
from client_wheel import Machine, repair
from older_system import linker_flags, make_glibc, make_libraries

NAME = "offpath_agent"
PACKAGE = ROOT / "python" / NAME
LICENSES = [ROOT / "LICENSE", ROOT / "NOTICE"]
# The other files of an installed prefix, and their places in the package. All lie beside libarrow, where the programs
# look, except for the library that other programs preload.
LIBRARIES = {
    "lib/offpath/libarrow*.so.*": "lib/offpath",
    "lib/offpath/liboffpath_arrow-*.so": "lib/offpath",
    "lib/offpath/liboffpath_flight-*.so": "lib/offpath",
    "lib/liboffpath.so.0": "lib/offpath",
    "lib/liboffpath_openssl.so.0": "lib/offpath",
    "lib/liboffpath_sockets.so": "lib",
}
DEFINES = {"CMAKE_BUILD_TYPE": "Release", "OFFPATH_ARROW": "wheel", "OFFPATH_BUNDLE_ARROW": "ON", "OFFPATH_VERBS": "on",
           "OFFPATH_PYTHON": "OFF", "Python_EXECUTABLE": sys.executable}  # fmt: skip
TOOLCHAIN = ROOT / "cmake" / "aarch64.cmake"


def tag(machine: Machine) -> str:
    return f"py3-none-linux_{machine.processor}"


def metadata() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    fields = {
        "Metadata-Version": "2.4",
        "Name": NAME.replace("_", "-"),
        "Version": version(),
        "Summary": f"{project['description']}: the agent",
        "License-Expression": project["license"],
        "Requires-Python": ">=3.10",
    }
    files = [("License-File", each.name) for each in LICENSES]
    return "".join(f"{name}: {value}\n" for name, value in [*fields.items(), *files])


def files_of(prefix: Path) -> Iterator[tuple[str, Path]]:
    """(its name in the wheel, file) of the files installed below the prefix, and of the package's own sources."""
    for source in sorted(PACKAGE.glob("*.py")):
        yield f"{NAME}/{source.name}", source
    for program in sorted((prefix / "bin").iterdir()):
        yield f"{NAME}/bin/{program.name}", program
    for pattern, place in LIBRARIES.items():
        found = sorted(prefix.glob(pattern))
        if not found:
            raise PackageError(f"nothing was installed as {pattern}")
        for library in found:
            yield f"{NAME}/{place}/{library.name}", library


def licenses() -> Iterator[tuple[str, Path]]:
    """Those of Offpath, of the libarrow that is copied, and of the other libraries that come along."""
    import pyarrow

    (arrow,) = Path(pyarrow.__file__).parents[1].glob("pyarrow-*.dist-info")
    for each in LICENSES:
        yield each.name, each
    for each in ("LICENSE.txt", "NOTICE.txt"):
        yield f"arrow/{each}", arrow / "licenses" / each
    yield from wheel_notices.of_debian(wheel_notices.IN_THE_AGENT)


def write_wheel(prefix: Path, folder: Path, machine: Machine) -> Path:
    """The wheel of an installed prefix, as pip reads it."""
    info = f"{NAME}-{version()}.dist-info"
    texts = {
        "METADATA": metadata(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: offpath\nRoot-Is-Purelib: false\nTag: {tag(machine)}\n",
        "entry_points.txt": f"[console_scripts]\noffpath-agent = {NAME}:main\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{NAME}-{version()}-{tag(machine)}.whl"
    record = ""
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as made:

        def add(name: str, data: bytes, mode: int) -> None:
            nonlocal record
            made.writestr(wheel_notices.entry(name, mode), data)
            record += wheel_notices.record_line(name, data)

        for name, file in files_of(prefix):
            add(name, file.read_bytes(), file.stat().st_mode & 0o777)
        for name, file in licenses():
            add(f"{info}/licenses/{name}", file.read_bytes(), 0o644)
        for name, text in texts.items():
            add(f"{info}/{name}", text.encode(), 0o644)
        add(f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644)
    return wheel


def settings_for(machine: Machine, glibc: Path, libraries: Path, left_out: tuple[str, ...]) -> dict[str, str | Path]:
    """The options for CMake."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["cmake"]["define"]
    settings: dict[str, str | Path] = {**project, **DEFINES, **dict(each.split("=") for each in left_out)}
    settings |= {f"CMAKE_{kind}_LINKER_FLAGS": linker_flags(glibc) for kind in ("EXE", "SHARED", "MODULE")}
    settings |= {f"{name}_LIBRARY": libraries / f"lib{name.lower()}.a" for name in ("LZ4", "ZSTD")}
    settings["httplib_DIR"] = libraries
    return settings if machine.is_host else settings | {"CMAKE_TOOLCHAIN_FILE": TOOLCHAIN}


def build_agent(
    machine: Machine, folder: str, zig: Path, auditwheel: Path, excluded: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    """Makes build/package/FOLDER/offpath_agent-VERSION-py3-none-manylinux_2_28_….whl."""
    scratch, result = FOLDER / f"{folder}-build", FOLDER / folder
    for old in (scratch, result):
        shutil.rmtree(old, ignore_errors=True)
    glibc, libraries = make_glibc(zig, machine, scratch), make_libraries(machine, scratch)
    settings = settings_for(machine, glibc, libraries, left_out)
    build, prefix = ROOT / f"build/{folder}-wheel", scratch / "prefix"
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, "--fresh",
        *(f"-D{name}={value}" for name, value in settings.items()))  # fmt: skip
    run_building(ROOT / f"build/logs/package-{folder}.log", "cmake", "--build", build)
    for component in ("programs", "sdk"):
        run("cmake", "--install", build, "--prefix", prefix, "--component", component, "--strip")
    repair(write_wheel(prefix, scratch, machine), machine, result, auditwheel, excluded, machine.libraries)
