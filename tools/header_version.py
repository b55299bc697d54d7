"""The headers of the library's C interface, and the version, which the first of them decides."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY_HEADERS = ("offpath.h", "exchange.h", "tasks.h")  # offpath.h includes the others


def library_headers(include: Path = ROOT / "include") -> str:
    """Their text, one after the other."""
    return "".join((include / "offpath" / name).read_text(encoding="utf-8") for name in LIBRARY_HEADERS)


def header_version(root: Path = ROOT) -> str:
    header = (root / "include" / "offpath" / "offpath.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"#define OFP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
