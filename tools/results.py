"""Makes the tables of docs/results/benchmarks.md and README.md from the runs in bench/results/MACHINE/*.json.

Usage: tools/results.py. Prints problems, and exits 1 if a table differs from its runs or a run breaks the rules.
       tools/results.py --write. Writes the tables.

`offpath bench all --json bench/results/MACHINE` makes the runs. A table stands between `<!-- results: BENCH -->` and
`<!-- end of results -->`; README has one of the rows below, and no other figures. A claim holds if it was measured on
processors of all makers, and holds wherever it was measured. Figures of older runs that break a rule are marked, and
hold nothing.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
RUNS = "bench/results"
PAGES = ("docs/results/benchmarks.md", "README.md")
# A folder each, and a column of the tables of which it has runs.
MACHINES = {
    "xeon": "Intel Xeon",
    "epyc-zen1": "AMD EPYC (Zen 1)",
    "epyc-zen4": "AMD EPYC (Zen 4)",
    "epyc-zen5": "AMD EPYC (Zen 5)",
}
MAKERS = {"Intel": ["xeon"], "AMD": ["epyc-zen1", "epyc-zen4", "epyc-zen5"]}
MARKER = re.compile(r"(<!-- results: (?P<name>[\w-]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
NOT_MEASURED, NOT_DECIDED, AGAIN = "not measured", "not decided", "to be measured again"
FIGURE = re.compile(r"\b\d[\d.,]*(\s?([nmu]s|[GM]b/s|[GM]B/s|[kM]/s)\b|x\b)")  # a speed, or a ratio

# README's rows: the names of claims there. A missed claim of `move` is always among them.
README = {
    "move.post_ns_p50": "host time of a post of 16 columns, from C",
    "move.post_python_us_p50": "host time of a post of 16 columns, from Python",
    "move.post_asleep_us_p50": "host time of a post, from C, while the agent sleeps",
    "move.post_rhythm_us_p50": "host time of a post, from C, every 10 ms, after the agent has learnt the rhythm",
    "move.post_cold_us_p50 (in a rhythm)":
        "host time of a post, from C, every 50 ms, of a program that fills the caches",
    "move.post_cold_us_p50 (irregular)":
        "host time of a post, from C, of a program that fills the caches, while the agent sleeps",
    "move.post_size_spread": "host time of a post, slowest by fastest size from 4 KiB to 256 MiB",
    "move.post_to_seen_ns_p50": "time from a post until the agent sees it",
    "move.host_cpu_ratio": "host CPU time to hand over 64 MiB",
    "move.total_cpu (agent included)": "host and agent CPU time to hand over 64 MiB",
    "move.ipc_page_vs_host_serialised_1col (from 128 KiB)":
        "page-aligned Arrow of 1 column, worst size from 128 KiB to 256 MiB",
    "move.ipc_page_vs_host_serialised_1col (from 1 MiB)":
        "page-aligned Arrow of 1 column, worst size from 1 to 256 MiB",
    "move.ipc_page_vs_host_serialised_4col (from 1 MiB)":
        "page-aligned Arrow of 4 columns, worst size from 1 to 256 MiB",
    "move.ipc_page_vs_host_serialised_16col (from 4 MiB)":
        "page-aligned Arrow of 16 columns, worst size from 4 to 256 MiB",
    "move.vs_flight_doput": "64 MiB in, one frame held, on one machine",
    "move.tcp_vs_flight_doput": "64 MiB in, one frame held, over TCP",
    "move.bandwidth_vs_raw_one (64-128 KiB)": "reading one range at a time, worst of 64 and 128 KiB",
    "move.bandwidth_vs_raw_one (from 256 KiB)": "reading one range at a time, worst size from 256 KiB to 256 MiB",
    "move.bandwidth_vs_raw_many": "reading 16 ranges at a time, worst size from 64 KiB to 64 MiB",
    "move.columns_vs_ucx (16 x 4 KiB)": "reading 16 columns of 4 KiB",
    "move.columns_vs_ucx (16 x 64 KiB)": "reading 16 columns of 64 KiB",
    "move.agent_rss_over_payload": "the agent's memory beyond its frames",
    "move.host_library_rss": "memory of the host library",
    "move.host_library_threads": "threads of the host library",
}  # fmt: skip
PEERS = {"Offpath, Acero alone": "Acero"}  # a way of Offpath's own beside which another one is measured


def load_report() -> ModuleType:
    """offpath.bench.report by its file: the lint runs where Offpath is not built."""
    path = ROOT / "python" / "offpath" / "bench" / "report.py"
    spec = importlib.util.spec_from_file_location("bench_report", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reports = load_report()

# Kept runs from before a rule that they break, and that rule. Only measuring them again takes them out of this list.
BEFORE_RULES = {
    "xeon/sift.injection": reports.UNTRACED,
    "xeon/sift.tracks": reports.UNTRACED,
    "xeon/sift.agents": reports.WITHOUT_TOTAL,
    "xeon/tcp.threads": reports.WITHOUT_TOTAL,
    "epyc-zen1/sift.agents": reports.WITHOUT_TOTAL,
    "epyc-zen5/tcp.threads": reports.WITHOUT_TOTAL,
}


@dataclass
class Run:
    """A claim on one machine, with the report that it is from."""

    claim: reports.Claim  # type: ignore[name-defined]
    report: reports.Report  # type: ignore[name-defined]
    again: bool = False  # from before a rule that it breaks


Runs = dict[str, dict[str, Run]]  # by claim, then by machine


def read_runs(root: Path) -> tuple[Runs, list[str]]:
    """Every claim in the order of its first run, and the errors in the files."""
    found: Runs = {}
    problems = []
    folders = sorted(path.name for path in (root / RUNS).iterdir() if path.is_dir())
    problems += [f"{RUNS}/{name}: is no machine of tools/results.py" for name in folders if name not in MACHINES]
    for machine in MACHINES:
        for path in sorted((root / RUNS / machine).glob("*.json")):
            where = path.relative_to(root).as_posix()
            try:
                report = reports.Report.parse(path.read_text(encoding="utf-8"))
            except reports.ReportError as error:
                problems.append(f"{where}: {error}")
                continue
            broken = report.broken_rules()
            before = BEFORE_RULES.get(f"{machine}/{path.stem}")
            excused = [each for each in broken if before is not None and each.endswith(before)]
            problems += [f"{where}: {each}" for each in broken if each not in excused]
            if before is not None and not excused:
                problems.append(f"{where}: keeps the rule now, so BEFORE_RULES of tools/results.py is not for it")
            problems += [f"{where}: no {key}" for key in ("date", "command") if not getattr(report, key)]
            if re.search(r"--quick\b", report.command):
                problems.append(f"{where}: a run with --quick, whose figures mean nothing")
            for claim in report.claims:
                of_claim = found.setdefault(claim.claim, {})
                if machine in of_claim:
                    problems.append(f"{where}: {claim.claim} is in another file, too")
                again = any(each == before or each.startswith(f"{claim.claim}: ") for each in excused)
                of_claim.setdefault(machine, Run(claim, report, again))
    return found, problems


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{number(value)} {unit}".strip()


def cell(run: Run | None) -> str:
    """Value, the peer's value, ratio with its interval; or the reason why they are missing."""
    if run is None:
        return NOT_MEASURED
    claim = run.claim
    if not claim.measured:
        return claim.why if claim.target is None and claim.why else NOT_MEASURED
    if claim.why and claim.peer_value is not None and claim.ratio is None:
        return f"{NOT_DECIDED}: {claim.why}"
    said = [figure(claim.value, claim.unit)]
    if claim.peer_value is not None:
        said.append(f"peer {figure(claim.peer_value, claim.unit)}")
    if claim.ratio is not None and claim.interval is not None:
        low, high = claim.interval
        said.append(f"{number(claim.ratio)} [{number(low)}, {number(high)}]")
    return "; ".join(each for each in said if each) + (" †" if run.again else "")


def target_of(of_claim: dict[str, Run]) -> str | None:
    """That of the newest run: a claim may have got a target, or lost it to another one."""
    newest = max(of_claim.values(), key=lambda run: (run.report.date, run.claim.target is not None))
    return newest.claim.target


def verdict(of_claim: dict[str, Run]) -> str:
    """Whether a claim holds on processors of all makers; if not, where it does not, or is not decided. A run from
    before the claim had a target decides nothing."""
    if target_of(of_claim) is None:
        return "shown"
    measured = [name for name in MACHINES if name in of_claim and of_claim[name].claim.measured]
    again = [name for name in measured if of_claim[name].again or of_claim[name].claim.target is None]
    undecided = [name for name in measured if of_claim[name].claim.undecided and name not in again]
    failed = [name for name in measured if not of_claim[name].claim.holds and name not in (*undecided, *again)]
    unmeasured = [maker for maker, names in MAKERS.items() if not set(names) & set(measured)]
    places = {"missed": failed, NOT_DECIDED: undecided, AGAIN: again, NOT_MEASURED: unmeasured}
    said = [f"{what} on {' and '.join(MACHINES.get(name, name) for name in names)}"
            for what, names in places.items() if names]  # fmt: skip
    return "no: " + ", ".join(said) if said else "yes"


def peer_of(of_claim: dict[str, Run]) -> str:
    """Without the part that differs from run to run, which follows a comma or a semicolon."""
    peers = [PEERS.get(run.claim.peer) or re.split(r"[;,] ", run.claim.peer)[0]
             for run in of_claim.values() if run.claim.peer]  # fmt: skip
    return peers[0] if peers else "-"


def rows_of(first: str, titles: dict[str, str], runs: Runs) -> str:
    """The head and the rows of a table, with columns of the machines that have a run of it; `titles` by claim."""
    machines = [machine for machine in MACHINES if any(machine in runs[claim] for claim in titles)]
    columns = [first, *(MACHINES[machine] for machine in machines), "peer", "target", "holds"]
    lines = [f"| {' | '.join(columns)} |\n", "|---" * len(columns) + "|\n"]
    for claim, title in titles.items():
        of_claim = runs[claim]
        cells = [cell(of_claim.get(machine)) for machine in machines]
        cells = [title, *cells, peer_of(of_claim), target_of(of_claim) or "-", verdict(of_claim)]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def about(runs: Runs) -> str:
    """Commits and days of the runs of a table, machine by machine; machines without any, on which no claim holds."""
    said = []
    without = [maker for maker, names in MAKERS.items() if not any(set(names) & set(each) for each in runs.values())]
    if runs and without:
        said.append(f"No run of this table on {' and '.join(without)} is kept yet, so no claim holds yet.")
    for machine, title in MACHINES.items():
        of_machine = [each[machine] for each in runs.values() if machine in each]
        kept = sorted({(run.report.date, run.report.commit) for run in of_machine})
        if kept:
            said.append(f"{title}: " + ", ".join(f"{commit} on {date}" for date, commit in kept) + ".")
    if any(run.again for each in runs.values() for run in each.values()):
        said.append("† of a run from before a rule that it breaks, so it holds nothing until it is measured again.")
    return "\n" + "\n".join(said) + "\n" if said else ""


def table(name: str, runs: Runs) -> str:
    """The text between the markers of one name."""
    if name == "README":
        titles = {claim: title for claim, title in README.items() if claim in runs}
        return rows_of("", titles, runs) + about({claim: runs[claim] for claim in titles})
    prefix = f"{name.replace('-', '_')}."
    rows = {claim: of_claim for claim, of_claim in runs.items() if claim.startswith(prefix)}
    if name == "arrow-steps":
        rows |= {claim: of_claim for claim, of_claim in runs.items() if claim.startswith("compression.")}
    if not rows:
        return f"No run of `offpath bench {name}` is kept yet, so nothing is claimed.\n"
    return rows_of("claim", {claim: f"`{claim}`" for claim in rows}, runs) + about(rows)


def written(text: str, runs: Runs) -> str:
    """A page with regenerated tables."""
    return MARKER.sub(lambda found: f"{found[1]}\n{table(found['name'], runs)}\n{found[3]}", text)


def check(root: Path) -> list[str]:
    runs, problems = read_runs(root)
    for page in PAGES:
        text = (root / page).read_text(encoding="utf-8")
        if written(text, runs) != text:
            problems.append(f"{page}:1: its tables are not those of {RUNS}: run tools/results.py --write")
    said = MARKER.sub("", (root / "README.md").read_text(encoding="utf-8"))
    problems += [f"README.md:1: '{found[0]}' is a figure outside of its table" for found in FIGURE.finditer(said)]
    problems += [f"README.md:1: its table leaves out {claim}, which was missed" for claim, of_claim in runs.items()
                 if claim.startswith("move.") and claim not in README and "missed" in verdict(of_claim)]  # fmt: skip
    shown = {found["name"] for page in PAGES for found in MARKER.finditer((root / page).read_text(encoding="utf-8"))}
    benches = {claim.partition(".")[0].replace("_", "-") for claim in runs} - {"compression"}
    problems += [f"{PAGES[0]}:1: has no table of {bench}" for bench in sorted(benches - shown)]
    return problems


def write(root: Path) -> None:
    runs, _ = read_runs(root)
    for page in PAGES:
        path = root / page
        text = path.read_text(encoding="utf-8")
        path.write_text(written(text, runs), encoding="utf-8")


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        write(ROOT)
    problems = check(ROOT)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
