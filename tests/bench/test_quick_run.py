"""Every command from end to end with --quick: every part runs, every claim is there, every figure is drawn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from offpath.bench import app
from offpath.bench.move import CLAIMS
from offpath.bench.network_pair import missing as missing_namespaces
from offpath.bench.programs import ProgramError, find_program
from offpath.bench.report import Report
from offpath.bench.task import CLAIMS as TASK_CLAIMS
from typer.testing import CliRunner

# What 1 MiB, the largest size of --quick, leaves out; and peers that a machine need not have.
LEFT_OUT = {"move.ipc_page_vs_host_serialised_16col (from 4 MiB)", "move.host_cpu_ratio"}
NEED_UCX = {"move.columns_vs_ucx (16 x 4 KiB)", "move.columns_vs_ucx (16 x 64 KiB)"}


def run_quick(command: str, out: Path, *programs: str, figures: bool = True, options: tuple[str, ...] = ()) -> Report:
    try:
        for program in programs:
            find_program(program)
    except ProgramError as error:
        pytest.skip(str(error))
    json_path = out / "report.json"
    words = [command, "--quick", *options, *(["--out", str(out)] if figures else []), "--json", str(json_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = Report.parse(json_path.read_text(encoding="utf-8"))
    assert report.commit == (commit_now() or report.commit or "something")
    return report


def commit_now() -> str:
    """What the source tree is at, which the programs lie in and the tests run from; empty if it is no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


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
    threads = {tuple(line.x) for line in report.series if line.figure == "pool_fig3"}
    assert threads == {(1.0, 2.0)}
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig3_objects.png", "fig4_queries.png"}


def test_sift(tmp_path: Path):
    report = run_quick("sift", tmp_path, "offpath-agent", "bench_sift_partition", "bench_sift_impulse")
    measured = {claim.claim.partition(" ")[0] for claim in report.claims if claim.value is not None}
    assert measured >= {
        "sift.partition_vs_memcpy", "sift.impulse_linear", "sift.impulse_records_per_core_s",
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
    assert {claimed.get(name, "bytes") for name in measured} == {part}
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
        "tcp.stream_host_cpu_vs_kernel", "tcp.connections", "tcp.echo_sparse", "tcp.post_ns", "tcp.idle_flows",
        "tcp.flow_bytes", "tcp.goodput_vs_kernel", "tcp.fairness", "tcp.echo_stage", "tcp.breakdown",
    }  # fmt: skip
    assert [path.name for path in tmp_path.glob("*.png")] == ["tcp_echo_stages.png"]
