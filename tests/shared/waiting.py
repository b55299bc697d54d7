"""Functions with which tests wait for other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], seconds_max: float = 10.0) -> bool:
    """Waits until ``condition()`` is true. False: it did not become so in time."""
    end = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
