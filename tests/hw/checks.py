"""Functions for checks inside a guest: how they fail, and the lines they leave for the machine outside."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"


class Failed(Exception):
    """The expected value and the actual one, in a sentence."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)


def chosen(checks: Iterable[Callable[..., str]], only: str) -> list[Callable[..., str]]:
    """Those whose name contains a match of the regular expression."""
    return [check for check in checks if re.search(only, check.__name__)]


def run_checks(
    results: Path, checks: Iterable[Callable[..., str]], *arguments: Any, count: Callable[[], int] = lambda: 0,
    only: str = "",
) -> None:  # fmt: skip
    """Runs each check with these arguments and writes a line of JSON for it. `count`: packets so far."""
    with results.open("w") as lines:
        for check in chosen(checks, only):
            began = time.monotonic()
            before = count()
            try:
                passed, detail = True, check(*arguments)
            except Exception as error:  # after any failure the other checks still run
                passed, detail = False, f"{type(error).__name__}: {error}"
            entry = {
                "name": check.__name__, "passed": passed, "detail": detail,
                "seconds": round(time.monotonic() - began, 1), "packets": count() - before,
            }  # fmt: skip
            lines.write(json.dumps(entry) + "\n")
            lines.flush()
