"""Every command from end to end with --quick: every part runs, every claim is there, every figure is drawn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from offpath.bench import app
from offpath.bench.move import CLAIMS
from offpath.bench.programs import ProgramError, find_program
from offpath.bench.report import Report
from typer.testing import CliRunner

# What 1 MiB, the largest size of --quick, leaves out; and peers that a machine need not have.
LEFT_OUT = {"move.ipc_page_vs_host_serialised_16col (from 4 MiB)", "move.host_cpu_ratio"}
NEED_UCX = {"move.columns_vs_ucx (16 x 4 KiB)", "move.columns_vs_ucx (16 x 64 KiB)"}


def run_quick(command: str, out: Path, *programs: str) -> Report:
    try:
        for program in programs:
            find_program(program)
    except ProgramError as error:
        pytest.skip(str(error))
    json_path = out / "report.json"
    result = CliRunner().invoke(app, [command, "--quick", "--out", str(out), "--json", str(json_path)])
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
