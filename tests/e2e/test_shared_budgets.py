"""The examples that share a budget between real processes, with other events than in their own test: whose agents
their seed has stopped for longer than a grant lasts, who is killed, and when. They assert themselves that the budget is
never exceeded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import find_program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEEDS = range(2, 22) if "OFFPATH_LONG" in os.environ else range(2, 3)  # ./dev test --long


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("example", "said"),
    [("06_power_budget/power_budget.py", "never above"), ("08_io_tokens/io_tokens.py", "at most")],
)
def test_a_budget_is_never_exceeded_whoever_is_killed_or_stopped(example: str, said: str, seed: int) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / example, str(seed)], capture_output=True, text=True, timeout=500,
                          check=False, env={**os.environ, "OFFPATH_AGENT_PROGRAM": str(find_program())})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    if done.stdout.startswith("skipped"):
        pytest.skip(done.stdout.strip())
    assert said in done.stdout, done.stdout
