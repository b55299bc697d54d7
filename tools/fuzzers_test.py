"""docs/operate/threat-model.md lists every fuzzer, and every header that declares a parser of outside bytes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Functions that parse bytes or text and can reject them.
PARSER = re.compile(r"(?:Result<[\w:<> ]+>|Status) (?:decode|parse)\w*\((?:Bytes|std::string_view|std::span|Frame)")

ADMINISTRATORS_OWN = "base/config.h"  # toml++ has undefined behaviour of its own; no byte from elsewhere reaches it


def table() -> list[tuple[set[str], set[str]]]:
    """(parsers, fuzzers) of each row."""
    text = (ROOT / "docs/operate/threat-model.md").read_text().split("| input | parser |")[1]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    return [(set(re.findall(r"`([\w/.]+)`", row[2])), set(re.findall(r"`(\w+_fuzz)`", row[3]))) for row in rows]


def built_fuzzers() -> set[str]:
    lists = [path for top in ("src", "tests") for path in (ROOT / top).rglob("CMakeLists.txt")]
    return {name for path in lists for name in re.findall(r"offpath_fuzzer\((\w+)", path.read_text())}


def parsers(text: str) -> list[str]:
    return PARSER.findall(text)


def test_every_fuzzer_is_listed_and_every_one_listed_is_built() -> None:
    assert {name for _, fuzzers in table() for name in fuzzers} == built_fuzzers()


def test_every_parser_is_listed_with_a_fuzzer() -> None:
    listed = {header for headers, _ in table() for header in headers}
    assert [header for header in listed if not (ROOT / "src" / header).exists()] == []
    assert all(headers and fuzzers for headers, fuzzers in table())
    headers = [path for path in (ROOT / "src").rglob("*.h") if parsers(path.read_text())]
    assert len(headers) >= 6
    listed.add(ADMINISTRATORS_OWN)
    assert [str(path) for path in headers if str(path.relative_to(ROOT / "src")) not in listed] == []


def test_a_parser_is_recognised() -> None:
    assert parsers("[[nodiscard]] Result<Hello> decode_hello(Bytes payload);")
    assert parsers("static Result<Address> parse(std::string_view text);")
    assert not parsers("Result<Hello> hello();")
