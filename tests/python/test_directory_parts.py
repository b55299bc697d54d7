"""The parts of a directory, of agents that answer as the test says."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import offpath
import pytest
from offpath import directory
from offpath.directory import OWN, Directory, Part, merged

MEMBERS: Part = [(f"/members/{name}", "state=alive", "a") for name in ("a", "b")]
POOL: Part = [("/pools/local:/p", "", "b")]


class Agents:
    """Stands for a session; ``asked``: members and the receivers of their answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Future[tuple[Part, int]]]] = []
        self.refusal: Exception | None = None
        self.info = SimpleNamespace(agent_name="a")
        self._waits = self
        self._native = SimpleNamespace(start_resources=lambda member, *_: member)

    def start(self, post: Callable[[], str], finish: Any, timeout: float) -> Future[tuple[Part, int]]:
        assert finish and timeout > 0
        if self.refusal:
            raise self.refusal
        future: Future[tuple[Part, int]] = Future()
        self.asked.append((post(), future))
        return future

    def open_questions(self) -> list[str]:
        return [member for member, future in self.asked if not future.done()]

    def answer(self, asked: Directory, member: str, answer: tuple[Part, int] | Exception) -> None:
        (question,) = [future for to, future in self.asked if to == member and not future.done()]
        if isinstance(answer, Exception):
            question.set_exception(answer)
        else:
            question.set_result(answer)
        assert asked.step(time.monotonic() + 5)


def whole(agents: Agents, watches: bool) -> Directory:
    asked = Directory(agents, "/", watches)  # type: ignore[arg-type]
    asked.step(time.monotonic())
    agents.answer(asked, OWN, (MEMBERS, 1))
    assert asked.missing() == ["b"]
    asked.step(time.monotonic())
    agents.answer(asked, "b", (POOL, 5))
    assert asked.missing() == []
    return asked


def paths(asked: Directory) -> list[str]:
    return [each.path for each in asked.resources()]


def test_a_list_asks_each_agent_once() -> None:
    agents = Agents()
    asked = whole(agents, watches=False)
    assert not asked.step(time.monotonic())
    assert [member for member, _ in agents.asked] == [OWN, "b"]


@pytest.mark.parametrize("refusal", [offpath.Timeout("slow"), offpath.WouldBlock("1024 questions wait")])
def test_a_part_is_kept_while_its_agent_is_slow(refusal: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "AGAIN_S", 0.0)
    agents = Agents()
    asked = whole(agents, watches=True)
    asked.step(time.monotonic())
    agents.answer(asked, "b", refusal)
    assert "/pools/local:/p" in paths(asked)
    asked.step(time.monotonic())
    assert sorted(agents.open_questions()) == [OWN, "b"], "it is asked again"
    agents.answer(asked, "b", ([], 6))
    assert "/pools/local:/p" not in paths(asked), "it has told something else"


def test_a_part_is_dropped_when_its_agent_is_lost_or_dead() -> None:
    agents = Agents()
    asked = whole(agents, watches=True)
    asked.step(time.monotonic())
    agents.answer(asked, "b", offpath.PeerLost("gone"))
    assert "/pools/local:/p" not in paths(asked)
    assert asked.missing() == [], "a list does not wait for it"
    asked = whole(agents := Agents(), watches=True)
    asked.step(time.monotonic())
    dead: Part = [MEMBERS[0], ("/members/b", "state=dead", "a")]
    agents.answer(asked, OWN, (dead, 2))
    asked.step(time.monotonic())
    assert paths(asked) == ["/members/a", "/members/b"]
    assert agents.open_questions() == [OWN], "what was asked of it is cancelled"


def test_without_room_for_a_question_it_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "AGAIN_S", 0.01)
    agents = Agents()
    agents.refusal = offpath.WouldBlock("the request ring is full")
    asked = Directory(agents, "/", watches=True)  # type: ignore[arg-type]
    asked.step(time.monotonic() + 1)
    assert agents.asked == []
    agents.refusal = None
    asked.step(time.monotonic() + 0.1)
    assert agents.open_questions() == [OWN]


def test_a_watch_for_ever_waits_for_a_time_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "QUESTION_S", 0.01)
    asked = Directory(Agents(), "/", watches=True)  # type: ignore[arg-type]
    assert asked.step(float("inf")), "it goes on"


def test_names_of_members_may_have_slashes() -> None:
    parts: dict[str, Part] = {
        OWN: [("/members/a/b", "state=alive", "x"), ("/racks/r/a/b", "role=dpu", "x"), ("/racksize/q", "", "x")]
    }
    assert [each.members for each in merged(parts, "")] == [("a/b",), ("a/b",), ("x",)]
