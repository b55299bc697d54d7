"""Tickets awaited by asyncio programs: one reader on the session's event descriptor for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import Error, Timeout

if TYPE_CHECKING:
    from .session import Session
    from .stream import Ticket


@dataclass
class Waiter:
    ticket: Ticket
    stored: bool
    future: asyncio.Future[Ticket]

    def settle(self) -> bool:
        """Sets the future's result if the ticket is there, or has failed. True if nothing is left to wait for."""
        if self.future.done():
            return True
        try:
            if self.stored:
                self.ticket.wait_stored(0)
            else:
                self.ticket.wait_pulled(0)
        except Timeout:
            return False
        except Error as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.ticket)
        return True


class Waiters:
    """Of one session. Used from the thread of one event loop at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[Waiter] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self, ticket: Ticket, stored: bool) -> Ticket:
        loop = asyncio.get_running_loop()
        waiter = Waiter(ticket, stored, loop.create_future())
        ticket.stream._native.arm(ticket.number, stored)
        if not waiter.settle():
            if self._loop is None:
                self._loop = loop
                loop.add_reader(self._session.event_fd, self._look)
            elif self._loop is not loop:
                raise RuntimeError("the session's tickets are awaited in another event loop already")
            self._waiting.append(waiter)
        try:
            return await waiter.future
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            self._stop_if_idle()

    def _look(self) -> None:
        try:
            self._session.poll()
        except Error as error:
            for waiter in self._waiting:
                if not waiter.future.done():
                    waiter.future.set_exception(error)
            self._waiting.clear()
        self._waiting = [waiter for waiter in self._waiting if not waiter.settle()]
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self._loop is not None and not self._waiting:
            self._loop.remove_reader(self._session.event_fd)
            self._loop = None
