"""``offpath doctor``: how a program on this machine reaches an agent, the reasons, and recommended changes.

That the agent reads on its own is not believed but tried: a program of ours posts a batch, is stopped (SIGSTOP) before
the agent has looked, and another one of ours waits for the frame.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .. import __version__
from ..errors import Error, NotFound, Timeout
from ..pool import Pool
from ..session import Info, Session, connect
from . import doca_device, rdma_device, sandbox

# The agent needs some milliseconds to read the last posts, and the program some microseconds to stop.
BYTES_MIN, BYTES_MAX = 1 << 20, 64 << 20
READING_S = 0.2  # on a slow link, no more than the agent reads in about this time
SILENCE_S = 10.0  # how long a stopped program's frame is waited for where it has to arrive
SILENCE_OF_COPYING_S = 2.0  # and where the agent cannot get it

# Run by the program that is stopped: it reports that it is ready, posts on request, reports whether the agent was done
# before, and stops itself.
PEER = """
import os, signal, sys
import numpy as np, offpath, pyarrow as pa
address, name, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = offpath.connect(address, name="offpath-doctor-peer")
schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
stream = session.stream(name, schema, rows_max=rows)
values = np.arange(rows)
announced = session.announce(values)
os.write(1, b"ready\\n")
sys.stdin.readline()
ticket = stream.send({"value": values}, key="silent")
os.write(1, b"early\\n" if ticket.pulled else b"under way\\n")
os.kill(os.getpid(), signal.SIGSTOP)
"""


@dataclass
class Finding:
    """One finding. ``advice`` is the recommended change, or empty."""

    name: str
    value: Any
    good: bool = True
    advice: str = ""


@dataclass
class Diagnosis:
    agent: str
    findings: list[Finding] = field(default_factory=list)

    def add(self, name: str, value: Any, good: bool = True, advice: str = "") -> None:
        self.findings.append(Finding(name, value, good, "" if good else advice))

    @property
    def well(self) -> bool:
        return all(finding.good for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"agent": self.agent, "well": self.well, "findings": [vars(finding) for finding in self.findings]}


def diagnose(address: str) -> Diagnosis:
    """Looks at everything. Raises Error if the agent cannot be reached at all."""
    diagnosis = Diagnosis(address)
    with connect(address, name="offpath-doctor") as session:
        add_link(diagnosis, session.info)
        session.probe(5)  # wakes the agent
        began_ns = time.monotonic_ns()
        session.probe(5)
        diagnosis.add("round trip", f"{(time.monotonic_ns() - began_ns) / 1e3:.1f} us")
        silence_peer(diagnosis, session, address)
    add_here(diagnosis, wanted=address.partition(":")[0])
    return diagnosis


def diagnose_machine(root: Path = Path("/")) -> Diagnosis:
    """Looks at this machine alone, as one that an agent or a program is to run on: a card before its first agent."""
    diagnosis = Diagnosis("none asked")
    add_here(diagnosis, wanted="verbs", root=root)
    return diagnosis


def add_here(diagnosis: Diagnosis, wanted: str, root: Path = Path("/")) -> None:
    """``wanted``: the kind of address that is to work from here."""
    add_memory(diagnosis)
    add_machine(diagnosis)
    for name, value, good, advice in sandbox.look():
        diagnosis.add(name, value, good, advice)
    for name, value, good, advice in doca_device.look(root, wanted == "doca"):
        diagnosis.add(name, value, good, advice)
    if wanted == "doca":
        return
    for name, value, good, advice in rdma_device.look(root, wanted == "verbs"):
        as_it_is = wanted == "verbs" or advice.startswith("optional")
        diagnosis.add(name, value, good, advice if as_it_is else f"optional, for RDMA: {advice}")


def add_link(diagnosis: Diagnosis, info: Info) -> None:
    way = "staged" if info.staged else "one-sided" if info.one_sided else "emulated"
    diagnosis.add("link", info.link)
    advice = {
        "staged": "arrays are copied by your program: run the agent as the same user with Yama's ptrace_scope 0 or 1, "
        "or give it CAP_SYS_PTRACE (packaging/systemd does)",
        "emulated": "a thread of your program serves the reads; on one machine connect by unix:/path instead",
        "one-sided": "",
    }[way]
    diagnosis.add("reads", way, way == "one-sided", advice)
    diagnosis.add("why", info.link_reason)
    diagnosis.add("library threads", info.threads)
    same = info.agent_version == __version__
    versions = f"library {__version__}, agent {info.agent_version}"
    diagnosis.add("versions", versions, same, "install the same version on both sides")
    diagnosis.add("agent", f"{info.agent_name}, process {info.agent_pid or 'unknown'}")
    diagnosis.add("agent memory for frames", info.memory_bytes_max)


@contextlib.contextmanager
def peer_process(address: str, name: str, rows: int) -> Iterator[subprocess.Popen[str]]:
    """A program that has announced memory and waits for a line to post from it and stop."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER, address, name, str(rows)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        yield peer
    finally:
        with contextlib.suppress(ProcessLookupError):
            peer.send_signal(signal.SIGCONT)
        peer.kill()
        peer.communicate()


def bytes_to_read(session: Session, name: str) -> int:
    """How much the stopped program shall post, by how long the agent takes to read the first MiB of this one."""
    values = np.zeros(BYTES_MIN // 8, dtype=np.int64)
    schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
    with session.stream(name, schema, rows_max=len(values)) as stream:
        began = time.monotonic()
        stream.send({"value": values}, key="first").wait_stored(30.0)
        seconds = time.monotonic() - began
    session.pool(f"local:/{name}").drop()
    most = min(BYTES_MAX, session.info.memory_bytes_max // 16)
    return max(min(int(BYTES_MIN * READING_S / seconds), most), BYTES_MIN)


def silence_peer(diagnosis: Diagnosis, session: Session, address: str) -> None:
    """The proof. Without help of the peer the frame arrives, or it does not arrive until the peer continues."""
    name = f"offpath-doctor-{secrets.token_hex(4)}"
    pool = session.pool(f"local:/{name}")
    try:
        rows = bytes_to_read(session, f"{name}-first") // 8
        with peer_process(address, name, rows) as peer:
            assert peer.stdin is not None and peer.stdout is not None
            if peer.stdout.readline().strip() != "ready":
                peer.kill()
                said = peer.communicate()[1].strip().splitlines()[-1:]
                diagnosis.add("silenced peer", "could not be tried", False, " ".join(said) or "the peer said nothing")
                return
            peer.stdin.write("\n")
            peer.stdin.flush()
            early = peer.stdout.readline().strip() == "early"
            stopped = wait_until_stopped(peer.pid)
            add_silence(diagnosis, session, pool, rows, early or not stopped)
    except Error as error:
        diagnosis.add("silenced peer", f"could not be tried: {error}", False, "see the other findings")
    finally:
        with contextlib.suppress(NotFound):
            pool.drop()


def add_silence(diagnosis: Diagnosis, session: Session, pool: Pool, rows: int, early: bool) -> None:
    """The state of the stopped program's frame."""
    one_sided = session.info.one_sided
    patience = SILENCE_S if one_sided else SILENCE_OF_COPYING_S
    try:
        values = pool.get_batch("silent", timeout=patience)["value"].to_numpy()
    except Timeout:
        found = f"its frame did not arrive in {patience:.0f} s: the agent needs the program's help on this link"
        diagnosis.add("silenced peer", found, not one_sided, "report this: the link says it is one-sided")
        return
    if len(values) != rows or values[0] != 0 or values[-1] != rows - 1:
        diagnosis.add("silenced peer", "its frame arrived with wrong content", False, "report this")
    elif early:
        diagnosis.add("silenced peer", "the agent had read everything before the peer stopped: this proves nothing")
    else:
        diagnosis.add("silenced peer", "stopped while the agent read from it; its frame arrived")


def wait_until_stopped(pid: int) -> bool:
    give_up = time.monotonic() + SILENCE_S
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "T":
            return True
        time.sleep(0.001)
    return False


def read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def kernel_version() -> tuple[int, ...]:
    """(6, 1) of "6.1.0-18-amd64"."""
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def add_memory(diagnosis: Diagnosis) -> None:
    diagnosis.add("page size", f"{os.sysconf('SC_PAGE_SIZE')} bytes")
    huge = read_text("/proc/sys/vm/nr_hugepages")
    diagnosis.add("huge pages", huge, huge not in ("0", "unknown"),
                  "optional, for large frames: sysctl vm.nr_hugepages=512")  # fmt: skip
    # The chosen value stands in brackets.
    thp = read_text("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    chosen = thp.partition("[")[2].partition("]")[0] or thp
    # The agent requests them for frames that a job prepares (MADV_COLLAPSE).
    on_request = kernel_version() >= (6, 1) and chosen not in ("deny", "unknown")
    diagnosis.add("transparent huge pages for shared memory", f"{chosen}, and on request" if on_request else chosen,
                  on_request or chosen in ("advise", "always", "within_size"),
                  "optional, for faster queries: "
                  "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled")  # fmt: skip
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    diagnosis.add("locked memory", "unlimited" if unlimited else f"{soft} bytes")


def add_machine(diagnosis: Diagnosis) -> None:
    yama = read_text("/proc/sys/kernel/yama/ptrace_scope")
    good = yama in ("0", "1", "unknown")
    diagnosis.add("Yama ptrace_scope", yama, good,
                  "direct reads need CAP_SYS_PTRACE now: sysctl kernel.yama.ptrace_scope=1, or give it")  # fmt: skip
    diagnosis.add("user", os.getuid())
    diagnosis.add("kernel", f"{platform.system()} {platform.release()} {platform.machine()}")
    pidfd = (
        "there"
        if kernel_version() >= (6, 5)
        else "not there (it came with Linux 6.5): pidfd_open and the start time instead"
    )
    diagnosis.add("SO_PEERPIDFD", pidfd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    diagnosis.add("descriptors", f"{soft} of {hard}", soft >= 1024, "ulimit -n 4096")
