"""./dev shows how far a build is: on a terminal every second, elsewhere every minute. Its clock is a counter here."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

DEV = (Path(__file__).resolve().parent.parent / "dev").read_text(encoding="utf-8")


def function(name: str) -> str:
    found = re.search(rf"^{name}\(\) \{{\n.*?^\}}$", DEV, re.M | re.S)
    assert found, name
    return found[0]


def script(log: Path, seconds: int) -> str:
    """Runs progress() for so many seconds. Each second the build has completed one more of 200 steps."""
    return f"""
set -euo pipefail
{function("progress")}
passed=0
sleep() {{
  passed=$((passed + 1))
  [ "$passed" -le {seconds + 1} ] || return 1
  printf '[%d/200] Building CXX object\\n' "$passed" >>"{log}"
}}
progress "build release" "{log}"
"""


def test_elsewhere_a_line_gets_the_progress_of_each_minute(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    done = subprocess.run(["bash", "-c", script(log, 130)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "offpath: build release … [61/200] [121/200] "
    assert (tmp_path / "build.log.shown").exists(), "stage() ends the line that progress() has begun"


def test_a_terminal_shows_each_second_in_one_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = ["bash", "-c", script(tmp_path / "build.log", 3)]
    subprocess.run(command, stderr=theirs, timeout=60, check=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    parts = shown.split("\r")
    assert parts == ["offpath: build release … "] + [f"offpath: build release … [{n}/200] " for n in (2, 3, 4)]


def test_a_log_without_steps_shows_the_stage_alone(tmp_path: Path) -> None:
    quiet = script(tmp_path / "log", 130).replace("[%d/200] Building", "%d packages")
    done = subprocess.run(["bash", "-c", quiet], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "offpath: build release … "


def test_a_quick_stage_shows_nothing(tmp_path: Path) -> None:
    text = f"""
set -euo pipefail
here={tmp_path}; logs={tmp_path}
say() {{ printf 'offpath: %s\\n' "$*" >&2; }}
die() {{ say "$*"; exit 1; }}
{function("progress")}
{function("stage")}
stage "quick" "see the log" true
stage "wrong" "see the log" bash -c 'echo the reason; exit 3'
"""
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.fullmatch(
        r"offpath: wrong … failed after \d s; the end of wrong\.log:\nthe reason\noffpath: see the log\n", done.stderr
    ), done.stderr
