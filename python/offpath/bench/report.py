"""The results of benchmarks: claims and series, read from the programs' JSON, merged, printed and checked.

The form is the one of ``bench/report.h``::

    {"bench": "move", "commit": "1a2b3c", "machine": "...", "date": "2026-11-27", "command": "offpath bench move",
     "claims": [{"claim", "value", "unit", "peer", "peer_value", "ratio", "target", "holds"}],
     "series": [{"figure", "name", "x_unit", "y_unit", "x", "y"}]}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

CLAIM_KEYS = ("claim", "value", "unit", "peer", "peer_value", "ratio", "target", "holds")
PAIRS_MIN = 21  # of Offpath and peer by turns, for a published ratio: pairs_min of bench/measure.h
OF_A_RATIO = re.compile(r"[<>]= [\d.]+x?")  # a target without a unit
ON_BOTH_SIDES = "the interval lies on both sides of the target"
UNKNOWN = "unknown"  # a commit or machine
UNTRACED = "its commit or machine is not known"
WITHOUT_TOTAL = "processor time of the host without the total, the agent's included"


class ReportError(ValueError):
    """A report that does not have the form above; the message names the place."""


@dataclass
class Claim:
    """One figure and its peer's. ``None`` where something was not measured or does not apply.

    ``interval`` is the 95 % interval of ``ratio`` over ``pairs`` interleaved pairs; ``why`` is the reason why a claim
    could not be measured or does not hold. ``detail`` has values that differ from run to run, so that names stay the
    same. ``peer_waits`` is the way of waiting of a peer whose cost is mostly waiting: "asleep" or "spinning".
    ``simulated``: in virtual time, with costs that the same run measured. ``by_interval``: the whole interval has to
    meet the target, not only the median.
    """

    claim: str
    value: float | None = None
    unit: str = ""
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    target: str | None = None
    holds: bool = False
    interval: list[float] | None = None
    pairs: int | None = None
    why: str | None = None
    shown: bool | None = None  # True: a figure without a target, which claims nothing
    detail: str | None = None
    peer_waits: str | None = None
    simulated: bool | None = None
    by_interval: bool | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a claim that holds though nothing was measured."""
        if self.holds and self.value is None and self.ratio is None:
            raise ValueError(f"claim {self.claim!r} holds, though neither a value nor a ratio was measured")

    @property
    def of_a_ratio(self) -> bool:
        """Whether the target is one of the ratio to the peer."""
        return self.target is not None and OF_A_RATIO.fullmatch(self.target) is not None

    @property
    def measured(self) -> bool:
        return self.value is not None or self.ratio is not None

    @property
    def undecided(self) -> bool:
        """Whether it was measured, but its ratio decides nothing, for the reason in ``why``."""
        return self.measured and not self.holds and self.of_a_ratio and self.why is not None

    def interval_meets(self) -> bool | None:
        """Whether the whole interval of the ratio meets the target; None if the target lies inside of it."""
        assert self.target is not None and self.interval is not None
        limit = float(self.target[3:].removesuffix("x"))
        met = [end >= limit if self.target.startswith(">") else end <= limit for end in self.interval]
        return met[0] if met[0] == met[1] else None

    def judge_by_interval(self) -> None:
        """Holds if the whole interval meets the target. Is not decided if the target lies inside of it."""
        met = self.interval_meets()
        self.by_interval, self.holds, self.why = True, met is True, ON_BOTH_SIDES if met is None else None

    def hold_to_rules(self) -> None:
        """A claim about a ratio to a peer holds only over 21 pairs or more, with its interval."""
        if not self.holds or not self.of_a_ratio:
            return
        if (self.pairs or 0) < PAIRS_MIN:
            self.holds, self.why = False, f"measured in {self.pairs or 'no'} pairs; a claim takes {PAIRS_MIN}"
        elif self.interval is None:
            self.holds, self.why = False, "the interval of the ratio is not known"

    def as_json(self) -> dict[str, Any]:
        """The eight keys always, the others where they are known."""
        everything = asdict(self)
        return {key: value for key, value in everything.items() if key in CLAIM_KEYS or value is not None}


@dataclass
class Series:
    """One line of a figure. ``x`` and ``y`` are equally long, in ``x_unit`` and ``y_unit``."""

    figure: str
    name: str
    x_unit: str
    y_unit: str
    x: list[float]
    y: list[float]

    def rounded(self) -> Series:
        """To six digits."""
        x, y = ([float(f"{value:.6g}") for value in values] for values in (self.x, self.y))
        return replace(self, x=x, y=y)


@dataclass
class Report:
    """Everything one ``offpath bench`` command found."""

    bench: str
    commit: str = UNKNOWN
    machine: str = UNKNOWN
    claims: list[Claim] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    date: str = ""  # of the run, in UTC
    command: str = ""  # that ran it

    @classmethod
    def parse(cls, text: str) -> Report:
        """Reads a program's JSON. Raises ReportError where it does not have the form of this module."""
        try:
            loaded = json.loads(text)
        except json.JSONDecodeError as error:
            raise ReportError(f"not JSON: {error}") from error
        if not isinstance(loaded, dict):
            raise ReportError(f"an object is expected, not {type(loaded).__name__}")
        for key in ("bench", "commit", "machine", "claims"):
            if key not in loaded:
                raise ReportError(f"key {key!r} is missing")
        claims = []
        for index, entry in enumerate(loaded["claims"]):
            missing = [key for key in CLAIM_KEYS if key not in entry]
            if missing:
                raise ReportError(f"claims[{index}]: key {missing[0]!r} is missing")
            if not isinstance(entry["holds"], bool):
                raise ReportError(f"claims[{index}].holds: true or false is expected, not {entry['holds']!r}")
            try:
                claims.append(Claim(**entry))
            except ValueError as error:
                raise ReportError(f"claims[{index}]: {error}") from error
        series = [Series(**entry) for entry in loaded.get("series", [])]
        for index, line in enumerate(series):
            if len(line.x) != len(line.y):
                raise ReportError(f"series[{index}]: {len(line.x)} x and {len(line.y)} y")
        about = {key: loaded.get(key, "") for key in ("date", "command")}
        return cls(loaded["bench"], loaded["commit"], loaded["machine"], claims, series, **about)

    def absorb(self, other: Report) -> None:
        """Adds another program's claims and series; commit and machine are those of the last that knew them."""
        self.commit, self.machine = other.commit or self.commit, other.machine or self.machine
        self.claims += other.claims
        self.series += other.series

    def add_unmeasured(self, claims: Sequence[tuple[str, str, str | None]], why: str) -> None:
        """Adds claims (name, unit, target) that could not run: they do not hold, and say why."""
        self.claims += [Claim(claim=name, unit=unit, target=target, why=why) for name, unit, target in claims]

    def conclude(self, console: Console, quick: bool) -> None:
        """Marks figures that are only shown, lets no claim hold against the rules (not with ``quick``, whose figures
        mean nothing), and prints all."""
        for claim in self.claims:
            claim.shown = claim.target is None or None
            if not quick:
                claim.hold_to_rules()
        self.print(console)

    def broken_rules(self, quick: bool = False) -> list[str]:
        """Violations of the rules of docs/results/benchmarks.md; with ``quick`` the number of pairs is free."""
        broken = [UNTRACED] if not {self.commit, self.machine}.isdisjoint({UNKNOWN, ""}) else []
        for claim in self.claims:
            if (claim.target is None) != bool(claim.shown):
                broken.append(f"{claim.claim}: {'no target' if claim.target is None else 'a target'}, "
                              f"{'not ' if claim.target is None else ''}marked shown")  # fmt: skip
            if claim.holds and claim.why:
                broken.append(f"{claim.claim}: holds, and says why it does not: {claim.why}")
            if not claim.measured and not claim.why:
                broken.append(f"{claim.claim}: not measured, and does not say why")
            if claim.of_a_ratio and claim.ratio is not None and not claim.why:
                if not claim.pairs or claim.interval is None:
                    broken.append(f"{claim.claim}: a ratio without {'interval' if claim.pairs else 'pairs'}")
                elif claim.holds and not quick and claim.pairs < PAIRS_MIN:
                    broken.append(f"{claim.claim}: holds over {claim.pairs} pairs of {PAIRS_MIN}")
            if claim.peer_waits == "asleep" and claim.ratio is not None and not self.has_spinning_peer(claim):
                broken.append(f"{claim.claim}: its peer sleeps while it waits, and none that spins is beside it")
            if claim.by_interval and claim.interval is not None and claim.of_a_ratio:
                met = claim.interval_meets()
                if claim.holds and not met:
                    broken.append(f"{claim.claim}: holds, though not its whole interval meets the target")
                elif met is None and not claim.undecided:
                    broken.append(f"{claim.claim}: {ON_BOTH_SIDES}, which decides nothing, and it is a miss")
            if claim.measured and not self.has_total_beside(claim):
                broken.append(f"{claim.claim}: {WITHOUT_TOTAL}")
        return broken

    def has_total_beside(self, claim: Claim) -> bool:
        """Whether processor time of the host is shown with that of host and agent: tcp.stream_host_cpu_vs_kernel with
        tcp.stream_total_cpu."""
        of, found, _ = claim.claim.partition(" ")[0].partition("host_cpu")
        return not found or any(each.claim.startswith(f"{of}total_cpu") and each.measured for each in self.claims)

    def has_spinning_peer(self, claim: Claim) -> bool:
        """Whether the same figure is also compared with a peer that spins."""
        name = claim.claim.partition(" ")[0]
        return any(each.peer_waits == "spinning" and each.claim.partition(" ")[0] == name for each in self.claims)

    def be_of_weak_agents(self) -> None:
        """Figures of agents with a fraction of a core: shown, under names of their own, as targets are for a core."""
        for claim in self.claims:
            claim.claim, claim.target, claim.shown = f"{claim.claim} (weak agent)", None, True
            claim.holds, claim.why = claim.measured, None if claim.measured else claim.why or "not measured"

    def all_hold(self) -> bool:
        return all(claim.holds for claim in self.claims)

    def to_json(self) -> str:
        about = {"bench": self.bench, "commit": self.commit, "machine": self.machine}
        about |= {key: text for key, text in (("date", self.date), ("command", self.command)) if text}
        claims = [claim.as_json() for claim in self.claims]
        return json.dumps({**about, "claims": claims, "series": [asdict(line) for line in self.series]}, indent=1)

    def to_result(self, with_series: bool = False) -> str:
        """The form in `bench/results`: a claim on a line; series, to six digits, also one on a line."""
        about = {"bench": self.bench, "commit": self.commit, "machine": self.machine, "date": self.date,
                 "command": self.command}  # fmt: skip
        head = "".join(f" {json.dumps(key)}: {json.dumps(text)},\n" for key, text in about.items())
        claims = ",\n".join(f"  {json.dumps(claim.as_json())}" for claim in self.claims)
        series = ""
        if with_series and self.series:
            lines = ",\n".join(f"  {json.dumps(asdict(line.rounded()))}" for line in self.series)
            series = f',\n "series": [\n{lines}\n ]'
        return f'{{\n{head} "claims": [\n{claims}\n ]{series}\n}}\n'

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json() + "\n", encoding="utf-8")

    def print(self, console: Console) -> None:
        """The table: claim, value, peer, ratio with its interval, target, whether it holds."""
        from rich.table import Table  # the tools that read reports run without it

        table = Table(title=f"{self.bench} at {self.commit} on {self.machine}", title_justify="left")
        table.add_column("claim")
        for column in ("value", "peer", "ratio", "target"):
            table.add_column(column, justify="right")
        table.add_column("holds")
        for claim in self.claims:
            table.add_row(
                claim.claim,
                figure_text(claim.value, claim.unit),
                peer_text(claim),
                ratio_text(claim),
                claim.target or "",
                verdict_text(claim),
            )
        console.print(table)
        for claim in self.claims:
            if said := claim.why or claim.detail:
                console.print(f"{claim.claim}: {said}", highlight=False)


def figure_text(value: float | None, unit: str) -> str:
    """A figure with four significant digits, or a dash."""
    if value is None or not math.isfinite(value):
        return "-"
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".strip()


def verdict_text(claim: Claim) -> str:
    if claim.holds:
        return "shown" if claim.target is None else "[green]yes"
    unknown = claim.undecided or (claim.target is None and claim.measured)
    return "[yellow]not decided" if unknown else "[red]no"


def peer_text(claim: Claim) -> str:
    if claim.peer is None:
        return ""
    return claim.peer if claim.peer_value is None else f"{figure_text(claim.peer_value, claim.unit)} ({claim.peer})"


def ratio_text(claim: Claim) -> str:
    if claim.ratio is None:
        return ""
    text = f"{claim.ratio:,.0f}" if claim.ratio >= 100 else f"{claim.ratio:.3g}"
    return text if claim.interval is None else f"{text} [{claim.interval[0]:.3g}, {claim.interval[1]:.3g}]"
