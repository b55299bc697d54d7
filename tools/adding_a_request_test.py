"""Follows the section "Adding a request" of docs/internals/hacking.md word by word: it is complete."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/internals/hacking.md"
STEP = re.compile(
    r"In\s+`(?P<path>[^`]+)`,\s+(?P<where>above|below)\s+`(?P<anchor>[^`]+)`:\n\n"
    r"<!-- [^\n]* -->\n```cpp\n(?P<code>.*?)```",
    re.DOTALL,
)
# The sources for the step's test. Each compiles on its own, so nothing of the agent is built.
SOURCES = (
    "src/base/format.cc",
    "src/base/hash/siphash.c",
    "src/base/status.cc",
    "src/service/effects.cc",
    "src/service/request_table.cc",
    "src/telemetry/gauges.cc",
    "src/telemetry/gauges_test.cc",
    "src/telemetry/sample.cc",
    "src/telemetry/schema.cc",
    "src/wire/messages/exchange_messages.cc",
    "src/wire/messages/peer_messages.cc",
    "src/wire/messages/pool_messages.cc",
)


def section() -> str:
    return PAGE.read_text(encoding="utf-8").partition("## Adding a request\n")[2].partition("\n## ")[0]


def follow(checkout: Path, step: re.Match[str]) -> None:
    """Inserts a step's lines above or below the only line of its file with the anchor."""
    file = checkout / step["path"]
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if step["anchor"] in line]
    assert len(found) == 1, f"{step['path']} has {len(found)} lines with {step['anchor']!r}, not 1"
    at = found[0] + (step["where"] == "below")
    file.write_text("".join([*lines[:at], step["code"], *lines[at:]]), encoding="utf-8")


def test_the_page_adds_a_request_that_is_served(tmp_path: Path) -> None:
    for folder in ("src", "include"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*_corpus"))
    steps = list(STEP.finditer(section()))
    assert len(steps) == section().count("```cpp") >= 9, "a step that names no file and line"
    assert not any(step["path"].startswith("src/service/dispatcher") for step in steps)
    for step in steps:
        follow(tmp_path, step)
    unity = tmp_path / "request.cc"  # one compilation: most of the time goes to headers
    unity.write_text("".join(f'#include "{tmp_path}/{source}"\n' for source in SOURCES), encoding="utf-8")
    program = tmp_path / "request_test"
    flags = ["-std=c++20", "-O0", "-Wall", f"-I{tmp_path}/src", f"-I{tmp_path}/include"]
    command = ["c++", *flags, str(unity), "-o", str(program), "-lgtest_main", "-lgtest", "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-4000:]
    ran = subprocess.run([program, "--gtest_filter=Gauges.*"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "[       OK ] Gauges.AreKnownToTheProgramThatOpenedThem" in ran.stdout
