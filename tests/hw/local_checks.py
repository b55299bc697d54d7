"""Checks in a guest of their own: program and agent on one machine whose kernel is older and stricter than most.

Usage: local_checks.py OUT. Writes one line of JSON for each check to OUT/results. Debian's kernel 6.1 has no
SO_PEERPIDFD (Linux 6.5) and has Yama. Its settings are changed here, and the last one cannot be taken back: never on a
machine that is not a guest.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import offpath
from checks import BUILD, Failed, expect, run_checks

NOBODY = 65534
SO_PEERPIDFD = 77
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
NOTICED_S = 10.0

# The doctor's findings of an agent that this very program started: neither is the other's descendant.
DIAGNOSE = """
import subprocess, sys
import offpath
with offpath.Agent.start(listen=[f"unix:{sys.argv[1]}/agent.sock"], timeout=60.0) as agent:
    subprocess.run([sys.executable, "-m", "offpath", "doctor", "--agent", agent.address, "--json"], check=False)
"""

# Whether one process may read another's memory that did not name it: the rule itself, without anything of ours.
TRESPASS = """
import ctypes, os, signal
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
other = os.fork()
word = ctypes.create_string_buffer(8)
if other == 0:
    signal.pause()
reader = os.fork()  # a sibling, and so no ancestor
if reader == 0:
    here, there = Vector(ctypes.addressof(word), 8), Vector(ctypes.addressof(word), 8)
    got = libc.process_vm_readv(other, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    print("read" if got == 8 else os.strerror(ctypes.get_errno()), flush=True)
    os._exit(0)
os.waitpid(reader, 0)
os.kill(other, signal.SIGKILL)
"""

# Connects, leaves a child that holds all it has, and waits to be killed.
HELD = """
import os, signal, sys
import offpath
session = offpath.connect(sys.argv[1], name="held")
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
signal.pause()
"""


def set_scope(scope: int) -> None:
    PTRACE_SCOPE.write_text(str(scope))
    now = int(PTRACE_SCOPE.read_text())
    expect(now == scope, f"kernel.yama.ptrace_scope is {now}, {scope} was set")


def as_nobody(*command: object) -> list[str]:
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
    return ["setpriv", *user, *map(str, command)]


def own_directory(directory: Path, user: int) -> Path:
    """One that belongs to this user alone: an agent refuses a folder of another user for its socket."""
    own = directory / str(user)
    if not own.exists():
        own.mkdir(mode=0o700)
        os.chown(own, user, user)
    return own


def findings(directory: Path, *, root: bool) -> dict[str, str]:
    own = own_directory(directory, 0 if root else NOBODY)
    command = [sys.executable, "-c", DIAGNOSE, str(own)]
    done = subprocess.run(
        command if root else as_nobody(*command), capture_output=True, text=True, timeout=200, check=False
    )
    try:
        return {each["name"]: each["value"] for each in json.loads(done.stdout)["findings"]}
    except ValueError:
        raise Failed(f"the doctor said: {done.stdout[-300:]}{done.stderr[-500:]}") from None


def expect_one_sided(found: dict[str, str]) -> None:
    expect(found["link"] == "local" and found["reads"] == "one-sided", f"reads are {found['reads']}: {found['why']}")
    silence = found["silenced peer"]
    expect(silence == "stopped while the agent read from it; its frame arrived", f"the silenced peer: {silence}")


def expect_staged(found: dict[str, str], reason: str) -> None:
    expect(found["link"] == "local" and found["reads"] == "staged", f"reads are {found['reads']}: {found['why']}")
    expect(reason in found["why"], f"the reason given is: {found['why']}")
    # A staged program has copied its arrays before it is stopped, so its frame still arrives.
    expect("could not be tried" not in found["silenced peer"], f"the silenced peer: {found['silenced peer']}")


def trespass() -> str:
    done = subprocess.run(as_nobody(sys.executable, "-c", TRESPASS), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def yama_1(directory: Path) -> str:
    """A process may be read by those it names; the program names its agent."""
    set_scope(0)
    expect(trespass() == "read", "without Yama a process of the same user was not to be read")
    set_scope(1)
    refused = trespass()
    expect(refused == os.strerror(errno.EPERM), f"the kernel was to forbid a stranger's read, it said: {refused}")
    expect_one_sided(findings(directory, root=False))
    return f"a stranger: {refused}; the agent that the program named reads one-sided"


def yama_2(directory: Path) -> str:
    """Only who has CAP_SYS_PTRACE may read."""
    set_scope(2)
    found = findings(directory, root=False)
    expect_staged(found, "kernel.yama.ptrace_scope is 2: set it to 0 or 1, or give the agent CAP_SYS_PTRACE")
    expect_one_sided(findings(directory, root=True))
    return f"staged: {found['why']}; with the capability one-sided"


def yama_3(directory: Path) -> str:
    """Nobody may, and it stays so until the next boot: the last check there is."""
    set_scope(3)
    reason = "kernel.yama.ptrace_scope is 3: set it to 0 or 1 at boot, it cannot be lowered while running"
    for root in (False, True):
        found = findings(directory, root=root)
        expect_staged(found, reason)
    return f"staged: {found['why']}; with the capability as well"


def pidfds_of(pid: int) -> set[int]:
    """The processes that this process holds pidfds of (fdinfo, proc(5))."""
    held = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        fields = dict(line.partition(":")[::2] for line in info.read_text().splitlines())
        if "Pid" in fields:
            held.add(int(fields["Pid"]))
    return held


@contextmanager
def held_program(address: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program with a child that holds its connection; the child's id."""
    program = subprocess.Popen([sys.executable, "-c", HELD, address], stdout=subprocess.PIPE, text=True)
    child = int(program.stdout.readline())
    try:
        yield program, child
    finally:
        program.kill()
        program.wait()
        os.kill(child, signal.SIGKILL)


def await_text(text: str, said: Callable[[], str]) -> float:
    began = time.monotonic()
    while text not in said():
        expect(time.monotonic() - began < NOTICED_S, f"'{text}' is not in: {said()[-500:]}")
        time.sleep(0.01)
    return time.monotonic() - began


def pidfd_open(directory: Path) -> str:
    """Without SO_PEERPIDFD each side opens the other by its number and compares the start time."""
    ends = socket.socketpair()
    try:
        ends[0].getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4)
        raise Failed(f"kernel {os.uname().release} has SO_PEERPIDFD, so this proves nothing")
    except OSError as error:
        expect(error.errno == errno.ENOPROTOOPT, f"SO_PEERPIDFD: {error}")
    own = own_directory(directory, 0)
    settings = {"log.level": "info"}
    with offpath.Agent.start(listen=[f"unix:{own}/agent.sock"], settings=settings, timeout=60.0) as agent:
        with held_program(agent.address) as (program, child):
            expect(program.pid in pidfds_of(agent.pid), "the agent holds no pidfd of the program")
            expect(agent.pid in pidfds_of(program.pid), "the program holds no pidfd of the agent")
            program.kill()
            noticed = await_text("held ended: the program ended", lambda: agent.log)
            os.kill(child, 0)  # it still holds the socket
    kernel = os.uname().release
    return f"none in {kernel}; a program that was killed, its child holding the socket, was noticed in {noticed:.2f} s"


def deaths(directory: Path) -> str:
    """The link's own tests of processes that are killed, replaced, stopped and forked."""
    done = subprocess.run(
        [BUILD / "tests" / "local_link_faults_test"], capture_output=True, text=True, timeout=200, check=False
    )
    expect(done.returncode == 0 and "SKIPPED" not in done.stdout, f"a test failed: {done.stdout[-500:]}")
    for test in ("HostKilled.IsNoticedThoughAGrandchild", "AgentKilled.IsNoticedThoughItsChild"):
        expect(f"[       OK ] {test}HoldsTheSocket" in done.stdout, f"{test}… did not run")
    return "killed, replaced and stopped programs and agents were noticed, with children that hold their sockets"


CHECKS: tuple[Callable[[Path], str], ...] = (pidfd_open, deaths, yama_1, yama_2, yama_3)


def main() -> None:
    directory = Path("/tmp/local-checks")
    directory.mkdir(mode=0o755)
    run_checks(Path(sys.argv[1]) / "results", CHECKS, directory, only=" ".join(sys.argv[2:]))


if __name__ == "__main__":
    main()
