#!/usr/bin/env python3
"""Formats C, C++ and Python according to .clang-format and pyproject.toml (`./dev format`).

Usage: tools/format.py [--check]. With --check it changes nothing, prints unformatted files, and exits 1 if there are
any. Lines have at most 120 columns: those of code, with its comments, which clang-format does not change, and those
of the documentation, of CMake files, of Fortran and of shell scripts. Rows of tables in Markdown cannot be broken and
may be longer.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
C_SUFFIXES = ("*.c", "*.cc", "*.h", "*.hpp", "*.inc")
TEXTS = ("docs/*.md", "*.md", "*CMakeLists.txt", "*.cmake", "*.cmake.in", "*.f90", "*.sh", "dev")
GENERATED = {"docs/reference/configuration.md"}  # by offpath-agent --config-reference
HISTORIES = "bench/results/"  # raw runs
COLUMNS_MAX = 120


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [file for file in listed.stdout.split("\0") if file and (ROOT / file).is_file()]


def long_lines(files: list[str]) -> list[str]:
    """`file:line: length` of each line that is too long, apart from rows of tables."""
    return [
        f"{file}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"
        for file in files
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > COLUMNS_MAX and not (file.endswith(".md") and line.lstrip().startswith("|"))
    ]


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    sources = tracked(*C_SUFFIXES)
    how = ["--dry-run", "--Werror", "--ferror-limit=1"] if check else ["-i"]
    formatted = [
        subprocess.run(["clang-format", *how, *sources], cwd=ROOT),
        subprocess.run(["ruff", "format", "--quiet", *(["--check"] if check else []), "."], cwd=ROOT),
    ]
    texts = [file for file in tracked(*TEXTS) if file not in GENERATED and not file.startswith(HISTORIES)]
    too_long = long_lines([*sources, *tracked("*.py"), *texts])
    print("\n".join(too_long), end="\n" if too_long else "")
    if check and any(run.returncode for run in formatted):
        print("run ./dev format", file=sys.stderr)
    return int(bool(too_long) or any(run.returncode for run in formatted))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
