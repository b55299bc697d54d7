"""The targets of `./dev run`: the agent's modules with libarrow only if a run needs them, or the tree has them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

DEV = (Path(__file__).resolve().parent.parent / "dev").read_text(encoding="utf-8")
FOUND = re.search(r"^needs_modules\(\) \{\n.*?^\}$", DEV, re.M | re.S)


def needs_modules(folder: Path, *arguments: str) -> bool:
    assert FOUND
    script = f'set -euo pipefail\n{FOUND[0]}\nneeds_modules "$@"'
    return subprocess.run(["bash", "-c", script, "dev", *arguments], cwd=folder, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ((), False),
        (("--atoms", "4000", "--ranks", "2"), False),
        (("--out", "--viewed"), False),
        (("--view",), True),
        (("--steps", "10", "--view", "--ranks", "2"), True),
        (("--destination", "arrays"), True),
        (("--destination=agent-serialise",), True),
    ],
)
def test_a_run_asks_for_what_it_needs(tmp_path: Path, arguments: tuple[str, ...], needs: bool) -> None:
    assert needs_modules(tmp_path, *arguments) == needs


def test_modules_of_an_earlier_build_follow_the_agent(tmp_path: Path) -> None:
    modules = tmp_path / "build/release/lib/offpath"
    modules.mkdir(parents=True)
    (modules / "liboffpath_arrow-0123456789ab.so").touch()
    assert needs_modules(tmp_path)
