"""Machines that lack something an agent needs, and things that an agent must not need."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from agent_process import agent, find_program

SOURCES = Path(__file__).resolve().parents[2] / "src"


def test_without_the_verbs_library_it_says_what_to_install(tmp_path):
    key = tmp_path / "key"
    key.write_text("a key for this test only, long enough")
    key.chmod(0o600)
    (tmp_path / "libibverbs.so.1").touch()  # found before the machine's own, and no library
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [find_program(), "--listen", "verbs:127.0.0.1:0", "--key-file", key]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "libibverbs.so.1, which cannot be loaded" in ended.stderr and "install rdma-core" in ended.stderr


def test_its_loop_does_not_take_the_core_of_a_program_that_wakes_it(tmp_path):
    for setting, policy in ("true", os.SCHED_BATCH), ("false", os.SCHED_OTHER):
        with agent(tmp_path, "--set", f"loop.batch={setting}") as a:
            assert os.sched_getscheduler(a.pid) & ~os.SCHED_RESET_ON_FORK == policy


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel tells only root")
def test_its_sleeps_end_on_time(tmp_path):
    """The usual slack of 50 us is as long as a nap of its loop."""
    with agent(tmp_path) as a:
        for thread in Path(f"/proc/{a.pid}/task").iterdir():
            assert int(Path(f"/proc/{thread.name}/timerslack_ns").read_text()) == 1000, (thread / "comm").read_text()


def test_no_wall_clock_decides_anything():
    """Clocks of two machines differ, and one clock may jump: durations are counted in monotonic time.

    Only four places tell the date: the message about a certificate's dates, the end of Flight's server, whose library
    takes a date and nothing else, and samples and lines of the log, which carry it for their readers."""
    elsewhere = r"clock_gettime\(CLOCK_(?!MONOTONIC|BOOTTIME|THREAD_CPUTIME)"
    reads_the_date = re.compile(rf"system_clock|gettimeofday\(|\btime\((?:nullptr|NULL|0)\)|{elsewhere}")
    readers = {
        str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.*")
        if path.suffix in (".cc", ".h") and reads_the_date.search(path.read_text())
    }  # fmt: skip
    assert readers == {
        "agent/config/sampling_settings.cc",
        "agent/log_sink.cc",
        "link/control/openssl_tls.cc",
        "pool/flight/flight_server.cc",
    }
