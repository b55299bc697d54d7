"""Requests whose results come later. One descriptor of the session signals all of them: asyncio's loops read it, and so
does a thread that runs while futures are under way. The woken reader looks for all requests."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import Closed, Error, Timeout

if TYPE_CHECKING:
    from ._native import Request
    from .session import Session
    from .stream import Ticket

END_S = 5.0  # within which a thread sees that its session was closed, however busy the machine is
PATIENCE_S = 1.0  # between looks for a request past its deadline: its agent does not answer any more

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Step(NamedTuple):
    """A request, and the step after its end: its result, or the next request."""

    request: Request
    finish: Callable[[Request], Any]


@dataclass(eq=False)
class UnderWay:
    """A future and its request. ``look_at``: the time of the next look without an event."""

    future: Future[Any]
    step: Step
    look_at: float


@dataclass(eq=False)
class Awaited:
    """A ticket, and whom to tell how it ended (None: well), or that its time was over."""

    ticket: Ticket
    stored: bool
    tell: Callable[[Error | None], None]
    look_at: float = math.inf
    future: Future[None] | None = None

    def outcome(self) -> tuple[bool, Error | None]:
        """Whether it is over, and its error."""
        try:
            if not (self.ticket.stored if self.stored else self.ticket.pulled):
                if time.monotonic() < self.look_at:
                    return False, None
                return True, Timeout(f"{self.ticket!r} was not stored in time")
            if self.stored:
                self.ticket.wait_stored(0)
            else:
                self.ticket.wait_pulled(0)
        except Error as error:
            return True, error
        return True, None


class Waits:
    """Of one session; used by any of its threads and event loops. ``wakes`` counts how often one of them was woken."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self._native = session._native
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._under_way: dict[int, UnderWay] = {}
        self._awaited: set[Awaited] = set()
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}  # that read the descriptor, and for how many tickets
        self._thread: threading.Thread | None = None
        self._polls_until = math.inf  # the thread's sleep
        self._ends_with_program = False
        self.wakes = 0

    # ---- futures, completed by the thread

    def start(
        self, post: Callable[[], Request], finish: Callable[[Request], Any], timeout: float | None = None
    ) -> Future[Any]:
        """A future with the result of ``finish`` for the request. ``timeout``: the request's own."""
        look_at = math.inf if timeout is None else time.monotonic() + timeout + PATIENCE_S
        future: Future[Any] = Future()
        self._add(UnderWay(future, Step(post(), finish), look_at))
        future.add_done_callback(self._forget_if_cancelled)
        return future

    def stored(self, ticket: Ticket, timeout: float | None) -> Future[None]:
        """A future that ends when the ticket is stored, with its error, or with Timeout."""
        future: Future[None] = Future()
        until = math.inf if timeout is None else time.monotonic() + timeout
        awaited = Awaited(ticket, True, lambda error: tell(future, error, None), until, future)
        ticket.stream._native.arm(ticket.number, True)
        with self._lock:
            self._awaited.add(awaited)
            self._wake_for(until)
        future.add_done_callback(self._forget_if_cancelled)
        self.settle()
        return future

    def close(self) -> None:
        """Nothing comes any more."""
        if os.getpid() == self._pid:  # otherwise all of it is the parent's
            self._end_all(Closed("the session was closed before it came"))
            self._native.nudge()

    # ---- asyncio

    async def wait(self, ticket: Ticket, stored: bool) -> Ticket:
        """The ticket, when it is pulled or stored. Raises the error that it failed with."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ticket] = loop.create_future()

        def end(error: Error | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(ticket)

        def tell_loop(error: Error | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end, error)

        awaited = Awaited(ticket, stored, tell_loop)
        with self._lock:
            self._awaited.add(awaited)  # before it is armed: another thread may take the event
            self._loops[loop] = self._loops.get(loop, 0) + 1
            if self._loops[loop] == 1:
                loop.add_reader(self._native.event_fd, self._look)
        try:
            ticket.stream._native.arm(ticket.number, stored)
            over, error = awaited.outcome()
            if over:
                end(error)
            return await future
        finally:
            with self._lock:
                self._awaited.discard(awaited)
                self._loops[loop] -= 1
                if self._loops[loop] == 0:
                    del self._loops[loop]
                    if not self._native.closed:
                        loop.remove_reader(self._native.event_fd)

    # ---- looking

    def _look(self) -> None:
        self.wakes += 1
        try:
            self._native.poll()
        except Error as error:
            self._end_all(error)
        else:
            self.settle()

    def settle(self) -> None:
        """Completes futures of ready tickets. Called by the thread that has polled the channel, because the event was
        for all."""
        with self._lock:
            awaited = list(self._awaited)
        for each in awaited:
            over, error = each.outcome()
            if over and self._drop(each):
                each.tell(error)

    def _drop(self, awaited: Awaited) -> bool:
        with self._lock:
            there = awaited in self._awaited
            self._awaited.discard(awaited)
        return there

    def _end_all(self, why: Error) -> None:
        with self._lock:
            left, awaited = list(self._under_way.values()), list(self._awaited)
            self._under_way.clear()
            self._awaited.clear()
        for entry in left:
            entry.step.request.free()
            tell(entry.future, why, None)
        for each in awaited:
            each.tell(why)

    # ---- the thread

    def _add(self, entry: UnderWay) -> None:
        with self._lock:
            self._under_way[entry.step.request.key] = entry
            self._wake_for(entry.look_at)
            entry.step.request.tell_end()  # under the lock: a session that is closed meanwhile frees it

    def _wake_for(self, look_at: float) -> None:
        if not self._ends_with_program and (session := self._session()) is not None:
            self._ends_with_program = True
            atexit.register(close_if_there, weakref.ref(session))
        if self._thread is None or self._thread.ident is None:  # an interrupt may come before its start
            arguments = (self._native.event_fd, self._native.ended_fd)
            self._thread = threading.Thread(target=self._run, args=arguments, name="offpath-waits", daemon=True)
            _threads.add(self._thread)
            self._thread.start()
        elif look_at < self._polls_until:
            self._native.nudge()

    # A callback that held the entry would keep the result alive in a circle, until Python looks for such.
    def _forget_if_cancelled(self, future: Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            entries = [each for each in self._under_way.values() if each.future is future]
            for entry in entries:
                del self._under_way[entry.step.request.key]
            self._awaited -= {each for each in self._awaited if each.future is future}
        for entry in entries:
            entry.step.request.free()
        self._native.nudge()  # a deleted request may have taken answers that others wait for

    def _run(self, event_fd: int, ended_fd: int) -> None:
        descriptors = select.poll()
        for each in (event_fd, ended_fd):
            descriptors.register(each, select.POLLIN)
        while True:
            now = time.monotonic()
            with self._lock:
                if not self._under_way and not self._awaited:
                    self._thread = None
                    return
                until = min((each.look_at for each in self._under_way.values()), default=math.inf)
                until = min([until, *(each.look_at for each in self._awaited)])
                self._polls_until = until
            descriptors.poll(None if until == math.inf else max(0, math.ceil((until - now) * 1000)))
            self._look()
            now = time.monotonic()
            for key in self._native.take_ended():
                with self._lock:
                    entry = self._under_way.pop(key, None)
                if entry is not None:
                    self._end(entry)
            with self._lock:
                for entry in self._under_way.values():
                    if entry.look_at <= now:
                        entry.look_at = now + PATIENCE_S

    def _end(self, entry: UnderWay) -> None:
        error: Exception | None = None
        made: Any = None
        try:
            entry.step.request.wait(0)  # raises its error
            made = entry.step.finish(entry.step.request)
        except Exception as failure:  # the result of the request, or of its conversion
            error = failure
        entry.step.request.free()
        if isinstance(made, Step):
            entry.step = made
            self._add(entry)
            self._forget_if_cancelled(entry.future)
            return
        tell(entry.future, error, made)


def tell(future: Future[Any], error: Exception | None, result: Any) -> None:
    """How it ended, unless it was cancelled."""
    if future.done() or not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def close_if_there(session: weakref.ref[Session]) -> None:
    """At the program's end, while its threads still run: waits until the agent has taken sent data."""
    if (found := session()) is not None:
        found.close()


@atexit.register
def wait_for_threads() -> None:
    """After all sessions were closed: a thread that Python stops within the library takes the whole process with it."""
    for thread in list(_threads):
        if thread.ident is not None:  # it was started
            thread.join(END_S)
