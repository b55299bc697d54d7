"""Runs an example program against an agent of its own, and fails if it does not print the data that it read back.

Usage: run_example.py PROGRAM
"""

import os
import subprocess
import sys

import offpath

with offpath.Agent.start() as agent:
    done = subprocess.run(
        [sys.argv[1]], env={**os.environ, "OFFPATH_AGENT": agent.address}, capture_output=True, text=True, timeout=150
    )
    print(done.stdout, done.stderr, agent.log, sep="")
    if done.returncode != 0 or "step4: 10000 rows" not in done.stdout:
        sys.exit("the example failed")
