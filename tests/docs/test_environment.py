"""docs/reference/environment.md has every variable of the environment that the sources read, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

from page_blocks import ROOT

PAGE = ROOT / "docs/reference/environment.md"
ENDINGS = {".c", ".cc", ".h", ".hpp", ".py", ".sh", ""}
FOLDERS = ("src", "include", "integrations", "python", "bench", "packaging/slurm", "tests", "tools", "dev")

# A name in quotes, of those that Offpath, launchers, Slurm, the XDG specification and OpenTelemetry have.
NAMED = re.compile(r'"((?:OFFPATH|OTEL|OMPI|PMIX?|SLURM|MPI|XDG)_[A-Z0-9_]+)=?"')
# Any name that is read.
READ = re.compile(
    r'(?:getenv\(|environ\.(?:get|pop)\()\s*"([A-Z][A-Z0-9_]+)"|"([A-Z][A-Z0-9_]+)" (?:not )?in os\.environ'
)
SHELL = re.compile(r"\$\{?((?:OFFPATH|SLURM)[A-Z0-9_]+)")

# Every program has these; the others are set by tests for programs of their own, or are exporters' variables that
# Offpath ignores.
COMMON = {"PATH", "PYTHONPATH", "ASAN_OPTIONS", "JAVA_HOME"}
OF_TESTS = {"OFFPATH_TEST_SECRET", "OFFPATH_FAILING_CALLS", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "FAMILY"}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        place = ROOT / folder
        yield from [place] if place.is_file() else [each for each in place.rglob("*") if each.suffix in ENDINGS]


def in_sources() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sources():
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".sh" or path.name == "dev":
            names = SHELL.findall(text)
        else:
            names = [name for pair in READ.findall(text) for name in pair if name]
            if not path.is_relative_to(ROOT / "tools"):  # whose other names are options of CMake
                names += NAMED.findall(text)
        found |= dict.fromkeys(names, path)
    return {name: path for name, path in found.items() if name not in COMMON | OF_TESTS}


def on_the_page() -> set[str]:
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_page_has_every_variable_that_is_read():
    listed = on_the_page()
    assert {name: str(path) for name, path in in_sources().items() if name not in listed} == {}


def test_every_variable_of_the_page_is_read():
    assert on_the_page() - in_sources().keys() == set()
