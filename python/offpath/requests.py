"""What is asked for now and comes later: futures, ended by one thread of the session's."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import Closed, Error, NotFound, Timeout

if TYPE_CHECKING:
    from ._native import Request
    from .session import Session
    from .stream import Ticket

LOOK_S = 0.05  # how long the thread is in the library at a time: then it sees that the session was closed
LOOK_PUTS_S = 0.002  # the same while puts are under way, of which the library says nothing meanwhile
END_S = 5.0  # within which a thread sees that its session was closed, however busy the machine is

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Step(NamedTuple):
    """A request, and what becomes of it once it is over: the result, or the next step."""

    request: Request
    finish: Callable[[Request], Any]


class Requests:
    """Of one session. The thread runs while something is under way."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._under_way: dict[int, tuple[Future[Any], Step]] = {}
        self._puts: dict[Future[None], tuple[Ticket, float]] = {}
        self._thread: threading.Thread | None = None
        self._ends_with_program = False

    def start(self, post: Callable[[], Request], finish: Callable[[Request], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._add(future, Step(post(), finish))
            self._run_thread()
        future.add_done_callback(lambda done: self._forget(done) if done.cancelled() else None)
        return future

    def stored(self, ticket: Ticket, timeout: float | None) -> Future[None]:
        future: Future[None] = Future()
        until = float("inf") if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._puts[future] = (ticket, until)
            self._run_thread()
        return future

    def close(self) -> None:
        """Nothing comes any more."""
        self._end_all(Closed("the session was closed before it came"))

    def _add(self, future: Future[Any], step: Step) -> None:
        self._under_way[step.request.key] = (future, step)

    def _run_thread(self) -> None:
        if not self._ends_with_program:
            self._ends_with_program = True
            atexit.register(close_if_there, weakref.ref(self._session))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="offpath-requests", daemon=True)
            _threads.add(self._thread)
            self._thread.start()

    def _end_all(self, why: Error) -> None:
        with self._lock:
            left = list(self._under_way.values())
            puts = list(self._puts)
            self._under_way.clear()
            self._puts.clear()
        for _, step in left:
            step.request.free()
        for future in [future for future, _ in left] + puts:
            if not future.done() and future.set_running_or_notify_cancel():
                future.set_exception(why)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            keys = [key for key, (other, _) in self._under_way.items() if other is future]
            steps = [self._under_way.pop(key)[1] for key in keys]
        for step in steps:
            step.request.free()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._under_way and not self._puts:
                    self._thread = None
                    return
                puts = list(self._puts)
            try:
                key = self._session._native.request_next(LOOK_PUTS_S if puts else LOOK_S)
            except NotFound:  # puts alone, or the last one was cancelled
                key = None
                if puts:
                    time.sleep(LOOK_PUTS_S)
            except Error as error:
                self._end_all(error)
                continue
            for put in puts:
                self._look_at_put(put)
            with self._lock:
                found = self._under_way.pop(key, None) if key is not None else None
            if found is not None:
                self._end(*found)

    def _look_at_put(self, future: Future[None]) -> None:
        with self._lock:
            ticket, until = self._puts.get(future, (None, 0.0))
        if ticket is None:
            return
        error: Error | None = None
        try:
            ticket.wait_stored(0)
        except Timeout as not_yet:
            if time.monotonic() < until and not future.cancelled():
                return
            error = not_yet
        except Error as failure:
            error = failure
        with self._lock:
            if self._puts.pop(future, None) is None:
                return
        tell(future, error, None)

    def _end(self, future: Future[Any], step: Step) -> None:
        error: Exception | None = None
        made: Any = None
        try:
            made = step.finish(step.request)
        except Exception as failure:  # of the request, or of what its bytes are made into
            error = failure
        step.request.free()
        if isinstance(made, Step):
            with self._lock:
                self._add(future, made)
            if future.cancelled():
                self._forget(future)
            return
        tell(future, error, made)


def tell(future: Future[Any], error: Exception | None, result: Any) -> None:
    """How it ended, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def close_if_there(session: weakref.ref[Session]) -> None:
    """At the program's end, while its threads still run: what was sent is taken by the agent."""
    if (found := session()) is not None:
        found.close()


@atexit.register
def wait_for_threads() -> None:
    """After all sessions were closed: a thread that Python stops within the library takes the whole process with it."""
    for thread in list(_threads):
        thread.join(END_S)
