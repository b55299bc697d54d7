"""Objects that are asked for now and come later: futures, ended by one thread of the session's."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from .errors import Closed, Error, NotFound
from .pool import Frame

if TYPE_CHECKING:
    from ._native import Want
    from .session import Session

LOOK_S = 0.05  # how long the thread is in the library at a time: then it sees that the session was closed


class Wants:
    """Of one session. The thread runs while something is wanted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._wanted: dict[int, tuple[Future[Frame], Want, str]] = {}
        self._thread: threading.Thread | None = None

    def want(self, pool: str, row: str, column: str, timeout: float | None) -> Future[Frame]:
        future: Future[Frame] = Future()
        with self._lock:
            native = self._session._native.pool_want(pool, row, column, timeout)
            self._wanted[native.key] = (future, native, f"object ({row}, {column}) of pool {pool}")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="offpath-wants", daemon=True)
                self._thread.start()
        future.add_done_callback(lambda done: self._forget(native.key) if done.cancelled() else None)
        return future

    def close(self) -> None:
        """Nothing comes any more."""
        self._end_all(Closed("the session was closed before the object came"))

    def _end_all(self, why: Error) -> None:
        with self._lock:
            left = list(self._wanted.values())
            self._wanted.clear()
        for future, native, _ in left:
            native.free()
            if future.set_running_or_notify_cancel():
                future.set_exception(why)

    def _forget(self, key: int) -> None:
        with self._lock:
            wanted = self._wanted.pop(key, None)
        if wanted is not None:
            wanted[1].free()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
            try:
                key = self._session._native.want_next(LOOK_S)
            except NotFound:
                continue  # the last one was cancelled
            except Error as error:
                self._end_all(error)
                continue
            with self._lock:
                wanted = self._wanted.pop(key, None) if key is not None else None
            if wanted is not None:
                self._end(*wanted)

    def _end(self, future: Future[Frame], native: Want, name: str) -> None:
        if not future.set_running_or_notify_cancel():
            native.free()
            return
        try:
            frame = Frame(native.take(), name)
        except Error as error:
            future.set_exception(error)
        else:
            future.set_result(frame)
