"""Work that goes on in a thread while a test does something else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def side_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs ``work`` until the block ends, which sets the event that it is given."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
