"""Exceptions: one class for each code of the C interface (``ofp_code``), with one base.

Every message names the field and both values, the given and the allowed one.
"""

from __future__ import annotations

from errno import EACCES, ECONNRESET, EIO, ENOSPC, ETIMEDOUT


class Error(Exception):
    """Base of all exceptions. ``code`` is the number of ``ofp_code``; 0 for errors of the package's own."""

    code = 0


class WouldBlock(Error):
    """No room in the ring, or no credit; nothing was sent, try again."""

    code = 1


class Timeout(Error, TimeoutError):
    """The deadline passed; the operation continues."""

    code = 2
    errno = ETIMEDOUT


class Invalid(Error, ValueError):
    """An argument is wrong."""

    code = 3


class NotFound(Error, LookupError):
    """There is no such object or pool."""

    code = 4


class Exists(Error):
    """The name is already in use."""

    code = 5


class SchemaError(Error, TypeError):
    """The data does not fit the schema."""

    code = 6


class TooLarge(Error, ValueError):
    """More than a limit allows."""

    code = 7


class Stale(Error):
    """The memory was withdrawn or announced again before it was pulled; or the members of a pool have changed since its
    parts were listed."""

    code = 8


class Unannounced(Error):
    """The memory was never announced: call `session.announce`."""

    code = 9


class Unreadable(Error):
    """The memory was freed or unmapped before the agent read it: keep it until `wait_pulled` returns."""

    code = 10


class Denied(Error, PermissionError):
    """Not permitted."""

    code = 11
    errno = EACCES


class VersionMismatch(Error):
    """Program and agent speak different protocol versions: install the same release on both."""

    code = 12


class PeerLost(Error, ConnectionError):
    """The agent has ended, and so has every lease: the arrays belong to the program again."""

    code = 13
    errno = ECONNRESET


class ProtocolError(Error):
    """The other side sent invalid bytes."""

    code = 14


class Forked(Error):
    """A session of the parent process was used in a forked child; connect there again."""

    code = 15


class OutOfMemory(Error, MemoryError):
    """No memory."""

    code = 16


class NoSpace(Error, OSError):
    """No space left on the device."""

    code = 17
    errno = ENOSPC


class IoError(Error, OSError):
    """A system call failed."""

    code = 18
    errno = EIO


class Unsupported(Error, NotImplementedError):
    """Not supported here."""

    code = 19


class Closed(Error):
    """The session or stream is closed."""

    code = 20


class Cancelled(Error):
    """The operation was cancelled."""

    code = 21


class FunctionFailed(Error):
    """A function of a plug-in reported a failure, threw or crashed."""

    code = 22


class AgentError(Error, RuntimeError):
    """An agent could not be started, or ended."""


class NoMembersWarning(UserWarning):
    """A pool was made whose ``members`` match no agent: puts fail until a matching member joins."""


_BY_CODE: dict[int, type[Error]] = {cls.code: cls for cls in Error.__subclasses__() if cls.code != 0}


def error_of(code: int, message: str) -> Error:
    """The exception for a code of the C interface."""
    return _BY_CODE.get(code, Error)(message)


__all__ = ["Error", "NoMembersWarning", "error_of", *(cls.__name__ for cls in Error.__subclasses__())]
