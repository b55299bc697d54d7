"""Tasks: functions of the agent's plug-ins over this program's memory."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from . import _native, errors

NO_CHANGE = (0, 0, 0)


@dataclass(frozen=True)
class Input:
    """An input that stays on the agent as ``version``. Without an array it has to be there, with ``nbytes`` bytes. A
    list of arrays is one input, in pieces.

    ``changed``: (a version before, first byte, bytes) where only that part differs from it; where the agent has that
    version, the part alone is pulled.
    """

    array: Any = None
    version: int = 0
    changed: tuple[int, int, int] = NO_CHANGE
    nbytes: int = 0


@dataclass(frozen=True)
class Output:
    """An output into memory of ``Session.alloc``; or, without an array, of at most ``nbytes`` bytes that are not
    pushed. With a ``version`` it stays on the agent as an input of its name."""

    array: Any = None
    version: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class TaskInfo:
    """Where the time of a task went, on the agent."""

    here: bool  # this program ran it itself
    worker: int  # a new number: static variables of the function were reset
    pulled_ns: int
    queued_ns: int
    ran_ns: int
    pushed_ns: int
    pulled_bytes: int
    pushed_bytes: int


class Task:
    """One task. Dropping it cancels it, if it is not over and no other comes after it."""

    def __init__(self, native: _native.Task, function: str, outputs: tuple[str, ...], after: tuple[Task, ...]) -> None:
        self._native = native
        self._outputs = outputs
        self._after = after
        self.function = function

    def wait(self, timeout: float | None = None) -> bool:
        """True: the task has succeeded, and its outputs are there. False: it is still running. Raises its error."""
        ended = self._native.wait(timeout)
        if ended:
            self._after = ()
        return ended

    def wait_pulled(self, timeout: float | None = None) -> bool:
        """True: its inputs are this program's again."""
        return self._native.wait_pulled(timeout)

    def done(self) -> bool:
        """Whether it has succeeded; does not wait. Raises its error."""
        return self.wait(0)

    def cancel(self) -> None:
        """It ends soon, with Cancelled; or successfully, if its outputs were being pushed already."""
        self._native.cancel()

    @property
    def info(self) -> TaskInfo:
        """Times and bytes of a task that is over. Raises WouldBlock before."""
        return TaskInfo(**self._native.info())

    def output_bytes(self, name: str) -> int:
        """How many bytes the function has made of an output."""
        return self._native.output_bytes(self._outputs.index(name))

    def __repr__(self) -> str:
        return f"<Task {self.function}>"


def _listed(inputs: Mapping[str, Any] | None, outputs: Mapping[str, Any] | None) -> tuple[list[Any], list[Any]]:
    given = []
    for name, value in (inputs or {}).items():
        each = value if isinstance(value, Input) else Input(value)
        pieces = each.array or (None,) if isinstance(each.array, (list, tuple)) else (each.array,)
        given += [(name, piece, each.nbytes, each.version, *each.changed) for piece in pieces]
    made = []
    for name, value in (outputs or {}).items():
        out = value if isinstance(value, Output) else Output(value)
        made.append((name, out.array, out.nbytes, out.version))
    return given, made


def team_of(communicator: Any) -> dict[str, Any]:
    """Options of ``Session.tasks`` for the ranks of a communicator of mpi4py: each has a lane, and all have a team of
    their own. Collective."""
    name = f"mpi-{uuid.uuid4().hex}" if communicator.Get_rank() == 0 else None
    team = communicator.bcast(name, root=0)
    return {"lane": communicator.Get_rank(), "lanes": communicator.Get_size(), "team": team}


class Tasks:
    """A session of tasks, made by ``Session.tasks``; or by ``Tasks.here``, without an agent."""

    def __init__(self, channel: Any, *, lane: int | None = None, lanes: int = 1, tasks_max: int = 64,
                 plugins: Mapping[str, Any] | None = None, team: str = "") -> None:  # fmt: skip
        paths = [(name, os.fspath(path)) for name, path in (plugins or {}).items()]
        self._native = _native.Tasks(channel, lane or 0, 0 if lane is None else lanes, tasks_max, paths, team)
        self._submitted: WeakValueDictionary[int, Task] = WeakValueDictionary()  # that ``next`` may give
        self._submitting = threading.Lock()  # until a task is among these

    @classmethod
    def here(cls, plugins: Mapping[str, Any], *, lane: int | None = None, lanes: int = 1, team: str = "") -> Tasks:
        """Functions of these shared objects (paths by name), run by this program when it waits for them. Messages reach
        their own lane only."""
        return cls(None, lane=lane, lanes=lanes, plugins=plugins, team=team)

    def submit(
        self,
        function: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        *,
        arguments: bytes = b"",
        after: Iterable[Task] = (),
        timeout: float | None = None,
    ) -> Task:
        """Requests ``plug-in/function``, and returns immediately.

        ``inputs``: arrays by name, which may not change until they are pulled, lists of arrays, which the function sees
        as one, or an ``Input``. ``outputs``: arrays in memory of ``Session.alloc``, or an ``Output``. ``after``: tasks
        that must have succeeded before this one begins. ``timeout``: for all of it; by default the plug-in's.

        Raises WouldBlock (as many are under way as may be), Denied (an output elsewhere).
        """
        before = tuple(after)
        with self._submitting:
            native = self._native.submit(
                function, *_listed(inputs, outputs), arguments, [task._native for task in before], timeout
            )
            task = Task(native, function, tuple(outputs or {}), before)
            self._submitted[native.handle] = task
        return task

    def next(self, timeout: float | None = None) -> Task | None:
        """The next task that is over, successful or not: its ``wait`` says which. Each is returned once. None: not
        until then.

        Where None was returned, ``Session.event_fd`` becomes readable when it is worth asking again. Raises NotFound
        when none is under way, and all that are over were returned.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        while handle := self._native.next(None if ends is None else max(0.0, ends - time.monotonic())):
            with self._submitting:
                task = self._submitted.pop(handle, None)
            if task is not None:  # else it was dropped meanwhile
                return task
        return None

    def as_completed(self, timeout: float | None = None) -> Iterator[Task]:
        """Tasks as they end, until none is left. ``timeout`` is for all of them; raises Timeout if some are left
        then."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                task = self.next(None if ends is None else max(0.0, ends - time.monotonic()))
            except errors.NotFound:
                return
            if task is None:
                raise errors.Timeout(f"tasks are under way after {timeout} s")
            yield task

    def run(self, function: str, inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | None = None, *,
            arguments: bytes = b"", after: Iterable[Task] = (), timeout: float | None = None) -> bool:  # fmt: skip
        """Like ``submit``, and waits. If the agent dies, this program runs the function itself, provided that it was
        given the plug-in: True."""
        here, _ = self._native.run(
            function, *_listed(inputs, outputs), arguments, [task._native for task in after], timeout
        )
        return here

    def close(self) -> None:
        """Cancels tasks under way; inputs that stayed on the agent are released."""
        self._native.close()

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
