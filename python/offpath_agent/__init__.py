"""The programs of an agent, in a wheel of their own (tools/agent_wheel.py); the package offpath finds them here."""

import os
import sys
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "bin"


def main() -> None:
    """The command offpath-agent: becomes the program of this name."""
    program = PROGRAMS / "offpath-agent"
    os.execv(program, [program.name, *sys.argv[1:]])
