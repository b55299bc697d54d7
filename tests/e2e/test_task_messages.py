"""Messages between functions that run for different lanes of a team, with real agents and workers."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import signal
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import offpath
import pytest
from agent_group import Group, new_group
from agent_process import find_program, until
from built import needs_built

BUILT = find_program().parents[1] / "tests" / "task_plugin.so"
PATIENCE_S = 60.0
OK, TIMEOUT, INVALID, TOO_LARGE, LOST, UNSUPPORTED, CANCELLED = 0, 2, 3, 7, 13, 19, 21
MIB = 1 << 20

pytestmark = needs_built(BUILT)


def send(lane: int, nbytes: int, *, tag: int = 0, seed: int = 1) -> bytes:
    return struct.pack("IIIIQQ", 0, lane, tag, 0, nbytes, seed)


def receive(lane: int, room: int, *, tag: int = 0, seed: int = 1) -> bytes:
    return struct.pack("IIIIQQ", 1, lane, tag, 0, room, seed)


def nap(seconds: float) -> bytes:
    return struct.pack("IIIIQQ", 2, 0, 0, 0, int(seconds * 1e9), 0)


END_WORKER = struct.pack("IIIIQQ", 3, 0, 0, 0, 0, 0)


class Outcome(NamedTuple):
    code: int
    differs: bool
    nbytes: int


class Lane:
    """A program's session: one lane of a team."""

    def __init__(self, session: offpath.Session, team: str, lane: int, lanes: int) -> None:
        self.session = session
        self.tasks = session.tasks(lane=lane, lanes=lanes, team=team)
        self.open: list[tuple[offpath.Task, np.ndarray]] = []

    def begin(
        self, script: Iterable[bytes], *, timeout: float | None = None, function: str = "t/messages"
    ) -> offpath.Task:
        arguments = b"".join(script)
        out = self.session.alloc(max(1, len(arguments) // 2)).numpy(np.uint8)
        task = self.tasks.submit(function, {}, {"out": out}, arguments=arguments, timeout=timeout)
        self.open.append((task, out))
        return task

    def end(self) -> list[Outcome]:
        """Of the oldest script that was begun."""
        task, out = self.open.pop(0)
        assert task.wait(PATIENCE_S)
        made = out.tobytes()[: task.output_bytes("out")]
        return [Outcome(code, bool(differs), nbytes) for code, differs, nbytes in struct.iter_unpack("iiQ", made)]

    def run(self, script: Iterable[bytes], *, timeout: float | None = None) -> list[Outcome]:
        self.begin(script, timeout=timeout)
        return self.end()


class Agents:
    """Agents of one group; programs' lanes go round them."""

    def __init__(self, group: Group, names: Sequence[str], stack: contextlib.ExitStack, link: str) -> None:
        self.group, self.names, self.stack, self.link = group, names, stack, link

    def session(self, place: int) -> offpath.Session:
        return self.stack.enter_context(self.group.connect(self.names[place % len(self.names)]))

    def team(self, lanes: int, name: str = "job") -> list[Lane]:
        made = [Lane(self.session(lane), name, lane, lanes) for lane in range(lanes)]
        for lane in made:
            self.stack.callback(lane.tasks.close)
        return made

    def counters(self, place: int) -> dict[str, float]:
        return self.group.running[self.names[place]].status()["tasks"]["messages"]

    def metric(self, name: str) -> float:
        """Of all agents together, without labels."""
        texts = [self.group.running[each].get("/metrics")[2] for each in self.names]
        lines = [line.split() for text in texts for line in text.splitlines()]
        found = [float(words[1]) for words in lines if words[:1] == [f"offpath_{name}"]]
        assert len(found) == len(self.names), name
        return sum(found)


@contextlib.contextmanager
def started(
    directory: Path, agents: int, link: str = "local", more: str = "", deadline: str = "60s"
) -> Iterator[Agents]:
    names = [f"dpu{place}" for place in range(agents)]
    plugin = shutil.copy(BUILT, directory)
    config = directory / "agent.toml"
    config.write_text(f'{more}\n[[plugin]]\nname = "t"\npath = "{plugin}"\nworkers = 6\ndeadline = "{deadline}"\n')
    arguments = ["--config", str(config), *(["--set", "security.force_staging=true"] if link == "staged" else [])]
    with new_group(directory, link) as group, contextlib.ExitStack() as stack:
        for place, name in enumerate(names):
            joins = ["--join", group.address(names[0])] if place else []
            group.start(name, *arguments, *joins)
        assert until(lambda: group.all_know(names, dict.fromkeys(names, "alive")), PATIENCE_S)
        yield Agents(group, names, stack, link)


@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("nbytes", [0, 24, 4096, 40_000, MIB])
def test_everybody_sends_to_everybody(tmp_path: Path, agents: int, nbytes: int) -> None:
    lanes = 3
    with started(tmp_path, agents) as made:
        team = made.team(lanes)
        for own, lane in enumerate(team):
            sends = [send(to, nbytes, tag=own, seed=100 * own + to) for to in range(lanes)]
            lane.begin(sends + [receive(other, MIB, tag=other, seed=100 * other + own) for other in range(lanes)])
        for lane in team:
            assert lane.end() == [Outcome(OK, False, 0)] * lanes + [Outcome(OK, False, nbytes)] * lanes

        def counted(counter: str) -> list[float]:
            return [made.counters(place)[counter] for place in range(agents)]

        assert until(lambda: sum(counted("received")) == lanes * lanes, PATIENCE_S)
        assert until(lambda: sum(counted("held")) == 0, PATIENCE_S)
        assert sum(counted("sent_bytes")) == lanes * lanes * nbytes
        assert sum(counted("from_members")) == {1: 0, 2: 4, 3: 6}[agents]
        assert made.metric("task_messages_sent_total") == made.metric("task_messages_received_total") == lanes * lanes
        assert made.metric("task_messages_received_bytes_total") == sum(counted("received_bytes"))
        assert made.metric("task_messages_from_members_total") == sum(counted("from_members"))
        assert (made.metric("task_lanes"), made.metric("task_messages_held")) == (sum(counted("lanes")), 0)


@pytest.mark.parametrize(("agents", "link"), [(1, "local"), (2, "local"), (2, "staged"), (3, "tcp")])
def test_a_ring_of_large_messages(tmp_path: Path, agents: int, link: str) -> None:
    lanes, nbytes = 3, 64 * MIB
    with started(tmp_path, agents, link) as made:
        team = made.team(lanes)
        for turn in range(2):
            for own, lane in enumerate(team):
                lane.begin(
                    [
                        send((own + 1) % lanes, nbytes, seed=own + turn),
                        receive((own - 1) % lanes, nbytes, seed=(own - 1) % lanes + turn),
                    ]
                )
            for lane in team:
                assert lane.end() == [Outcome(OK, False, 0), Outcome(OK, False, nbytes)]


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("nbytes", [100, 3 * MIB])
def test_receives_before_and_after_sends(tmp_path: Path, agents: int, nbytes: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        other.begin([receive(0, nbytes, tag=9), receive(0, nbytes, tag=8, seed=2)])
        one.begin([nap(0.2), send(1, nbytes, tag=8, seed=2), nap(0.1), send(1, nbytes, tag=9)])
        assert other.end() == [Outcome(OK, False, nbytes)] * 2
        assert one.end()[1].code == OK
        # The call that has sent it is over; another one receives it.
        assert one.run([send(1, nbytes, seed=seed) for seed in range(5)]) == [Outcome(OK, False, 0)] * 5
        assert other.run([receive(0, nbytes, seed=seed) for seed in range(5)]) == [Outcome(OK, False, nbytes)] * 5


@pytest.mark.parametrize("agents", [1, 2])
def test_threads_of_a_function_receive_at_once(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        sizes = [7 + 9000 * tag for tag in range(16)]
        other.begin([receive(0, MIB, tag=tag, seed=tag) for tag in range(16)], function="t/threads")
        one.run([nap(0.05), *(send(1, size, tag=tag, seed=tag) for tag, size in reversed(list(enumerate(sizes))))])
        assert other.end() == [Outcome(OK, False, size) for size in sizes]


@pytest.mark.parametrize("agents", [1, 2])
def test_a_message_that_does_not_fit_stays(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        for nbytes in (1000, 2 * MIB):
            one.run([send(1, nbytes)])
            outcomes = other.run([receive(0, 0), receive(0, nbytes - 1), receive(0, nbytes)])
            assert outcomes == [Outcome(TOO_LARGE, False, nbytes)] * 2 + [Outcome(OK, False, nbytes)]
        assert one.run([send(1, 256 * MIB + 1)]) == [Outcome(TOO_LARGE, False, 0)]


@pytest.mark.parametrize("agents", [1, 2])
def test_waits_end_in_time_for_the_function_to_return(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        task = other.begin([receive(0, 8)], timeout=1.0)
        assert other.end() == [Outcome(TIMEOUT, False, 0)]
        again = other.begin([receive(0, 8)])
        one.run([send(1, 8)])
        assert other.end() == [Outcome(OK, False, 8)]  # the one that came too late has taken nothing
        assert again.info.worker == task.info.worker
        with pytest.raises(offpath.FunctionFailed, match="receive from lane 0, tag 0: no message had arrived"):
            other.tasks.submit("t/must_receive", arguments=struct.pack("I", 0), timeout=1.0).wait(PATIENCE_S)


@pytest.mark.parametrize("agents", [1, 2])
def test_a_cancelled_function_stops_waiting(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        first = other.begin([nap(0)])
        other.end()
        waiting = other.begin([receive(0, 8)])
        time.sleep(0.2)
        waiting.cancel()
        with pytest.raises(offpath.Cancelled):
            other.end()
        last = other.begin([receive(0, 8)])
        one.run([send(1, 8)])
        assert other.end() == [Outcome(OK, False, 8)]
        assert last.info.worker == first.info.worker  # it has returned when it was asked to


@pytest.mark.parametrize("agents", [1, 2])
def test_messages_outlive_the_worker_that_sent_them(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        one.begin([send(1, 100), send(1, MIB, seed=2), END_WORKER])
        with pytest.raises(offpath.FunctionFailed, match="SIGKILL"):
            one.end()
        assert other.run([receive(0, MIB), receive(0, MIB, seed=2)]) == [
            Outcome(OK, False, 100),
            Outcome(OK, False, MIB),
        ]
        other.begin([receive(0, 8, seed=3)])
        one.run([send(1, 8, seed=3)])  # by its next worker
        assert other.end() == [Outcome(OK, False, 8)]


@pytest.mark.parametrize("agents", [1, 2])
def test_a_worker_that_dies_while_it_receives_takes_nothing(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents, deadline="3s") as made:
        one, other = made.team(2)
        other.begin([receive(0, 8), nap(5)])  # it has it, and dies at its deadline
        one.run([send(1, 8)])
        with pytest.raises(offpath.Timeout):
            other.end()
        one.run([send(1, 8, seed=2)])
        assert other.run([receive(0, 8, seed=2)]) == [Outcome(OK, False, 8)]


@pytest.mark.parametrize("agents", [1, 2])
def test_a_lane_that_has_closed_is_gone(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        one, other = made.team(2)
        assert one.run([send(1, 8)])[0].code == OK
        assert other.run([receive(0, 8)])[0].code == OK
        other.begin([receive(0, 8), send(0, 8)])
        time.sleep(0.2)
        one.tasks.close()
        assert [outcome.code for outcome in other.end()] == [LOST, LOST]
        # Another program may have the lane now.
        anew = Lane(made.session(0), "job", 0, 2)
        anew.run([send(1, 8, seed=5)])
        assert until(lambda: other.run([receive(0, 8, seed=5)], timeout=3.0)[0].code == OK, PATIENCE_S)
        anew.tasks.close()


def test_a_killed_agent_is_an_error_for_those_who_wait(tmp_path: Path) -> None:
    with started(tmp_path, 3) as made:
        team = made.team(3)
        for own, lane in enumerate(team):
            lane.begin([send((own + 1) % 3, 100), receive((own + 2) % 3, 100)])
        for lane in team:
            assert [outcome.code for outcome in lane.end()] == [OK, OK]
        team[1].begin([receive(0, 8), receive(2, 8), send(0, 8)])
        team[2].begin([receive(0, 8), send(1, 8)])
        time.sleep(0.2)
        made.group.running["dpu0"].process.send_signal(signal.SIGKILL)
        assert [outcome.code for outcome in team[1].end()] == [LOST, OK, LOST]
        assert [outcome.code for outcome in team[2].end()] == [LOST, OK]


@pytest.mark.parametrize("agents", [1, 2])
def test_teams_keep_to_themselves(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        teams = [made.team(2, "a"), made.team(2, "b"), made.team(3, "a")]
        for number, team in enumerate(teams):
            team[0].begin(send(1, 50_000, seed=10 * number + turn) for turn in range(4))
        for number, team in reversed(list(enumerate(teams))):
            expected = [Outcome(OK, False, 50_000)] * 4
            assert team[1].run([receive(0, 50_000, seed=10 * number + turn) for turn in range(4)]) == expected


@pytest.mark.parametrize("agents", [1, 2])
def test_a_team_that_nobody_listens_to_holds_nobody_up(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents, more='task.messages_max = "4MiB"') as made:
        loud, quiet = made.team(2, "loud"), made.team(2, "quiet")
        codes = [outcome.code for outcome in loud[0].run([send(1, MIB)] * 8, timeout=4.0)]
        assert codes[:4] == [OK] * 4 and codes[4] == TIMEOUT
        quiet[0].begin([send(1, 100_000)])
        assert quiet[1].run([receive(0, 100_000)]) == [Outcome(OK, False, 100_000)]
        # A sender that waits for room goes on when there is some.
        loud[0].begin([send(1, MIB)] * 4)
        assert [outcome.code for outcome in loud[1].run([receive(0, MIB)] * 8)] == [OK] * 8
        assert [outcome.code for outcome in loud[0].end()] == [OK] * 4


def test_lanes_that_there_are_not(tmp_path: Path) -> None:
    with started(tmp_path, 1) as made:
        one, _ = made.team(2)
        assert [outcome.code for outcome in one.run([send(2, 8), receive(2, 8)])] == [INVALID, INVALID]
        alone = Lane(made.session(0), "", 0, 1)
        assert [outcome.code for outcome in alone.run([send(0, 8), receive(0, 8)])] == [UNSUPPORTED, UNSUPPORTED]
        with pytest.raises(offpath.FunctionFailed, match=r"ofp_tasks_options\.team"):
            alone.tasks.submit("t/must_receive", arguments=struct.pack("I", 0)).wait(PATIENCE_S)
        alone.tasks.close()
        with pytest.raises(offpath.Invalid, match="without a lane"):
            made.session(0).tasks(team="job")


@pytest.mark.parametrize("agents", [1, 2])
def test_a_lane_is_one_sessions(tmp_path: Path, agents: int) -> None:
    with started(tmp_path, agents) as made:
        made.team(2)
        for place, lane in itertools.product(range(agents), range(2)):

            def is_refused(place: int = place, lane: int = lane) -> bool:
                try:
                    made.session(place).tasks(lane=lane, lanes=2, team="job").close()
                except offpath.Exists as error:
                    return f"lane {lane} of 2" in str(error) and (
                        "this agent" in str(error) or "agent dpu" in str(error)
                    )
                return False

            assert until(is_refused, PATIENCE_S)  # as soon as that agent has heard of it


def test_without_an_agent_there_is_the_own_lane(tmp_path: Path) -> None:
    plugin = shutil.copy(BUILT, tmp_path)
    with offpath.Tasks.here({"t": plugin}, lane=0, lanes=2, team="job") as tasks:
        out = np.zeros(64, np.uint8)
        script = [send(0, 100, seed=4), receive(0, 99), receive(0, 100, seed=4), send(1, 8)]
        tasks.submit("t/messages", {}, {"out": out}, arguments=b"".join(script)).wait(PATIENCE_S)
        assert list(struct.iter_unpack("iiQ", out.tobytes())) == [
            (OK, 0, 0),
            (TOO_LARGE, 0, 100),
            (OK, 0, 100),
            (UNSUPPORTED, 0, 0),
        ]
        with pytest.raises(offpath.FunctionFailed, match="without an agent"):
            tasks.submit("t/must_receive", arguments=struct.pack("I", 1)).wait(PATIENCE_S)
