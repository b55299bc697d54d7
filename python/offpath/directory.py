"""The directory of a group: its agents' resources by path, listed and watched.

Each agent is asked for its own part, through the session's own agent; a resource of several agents is one entry. A
watch keeps one question at each agent, which is answered at the next change there, so there is no polling. A part is
dropped when its agent is dead or lost; the part of a slow agent is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_first
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .errors import Error, Invalid, Timeout, WouldBlock

if TYPE_CHECKING:
    from .session import Session

OWN = ""  # the session's agent, which also lists the members
QUESTION_S = 30.0  # a question without a change is repeated after this time
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
    """A change seen by a watch: ``added``, ``removed``, or ``changed`` to this."""

    what: str
    resource: Resource


Part = list[tuple[str, str, str]]  # path, about, member


def is_live(about: str) -> bool:
    return not {"state=alive", "state=suspect"}.isdisjoint(about.split("&"))


def is_below(full: str, path: str) -> bool:
    return full.startswith(path) and (len(full) == len(path) or not path or full[len(path)] == "/")


def member_at(path: str) -> str:
    """The name of a member, which is one resource for all agents that list it. Empty for other resources."""
    for folder, names in (("/members/", 1), ("/racks/", 2), ("/roles/", 2)):
        if path.startswith(folder):
            return path.split("/", names + 1)[-1]
    return ""


def merged(parts: dict[str, Part], path: str) -> list[Resource]:
    """Resources below ``path`` by path; those of one path that differ are each there."""
    found: dict[tuple[str, str], set[str]] = {}
    for part in parts.values():
        for where, about, member in part:
            if is_below(where, path):
                found.setdefault((where, about), set()).add(member_at(where) or member)
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
    """The parts of all agents, as far as they are known. ``watches``: with a question at each for the next change;
    otherwise each is asked once."""

    def __init__(self, session: Session, path: str, watches: bool) -> None:
        self._session = session
        self._watches = watches
        self.path = path.rstrip("/")
        if path and not path.startswith("/"):
            raise Invalid(f"'{path}' is not a path of the directory: it begins with '/'")
        self._name = session.info.agent_name
        self.parts: dict[str, Part] = {}
        self._seen: dict[str, int] = {}
        self._questions: dict[str, Future[tuple[Part, int]]] = {}
        self._failed: dict[str, float] = {}  # when they are asked again
        self._lost: set[str] = set()  # of these, those that cannot be reached

    def _ask(self, member: str, wait_s: float) -> None:
        path, seen = ("" if member == OWN else self.path), self._seen.get(member, 0)
        wait_s = wait_s if seen else ANSWER_S
        self._questions[member] = self._session._waits.start(
            lambda: self._session._native.start_resources(member, path, seen, wait_s),
            lambda request: request.resources(),
            wait_s + ANSWER_S,
        )

    def _live(self) -> set[str]:
        return set(live_members(self.parts.get(OWN, []))) - {self._name}

    def _ask_those_unasked(self) -> None:
        live = self._live()
        for gone in (self.parts.keys() | self._questions.keys()) - live - {OWN}:
            self._forget(gone)
        self._failed = {member: at for member, at in self._failed.items() if member in live or member == OWN}
        now = time.monotonic()
        for member in [OWN, *sorted(live)]:
            is_due = member not in self._questions and self._failed.get(member, 0.0) <= now
            if is_due and (self._watches or member not in self.parts):
                try:
                    self._ask(member, QUESTION_S)
                except WouldBlock:  # no room for it
                    self._failed[member] = now + AGAIN_S

    def _forget(self, member: str) -> None:
        self.parts.pop(member, None)
        self._seen.pop(member, None)
        if question := self._questions.pop(member, None):
            question.cancel()

    def _take(self, member: str) -> None:
        question = self._questions.pop(member)
        try:
            part, version = question.result()
        except (Timeout, WouldBlock):  # it is slow or busy: its former answer holds until the next one
            self._failed[member] = time.monotonic() + AGAIN_S
            return
        except Error:
            if member == OWN:
                raise
            self._forget(member)  # it is gone, or not reachable yet
            self._failed[member] = time.monotonic() + AGAIN_S
            self._lost.add(member)
            return
        self._failed.pop(member, None)
        self._lost.discard(member)
        if version != self._seen.get(member):
            self.parts[member], self._seen[member] = part, version

    def step(self, until: float) -> bool:
        """Waits for an answer, and takes those that are there. False: there was none until then."""
        self._ask_those_unasked()
        now = time.monotonic()
        again = min(
            [until, now + QUESTION_S, *(at for each, at in self._failed.items() if each not in self._questions)]
        )
        if not self._questions:
            time.sleep(max(again - now, 0.0))
        done, _ = wait_first(self._questions.values(), max(again - now, 0.0), FIRST_COMPLETED)
        for member in [each for each, question in self._questions.items() if question in done]:
            self._take(member)
        return bool(done) or time.monotonic() < until

    def missing(self) -> list[str]:
        """Living, reachable agents that have not sent their part, by name."""
        expected = (self._live() | {OWN}) - self.parts.keys() - self._lost
        return sorted(member or self._name for member in expected)

    def resources(self) -> list[Resource]:
        return merged(self.parts, self.path)

    def close(self) -> None:
        """Nothing is asked any more."""
        for question in self._questions.values():
            question.cancel()
        self._questions.clear()


def list_resources(session: Session, path: str, timeout: float) -> list[Resource]:
    until = time.monotonic() + timeout
    directory = Directory(session, path, watches=False)
    try:
        while missing := directory.missing():
            if not directory.step(until):
                raise Timeout(f"these agents have not answered: {', '.join(missing)}")
        return directory.resources()
    finally:
        directory.close()


def watch_resources(session: Session, path: str, timeout: float | None) -> Iterator[Change]:
    until = time.monotonic() + (timeout if timeout is not None else float("inf"))
    directory = Directory(session, path, watches=True)
    try:
        known: list[Resource] = []
        while directory.step(until):
            now = directory.resources()
            yield from differences(known, now)
            known = now
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
        try:
            part, version = asked.result()
        except BaseException:
            asked.cancel()
            raise
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
            raise Timeout(f"{len(names)} of {count} members{what} are alive: {', '.join(names)}")
