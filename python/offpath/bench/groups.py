"""Groups of real agents, a process each, that all know each other."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import offpath

from ..agent_group import AgentGroup
from ..errors import AgentError
from .agent_process import AgentUnavailableError
from .link import NoDevice, device_and_address
from .programs import ProgramError

LINKS = ("unix", "tcp")  # on any machine
PATIENCE_S = 600.0


@contextmanager
def group_of(count: int, link: str, memory_mib: int, dead_after: str = "60s",
             others: Sequence[str] = ()) -> Iterator[tuple[AgentGroup, str]]:  # fmt: skip
    """Agents with further options, and the key with which programs come over ``tcp`` or ``verbs``. ``dead_after`` is
    long because the cores may be busy for seconds. Raises AgentUnavailableError, also without an RDMA device."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as directory:
        place = Path(directory)
        options = ["--memory", f"{memory_mib}MiB", "--name", "agent{index}", "--http", f"unix:{place}/http{{index}}"]
        options += ["--set", "log.level=error", "--set", f"group.dead_after={dead_after}", *others]
        key = ""
        if link != "unix":
            key = str(place / "key")
            Path(key).touch(mode=0o600)
            Path(key).write_text(secrets.token_hex(32) + "\n")
            options += ["--listen", *network_address(link), "--key-file", key]
        else:
            options += ["--listen", f"unix:{place}/agent{{index}}"]
        try:
            group = AgentGroup(count, options)
        except AgentError as error:
            raise AgentUnavailableError(str(error)) from error
        try:
            await_members(group, key, count)
            yield group, key
        finally:
            group.stop()


def network_address(link: str) -> list[str]:
    """Where an agent of this machine listens over ``tcp`` or ``verbs``, as words after ``--listen``."""
    if link == "tcp":
        return ["tcp:127.0.0.1:0"]
    try:
        return [f"verbs:{device_and_address()[1]}:0", "--insecure-network"]
    except NoDevice as error:
        raise AgentUnavailableError(str(error)) from error


def connect(group: AgentGroup, index: int, key: str) -> offpath.Session:
    return offpath.connect(group.ready[index]["address"], key_file=key or None)


def await_members(group: AgentGroup, key: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    for index in range(count):
        with connect(group, index, key) as session:
            while sum(member.state == "alive" for member in session.members()) < count:
                if time.monotonic() > deadline:
                    raise ProgramError(f"{count} agents do not know each other")
                time.sleep(0.1)


def cpu_seconds(pid: int) -> float:
    """Of a process with all its threads, including those that have ended."""
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e9  # clock_getcpuclockid
