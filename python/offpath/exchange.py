"""Exchanges: records that agents send each other in rounds about their hosts, and decisions on them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import Invalid

if TYPE_CHECKING:
    from .session import Session

TYPES = {"u64": "u", "i64": "i", "f64": "f"}
PACKED = {"u": "Q", "i": "q", "f": "d"}
UNLIMITED = 2**64 - 1


@dataclass(frozen=True)
class Field:
    name: str
    type: str  # "u64", "i64" or "f64"
    unit: str = ""


@dataclass(frozen=True)
class Entry:
    """The state of one member. ``present``: its record is of this view's round; otherwise it is the newest known
    one."""

    member: str
    present: bool
    has_value: bool  # it has published something, and the record is here
    epoch: int  # of the record; 0: no message of this member ever arrived
    age: float  # seconds; never less than it was, as far as can be known
    record: bytes
    fields: tuple[Field, ...] = ()

    @cached_property
    def values(self) -> dict[str, int | float | None]:
        """The record by fields. Empty without a value, and where the exchange has no fields. None: not present."""
        count = len(self.fields)
        if not self.has_value or count == 0 or len(self.record) < 8 * count:
            return {}
        form = "<" + "".join(PACKED[TYPES[field.type]] for field in self.fields)
        read = struct.unpack_from(form, self.record)
        words = None
        if len(self.record) > 8 * count:
            words = struct.unpack_from(f"<{(count + 63) // 64}Q", self.record, 8 * count)
        return {
            field.name: value if words is None or words[i // 64] >> i % 64 & 1 else None
            for i, (field, value) in enumerate(zip(self.fields, read, strict=True))
        }

    def __getitem__(self, field: str) -> int | float | None:
        return self.values[field]


@dataclass(frozen=True)
class Figure:
    """One reduction over the members of a view."""

    count: int  # members that had a value
    value: float  # of sum, min, max and mean; NaN: no member had a value
    exact: int  # of sum, min and max of integers: all digits (of i64 as 64 bits)
    top: list[tuple[float, str]]  # of top: the largest first, with their members
    bins: list[int]  # of histogram


class View:
    """The state of an exchange's members after one round, at its deadline at the latest.

    ``present`` of ``expected`` members are in it with a record of this round. ``entries`` are by name, ``figures`` by
    their text in the configuration (``"sum(power)"``).
    """

    def __init__(self, native: Any, exchange: Exchange) -> None:
        info = native.info()
        self.epoch: int = info["epoch"]
        self.present: int = info["present"]
        self.expected: int = info["expected"]
        self.whole: bool = info["whole"]  # of all members; otherwise of this agent's part of the tree
        self.is_leader: bool = info["is_leader"]  # this agent decides, as far as it knows
        self.cut: bool = info["cut"]  # records were left out: view_bytes_max
        self.took: float = info["took_ns"] * 1e-9
        self.figure_members: int = info["figure_members"]
        members = exchange.members
        self.leader = members[info["leader"]] if info["leader"] < len(members) else ""
        self.entries: dict[str, Entry] = {}
        for i in range(info["entries"]):
            member, present, has_value, epoch, age_ns, record = native.entry(i)
            if member < len(members):
                name = members[member]
                self.entries[name] = Entry(name, present, has_value, epoch, age_ns * 1e-9, record, exchange.fields)
        self.figures: dict[str, Figure] = {}
        for i, text in enumerate(exchange.reductions[: info["figures"]]):
            count, value, exact, top, bins = native.figure(i)
            named = [(v, members[m]) for v, m in top if m < len(members)]
            self.figures[text] = Figure(count, value, exact, named, bins)

    @property
    def complete(self) -> bool:
        """Every member that was expected is in it."""
        return self.present == self.expected

    def __getitem__(self, member: str) -> Entry:
        return self.entries[member]

    def __repr__(self) -> str:
        leads = ", this agent leads" if self.is_leader else ""
        return f"<View of round {self.epoch}: {self.present} of {self.expected}{leads}>"


class Exchange:
    """This program's part in an exchange of agents. ``Session.exchange`` makes one.

    ``publish`` copies a record into memory of this program, which the agent pulls when a round begins; views are pushed
    into memory of this program. Neither waits.
    """

    def __init__(self, session: Session, name: str, *, publish: bool, fields: Iterable[str | Field],
                 record_bytes_max: int, view_bytes_max: int) -> None:  # fmt: skip
        given = [field if isinstance(field, Field) else Field(*field.split(":", 2)) for field in fields]
        for field in given:
            if field.type not in TYPES:
                raise Invalid(f"field {field.name} has the type {field.type!r}; there are {', '.join(TYPES)}")
        native = [(field.name, TYPES[field.type], field.unit) for field in given]
        self.session, self.name = session, name
        self._native = _native.Exchange(session._native, name, publish, native, record_bytes_max, view_bytes_max)
        self._learn()

    def _learn(self) -> None:
        told = self._native.info()
        names = {packed: name for name, packed in TYPES.items()}
        self.members: list[str] = told["members"]  # in the order of their numbers
        self.self_name: str = self.members[told["self"]]
        self.fields = tuple(Field(name, names[kind], unit) for name, kind, unit in told["fields"])
        self.reductions: list[str] = told["reductions"]
        self.topology: str = told["topology"]
        self.interval: float = told["interval_ns"] * 1e-9
        self.deadline: float = told["deadline_ns"] * 1e-9
        self.grant_total: int | None = None if told["grant_total"] == UNLIMITED else told["grant_total"]
        self._tree: int | None = None

    def publish(self, record: Any = None, **values: float) -> None:
        """The newest record, from now on: a buffer, or its fields' values by name. Missing fields are not present."""
        if record is not None:
            self._native.publish(record)
            return
        unknown = set(values) - {field.name for field in self.fields}
        if unknown:
            known = ", ".join(field.name for field in self.fields)
            raise Invalid(f"exchange {self.name} has no field {sorted(unknown)[0]!r}: {known}")
        words = [0] * ((len(self.fields) + 63) // 64)
        packed = b""
        for i, field in enumerate(self.fields):
            value = values.get(field.name)
            if value is not None:
                words[i // 64] |= 1 << i % 64
            kind = PACKED[TYPES[field.type]]
            packed += struct.pack(f"<{kind}", (float if kind == "d" else int)(value or 0))
        self._native.publish(packed + struct.pack(f"<{len(words)}Q", *words))

    def view(self, timeout: float | None = None) -> View:
        """The newest view that was not returned yet; waits for it. With a timeout of 0 it only looks.

        Raises Timeout, or WouldBlock with a timeout of 0.
        """
        native = self._native.view(timeout)
        tree = native.info()["tree"]
        if tree != self._tree:  # other members, or the first view
            self._learn()
            self._tree = tree
        return View(native, self)

    def run(self, on_view: Callable[[View], Any],
            compute_local: Callable[[], Mapping[str, float] | bytes | None] | None = None,
            timeout: float | None = None) -> None:  # fmt: skip
        """Publishes what ``compute_local`` returns, passes the next view to ``on_view``, and repeats, until that
        returns a true value. Raises Timeout after that time without a view."""
        while True:
            made = compute_local() if compute_local else None
            if isinstance(made, Mapping):
                self.publish(**made)
            elif made is not None:
                self.publish(made)
            if on_view(self.view(timeout)):
                return

    def grant(self, amounts: Mapping[str, int]) -> bool:
        """The amounts of these members while this agent leads: shares of ``grant_total``, or free targets. They stay
        until changed. True: this agent leads, and may grant now."""
        number = {name: i for i, name in enumerate(self.members)}
        unknown = [name for name in amounts if name not in number]
        if unknown:
            raise Invalid(f"exchange {self.name} has no member {unknown[0]!r}")
        return self._native.grant([number[name] for name in amounts], list(amounts.values()))

    @property
    def granted(self) -> tuple[int, float]:
        """The amount that this member may use now, and for how many seconds: as of the newest view. (0, 0.0):
        nothing."""
        amount, left_ns = self._native.granted()
        return amount, left_ns * 1e-9

    def close(self) -> None:
        """Ends this program's part: its records are no longer published."""
        self._native.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} of {len(self.members)} members, {self.topology}>"
