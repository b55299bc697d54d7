#!/usr/bin/env python3
"""Checks the subjects of commits: the first line of a message has at most 72 characters, which are shown everywhere.

Usage: subjects.py [ROOT]. Prints `commit: problem`; exits 1 if there is any. Commits up to CHECKED_AFTER are as they
are. Where git or its history is missing, as in a released archive or a shallow clone, nothing is checked.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHARACTERS_MAX = 72
CHECKED_AFTER = "3a106dca07163fd29ce2e41b950fae055f89f5d1"


def problems_of(root: Path, after: str = CHECKED_AFTER) -> list[str]:
    """Commits that HEAD has and `after` lacks, with subjects that are too long."""
    command = ["git", "-C", str(root), "log", "--format=%h %s", f"{after}..HEAD"]
    try:
        listed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    commits = [line.partition(" ") for line in listed.splitlines()]
    return [
        f"{commit}: a subject of {len(subject)} characters, at most {CHARACTERS_MAX}: {subject}"
        for commit, _, subject in commits
        if len(subject) > CHARACTERS_MAX
    ]


def main(arguments: list[str]) -> int:
    problems = problems_of(Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
