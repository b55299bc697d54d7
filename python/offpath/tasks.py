"""Tasks: functions of the agent's plug-ins over this program's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _native

NO_CHANGE = (0, 0, 0)


@dataclass(frozen=True)
class Input:
    """An input that stays on the agent as ``version``. Without an array it has to be there, with ``nbytes`` bytes.

    ``changed``: (a version before, first byte, bytes) where only that part differs from it; where the agent has that
    version, the part alone is pulled.
    """

    array: Any = None
    version: int = 0
    changed: tuple[int, int, int] = NO_CHANGE
    nbytes: int = 0


@dataclass(frozen=True)
class Output:
    """An output into memory of ``Session.alloc``; or, without an array, of at most ``nbytes`` bytes that are not pushed.
    With a ``version`` it stays on the agent as an input of its name."""

    array: Any = None
    version: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class TaskInfo:
    """Where the time of a task went, on the agent."""

    here: bool  # this program ran it itself
    worker: int  # another number than before: static variables of the function have begun anew
    pulled_ns: int
    queued_ns: int
    ran_ns: int
    pushed_ns: int
    pulled_bytes: int
    pushed_bytes: int


class Task:
    """One task. Dropping it cancels it, if it is not over."""

    def __init__(self, native: _native.Task, function: str, outputs: tuple[str, ...]) -> None:
        self._native = native
        self._outputs = outputs
        self.function = function

    def wait(self, timeout: float | None = None) -> bool:
        """True: it has ended well, and its outputs are there. False: it goes on. Raises what it has failed with."""
        return self._native.wait(timeout)

    def wait_pulled(self, timeout: float | None = None) -> bool:
        """True: its inputs are this program's again."""
        return self._native.wait_pulled(timeout)

    def done(self) -> bool:
        return self.wait(0)

    def cancel(self) -> None:
        """It ends soon, with Cancelled; or well, if its outputs were being pushed already."""
        self._native.cancel()

    @property
    def info(self) -> TaskInfo:
        return TaskInfo(**self._native.info())

    def output_bytes(self, name: str) -> int:
        """How many bytes the function has made of an output."""
        return self._native.output_bytes(self._outputs.index(name))

    def __repr__(self) -> str:
        return f"<Task {self.function}>"


class Tasks:
    """A session of tasks, made by ``Session.tasks``."""

    def __init__(self, channel: Any, *, lane: int | None = None, lanes: int = 1, tasks_max: int = 64) -> None:
        self._native = _native.Tasks(channel, lane or 0, 0 if lane is None else lanes, tasks_max, [])

    def submit(self, function: str, inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | None = None, *,
               arguments: bytes = b"", after: Iterable[Task] = (), timeout: float | None = None) -> Task:  # fmt: skip
        """Asks for ``plug-in/function``, and returns at once.

        ``inputs``: arrays by name, which may not change until they are pulled, or an ``Input``. ``outputs``: arrays in
        memory of ``Session.alloc``, or an ``Output``. ``after``: tasks that have to end well before this one begins.
        ``timeout``: for all of it; by default the plug-in's.

        Raises WouldBlock (as many are under way as may be), Denied (an output elsewhere).
        """
        given = []
        for name, value in (inputs or {}).items():
            each = value if isinstance(value, Input) else Input(value)
            given.append((name, each.array, each.nbytes, each.version, *each.changed))
        made = []
        for name, value in (outputs or {}).items():
            each = value if isinstance(value, Output) else Output(value)
            made.append((name, each.array, each.nbytes, each.version))
        native = self._native.submit(function, given, made, arguments, [task._native for task in after], timeout)
        return Task(native, function, tuple(outputs or {}))

    def close(self) -> None:
        """Cancels what is under way; what stayed on the agent is gone."""
        self._native.close()

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
