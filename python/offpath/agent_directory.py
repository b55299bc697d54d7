"""The directory of an agent that a program started: locked while either process lives, removed when both have ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

PREFIX = "offpath-"
LOCK = "agent.lock"
MARK = b"offpath: whoever holds the lock of this file uses this directory\n"


class AgentDirectory:
    """A new directory that only this user may enter. Making one removes those whose processes were killed.

    The kernel drops the lock with the last process that holds ``lock_fd``, however it ends. A process number would not
    do: it may belong to a later process, or to another container with the same /tmp.
    """

    def __init__(self) -> None:
        remove_left_behind(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            # Under its name only when it is locked: another program may look at any time.
            unlocked = self.path / f"{LOCK}.new"
            self.lock_fd = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.write(self.lock_fd, MARK)
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(self.path / LOCK)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Removes it with its contents; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock_fd, self.lock_fd = getattr(self, "lock_fd", -1), -1
        if lock_fd >= 0:
            os.close(lock_fd)


def remove_left_behind(parent: Path) -> None:
    """Removes the directories in ``parent`` that are provably of agents whose processes have all ended."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    remove_if_left(Path(entry.path))


def remove_if_left(directory: Path) -> None:
    """Removes the directory if it belongs to this user, has a lock file of ours, and no process holds its lock."""
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(directory_fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock_fd = os.open(LOCK, flags, dir_fd=directory_fd)
        try:
            lock = os.fstat(lock_fd)
            if not stat.S_ISREG(lock.st_mode) or lock.st_uid != os.geteuid() or os.read(lock_fd, len(MARK)) != MARK:
                return
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: a process lives
            shutil.rmtree(directory)
        finally:
            os.close(lock_fd)
    finally:
        os.close(directory_fd)
