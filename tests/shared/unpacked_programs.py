"""Programs of packages/programs.txt, as tests start them."""

from __future__ import annotations

import pytest
from offpath.bench.programs import UNPACKED, UNPACKED_LIBRARIES, UNPACKED_PLACES, find_other_program

__all__ = ["LIBRARIES", "PLACES", "UNPACKED", "program"]

PLACES, LIBRARIES = UNPACKED_PLACES, UNPACKED_LIBRARIES


def program(name: str) -> str:
    found = find_other_program(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found
