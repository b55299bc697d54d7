"""The version of Offpath, which the C header decides."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def header_version(root: Path = ROOT) -> str:
    header = (root / "include" / "offpath" / "offpath.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"#define OFP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
