"""Finding and running the benchmark programs that the build made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import Error
from .report import Report

DESCRIBES = "bench_pool_query"  # is built with all the others, and prints commit and machine
# Other projects' programs, in a checkout: of packages/programs.txt, which `./dev test` unpacks there.
UNPACKED = Path(__file__).resolve().parents[3] / "build" / "programs"
UNPACKED_PLACES = [str(UNPACKED / "usr" / "bin"), str(UNPACKED / "usr" / "sbin")]
UNPACKED_LIBRARIES = next(UNPACKED.glob("usr/lib/*-linux-gnu*"), UNPACKED)


class ProgramError(RuntimeError):
    """A program is missing or failed; the message holds the end of its output."""


def find_program(name: str) -> Path:
    """A built program: of the build in ``OFFPATH_BUILD_DIR``, in this package (a wheel), beside this Python, or on the
    PATH."""
    places = [Path(__file__).resolve().parents[1] / "bin", Path(sys.executable).parent]
    if build := os.environ.get("OFFPATH_BUILD_DIR"):
        places.insert(0, Path(build) / "bin")
    for place in places:
        if os.access(place / name, os.X_OK):
            return place / name
    if found := shutil.which(name):
        return Path(found)
    raise ProgramError(f"{name} is not in {', '.join(map(str, places))}: build with OFFPATH_BENCH=ON")


def find_other_program(name: str) -> str | None:
    """Another project's program: unpacked in this checkout, or on the PATH. It is started with the libraries that were
    unpacked beside it: see `with_unpacked_libraries`."""
    return shutil.which(name, path=os.pathsep.join([*UNPACKED_PLACES, os.environ.get("PATH", ""), "/usr/sbin"]))


def with_unpacked_libraries() -> dict[str, str]:
    """The environment of a program that `find_other_program` found."""
    return {**os.environ, "LD_LIBRARY_PATH": str(UNPACKED_LIBRARIES)}


def check_installed() -> None:
    """Raises Error where the programs of the benchmarks are not installed at all, as beside a wheel."""
    try:
        find_program(DESCRIBES)
    except ProgramError:
        raise Error("offpath bench needs its own programs, which packages and wheels leave out: "
                    "run ./dev bench in a checkout") from None  # fmt: skip


def run_program(
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Report:
    """Runs a benchmark program to its end, behind the words of ``launcher``, and returns its report.

    Raises ProgramError when it is missing or fails. Claims that do not hold are not a failure here.
    """
    program = find_program(name)
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        path = Path(directory) / "report.json"
        done = subprocess.run(
            [*launcher, str(program), *arguments, "--json", str(path)],
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
            raise ProgramError(f"{name} ended with status {done.returncode}: {' / '.join(said)}")
        return Report.parse(path.read_text(encoding="utf-8"))


def empty_report(bench: str) -> Report:
    """With the commit and machine that every program of the benchmarks says."""
    program = str(find_program(DESCRIBES))
    said = subprocess.run([program, "--describe"], capture_output=True, text=True, check=True)
    return replace(Report.parse(said.stdout), bench=bench)


def default_cores() -> tuple[int, int]:
    """The cores for the host program and the agent: the first two this process may use, or one twice."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[min(1, len(cores) - 1)]
