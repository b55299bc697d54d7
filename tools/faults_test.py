"""docs/operate/faults.md names tests that exist, and error codes by their names in the C header."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = (ROOT / "docs/operate/faults.md").read_text()


def proofs() -> dict[str, list[str]]:
    """Each fault of the table and the tests beside it."""
    rows = [line.split("|") for line in TABLE.splitlines() if line.startswith("| ")]
    return {row[1].strip(): re.findall(r"`([^`]+)`", row[3]) for row in rows[1:]}


def exists(test: str) -> bool:
    if "::" in test:
        file, name = test.split("::")
        return any(re.search(rf"^def {name}\(", path.read_text(), re.M) for path in (ROOT / "tests").rglob(file))
    if test.endswith("_fuzz"):
        return any((ROOT / place).rglob(f"{test}.cc") for place in ("src", "tests")) and fuzzer_is_built(test)
    suite, case = test.split(".")
    declared = re.compile(rf"TEST(?:_F|_P)?\({suite}, {case}\)")
    files = [path for top in ("apps", "src", "tests") for path in (ROOT / top).rglob("*_test.cc")]
    return any(declared.search(path.read_text()) for path in files)


def fuzzer_is_built(name: str) -> bool:
    lists = [path for top in ("src", "tests") for path in (ROOT / top).rglob("CMakeLists.txt")]
    return any(f"offpath_fuzzer({name} " in path.read_text() for path in lists)


def test_every_fault_has_tests_and_they_exist() -> None:
    table = proofs()
    assert len(table) >= 24
    assert [fault for fault, tests in table.items() if not tests] == []
    named = [test for tests in table.values() for test in tests]
    assert [test for test in named if not exists(test)] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert not exists("test_faults.py::test_nothing_of_this_name")
    assert not exists("Ring.NothingOfThisName")
    assert not exists("nothing_fuzz")


def test_error_codes_are_those_of_the_headers() -> None:
    headers = "".join((ROOT / "include/offpath" / name).read_text() for name in ("offpath.h", "plugin.h"))
    assert [code for code in set(re.findall(r"`(OFP_\w+)`", TABLE)) if not re.search(rf"\b{code}\b", headers)] == []
