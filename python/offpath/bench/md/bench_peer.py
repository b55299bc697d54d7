"""MD-Bench as a peer of ``offpath bench md``: programs of it that were built elsewhere, beside offpath-md on one core.

The name of such a program says how it was built: ``MDBench-VL-GCC-X86-AVX512-DP`` has Verlet lists (CP: clusters of
atoms), and double precision (SP: single). Several may be named; of each precision the fastest is the peer, with lists
that have each pair once (-half 1) or twice.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..intervals import median_interval
from ..programs import ProgramError
from ..report import Claim, Report

NAME = re.compile(r"MDBench-(?P<scheme>VL|CP)-(?P<toolchain>\w+)-(?P<isa>X86|ARM)(-(?P<simd>\w+))?-(?P<type>DP|SP)")
SCHEMES = {"VL": "verletlist", "CP": "clusterpair"}
TRIES = 3  # of each program, before the turns
# Our precision -> theirs, the claim and its target.
PEERS = {"double": ("DP", "md.vs_mdbench", 1.15), "mixed": ("SP", "md.mixed_vs_mdbench", 1.2)}


@dataclass(frozen=True)
class Program:
    path: Path
    scheme: str
    toolchain: str
    isa: str
    simd: str
    data_type: str
    half: bool = False  # its lists have each pair once

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent

    def about(self) -> str:
        """Its name, the commit of its sources and their compiler options, as far as these lie beside it."""
        commit = output_of(["git", "-C", str(self.folder), "describe", "--always", "--abbrev=7", "--dirty"])
        built = {"OPT_SCHEME": SCHEMES[self.scheme], "TOOLCHAIN": self.toolchain, "ISA": self.isa,
                 "SIMD": self.simd or "NONE", "DATA_TYPE": self.data_type}  # fmt: skip
        flags = output_of(["make", "--silent", "-C", str(self.folder), *(f"{k}={v}" for k, v in built.items()),
                           "--eval", "print-flags: ; @echo $(CFLAGS)", "print-flags"])  # fmt: skip
        name = f"{self.path.name} -half {int(self.half)}"
        return ", ".join([name, *([f"commit {commit}"] if commit else []), *([flags] if flags else [])])

    def rate(self, core: int, cells: int, steps: int) -> float:
        """Atom-steps a second, as it counts them."""
        sizes = [word for axis in "xyz" for word in (f"-n{axis}", str(cells))]
        command = ["taskset", "-c", str(core), str(self.path.resolve()), *sizes, "-n", str(steps)]
        command += ["-half", str(int(self.half))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = re.search(r"^Performance: ([\d.]+) million atom updates", done.stdout, re.MULTILINE)
        if done.returncode != 0 or told is None or float(told[1]) == 0:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
            raise ProgramError(f"{self.path} ended with status {done.returncode} and tells no rate: {said}")
        return 1e6 * float(told[1])


def output_of(command: list[str]) -> str:
    """The words of its first line; empty when it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return " ".join(done.stdout.split("\n")[0].split()) if done.returncode == 0 else ""


def programs_of(paths: Sequence[str]) -> list[Program]:
    """Raises ProgramError for a missing program, or one that is not named like MD-Bench's programs."""
    found = []
    for text in paths:
        path = Path(text)
        named = NAME.fullmatch(path.name)
        if not path.is_file():
            raise ProgramError(f"--peer-program {text}: there is no such file")
        if named is None:
            raise ProgramError(
                f"--peer-program {text}: MD-Bench's programs have names like MDBench-VL-GCC-X86-AVX512-DP"
            )
        built = (named["scheme"], named["toolchain"], named["isa"], named["simd"] or "", named["type"])
        found += [Program(path, *built, half) for half in (False, True)]
    return found


def measure(
    report: Report, core: int, size: tuple[int, int, int], own: Callable[[str], float], paths: Sequence[str]
) -> None:
    """``size``: cells, steps, rounds. ``own``: the rate of one run of ours in a precision."""
    cells, steps, rounds = size
    programs = programs_of(paths)
    for precision, (data_type, name, target) in PEERS.items():
        peers = [program for program in programs if program.data_type == data_type]
        if not peers:
            why = f"there is no MD-Bench with {data_type} in its name: build it and name it by --peer-program"
            report.add_unmeasured([(name, "atom-steps/s", f">= {target:g}")], why)
            continue
        tried = {each: max(each.rate(core, cells, steps) for _ in range(TRIES)) for each in peers}
        peer = max(tried, key=lambda each: tried[each])
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(rounds):
            if number % 2:
                ours.append(own(precision))
                theirs.append(peer.rate(core, cells, steps))
            else:
                theirs.append(peer.rate(core, cells, steps))
                ours.append(own(precision))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        beside = f"; the fastest of {len(peers)}" if len(peers) > 1 else ""
        report.claims.append(
            Claim(name, median(ours), "atom-steps/s", "MD-Bench", median(theirs), median(ratios), f">= {target:g}",
                  median(ratios) >= target, median_interval(ratios), rounds, detail=peer.about() + beside)
        )  # fmt: skip
