"""One rank's part of the run: it repeats a few steps of the simulation and a hand-over of its arrays.

A hand-over, seen from the simulation::

    post       stream.send returns: the agent has been asked, nothing has been copied (with --snapshot: into staging)
    meanwhile  every other time the simulation computes its diagnostics, which read the arrays and change nothing
    waiting    until ``pulled``; the next step would write over x and v, so it may not begin before
    own again  all of it

At the same steps the same arrays are converted and serialised with pyarrow, before or after in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import offpath

from .baseline import HostSerialiser
from .frames import make_columns, make_schema
from .settings import RunError, Settings
from .simulation import Simulation
from .tracks import SIFT_OPTIONS

WAIT_S = 60.0  # an agent that is alive but does not answer is given up after this


@dataclass
class Handover:
    """One rank's hand-over of one step. Times in nanoseconds of wall clock, ``cpu`` ones of this whole process."""

    step: int
    rank: int
    rows: int
    payload_bytes: int
    found_ns: int = 0  # asking LAMMPS where the arrays are; both ways need it
    post_ns: int = 0
    busy: bool = False  # diagnostics were computed between post and waiting
    meanwhile_ns: int = 0
    waiting_ns: int = 0
    own_again_ns: int = 0
    cpu_ns: int = 0  # post and waiting, without the diagnostics
    serialise_ns: int = 0  # by pyarrow, into new memory
    serialise_cpu_ns: int = 0
    reuse_ns: int = 0  # by pyarrow, into a buffer used again
    reuse_cpu_ns: int = 0
    observed: dict[str, float] = field(default_factory=dict)
    box: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass
class RankResult:
    """The results of one rank. ``advance_ns`` is the time inside LAMMPS's run commands."""

    rank: int
    ranks: int
    atoms: int
    cells: tuple[int, int, int] | None
    input: str
    lammps_version: int
    advance_ns: int = 0
    handovers: list[Handover] = field(default_factory=list)


@dataclass
class Clocks:
    """Wall and CPU time of a stretch of code, the CPU clock read outside of the wall clock's stretch."""

    cpu_ns: int = 0
    wall_ns: int = 0

    def __enter__(self) -> Clocks:
        self.cpu_ns = time.process_time_ns()
        self.wall_ns = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_ns = time.perf_counter_ns() - self.wall_ns
        self.cpu_ns = time.process_time_ns() - self.cpu_ns


def step_key(step: int) -> str:
    """The row key of a step."""
    return f"step{step}"


def key_step(row: str) -> int:
    """The step of a row key."""
    return int(row.removeprefix("step"))


def drive(settings: Settings, session: Any, pool: str, on_step: Callable[[int, int], None]) -> RankResult:
    """Runs this rank's simulation to its end and hands over all its steps; they are stored when it returns.

    ``on_step(step, payload_bytes)`` is called after each hand-over. Raises RunError, offpath.Error.
    """
    simulation = Simulation(settings)
    try:
        result = drive_simulation(settings, simulation, session, pool, on_step)
        if settings.ranks > 1:
            simulation.leave_mpi()
        return result
    finally:
        simulation.close()


def drive_simulation(
    settings: Settings, simulation: Simulation, session: Any, pool: str, on_step: Callable[[int, int], None]
) -> RankResult:
    if simulation.atoms == 0:
        raise RunError(f"{simulation.input}: makes no atoms")
    rank, ranks = simulation.rank, simulation.ranks
    if ranks != settings.ranks:
        raise RunError(f"--ranks {settings.ranks}, but MPI started {ranks}: do not mix it with mpirun")
    schema = make_schema(settings.layout, simulation.id_dtype)
    rows_max = simulation.atoms if ranks == 1 else simulation.atoms * 2 // ranks + 1024
    require_room(3 * settings.handovers, simulation.atoms, row_bytes(schema), session.info.memory_bytes_max)
    stream = session.stream(
        pool.removeprefix("local:/"),
        schema,
        rows_max=rows_max,
        destination=settings.destination,
        pool=pool,
        ranks=ranks if ranks > 1 else 0,  # alone, a frame is visible when it is stored, without step_end
        rank=rank,
    )
    # A separate stream, outside of the measured time: the same arrays, split by identifier into tracks.
    sifted = session.stream(
        f"{pool.removeprefix('local:/')}-sifted", schema, rows_max=rows_max, pool=sift_pool(pool),
        ranks=ranks if ranks > 1 else 0, rank=rank,
    )  # fmt: skip
    result = RankResult(rank, ranks, simulation.atoms, simulation.cells, str(simulation.input), simulation.version)
    serialiser = HostSerialiser(schema, rows_max * row_bytes(schema))
    serialiser.serialise(make_columns(simulation.arrays(), settings.layout))  # its first turn loads its libraries
    first_step = simulation.step
    last: Any = None
    for index in range(settings.handovers):
        if index > 0:
            began = time.perf_counter_ns()
            simulation.advance(settings.every)
            result.advance_ns += time.perf_counter_ns() - began
        handover, last = hand_over(settings, simulation, stream, serialiser, index)
        result.handovers.append(handover)
        sift(simulation, sifted, settings.layout)
        on_step(handover.step - first_step, handover.payload_bytes)
    if settings.steps % settings.every:
        simulation.advance(settings.steps % settings.every)
    last.wait_stored(WAIT_S)
    stream.close()
    sifted.close()
    return result


def sift_pool(pool: str) -> str:
    """The sift pool beside a pool of frames."""
    return f"sift:/{pool.partition(':/')[2]}?{SIFT_OPTIONS}"


def sift(simulation: Simulation, stream: Any, layout: str) -> None:
    """Hands the arrays of the step reached to the sift pool; they are the simulation's again when it returns."""
    key = (step_key(simulation.step), f"rank{simulation.rank}")
    stream.send(make_columns(simulation.arrays(), layout), key=key).wait_pulled(WAIT_S)


def require_room(handovers: int, atoms: int, atom_bytes: int, bytes_max: int) -> None:
    """Raises RunError where all frames together are more than the agent may hold: none leaves it before the end."""
    needed = handovers * atoms * atom_bytes
    if needed > bytes_max:
        raise RunError(
            f"{handovers} hand-overs of {atoms:,} atoms are {needed:,} bytes, but the agent may hold {bytes_max:,}: "
            "hand over less often (--every) or fewer atoms"
        )


def hand_over(
    settings: Settings, simulation: Simulation, stream: Any, serialiser: HostSerialiser, index: int
) -> tuple[Handover, Any]:
    """Hands the arrays of the step reached to the agent, and to pyarrow; which of them first alternates."""
    with Clocks() as found:
        columns = make_columns(simulation.arrays(), settings.layout)
    rows = len(columns["id"])
    payload_bytes = rows * row_bytes(serialiser.schema)
    record = Handover(simulation.step, simulation.rank, rows, payload_bytes, box=simulation.box_lengths())
    record.found_ns = found.wall_ns
    record.busy = not settings.snapshot and index // 2 % 2 == 0
    serialiser.reserve(payload_bytes)
    if index % 2 == 0:
        ticket = hand_to_agent(settings, simulation, stream, columns, record)
        ticket.wait_stored(WAIT_S)  # so that the agent's work does not slow pyarrow down
        hand_to_pyarrow(serialiser, columns, record)
    else:
        hand_to_pyarrow(serialiser, columns, record)
        ticket = hand_to_agent(settings, simulation, stream, columns, record)
    if not record.observed:
        record.observed = simulation.observe()
    return record, ticket


def hand_to_agent(
    settings: Settings, simulation: Simulation, stream: Any, columns: dict[str, Any], record: Handover
) -> Any:
    """Posts, computes the diagnostics if ``record.busy``, waits for the arrays unless they were copied."""
    key = (step_key(record.step), f"rank{record.rank}")
    began = time.perf_counter_ns()
    with Clocks() as post:
        ticket = send(stream, columns, key, settings.snapshot)
        if settings.ranks > 1:
            stream.step_end(key[0])
    with Clocks() as meanwhile:
        if record.busy:
            record.observed = simulation.observe()
    with Clocks() as waiting:
        if not settings.snapshot:
            ticket.wait_pulled(WAIT_S)
    record.own_again_ns = post.wall_ns if settings.snapshot else time.perf_counter_ns() - began
    record.post_ns = post.wall_ns
    record.meanwhile_ns = meanwhile.wall_ns if record.busy else 0
    record.waiting_ns = 0 if settings.snapshot else waiting.wall_ns
    record.cpu_ns = post.cpu_ns + (0 if settings.snapshot else waiting.cpu_ns)
    return ticket


def send(stream: Any, columns: dict[str, Any], key: tuple[str, str], snapshot: bool) -> Any:
    """Posts; where the agent has no room, tries again for WAIT_S, as time of the post."""
    give_up = time.monotonic() + WAIT_S
    while True:
        try:
            return stream.send(columns, key=key, snapshot=snapshot, wait=False)
        except offpath.errors.WouldBlock as error:
            if time.monotonic() > give_up:
                raise RunError(f"{key[0]}: the agent had no room for {WAIT_S:.0f} s: {error}") from error
        time.sleep(0.0005)


def hand_to_pyarrow(serialiser: HostSerialiser, columns: dict[str, Any], record: Handover) -> None:
    with Clocks() as serialise:
        kept = serialiser.serialise(columns)
    del kept  # it would be kept; giving its memory back is not timed
    with Clocks() as reuse:
        serialiser.serialise_again(columns)
    record.serialise_ns, record.serialise_cpu_ns = serialise.wall_ns, serialise.cpu_ns
    record.reuse_ns, record.reuse_cpu_ns = reuse.wall_ns, reuse.cpu_ns


def row_bytes(schema: pa.Schema) -> int:
    """Bytes of one row of fixed-width columns."""
    return sum(
        kind.list_size * kind.value_type.bit_width // 8 if pa.types.is_fixed_size_list(kind) else kind.bit_width // 8
        for kind in schema.types
    )
