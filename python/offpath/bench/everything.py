"""``offpath bench all``: every benchmark of this machine, part by part, each a command of its own whose claims are kept
in a file. A part whose file exists is not run again, so a stopped run can be continued.

The files of ``bench/results`` come from here; ``tools/results.py`` makes the tables of the documentation from them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .report import Report, ReportError


@dataclass(frozen=True)
class Part:
    """One command. ``name`` is the file's; ``minutes`` is about its duration on two idle cores."""

    name: str
    minutes: float
    words: tuple[str, ...]

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    def command(self) -> list[str]:
        return ["offpath", "bench", *self.words]


def weak(bench: str, part: str, minutes: float, *others: str) -> Part:
    return Part(f"weak.{bench}.{part}", minutes, ("--weak-agent", bench, "--part", part, *others))


def part_of(bench: str, part: str, minutes: float, *others: str) -> Part:
    return Part(f"{bench}.{part}", minutes, (bench, "--part", part, *others))


SIZES = ("--sizes-max", "256M")
# Groups with figures of a paper as measured: their series are kept with the claims, to draw the figures again.
KEEP_SERIES = ("md", "sift", "exchange")
# The claims that most readers look for come first.
PARTS = (
    part_of("move", "posts", 1.0, *SIZES),
    part_of("move", "bandwidth", 1.5, *SIZES),
    part_of("move", "placement", 2.0, *SIZES),
    part_of("move", "flight", 0.5, *SIZES),
    part_of("move", "memory", 0.3, *SIZES),
    part_of("run", "handover", 3.0),
    part_of("move", "cores", 4.0),
    part_of("pool", "queries", 1.3),
    part_of("pool", "objects", 1.0),
    part_of("pool", "cores", 3.0),
    part_of("pool", "histogram", 6.0),
    part_of("sift", "split", 1.0),
    part_of("sift", "injection", 4.0),
    part_of("sift", "tracks", 0.5),
    part_of("exchange", "samples", 0.5),
    part_of("exchange", "peers", 0.5),
    part_of("exchange", "region", 0.3),
    *(
        part_of("tcp", part, 0.4)
        for part in ("echo", "busy", "stream", "threads", "connections", "sparse", "posts", "idle")
    ),
    part_of("tcp", "redis", 0.7),
    part_of("tcp", "cores", 1.5),
    Part("tcp.link", 0.5, ("tcp", "--link", "tcp")),
    part_of("task", "calls", 0.7),
    part_of("task", "bytes", 1.3),
    Part("adios2.steps", 0.4, ("adios2",)),
    Part("lammps.fixes", 3.5, ("lammps",)),
    part_of("exchange", "overhead", 2.0),
    part_of("tcp", "goodput", 4.5),
    part_of("tcp", "sharing", 0.5),
    part_of("tcp", "breakdown", 0.3),
    part_of("tcp", "slow-path", 0.5),
    part_of("tcp", "devices", 0.6),
    part_of("growth", "streams", 1.5),
    part_of("growth", "objects", 1.0),
    part_of("growth", "frames", 0.5),
    part_of("growth", "columns", 0.5),
    part_of("growth", "programs", 1.0),
    weak("move", "posts", 1.5, "--sizes-max", "16M"),
    weak("move", "bandwidth", 2.0, "--sizes-max", "16M"),
    weak("pool", "queries", 5.0),
    weak("sift", "injection", 6.0),
    weak("exchange", "samples", 1.0),
    weak("task", "calls", 1.0),
    weak("tcp", "echo", 0.6),
    weak("tcp", "stream", 0.6),
    weak("growth", "frames", 1.0),
    Part("link.local", 1.0, ("link", "--link", "local")),
    Part("link.tcp", 1.0, ("link", "--link", "tcp")),
    part_of("exchange", "ranks", 1.5),
    part_of("exchange", "sizes", 3.0),
    part_of("exchange", "agents", 6.0),
    part_of("exchange", "group", 3.0),
    part_of("exchange", "impact", 6.0),
    part_of("sift", "impulse", 5.0),
    part_of("sift", "agents", 6.0),
    Part("arrow-steps.steps", 4.0, ("arrow-steps",)),
    part_of("md", "rates", 6.0),
    part_of("md", "mdbench", 15.0),
    part_of("md", "machine", 0.3),
    part_of("md", "gains", 5.0),
    part_of("md", "memory", 2.0),
    part_of("md", "model", 2.0),
    part_of("md", "auto", 9.0),
    part_of("md", "ranks", 6.0),
    part_of("md", "tdr", 4.0),
    part_of("md", "alone", 5.0),
    part_of("md", "card", 9.0),
    part_of("md", "agree", 1.0),
)


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts of these names ("move.posts") and groups ("move"), in their order here; without names, all.

    Raises ValueError for a name that no part has.
    """
    for name in names:
        if not any(name in (part.name, part.group) for part in PARTS):
            groups = ", ".join(dict.fromkeys(part.group for part in PARTS))
            raise ValueError(f"'{name}' is not one of {groups}, nor of their parts, such as {PARTS[0].name}")
    return [part for part in PARTS if not names or part.name in names or part.group in names]


def run_part(part: Part, kept: Path, out: Path, quick: bool) -> Report:
    """Runs the command, and keeps its claims in ``kept``. Raises ReportError with the end of its output."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        path = Path(folder) / "report.json"
        words = [*part.words, *(["--quick"] if quick else [])]
        drawn = [] if part.group in ("adios2", "lammps", "run") else ["--out", str(out / part.group)]
        command = [sys.executable, "-m", "offpath", "bench", *words, *drawn, "--json", str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0 or not path.exists():
            said = done.stdout.strip().splitlines()[-5:] or ["no reason given"]
            raise ReportError(f"{part.name} ended with status {done.returncode}: {' / '.join(said)}")
        report = Report.parse(path.read_text(encoding="utf-8"))
    report.command = " ".join(["offpath", "bench", *words])
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(".partial")
    partial.write_text(report.to_result(part.group in KEEP_SERIES), encoding="utf-8")
    partial.rename(kept)
    return report


def run(parts: Sequence[Part], folder: Path, out: Path, again: bool, quick: bool, console: Console) -> bool:
    """Runs the parts that have no file in ``folder``, or all of them. Returns whether all ran."""
    wanted = [part for part in parts if again or not (folder / f"{part.name}.json").exists()]
    if skipped := len(parts) - len(wanted):
        console.print(f"{skipped} of {len(parts)} parts are in {folder} already; --again measures them again")
    all_ran = True
    left = sum(part.minutes for part in wanted)
    for number, part in enumerate(wanted, 1):
        console.print(f"[{number}/{len(wanted)}] {part.name}: about {part.minutes:g} min of {left:.0f} left")
        left -= part.minutes
        began = time.monotonic()
        try:
            report = run_part(part, folder / f"{part.name}.json", out, quick)
        except ReportError as error:
            all_ran = False
            console.print(f"  {error}", highlight=False, markup=False)
            continue
        claimed = [claim for claim in report.claims if claim.target is not None]
        held = sum(claim.holds for claim in claimed)
        shown = len(report.claims) - len(claimed)
        console.print(
            f"  {time.monotonic() - began:.0f} s, {held} of {len(claimed)} claims hold, {shown} figures shown"
        )
        for claim in claimed:
            if not claim.holds:
                why = claim.why or f"{claim.value} {claim.unit}, ratio {claim.ratio}, target {claim.target}"
                console.print(f"  no: {claim.claim}: {why}", highlight=False, markup=False)
    return all_ran
