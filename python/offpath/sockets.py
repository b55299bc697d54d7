"""Unmodified programs whose TCP connections go over the agent: their socket calls, by a library that is preloaded or by
a supervisor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .agent import AGENT_PACKAGE, Agent, find_agent
from .errors import AgentError, Error

if TYPE_CHECKING:
    from rich.table import Table

LIBRARY = "liboffpath_sockets.so"


def find_library() -> Path:
    """The preload library: OFFPATH_SOCKETS_LIBRARY, of the build in OFFPATH_BUILD_DIR, of the wheel offpath-agent, in
    the environment this package is installed in, or the system's. Raises Error naming where it was looked for."""
    if given := os.environ.get("OFFPATH_SOCKETS_LIBRARY"):
        return Path(given)
    places = []
    if build := os.environ.get("OFFPATH_BUILD_DIR"):
        places.append(Path(build) / "lib")
    package = Path(__file__).resolve().parent
    places.append(package.parent / AGENT_PACKAGE / "lib")
    if len(package.parents) > 2:
        places.append(package.parents[2])  # PREFIX/lib/pythonX.Y/site-packages/offpath
    places += sorted(Path("/usr/lib").glob("*-linux-gnu"))
    for place in places:
        if (place / LIBRARY).exists():
            return place / LIBRARY
    raise Error(f"{LIBRARY} is not in {', '.join(map(str, places))}; set OFFPATH_SOCKETS_LIBRARY to its path")


def find_supervisor() -> Path:
    """The program that supervises others, beside the agent's."""
    return Path(find_agent()).with_name("offpath-supervisor")


def environment(agent: str, *, address: str | None = None, listen: str | None = None, connect: str | None = None,
                fallback: bool = False, report: bool = False, most: int | None = None, ring: int | None = None,
                preload: bool = True, base: Mapping[str, str] = os.environ) -> dict[str, str]:  # fmt: skip
    """The environment of an offloaded program. ``agent``: unix:/path. ``address``: the agent's own address, to which
    the program may bind, or several: "10.9.0.2,2001:db8::2". ``listen``: ports such as "80,8000". ``connect``: networks
    such as "10.9.0.0/24,2001:db8::/32". None: every one. ``fallback``: sockets that no agent serves are the kernel's.
    ``report``: at exit the program prints which sockets were left to it. ``most``: sockets at a time, 16 to 1048576;
    None: 1024. ``ring``: bytes of a socket's first ring for incoming bytes, a power of two from 4096 to 4194304, and of
    that for outgoing ones if it is more than 65536; None: 16384. ``preload``: False for the supervisor's
    environment."""
    made = {**base, "OFFPATH_AGENT": agent}
    made["OFFPATH_SOCKETS_FALLBACK"] = "1" if fallback else "0"
    made["OFFPATH_SOCKETS_REPORT"] = "1" if report else "0"
    for name, value in (
        ("ADDRESS", address),
        ("LISTEN", listen),
        ("CONNECT", connect),
        ("MAX", None if most is None else str(most)),
        ("RING", None if ring is None else str(ring)),
    ):
        made.pop(f"OFFPATH_SOCKETS_{name}", None)
        if value is not None:
            made[f"OFFPATH_SOCKETS_{name}"] = value
    if not preload:
        return made
    others = made.get("LD_PRELOAD")
    made["LD_PRELOAD"] = f"{find_library()}:{others}" if others else str(find_library())
    return made


def relay_to(agent: str) -> Agent:
    """An agent on this machine that relays programs' connections to ``agent``, which is on another one or on this
    machine's card: tcp:, tls:, verbs: or doca:HOST:PORT. Its keys are those of OFFPATH_KEY_FILE and
    OFFPATH_TLS_CA_FILE. Use its ``address`` for ``environment``. It ends with the last process that inherits from this
    one. Raises AgentError with the end of its log."""
    settings: dict[str, Any] = {"tcp.device": f"agent:{agent}"}
    for key, variable in {"security.key_file": "OFFPATH_KEY_FILE", "group.tls_ca": "OFFPATH_TLS_CA_FILE"}.items():
        if value := os.environ.get(variable):
            settings[key] = value
    relay = Agent.start(memory="1MiB", settings=settings)
    relay.outlive()
    return relay


def connections_in(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Listeners and connections of an agent's ``/status.json``, each with the process it belongs to (``pid``; None: the
    program has gone). Raises AgentError if the agent has no device for connections."""
    if "tcp" not in status:
        raise AgentError("this agent has no device for TCP connections (tcp.device)")
    programs = {each["number"]: each for each in status["channels"]}
    rows = []
    for each in status["tcp"]["connections"]:
        program = programs.get(each["channel"], {})
        rows.append({**each, "pid": program.get("pid"), "program": program.get("program")})
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    """As ``ss`` draws them; unacknowledged bytes are in Send-Q. Of an agent with several cores for connections each row
    has its core: a listener is all cores'."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    several = any(row.get("core", 0) for row in rows)
    for name in ("State", "Local", "Peer", "Process"):
        table.add_column(name)
    for name in ("Send-Q", "Received", "Sent", "RTT ms"):
        table.add_column(name, justify="right")
    if several:
        table.add_column("Core", justify="right")
    for row in rows:
        of = f"{row['program']} ({row['pid']})" if row["pid"] else "-"
        waiting = row["offered"] - row["acknowledged"]
        figures = (
            waiting,
            row["received"],
            row["acknowledged"],
            f"{row['round_trip_us'] / 1000:.3g}",
            *([row["core"] if row["remote"] else "*"] if several else []),
        )
        words = (row["state"], row["local"], row["remote"] or "*", of, *map(str, figures))
        table.add_row(*map(escape, words))  # [fd00::1]:80 would be markup
    return table
