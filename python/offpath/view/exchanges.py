"""The newest views of exchanges, as tables of numbers."""

from __future__ import annotations

import math
import threading
from typing import Any

from ..errors import AgentError, Error, Timeout, WouldBlock
from ..exchange import Exchange, View
from ..session import Session
from .refused import Refused

READ_AT_ONCE_MAX = 8
FIRST_VIEW_S = 2.0


class Exchanges:
    """Reads the exchanges that are asked for, and keeps each one's newest view."""

    def __init__(self, session: Session, lock: threading.Lock) -> None:
        self._session = session
        self._lock = lock
        self._read: dict[str, tuple[Exchange, View | None]] = {}  # the one asked for last stands last

    def table(self, name: str) -> dict[str, Any]:
        """Every member's values in the newest round; null for missing values and NaN.

        Raises Refused, and the errors of ``Session.exchange``.
        """
        with self._lock:
            exchange, view = self._read.pop(name) if name in self._read else (self._open(name), None)
            try:
                view = exchange.view(0 if view else FIRST_VIEW_S)
            except (Timeout, WouldBlock):
                pass  # no other round has ended
            except (AgentError, Error):
                exchange.close()
                raise
            self._read[name] = (exchange, view)
        fields = [{"name": each.name, "unit": each.unit} for each in exchange.fields]
        if view is None:
            return {"epoch": None, "present": 0, "expected": len(exchange.members), "fields": fields, "members": []}
        members = []
        for member in exchange.members:
            entry = view.entries.get(member)
            values = entry.values if entry and entry.has_value else {}
            cells = [values.get(each.name) for each in exchange.fields]
            cells = [each if each is not None and math.isfinite(each) else None for each in cells]
            members.append({"name": member, "present": bool(entry and entry.present), "values": cells})
        return {
            "epoch": view.epoch,
            "present": view.present,
            "expected": view.expected,
            "fields": fields,
            "members": members,
        }

    def _open(self, name: str) -> Exchange:
        if len(name) > 256:
            raise Refused("an exchange's name has at most 256 letters")
        while len(self._read) >= READ_AT_ONCE_MAX:
            oldest = next(iter(self._read))
            self._read.pop(oldest)[0].close()
        return self._session.exchange(name)
