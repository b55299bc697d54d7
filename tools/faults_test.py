"""Each row of docs/operate/faults.md has tests in tests/faults.toml, and they exist; error codes are the headers'."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from header_version import library_headers

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/operate/faults.md").read_text()
TABLE = tomllib.loads((ROOT / "tests/faults.toml").read_text())["fault"]
TOGETHER = "all of them together, in virtual time and under seeded faults of the link"
KEYS = {"fault", "tests", "without_so_peerpidfd", "over_rdma"}


def faults_of_page() -> list[str]:
    """The first cell of each row of the page's tables."""
    cells = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")]
    return [cell for cell in cells if cell != "fault"]


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


def test_every_fault_of_the_page_has_a_row_of_tests() -> None:
    page = faults_of_page()
    assert len(page) >= 24
    assert [*page, TOGETHER] == [row["fault"] for row in TABLE], "rows of tests/faults.toml follow those of the page"


def test_every_row_names_tests_that_exist() -> None:
    assert [row for row in TABLE if not row["tests"] or not row.keys() <= KEYS] == []
    named = [test for row in TABLE for key in row.keys() - {"fault"} for test in row[key]]
    assert [test for test in named if not exists(test)] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert not exists("test_faults.py::test_nothing_of_this_name")
    assert not exists("Ring.NothingOfThisName")
    assert not exists("nothing_fuzz")


def test_error_codes_are_those_of_the_headers() -> None:
    headers = library_headers() + (ROOT / "include/offpath/plugin.h").read_text()
    assert [code for code in set(re.findall(r"`(OFP_\w+)`", PAGE)) if not re.search(rf"\b{code}\b", headers)] == []
