"""Checks the list of requests in docs/internals/hacking.md against src/service/request_table.h.

Usage: tools/request_list.py. Prints problems, and exits 1 if the list differs.
       tools/request_list.py --write. Writes the list.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "src/service/request_table.h"
KINDS = "src/wire/messages/message_kinds.h"
PAGE = "docs/internals/hacking.md"
BEGIN, END = "<!-- requests -->", "<!-- end of requests -->"
ROW = re.compile(
    r'{EntryKind::(?P<kind>\w+), "(?P<name>\w+)", ServiceId::(?P<service>\w+), Who::(?P<who>\w+), (?P<size>\w+)'
    r"(?:, (?P<choose>\w+))?(?:, ServiceId::(?P<also>\w+))?(?:,\s+ServiceId::(?P<also_third>\w+))?}"
)
SIZES = {"fixed_bytes": "256", "entry_bytes_max": "an entry"}


def numbers(root: Path) -> dict[str, int]:
    kinds = (root / KINDS).read_text(encoding="utf-8").partition("enum class EntryKind")[2].partition("};")[0]
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+),", kinds)}


def service_of(row: re.Match[str]) -> str:
    if row["also"]:
        also = [row["also"], *([row["also_third"]] if row["also_third"] else [])]
        return f"{', '.join(also)}, then {row['service']}"
    return f"{row['service']}, or `{row['choose']}`" if row["choose"] not in (None, "nullptr") else row["service"]


def table(root: Path) -> str:
    """The list as Markdown."""
    lines = ["| number | request | service | from | bytes at most |", "|---|---|---|---|---|"]
    number_of = numbers(root)
    for row in ROW.finditer((root / TABLE).read_text(encoding="utf-8")):
        asker = {"anyone": "anyone", "member": "members"}[row["who"]]
        number = number_of[row["kind"]]
        lines.append(f"| {number} | `{row['name']}` | {service_of(row)} | {asker} | {SIZES[row['size']]} |")
    return "\n".join(lines) + "\n"


def check_page(root: Path) -> list[str]:
    """Checks that the page shows this list, and that the list has every kind."""
    listed = len(ROW.findall((root / TABLE).read_text(encoding="utf-8")))
    if listed != len(numbers(root)):
        return [f"{TABLE}:1: {listed} rows for the {len(numbers(root))} kinds of {KINDS}"]
    shown = (root / PAGE).read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    if shown.strip() != table(root).strip():
        return [f"{PAGE}:1: its list of requests is not that of {TABLE}: run tools/request_list.py --write"]
    return []


def write_page(root: Path) -> None:
    page = root / PAGE
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + "\n\n" + table(root) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        write_page(ROOT)
        return 0
    problems = check_page(ROOT)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
