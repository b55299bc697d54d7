"""Runs everything that needs an RDMA device, in guests that have one, and reports the results.

Usage: ./dev hw [--here | --arm] [--only REGEX]. --here: on this machine's own RDMA device instead. --arm: the agent in
a guest with the DPU's processor (arm_agent.py) instead. --only: the checks whose names match, and the guests they need.
Ends with one line for each check and `offpath: N passed, N failed`; exits 1 if any failed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import local_checks
import rdma_checks
import sockets_guests
import two_guests
from arm_agent import check_arm
from checks import chosen
from guest import Guest, GuestError, prepare

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "hw"
RDMA_SECONDS_MAX, LOCAL_SECONDS_MAX = 900, 480  # of the guests with one machine

Result = dict[str, object]


def read_results(path: Path) -> list[Result]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def one_guest(number: int, checks: str, only: str, seconds_max: float) -> list[Result]:
    """The checks of this script in a guest of their own, besides the two of two_guests.py, so that all results stay."""
    script = f"cd {ROOT}\nexec {sys.executable} tests/hw/{checks} /run/out {shlex.quote(only)}\n"
    guest = Guest(FOLDER, script, number=number)
    began = time.monotonic()
    guest.start()
    ended = ""
    try:
        code = guest.wait(seconds_max)
        if code != 0:
            ended = f"the checks ended with exit code {code}; see {guest.log.relative_to(ROOT)}"
    except GuestError as error:
        ended = str(error)
    finally:
        guest.kill()
    results = read_results(guest.out / "results")
    if ended or not results:
        results.append({
            "name": checks, "passed": False, "detail": ended or "the guest reported nothing",
            "seconds": time.monotonic() - began,
        })  # fmt: skip
    return results


def all_guests(only: str) -> list[Result]:
    """Over RDMA in one guest, on an older kernel in another, between two machines and three."""
    results: list[Result] = []
    if chosen(rdma_checks.CHECKS, only):
        results += one_guest(3, "rdma_checks.py", only, RDMA_SECONDS_MAX)
    if chosen(local_checks.CHECKS, only):
        results += one_guest(4, "local_checks.py", only, LOCAL_SECONDS_MAX)
    if chosen(two_guests.CHECKS, only):
        results += two_guests.check_pair(FOLDER, only)
    if chosen(sockets_guests.CHECKS, only):
        results += sockets_guests.check_sockets(FOLDER, only)
    return results


def this_machine(only: str) -> list[Result]:
    out = FOLDER / "here"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    subprocess.run([sys.executable, ROOT / "tests/hw/rdma_checks.py", out, only], cwd=ROOT, check=True)
    return read_results(out / "results")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev hw", description="everything that needs an RDMA device")
    parser.add_argument("--here", action="store_true", help="on this machine's own RDMA device, without a guest")
    parser.add_argument("--arm", action="store_true", help="the agent in a guest with the DPU's processor")
    parser.add_argument("--only", metavar="REGEX", default="", help="the checks whose names match")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not arguments.here:
        try:
            prepare(FOLDER)
        except GuestError as error:
            print(f"hw: skipped, there is no kernel for a guest: {error}")
            return 0
    if arguments.arm:
        results = check_arm(FOLDER, arguments.only)
    else:
        results = this_machine(arguments.only) if arguments.here else all_guests(arguments.only)
    if not results:
        print(f'hw: no check is called like "{arguments.only}"')
        return 1
    for result in results:
        word = "passed" if result["passed"] else "FAILED"
        print(f"{result['name']:<22} {word} {result['seconds']:6.1f} s  {result['detail']}")
    failed = sum(not result["passed"] for result in results)
    print(f"offpath: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
