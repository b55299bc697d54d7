"""The results of a run: a table for people and JSON for programs."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from .check import StepCheck
from .handover import Handover, RankResult
from .settings import Settings
from .simulation import DIAGNOSTICS
from .tracks import TracksFound


@dataclass
class RunReport:
    """Everything ``offpath run`` found. ``agent_cpu_s`` is None where the agent is on another machine."""

    settings: Settings
    pool: str
    link: str
    ranks: list[RankResult]
    written_bytes: int = 0
    agent_cpu_s: float | None = None
    checks: list[StepCheck] = field(default_factory=list)
    tracks: TracksFound | None = None
    figure: Path | None = None

    @property
    def handovers(self) -> list[Handover]:
        return [handover for rank in self.ranks for handover in rank.handovers]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks) and (self.tracks is None or self.tracks.ok)

    def times_us(self, name: str, busy: bool | None = None) -> list[float]:
        """A time of every hand-over in microseconds; only those that (did not) compute meanwhile, if asked."""
        chosen = [handover for handover in self.handovers if busy is None or handover.busy == busy]
        return [getattr(handover, f"{name}_ns") / 1e3 for handover in chosen]

    @property
    def host_cpu_s(self) -> float:
        """CPU time of the simulation's processes for posting and waiting."""
        return sum(handover.cpu_ns for handover in self.handovers) / 1e9

    @property
    def serialise_cpu_s(self) -> float:
        return sum(handover.serialise_cpu_ns for handover in self.handovers) / 1e9

    @property
    def reuse_cpu_s(self) -> float:
        return sum(handover.reuse_cpu_ns for handover in self.handovers) / 1e9

    @property
    def payload_bytes(self) -> int:
        return sum(handover.payload_bytes for handover in self.handovers)

    @property
    def advance_s(self) -> float:
        """Time inside LAMMPS, of the slowest rank."""
        return max(rank.advance_ns for rank in self.ranks) / 1e9

    def rate(self, times_us: list[float]) -> float | None:
        """Median GB/s of hand-overs of the average size, done in these times."""
        if not times_us:
            return None
        return self.payload_bytes / len(self.handovers) / median(times_us) / 1e3

    def as_json(self) -> dict[str, Any]:
        given = asdict(self.settings)
        settings = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
        first = self.ranks[0]
        return {
            "command": "run",
            "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
            "settings": settings,
            "simulation": {
                "input": first.input,
                "lammps_version": first.lammps_version,
                "atoms": first.atoms,
                "cells": first.cells,
                "ranks": first.ranks,
                "agents": self.settings.agents,
                "seconds": self.advance_s,
                "diagnostics": DIAGNOSTICS,
            },
            "agent": {"pool": self.pool, "link": self.link, "cpu_s": self.agent_cpu_s},
            "summary": {
                "handovers": len(self.handovers),
                "payload_bytes": self.payload_bytes,
                "written_bytes": self.written_bytes,
                "post_us": spread(self.times_us("post")),
                "own_again_at_once_us": spread(self.times_us("own_again", False)),
                "own_again_busy_us": spread(self.times_us("own_again", True)),
                "busy_meanwhile_us": spread(self.times_us("meanwhile", True)),
                "busy_waiting_us": spread(self.times_us("waiting", True)),
                "serialise_us": spread(self.times_us("serialise")),
                "reuse_us": spread(self.times_us("reuse")),
                "own_again_gb_s": self.rate(self.times_us("own_again", False)),
                "serialise_gb_s": self.rate(self.times_us("serialise")),
                "reuse_gb_s": self.rate(self.times_us("reuse")),
                "host_cpu_s": self.host_cpu_s,
                "serialise_cpu_s": self.serialise_cpu_s,
                "reuse_cpu_s": self.reuse_cpu_s,
                "host_cpu_saved_s": self.serialise_cpu_s - self.host_cpu_s,
            },
            "check": {
                "done": bool(self.checks),
                "ok": self.ok if self.checks else None,
                "steps": [asdict(check) for check in self.checks],
            },
            "tracks": asdict(self.tracks) if self.tracks else None,
            "files": {
                "tracks": str(self.settings.tracks_path),
                "tracks_figure": str(self.settings.tracks_figure_path),
                "stream": str(self.settings.stream_path),
                "figure": str(self.figure) if self.figure else None,
                "log": str(self.settings.log_path),
            },
            "handovers": [asdict(handover) for handover in self.handovers],
        }

    def print(self, console: Console) -> None:
        self.print_simulation(console)
        console.print(self.time_table())
        console.print(self.cost_table())
        self.print_checks(console)
        console.print(f"[bold]{self.settings.stream_path}[/]  {bytes_text(self.written_bytes)}, one Arrow stream")
        if self.figure:
            console.print(f"[bold]{self.figure}[/]  times and particle paths")
        if self.tracks:
            self.print_tracks(console, self.tracks)

    def print_simulation(self, console: Console) -> None:
        first = self.ranks[0]
        version = str(first.lammps_version)
        cells = "" if first.cells is None else f" ({' x '.join(map(str, first.cells))} cells)"
        ranks = "" if first.ranks == 1 else f" on {first.ranks} ranks"
        console.print(
            f"LAMMPS {version} ran {Path(first.input).name}{ranks}: {first.atoms:,} atoms{cells}, "
            f"{self.settings.steps:,} steps in {self.advance_s:.2f} s; "
            f"{len(self.handovers):,} hand-overs over the {self.link} link as {self.settings.destination}",
            highlight=False,
        )

    def time_table(self) -> Table:
        """Where the simulation's time went at a hand-over."""
        size = bytes_text(self.payload_bytes / len(self.handovers))
        table = Table(title=f"One hand-over of {size}, in the simulation's time", title_justify="left")
        table.add_column("")
        for name in ("median", "longest", "GB/s", "to pyarrow"):
            table.add_column(name, justify="right")
        serialise = self.times_us("serialise")

        def add(label: str, times: list[float], moves: bool, style: str | None = None) -> None:
            if times:
                rate = f"{self.rate(times):.2f}" if moves else ""
                share = percent_text(median(times) / median(serialise))
                table.add_row(label, time_text(median(times)), time_text(max(times)), rate, share, style=style)

        if self.settings.snapshot:
            add("post, copying: own again at once", self.times_us("post"), True, "bold")
        else:
            add("post", self.times_us("post"), False, "bold")
            add("own again, if it waits", self.times_us("own_again", False), True, "bold")
            add("own again, computing meanwhile *", self.times_us("own_again", True), False)
            add("  computing", self.times_us("meanwhile", True), False, "dim")
            add("  waiting", self.times_us("waiting", True), False)
            table.caption = f"* {DIAGNOSTICS}, by LAMMPS from the same arrays"
            table.caption_justify = "left"
        add("pyarrow, into new memory", serialise, True)
        add("pyarrow, into a buffer used again", self.times_us("reuse"), True)
        return table

    def cost_table(self) -> Table:
        """The total cost of all hand-overs."""
        title = f"All {len(self.handovers):,} hand-overs, {bytes_text(self.payload_bytes)}"
        table = Table(title=title, title_justify="left")
        table.add_column("")
        table.add_column("CPU time", justify="right")
        way = "posting" if self.settings.snapshot else "posting and waiting"
        table.add_row(f"host, {way}", seconds_text(self.host_cpu_s), style="bold")
        table.add_row("host, pyarrow into new memory", seconds_text(self.serialise_cpu_s))
        table.add_row("host, pyarrow into a buffer used again", seconds_text(self.reuse_cpu_s))
        table.add_row(
            "host, saved against new memory", seconds_text(self.serialise_cpu_s - self.host_cpu_s), style="bold"
        )
        if self.agent_cpu_s is not None:
            table.add_row("agent, all it did in this run", seconds_text(self.agent_cpu_s))
        return table

    def print_checks(self, console: Console) -> None:
        """One line if every step is the same bit for bit, else one line for each that is not."""
        if not self.checks:
            console.print("not compared with LAMMPS's own dump (--no-check)")
            return
        wrong = [check for check in self.checks if not check.ok]
        for check in wrong:
            console.print(f"[red]step {check.step}: differs[/] {check.difference}", highlight=False)
        if wrong:
            console.print(
                f"[red]{len(wrong)} of {len(self.checks)} steps differ from LAMMPS's own dump[/], "
                f"kept as {self.settings.dump_path}"
            )
        else:
            steps = f"{self.checks[0].step} to {self.checks[-1].step}"
            console.print(
                f"[green]OK[/]  {len(self.checks)} steps ({steps}): id, type, x and v of every atom are those of "
                "LAMMPS's own dump, bit for bit",
                highlight=False,
            )

    def print_tracks(self, console: Console, tracks: TracksFound) -> None:
        """One line for the sifted tracks, one for each file."""
        told = f"{tracks.particles:,} tracks of {self.settings.handovers:,} steps, {tracks.rows:,} rows"
        if not tracks.checked:
            console.print(f"{told}; not compared", highlight=False)
        elif tracks.ok:
            console.print(f"[green]OK[/]  {told}: a plain sort of LAMMPS's own dump, bit for bit", highlight=False)
        else:
            console.print(
                f"[red]{told}: differs from a plain sort of LAMMPS's own dump:[/] {tracks.difference}", highlight=False
            )
        size = bytes_text(tracks.written_bytes)
        console.print(f"[bold]{self.settings.tracks_path}[/]  {size}, by identifier and step")
        console.print(f"[bold]{self.settings.tracks_figure_path}[/]  how far particles went")


def spread(times_us: list[float]) -> dict[str, float] | None:
    """Median and longest; None where there is nothing."""
    return {"p50": median(times_us), "max": max(times_us)} if times_us else None


def time_text(time_us: float) -> str:
    """12.3 us, 456 us, 7.89 ms."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.2f} s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.2f} ms"
    return f"{time_us:.0f} us" if time_us >= 100 else f"{time_us:.1f} us"


def seconds_text(time_s: float) -> str:
    return f"-{time_text(-time_s * 1e6)}" if time_s < 0 else time_text(time_s * 1e6)


def percent_text(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio >= 0.1 else f"{ratio:.1%}"


def bytes_text(count: float) -> str:
    """Decimal units, as GB/s are."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count:.0f} B"
