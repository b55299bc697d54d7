"""The directory of a group: what its agents have, by path, listed and watched.

Each agent is asked for its own part, through the session's own agent, and what several have is one entry. A watch keeps
one question at each agent, which is answered when something changes there; nothing is asked again and again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_first
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .errors import Error, Invalid, Timeout

if TYPE_CHECKING:
    from .session import Session

OWN = ""  # the session's agent, which also tells the members
QUESTION_S = 30.0  # a question without a change is asked anew after this time
AGAIN_S = 1.0  # until a member that failed to answer is asked again, if it still lives
ANSWER_S = 5.0


class Resource(NamedTuple):
    """Something that agents of the group have."""

    path: str  # such as /pools/hash:/particles
    about: str  # options or properties, as name=value&...; of a function its description
    members: tuple[str, ...]  # the agents that have it, by name

    @property
    def properties(self) -> dict[str, str]:
        """``about`` by name; empty if it is a description."""
        parts = [each.partition("=") for each in self.about.split("&")]
        return {name: value for name, equals, value in parts if equals and name.isidentifier()}


class Change(NamedTuple):
    """What a watch saw: ``added``, ``removed``, or ``changed`` to this."""

    what: str
    resource: Resource


Part = list[tuple[str, str, str]]  # path, about, member


def is_live(about: str) -> bool:
    return not {"state=alive", "state=suspect"}.isdisjoint(about.split("&"))


def is_below(full: str, path: str) -> bool:
    return full.startswith(path) and (len(full) == len(path) or not path or full[len(path)] == "/")


def merged(parts: dict[str, Part], path: str) -> list[Resource]:
    """Resources below ``path`` by path; those of one path that differ are each there."""
    found: dict[tuple[str, str], set[str]] = {}
    for part in parts.values():
        for where, about, member in part:
            if is_below(where, path):
                # A member is a resource of its own, whichever agent tells of it.
                folder, _, name = where.rpartition("/")
                owner = name if folder.startswith(("/members", "/racks", "/roles")) else member
                found.setdefault((where, about), set()).add(owner)
    return [Resource(where, about, tuple(sorted(members))) for (where, about), members in sorted(found.items())]


def live_members(own: Part) -> list[str]:
    return [
        where.removeprefix("/members/") for where, about, _ in own if where.startswith("/members/") and is_live(about)
    ]


def differences(before: list[Resource], after: list[Resource]) -> Iterator[Change]:
    """In the order of paths. A path that has another resource instead of the one it had has changed."""
    gone = sorted(set(before) - set(after))
    new = sorted(set(after) - set(before))
    replaced = {each.path for each in new} & {each.path for each in gone}
    changes = [Change("changed" if each.path in replaced else "added", each) for each in new]
    changes += [Change("removed", each) for each in gone if each.path not in replaced]
    yield from sorted(changes, key=lambda change: change.resource)


class Directory:
    """The parts of all agents, as far as they are known, and a question at each for the next change."""

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self.path = path.rstrip("/")
        if path and not path.startswith("/"):
            raise Invalid(f"'{path}' is no path of the directory: it begins with '/'")
        self._name = session.info.agent_name
        self.parts: dict[str, Part] = {}
        self._seen: dict[str, int] = {}
        self._questions: dict[str, Future[tuple[Part, int]]] = {}
        self._failed: dict[str, float] = {}

    def _ask(self, member: str, wait_s: float) -> None:
        path, seen = ("" if member == OWN else self.path), self._seen.get(member, 0)
        wait_s = wait_s if seen else ANSWER_S
        self._questions[member] = self._session._waits.start(
            lambda: self._session._native.start_resources(member, path, seen, wait_s),
            lambda request: request.resources(),
            wait_s + ANSWER_S,
        )

    def _ask_those_unasked(self) -> None:
        if OWN not in self._questions:
            self._ask(OWN, QUESTION_S)
        live = set(live_members(self.parts.get(OWN, []))) - {self._name}
        for gone in self.parts.keys() - live - {OWN}:
            self._forget(gone)
        self._failed = {member: at for member, at in self._failed.items() if member in live}
        now = time.monotonic()
        for member in sorted(live):
            if member not in self._questions and self._failed.get(member, 0.0) <= now:
                self._ask(member, QUESTION_S)

    def _forget(self, member: str) -> None:
        self.parts.pop(member, None)
        self._seen.pop(member, None)

    def _take(self, member: str) -> None:
        question = self._questions.pop(member)
        try:
            part, version = question.result()
        except Error:
            if member == OWN:
                raise
            self._forget(member)  # it is gone, or not there yet
            self._failed[member] = time.monotonic() + AGAIN_S
            return
        self._failed.pop(member, None)
        if version != self._seen.get(member):
            self.parts[member], self._seen[member] = part, version

    def step(self, until: float) -> bool:
        """Waits for an answer, and takes those that are there. False: there was none until then."""
        self._ask_those_unasked()
        again = min([until, *(at for member, at in self._failed.items() if member not in self._questions)])
        done, _ = wait_first(self._questions.values(), max(again - time.monotonic(), 0.0), FIRST_COMPLETED)
        for member in [each for each, question in self._questions.items() if question in done]:
            self._take(member)
        return bool(done) or time.monotonic() < until

    def is_whole(self) -> bool:
        """Each agent that lives has told its part, or has failed to."""
        if OWN not in self.parts:
            return False
        others = set(live_members(self.parts[OWN])) - {self._name}
        return others <= self.parts.keys() | self._failed.keys()

    def resources(self) -> list[Resource]:
        return merged(self.parts, self.path)

    def close(self) -> None:
        """Nothing is asked any more."""
        for question in self._questions.values():
            question.cancel()
        self._questions.clear()

    def fill(self, until: float) -> None:
        """Until every part is there. Raises Timeout, with those that are missing."""
        while not self.is_whole():
            if not self.step(until):
                missing = sorted(member or self._name for member in self._questions if member not in self.parts)
                raise Timeout(f"these agents have not told what they have: {', '.join(missing)}")


def list_resources(session: Session, path: str, timeout: float) -> list[Resource]:
    directory = Directory(session, path)
    try:
        directory.fill(time.monotonic() + timeout)
        return directory.resources()
    finally:
        directory.close()


def watch_resources(session: Session, path: str, timeout: float | None) -> Iterator[Change]:
    directory = Directory(session, path)
    until = time.monotonic() + (timeout if timeout is not None else float("inf"))
    try:
        directory.fill(min(until, time.monotonic() + 2 * ANSWER_S))
        known: list[Resource] = []
        while True:
            now = directory.resources()
            yield from differences(known, now)
            known = now
            if not directory.step(until):
                return
    finally:
        directory.close()


def wait_members(session: Session, count: int, role: str | None, rack: str | None, timeout: float | None) -> list[str]:
    """Names of members that live, when there are as many."""
    until = time.monotonic() + (timeout if timeout is not None else float("inf"))
    seen = 0
    while True:
        left = until - time.monotonic()
        wait_s = max(min(left, QUESTION_S), 0.0) if seen else ANSWER_S
        post = partial(session._native.start_resources, OWN, "/members", seen, wait_s)
        asked = session._waits.start(post, lambda request: request.resources(), wait_s + ANSWER_S)
        part, version = asked.result()
        if version != seen:
            seen = version
            names = []
            for resource in merged({OWN: part}, "/members"):
                told = resource.properties
                if is_live(resource.about) and role in (None, told["role"]) and rack in (None, told.get("rack", "")):
                    names.append(resource.members[0])
            if len(names) >= count:
                return names
        if left <= 0:
            what = "".join(f" with {name} {value}" for name, value in (("role", role), ("rack", rack)) if value)
            raise Timeout(f"{len(names)} of {count} members{what} live: {', '.join(names)}")
