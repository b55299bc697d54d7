"""Shared by the builds of packages: their places, and commands that show their progress."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "package"

STEP = re.compile(r"\s*\[(\d+)/(\d+)\] ")  # of Ninja
SHOWN_SECONDS = 2.0
LOG_LINES_SHOWN = 40


class PackageError(RuntimeError):
    """The reason why a package cannot be built."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    words = [str(word) for word in command]
    print("$", " ".join(words), flush=True)
    subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=True)


def run_building(log: Path, *command: str | Path, **environment: str) -> None:
    """Runs a command that builds, with its output in a log, and shows how far it is; the log's end if it fails."""
    words = [str(word) for word in command]
    print("$", " ".join(words), flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as kept, subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as running:  # fmt: skip
        assert running.stdout is not None
        shown, told = "", -SHOWN_SECONDS
        for line in running.stdout:
            kept.write(line)
            step = STEP.match(line)
            if step and (step[1] == step[2] or time.monotonic() - told >= SHOWN_SECONDS):
                shown, told = f"{step[1]} of {step[2]}", time.monotonic()
                print(
                    f"\r{shown} " if sys.stdout.isatty() else shown, end="" if sys.stdout.isatty() else "\n", flush=True
                )
        if shown and sys.stdout.isatty():
            print()
        code = running.wait()
    if code != 0:
        print("\n".join(log.read_text(encoding="utf-8").splitlines()[-LOG_LINES_SHOWN:]), file=sys.stderr)
        raise PackageError(f"exit status {code}; all of its output: {log}")


def version() -> str:
    header = (ROOT / "include/offpath/offpath.h").read_text()
    return ".".join(re.findall(r"#define OFP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def copy_sources(to: Path) -> None:
    """Files that git tracks or would add: no build, no environment."""
    shutil.rmtree(to, ignore_errors=True)
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which(command[0]) is None:
        raise PackageError("git says which files are sources: install it")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:  # no clone, or one of another user
        raise PackageError(f"git says which files are sources, but not here: {listed.stderr.strip()}")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
