"""Values of this program that its agent reads, at no cost but the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ._native import Gauges as NativeGauges


@dataclass(frozen=True)
class Gauge:
    """The description of a value. ``name`` may have labels, as metrics write them: ``rays{kind="shadow"}``.

    ``type``: ``f64``, ``u64`` or ``i64``. ``kind``: ``gauge``, or ``counter`` for values that only grow. ``unit``:
    ``bytes``, ``seconds``, or empty for a number of things.
    """

    name: str
    type: str = "f64"
    kind: str = "gauge"
    unit: str = ""
    description: str = ""


class Gauges:
    """Made by ``Session.gauges``. None has a value until it is set."""

    def __init__(self, channel: Any, name: str, gauges: Iterable[Gauge | str]) -> None:
        described = [Gauge(each) if isinstance(each, str) else each for each in gauges]
        self._places = {each.name: place for place, each in enumerate(described)}
        self._native = NativeGauges(
            channel, name, [(each.name, each.type, each.kind, each.unit, each.description) for each in described]
        )

    def __setitem__(self, name: str, value: float) -> None:
        """One store into memory that the agent reads. Raises KeyError for a name that is not among the gauges."""
        self._native.set(self._places[name], value)

    def __delitem__(self, name: str) -> None:
        """From now on it has no value, until it is set again."""
        self._native.clear(self._places[name])

    def close(self) -> None:
        """The agent stops reading them, and removes them from its metrics."""
        self._native.close()

    def __enter__(self) -> Gauges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
