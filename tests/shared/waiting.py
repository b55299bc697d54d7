"""Functions with which tests wait for other processes.

Their deadlines are far longer than it takes: a passing test does not wait for them, and a slow machine gets there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], seconds_max: float = 60.0) -> bool:
    """Waits until ``condition()`` is true. False: it did not become so in time."""
    end = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
