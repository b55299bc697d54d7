"""Particles of `fbpic <https://fbpic.github.io>`_ in a pool: a diagnostic beside fbpic's own.

fbpic calls each diagnostic in every iteration, when its arrays are consistent. This one has the agent pull them from
where they are, so the simulation neither gathers nor writes them::

    sim.diags = [ParticleDiagnostic(session, period=50, species={"electrons": electrons}, comm=sim.comm)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from ..session import Session
    from ..stream import Stream

QUANTITIES = ("x", "y", "z", "ux", "uy", "uz", "w")
GROWTH = 1.25  # room for more particles than there are when the stream is opened or grows


class ParticleDiagnostic:
    """Sends the arrays of each species every ``period`` iterations, as fbpic's own ParticleDiagnostic writes them.

    Iteration N's particles of a species are the table (``stepN``, ``SPECIES.rankR``) of ``pool``, with a column for
    each of ``quantities``: attributes of fbpic's species that have a value for each particle. ``comm`` is the
    simulation's (``sim.comm``); a step appears when all its ranks have sent it. ``timeout`` in seconds bounds each
    wait; None: forever.

    Raises ValueError for species that fbpic keeps on a GPU, and the errors of ``Stream.send``.
    """

    def __init__(
        self,
        session: Session,
        period: int,
        species: Mapping[str, Any],
        *,
        comm: Any = None,
        pool: str = "local:/fbpic",
        quantities: Sequence[str] = QUANTITIES,
        timeout: float | None = None,
    ) -> None:
        if period < 1:
            raise ValueError(f"period is {period}; at least 1 iteration")
        if on_gpu := [name for name, each in species.items() if each.use_cuda]:
            raise ValueError(f"species {on_gpu[0]!r} is on a GPU, whose memory the agent does not read")
        self.session, self.period, self.species, self.pool = session, period, dict(species), pool
        self.quantities, self.timeout = tuple(quantities), timeout
        self.rank: int = 0 if comm is None else comm.rank
        self.ranks: int = 1 if comm is None else comm.size
        self._stream: Stream | None = None
        self._rows_max = 0

    def write(self, iteration: int) -> None:
        """Called by fbpic in each iteration. Returns when the arrays may change again."""
        if iteration % self.period:
            return
        row = f"step{iteration}"
        stream = self._stream_for(max((each.Ntot for each in self.species.values()), default=0))
        tickets = [
            stream.send(
                {quantity: getattr(each, quantity) for quantity in self.quantities},
                (row, f"{name}.rank{self.rank}"),
                timeout=self.timeout,
            )
            for name, each in self.species.items()
        ]
        tickets.append(stream.step_end(row))
        for ticket in tickets:
            ticket.wait_pulled(self.timeout)

    def _stream_for(self, rows: int) -> Stream:
        """The stream, with room for so many particles."""
        if self._stream is not None and rows <= self._rows_max:
            return self._stream
        rows_max = max(1, int(rows * GROWTH))
        if self._stream is not None:
            self._stream.grow(rows_max, self.timeout)
        else:
            one = next(iter(self.species.values()))
            schema = pa.schema(
                [
                    pa.field(quantity, pa.from_numpy_dtype(getattr(one, quantity).dtype), nullable=False)
                    for quantity in self.quantities
                ]
            )
            self._stream = self.session.stream(
                f"fbpic {self.pool}", schema, rows_max=rows_max, pool=self.pool, ranks=self.ranks, rank=self.rank
            )
        self._rows_max = rows_max
        return self._stream

    def close(self) -> None:
        """Ends the stream; the particles stay in the pool."""
        if self._stream is not None:
            self._stream.close(1.0 if self.timeout is None else self.timeout)
            self._stream = None
