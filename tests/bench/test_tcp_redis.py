"""Results of several turns of redis-benchmark: each figure is judged by its own target."""

from __future__ import annotations

from pathlib import Path

import pytest
from offpath.bench import programs, tcp_redis
from offpath.bench.report import Report
from rich.console import Console


def claims_of(ours: tuple[float, ...], theirs: tuple[float, ...]) -> dict[str, tuple[float, bool]]:
    """Ratio and whether it holds, for turns that were all alike, beside a server of the kernel that sleeps. One that
    spins is twice as good."""
    spins = (theirs[0] / 2, theirs[1] / 2, theirs[2] * 2, theirs[3] / 2)
    report = Report("tcp", "1a2b3c", "two cores")
    figures = {"offloaded": [ours] * 21, "asleep": [theirs] * 21, "spinning": [spins] * 21}
    tcp_redis.add_claims(report, "SET 64 B", figures)
    report.conclude(Console(quiet=True), quick=False)
    assert report.broken_rules() == []
    assert [(each.claim, each.unit, each.target) for each in report.claims] == tcp_redis.CLAIMS[:8]
    asleep, spinning = report.claims[:4], report.claims[4:]
    for one, other in zip(asleep, spinning, strict=True):
        assert other.claim == one.claim.replace("SET 64 B", "SET 64 B, its server spins")
        assert other.ratio == pytest.approx((one.ratio or 0) / 2)
    return {each.claim.split()[0]: (each.ratio or 0, each.holds) for each in asleep}


# CPU of the server and of all for a request, requests a second, milliseconds.
KERNEL = (9e-6, 9e-6, 100e3, 0.3)


def test_rate_and_latency_have_targets_of_their_own():
    claims = claims_of((5e-6, 15e-6, 95e3, 0.35), KERNEL)
    assert claims["tcp.redis_per_cpu_vs_kernel"] == (pytest.approx(1.8), True)
    assert claims["tcp.redis_requests"] == (pytest.approx(0.95), True)
    assert claims["tcp.redis_ms_p50"] == (pytest.approx(0.3 / 0.35), True)


def test_a_lower_rate_and_a_longer_wait_are_missed_though_cpu_is_saved():
    claims = claims_of((4e-6, 15e-6, 89e3, 0.37), KERNEL)
    assert {name for name, (_, holds) in claims.items() if not holds} == {"tcp.redis_requests", "tcp.redis_ms_p50"}


def test_programs_that_were_unpacked_are_found_with_their_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(programs, "UNPACKED_PLACES", [str(tmp_path / "usr" / "bin")])
    monkeypatch.setattr(programs, "UNPACKED_LIBRARIES", tmp_path / "usr" / "lib")
    assert tcp_redis.lacking() == "redis-server"
    for name in ("redis-server", "redis-benchmark", "redis-cli"):
        program = tmp_path / "usr" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    assert tcp_redis.lacking() is None
    assert tcp_redis.server_command(6379)[0] == str(tmp_path / "usr" / "bin" / "redis-server")
    assert programs.with_unpacked_libraries()["LD_LIBRARY_PATH"] == str(tmp_path / "usr" / "lib")


def test_what_cannot_run_leaves_out_every_figure():
    assert [target for _, _, target in tcp_redis.CLAIMS] == [">= 1.5", None, ">= 0.9", ">= 0.833"] * 4
