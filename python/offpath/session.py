"""Sessions: one connection of this program with an agent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native, telemetry
from ._native import Channel
from .columns import schema_of
from .directory import Change, Resource, list_resources, wait_members, watch_resources
from .exchange import Exchange, Field
from .gauges import Gauge, Gauges
from .pool import Pool
from .stream import BYTES_AS_THEY_ARE, Stream
from .tasks import Tasks
from .tracks import Tracks
from .waits import Waits


@dataclass(frozen=True)
class Info:
    """The session's link and agent, and its counters."""

    one_sided: bool  # the agent reads without this program's help
    staged: bool  # arrays are copied through staging memory: direct reads are not permitted
    threads: int  # that the library runs: 0, or 1 over TCP
    link: str
    link_reason: str
    agent_name: str
    agent_version: str
    agent_incarnation: int
    agent_pid: int
    memory_bytes_max: int
    posted: int
    bytes_posted: int
    pulled: int
    failed: int
    wakes_sent: int
    sleeps: int  # of this program's threads, in calls that wait


class Member(NamedTuple):
    """An agent of the group, as the session's agent knows it. Addresses are empty where it does not listen."""

    name: str
    host: str  # the machine's name
    address: str  # for agents and programs: unix:, tcp:, tls:, verbs:
    http: str  # for metrics and status
    flight: str  # for clients of Arrow Flight: grpc+tcp://, grpc+tls://
    state: str  # alive, suspect, left, dead
    role: str = "host"  # or dpu
    rack: str = ""  # empty: unknown


MEMBER_STATES = ("alive", "suspect", "left", "dead")


class Segment(_native.Segment):
    """Memory that the agent may write as well as read, made by ``Session.alloc``. It supports the buffer protocol,
    writable and without a copy: ``memoryview(segment)``, ``numpy.frombuffer(segment, dtype)``. Views keep it alive.
    ``nbytes`` is its size."""

    if TYPE_CHECKING:  # checkers know buffers by this method, which Python has from 3.12 on

        def __buffer__(self, flags: int, /) -> memoryview: ...

    def numpy(self, dtype: Any = np.uint8, shape: tuple[int, ...] | int = -1) -> np.ndarray:
        """The memory as an array, without a copy. Keeps the segment alive."""
        return np.frombuffer(self.buffer(), dtype=np.uint8).view(dtype).reshape(shape)

    def buffer(self) -> memoryview:
        """All of its bytes, writable. Keeps the segment alive."""
        return memoryview(self)


class Announcement:
    """Memory announced by hand: the agent may read it, never write it, until ``retire``."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def nbytes(self) -> int:
        """Bytes that are announced."""
        return self._native.nbytes

    def reannounce(self, array: Any) -> None:
        """The memory moved or changed its size. Sends that named the old place and are not pulled fail as Stale."""
        self._native.reannounce(array)

    def retire(self, timeout: float | None = 1.0) -> None:
        """Withdraws it, when no posted send uses it any more."""
        self._native.retire(timeout)

    def __enter__(self) -> Announcement:
        return self

    def __exit__(self, *_: object) -> None:
        self.retire()


class Session:
    """Made by ``connect``. Usable from several threads; a forked child connects for itself."""

    def __init__(self, native: Channel, address: str | None = None) -> None:
        self._native = native
        self._address = address  # as given
        self._waits = Waits(self)
        self._bytes_streams: dict[tuple[str, bool], Stream] = {}

    def stream(
        self,
        name: str,
        schema: Any = None,
        *,
        rows_max: int = 0,
        destination: str | None = None,
        pool: str | None = None,
        keep: int = 0,
        ranks: int = 0,
        rank: int = 0,
        compression: str | None = None,
    ) -> Stream:
        """Opens a stream: a schema the agent prepares for, once, and a pool its frames go to.

        ``schema``: of pyarrow, Polars or another library that exports one, a dict of names to types, or a first batch
        to learn it from, which is not sent. Without: bytes. ``rows_max``: rows of the largest batch. ``destination``:
        ``ipc-page`` (page aligned Arrow IPC; the default), ``ipc``, ``record-batch``, ``arrays``, ``c-abi``,
        ``agent-serialise``; ``native`` (the default without a schema) and ``serialised`` take bytes unchanged.
        ``pool``: ``local:/NAME``, by default the stream's name. ``keep``: frames the pool keeps, the oldest leave; 0:
        all. ``ranks`` and ``rank`` of a parallel program, for ``step_end``. ``compression``: ``lz4`` or ``zstd``; the
        agent compresses frames (``ipc-page`` and ``ipc``) once it has pulled them, and reading one decompresses it into
        memory of its own instead of mapping the agent's.

        Raises SchemaError or Unsupported (a type that is not stored, a destination that is not compressed), Exists
        (another program has this name), Invalid.
        """
        if schema is not None:
            schema = schema_of(schema)
        if destination is None:
            destination = "ipc-page" if schema is not None else BYTES_AS_THEY_ARE[0]
        return Stream(
            self,
            name,
            schema,
            rows_max=rows_max,
            destination=destination,
            pool=pool,
            keep=keep,
            ranks=ranks,
            rank=rank,
            compression=compression,
        )

    def gauges(self, name: str, gauges: Iterable[Gauge | str]) -> Gauges:
        """Values of this program that the agent reads from its memory, for its metrics and for other agents.

        >>> steps = session.gauges("solver", ["residual", offpath.Gauge("steps", "u64", "counter")])
        >>> steps["residual"] = 1e-6
        """
        return Gauges(self._native, name, gauges)

    def pool(self, name: str) -> Pool:
        """A pool of the agent's by its name, such as ``local:/particles``."""
        return Pool(self, name)

    def _bytes_stream(self, pool: str, arrow: bool) -> Stream:
        """The stream by which single objects go to a pool. No two programs may have one name, nor two sessions."""
        if (pool, arrow) not in self._bytes_streams:
            name = f"put-{os.getpid()}-{id(self):x}-{len(self._bytes_streams)}"
            self._bytes_streams[pool, arrow] = self.stream(name, destination=BYTES_AS_THEY_ARE[arrow], pool=pool)
        return self._bytes_streams[pool, arrow]

    def tracks(self, name: str, key: str | None = None) -> Tracks:
        """The tracks of a sift pool by its name, such as ``sift:/tracks``. ``key``: the column with identifiers, by
        default the one that the name's options say, or ``id``."""
        return Tracks(self, name, key)

    def exchange(self, name: str, *, publish: bool = False, fields: Iterable[str | Field] = (),
                 record_bytes_max: int = 0, view_bytes_max: int = 0) -> Exchange:  # fmt: skip
        """This program's part in an exchange of the agent's (docs/guides/monitoring.md).

        ``publish``: the records of this agent come from this program. ``fields``, as ``"power:f64:watts"``, have to be
        those of the configuration, where that has any. ``view_bytes_max`` bounds views with their records; 0: room for
        all, of at most 1 GiB.
        """
        return Exchange(self, name, publish=publish, fields=fields, record_bytes_max=record_bytes_max,
                        view_bytes_max=view_bytes_max)  # fmt: skip

    def tasks(self, *, lane: int | None = None, lanes: int = 1, tasks_max: int = 64,
              plugins: Mapping[str, Any] | None = None, team: str = "") -> Tasks:  # fmt: skip
        """Functions of the agent's plug-ins over this program's memory (docs/guides/tasks.md).

        ``lane``, of ``lanes``: tasks run in the order they are submitted, on one worker of a plug-in; by default in any
        order, on any worker. ``tasks_max``: under way at a time. ``plugins``: paths by name, for ``Tasks.run``
        when the agent dies. ``team``: functions of sessions that name the same one, each with another lane, send each
        other messages; a name is for one run (``offpath.team_of``).
        """
        return Tasks(self._native, lane=lane, lanes=lanes, tasks_max=tasks_max, plugins=plugins, team=team)

    def announce(self, array: Any) -> Announcement:
        """Announces the memory of a contiguous buffer once, for all sends from it. Sends announce arrays by themselves;
        do it by hand for large arrays that are sent in pieces, and for arrays that move."""
        return Announcement(self._native.announce(array))

    def alloc(self, nbytes: int) -> Segment:
        """Memory from the link: ``nbytes`` bytes, zeroed, page aligned, readable and writable by the agent.

        Raises Timeout if the agent does not take it within 5 s, NoSpace or TooLarge if there is not that much.
        """
        return Segment(self._native, nbytes)

    def probe(self, timeout: float | None = 1.0) -> tuple[int, int]:
        """One round trip through the rings: the agent's clock when it saw the request, and ours when the answer had
        arrived; both in nanoseconds of CLOCK_MONOTONIC, comparable on one machine only."""
        return self._native.probe(timeout)

    def members(self, timeout: float | None = 5.0) -> list[Member]:
        """The agents of the group, by name, including the session's own agent, and dead or former ones."""
        return [
            Member(name, host, address, http, flight, MEMBER_STATES[state], role, rack)
            for name, host, address, http, flight, state, role, rack in self._native.members(timeout)
        ]

    def directory(self, path: str = "/", timeout: float = 5.0) -> list[Resource]:
        """The resources of the group's agents below ``path``, by path: ``/members``, ``/racks``, ``/roles``,
        ``/exchanges``, ``/functions``, ``/pools`` (those that this user may read) and ``/sift``. Members that are dead
        or lost are left out. Raises Timeout with the names of those that have not answered."""
        return list_resources(self, path, timeout)

    def watch_directory(self, path: str = "/", timeout: float | None = None) -> Iterator[Change]:
        """Yields present resources as ``added``, as soon as their agents have answered, and then each change, until
        ``timeout``."""
        return watch_resources(self, path, timeout)

    def wait_members(
        self, count: int, *, role: str | None = None, rack: str | None = None, timeout: float | None = None
    ) -> list[str]:
        """Returns the names of the living members when there are ``count`` of them, of this role (``host`` or
        ``dpu``) and rack. Raises Timeout with the names of the living ones."""
        return wait_members(self, count, role, rack, timeout)

    @property
    def info(self) -> Info:
        """The link, the agent, and the present counters."""
        return Info(**self._native.info())

    @property
    def event_fd(self) -> int:
        """Readable when something happened; call ``poll`` then. Belongs to the session."""
        return self._native.event_fd

    def poll(self) -> None:
        """Reads the agent's replies, without blocking. Raises PeerLost when the agent is gone."""
        self._native.poll()
        self._waits.settle()

    @property
    def closed(self) -> bool:
        """``close`` was called."""
        return self._native.closed

    def close(self) -> None:
        """Waits for the leases, at most a second, and ends the session. Tables that were read stay valid."""
        self._waits.close()
        self._native.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<Session, closed>" if self.closed else f"<Session with {self.info.agent_name!r} over {self.info.link}>"


def connect(
    address: str | None = None,
    *,
    name: str | None = None,
    key_file: str | os.PathLike[str] | None = None,
    tls_ca_file: str | os.PathLike[str] | None = None,
    timeout: float = 5.0,
    ring_slots: int = 0,
    staging_bytes_max: int = 0,
    force_staging: bool = False,
) -> Session:
    """Connects with an agent: ``unix:/path``, ``tcp:``, ``tls:``, ``verbs:``, ``doca:HOST:PORT``; None:
    OFFPATH_AGENT, or else the agent at the default address.

    ``name`` is this program's name at the agent. ``key_file`` and ``tls_ca_file`` are for the network (otherwise from
    OFFPATH_KEY_FILE and OFFPATH_TLS_CA_FILE). ``ring_slots``: of the request ring, a power of two; 0: 4096.
    ``staging_bytes_max`` bounds the memory for snapshots and staged links; 0: 1 GiB. The first call starts
    ``offpath.telemetry`` if the environment asks for OpenTelemetry's spans.

    Raises PeerLost or IoError (no listener), Denied, VersionMismatch, Timeout, Invalid.
    """
    telemetry.start_if_configured()
    key = os.fspath(key_file) if key_file is not None else None
    ca = os.fspath(tls_ca_file) if tls_ca_file is not None else None
    native = Channel(address, name, key, ca, timeout, ring_slots, staging_bytes_max, force_staging)
    return Session(native, address)
