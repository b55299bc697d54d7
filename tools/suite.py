#!/usr/bin/env python3
"""Runs every test of the project, quick ones first, and ends with one line: `offpath: N passed, N failed`.

Usage: ./dev test [--long] [--only PATTERN]. PATTERN is the name of a step below, or a regular expression for the
names of tests of the release build and of pytest. Exits 1 if anything failed. Each step's output is kept in
build/logs/test-STEP.log, its reports in build/reports/.

A test that fails beside others runs once more, alone. If it passes then, it is named as unsteady at the end and counts
as passed: a machine of two cores that builds while it tests may make a process wait for seconds. Unsteady tests are
defects to look for; with --long they fail.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
REPORTS = ROOT / "build" / "reports"
LOG_TAIL_LINES = 60
STEP_SECONDS_MAX = 3000
BUILDS_FACTOR = 1.75  # builds get what tests leave of the processors
ARM_TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
GUEST_TOOLS = {"hw": ("qemu-system-x86_64",), "hw-arm": ("qemu-system-x86_64", "qemu-system-aarch64", ARM_TOOLS[0])}
FUZZ_SECONDS, FUZZ_SECONDS_LONG = 5, 60
# Unit tests run under the sanitizers first. Their second run, optimised, is for machines that have compiled most of it
# before: the whole suite should take 40 minutes.
UNITS_BUILD_WITHIN_S = 30 * 60
# Tests under the sanitizers that would begin later than this, counted from `./dev test`, are skipped with a message, so
# that a very slow machine has a result within 90 minutes. --long waits for all of them.
BEGIN_WITHIN_S = {"asan": 50 * 60, "fuzz": 65 * 60, "tsan": 70 * 60, "units": 75 * 60}
CTEST_EXIT_FAILED, PYTEST_EXIT_FAILED, PYTEST_EXIT_NO_TESTS = 8, 1, 5
BUILD_EVERYTHING = ("whole", "release")
AGAIN_MAX = 10  # more failed tests than these are not a matter of load
WORLDS_LONG = 10_000  # with network cuts, whose rarest failures are one in thousands
# Gets the processor time that tests leave. Sessions are weighed before the processes in them, so both are lowered.
BELOW_TESTS = ("/bin/sh", "-c", 'echo 19 2>/dev/null >/proc/self/autogroup; exec nice -n 19 "$@"', "below")

Command = list[str | Path]


@dataclass
class Tally:
    """The numbers of passed, failed and skipped tests, the names of failed ones, and their output."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)  # failed beside other tests and passed alone

    def __iadd__(self, other: Tally) -> Tally:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.reasons |= other.reasons
        self.unsteady += other.unsteady
        return self

    def fail(self, name: str, reason: str = "") -> None:
        self.failed += 1
        self.failures.append(name)
        if reason:
            self.reasons[name] = reason

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


@dataclass
class Again:
    """The command that runs a step's failed tests alone, and the way to count them."""

    command: Command
    exit_code: int  # of the step's last command, when all tests ran and some failed
    count: Callable[[], Tally]


@dataclass
class Step:
    """Commands that run one after the other until one fails, and the way to count their tests."""

    name: str
    commands: list[Command]
    count: Callable[[list[int]], Tally]  # takes the exit codes of the commands that ran
    builds: int = 0  # so many of the commands build `tree`, and may do it before the step's turn
    tree: str = ""  # of build/, used by the tests
    again: Again | None = None

    @property
    def log(self) -> Path:
        return LOGS / f"test-{self.name}.log"


def count_testcases(report: Path) -> Tally:
    """The test cases of one JUnit file of GoogleTest or pytest."""
    tally = Tally()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        said = [part.text or part.get("message", "") for kind in ("failure", "error") for part in case.findall(kind)]
        if said:
            tally.fail(f"{case.get('classname')}.{case.get('name')}", "\n".join(said).strip())
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            tally.skipped += 1
        else:
            tally.passed += 1
    return tally


def count_ctest(report: Path, googletest_reports: Path) -> Tally:
    """The tests that ctest ran. A GoogleTest program counts with its cases, or as one failure if it ended early."""
    tally = Tally()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        status = case.get("status")
        cases = googletest_reports / f"{name}.xml"
        if status == "disabled":
            tally.skipped += 1
            continue
        inner = count_testcases(cases) if cases.exists() else Tally(passed=int(status == "run"))
        if status != "run" and inner.failed == 0:
            inner.fail(name)
        tally += inner
    return tally


def lint_step() -> Step:
    python = sys.executable
    commands: list[Command] = [
        [python, "tools/layers.py"],
        [python, "tools/tidy.py"],
        [python, "tools/subjects.py"],
        [python, "tools/request_list.py"],
        [python, "tools/c_abi.py"],
        [python, "tools/results.py"],
        [python, "tools/format.py", "--check"],
        [python, "-m", "ruff", "check", "--quiet", "."],
        [python, "-m", "mypy", "--no-error-summary"],
    ]

    def count(exits: list[int]) -> Tally:
        tally = Tally()
        for command, code in zip(commands, exits, strict=False):
            if code == 0:
                tally.passed += 1
            else:
                tally.fail(" ".join(map(str, command[1:])))
        return tally

    return Step("lint", commands, count)


def docs_step() -> Step:
    """The site, built strictly: its links and anchors are right, and no page loads anything from elsewhere."""

    def count(exits: list[int]) -> Tally:
        return Tally(failed=1, failures=["docs"]) if any(exits) else Tally(passed=1)

    return Step("docs", [[sys.executable, "tools/docs_site.py"]], count)


def ctest_step(preset: str, only: str | None, defines: list[str] | None = None, tree: str | None = None) -> Step:
    """Configures, builds and tests one preset of CMakePresets.json, in another preset's tree if `tree` names one."""
    report = REPORTS / f"ctest-{preset}.xml"
    tree = tree or preset
    googletest_reports = ROOT / "build" / tree / "reports"
    test: Command = ["ctest", "--preset", preset, "--output-junit", report]
    if only:
        test += ["--tests-regex", only, "--no-tests=ignore"]

    def count(exits: list[int]) -> Tally:
        tally = count_ctest(report, googletest_reports) if report.exists() else Tally()
        if any(exits) and tally.failed == 0:
            tally.fail(f"{preset}: {('configure', 'build', 'ctest')[len(exits) - 1]}")
        return tally

    again_report = REPORTS / f"ctest-{preset}-again.xml"
    command: Command = ["ctest", "--preset", preset, "--rerun-failed", "--parallel", "1"]
    again = Again(
        [*command, "--output-junit", again_report],
        CTEST_EXIT_FAILED,
        lambda: count_ctest(again_report, googletest_reports) if again_report.exists() else Tally(),
    )
    for stale in [report, again_report, *googletest_reports.glob("*.xml")]:
        stale.unlink(missing_ok=True)
    build: Command = ["cmake", "--build", "--preset", preset]
    return Step(preset, [["cmake", "--preset", tree, *(defines or [])], build, test], count, 2, tree, again)


def units_step() -> Step:
    """Unit tests of the release build, apart from those with threads, which `whole` runs."""
    return ctest_step("units", None, tree="release")


def arm_step() -> Step:
    """The tests built for the DPU's processor, in an emulator, if the tools for that exist (`./dev arm`)."""
    missing = [tool for tool in ARM_TOOLS if shutil.which(tool) is None]
    if missing:
        reason = f"skipped: there is no {' and no '.join(missing)}; ./dev arm installs it"
        return Step("arm", [["echo", reason]], lambda _: Tally(skipped=1))
    step = ctest_step("dpu-aarch64", None)
    commands: list[Command] = [[ROOT / "dev", "build", "dpu-aarch64"], step.commands[-1]]
    return Step("arm", commands, lambda exits: step.count([0, *exits]))


def large_step(name: str, tests: str) -> Step:
    """Tests with large packages that are not in .venv before: packages/NAME.txt."""
    report = REPORTS / f"pytest-{name}.xml"
    report.unlink(missing_ok=True)
    commands: list[Command] = [
        [sys.executable, "-m", "pip", "install", "--quiet", "-r", ROOT / f"packages/{name}.txt"],
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", tests],
    ]

    def count(exits: list[int]) -> Tally:
        tally = count_testcases(report) if report.exists() else Tally()
        if any(exits) and tally.failed == 0:
            tally.fail((f"packages/{name}.txt", f"pytest {tests}")[len(exits) - 1])
        return tally

    return Step(name, commands, count)


def ray_step() -> Step:
    """Pools on Ray."""
    return large_step("ray", "tests/e2e/pools/test_ray.py")


def spark_step() -> Step:
    """Pools in Spark, which needs Java."""
    return large_step("spark", "tests/e2e/pools/test_spark.py")


def node_step() -> Step:
    """Offloaded sockets of the newest Node."""
    return large_step("node", "tests/e2e/sockets/test_sockets_node.py")


def dpdk_step() -> Step:
    """The agent with DPDK, and its tests, if libdpdk exists (`./dev dpdk` installs it)."""
    if subprocess.run(["pkg-config", "--exists", "libdpdk"], check=False).returncode != 0:
        reason = "skipped: there is no libdpdk; ./dev dpdk installs it"
        return Step("dpdk", [["echo", reason]], lambda _: Tally(skipped=1))
    built = ctest_step("dpdk", None)
    report = REPORTS / "pytest-dpdk.xml"
    agent = f"OFFPATH_DPDK_AGENT={ROOT / 'build/dpdk/bin/offpath-agent'}"
    tests = "tests/e2e/test_dpdk.py"
    whole: Command = ["env", agent, sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", tests]

    def count(exits: list[int]) -> Tally:
        tally = built.count(exits[:3])
        if len(exits) > 3:
            tally += count_testcases(report) if report.exists() else Tally()
        if any(exits) and tally.failed == 0:
            tally.fail(f"pytest {tests}")
        return tally

    report.unlink(missing_ok=True)
    return Step("dpdk", [*built.commands, whole], count, built.builds, built.tree)


def pytest_step(only: str | None) -> Step:
    report = REPORTS / "pytest.xml"
    # Most of a test's time is waiting for processes. A file's tests stay together: they share agents.
    # A worker that a signal ends fails the step: pytest would wait forever for a replacement.
    beside: Command = ["--numprocesses", str((os.cpu_count() or 1) + 1), "--dist", "loadfile"]
    beside += ["--max-worker-restart", "0"]
    command: Command = [sys.executable, "-m", "pytest", "-q", *beside, f"--junitxml={report}"]
    if only:
        command += ["--names", only]

    def count(exits: list[int]) -> Tally:
        tally = count_testcases(report) if report.exists() else Tally()
        nothing_matched = bool(only) and exits == [PYTEST_EXIT_NO_TESTS]
        if any(exits) and tally.failed == 0 and not nothing_matched:
            tally.fail("pytest")
        return tally

    again_report = REPORTS / "pytest-again.xml"
    alone: Command = ["--last-failed", "--last-failed-no-failures", "none", f"--junitxml={again_report}"]
    again = Again(
        [sys.executable, "-m", "pytest", "-q", *alone],
        PYTEST_EXIT_FAILED,
        lambda: count_testcases(again_report) if again_report.exists() else Tally(),
    )
    for stale in (report, again_report):
        stale.unlink(missing_ok=True)
    return Step("pytest", [command], count, tree="release", again=again)


def worlds_step() -> Step:
    """Many more worlds of the simulation of cuts than the release step tries, from the same first one."""
    report = REPORTS / "worlds.xml"
    test = ROOT / "build/release/tests/pool_cut_sim_test"
    command: Command = ["nice", "env", f"OFFPATH_SIM_SEEDS={WORLDS_LONG}", test, "--gtest_brief=1"]
    command += [f"--gtest_output=xml:{report}"]

    def count(exits: list[int]) -> Tally:
        tally = count_testcases(report) if report.exists() else Tally()
        if any(exits) and tally.failed == 0:
            tally.fail("worlds")
        return tally

    report.unlink(missing_ok=True)
    return Step("worlds", [["nice", "cmake", "--build", ROOT / "build/release", "--target", test.name], command], count)


def hardware_step(name: str = "hw") -> Step:
    """RDMA in guests of QEMU, if QEMU is installed (`./dev hw` installs it); hw-arm: the agent on an Arm kernel."""
    options = ["--arm"] if name == "hw-arm" else []
    missing = [tool for tool in GUEST_TOOLS[name] if shutil.which(tool) is None]
    if missing:
        reason = f"skipped: there is no {' and no '.join(missing)}; ./dev {' '.join(['hw', *options])} installs it"
        return Step(name, [["echo", reason]], lambda _: Tally(skipped=1))

    def count(exits: list[int]) -> Tally:
        text = (LOGS / f"test-{name}.log").read_text(errors="replace")
        ending = re.findall(r"^offpath: (\d+) passed, (\d+) failed$", text, re.MULTILINE)
        if not ending:
            return Tally(skipped=1) if "hw: skipped" in text and not any(exits) else Tally(failed=1, failures=[name])
        failures = re.findall(r"^(\S+) +FAILED ", text, re.MULTILINE)
        tally = Tally(int(ending[-1][0]), int(ending[-1][1]), 0, [f"{name}.{check}" for check in failures])
        if any(exits) and tally.failed == 0:
            tally.fail(name)
        return tally

    return Step(name, [[ROOT / "dev", "hw", *options]], count)


BUILT_PACKAGES = "debian wheel wheel-aarch64 client client-aarch64 agent agent-aarch64 image chart rpm".split()


def package_step() -> Step:
    """Builds the packages, and installs and uses them like other users (tests/package)."""
    report = REPORTS / "package.xml"
    checks = sorted((ROOT / "tests" / "package").glob("check_*.py"))
    commands: list[Command] = [
        [ROOT / "dev", "package", *BUILT_PACKAGES],
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *checks],
    ]

    def count(exits: list[int]) -> Tally:
        tally = count_testcases(report) if report.exists() else Tally()
        if any(exits) and tally.failed == 0:
            tally.fail(("./dev package", "pytest tests/package")[len(exits) - 1])
        return tally

    report.unlink(missing_ok=True)
    return Step("package", commands, count)


started: set[subprocess.Popen[bytes]] = set()
ending = threading.Event()  # nothing more is started


def run_command(command: Command, log_file: Path, environment: dict[str, str]) -> int:
    """Runs one command with its output in the log, and ends it with all its children if it takes too long."""
    with log_file.open("ab") as log:
        log.write(f"$ {' '.join(map(str, command))}\n".encode())
        log.flush()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        started.add(process)
        try:
            if ending.is_set():
                return 143
            factor = 10 if "OFFPATH_LONG" in environment else BUILDS_FACTOR if command[0] == BELOW_TESTS[0] else 1
            return process.wait(STEP_SECONDS_MAX * factor)
        except subprocess.TimeoutExpired:
            log.write(b"took too long and was ended\n")
            return 124
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):  # it was waited for in the meantime
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    started.discard(process)


def end_everything() -> None:
    ending.set()
    for process in list(started):
        end(process)


class Builds:
    """Builds the trees of steps before their turn, one after the other, with the processor time that tests leave: most
    of a test's time is waiting. A tree is not built while its tests run."""

    def __init__(self, steps: list[Step], environment: dict[str, str], elapsed_s: float = 0) -> None:
        self.began = time.monotonic() - elapsed_s
        self.trees: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.exits: dict[str, Future[list[int] | None]] = {step.name: Future() for step in steps if step.builds}
        self.environment = environment
        for step in steps:
            step.log.unlink(missing_ok=True)
        to_build = [step for step in steps if step.builds]
        threading.Thread(target=self._build, args=(to_build,), daemon=True).start()

    def _build(self, steps: list[Step]) -> None:
        for step in steps:
            if ending.is_set():
                return
            try:
                with self.trees[step.tree]:
                    self.exits[step.name].set_result(None if self._is_spared(step) else self._built(step))
            except BaseException as error:  # notifies waiting threads
                self.exits[step.name].set_exception(error)

    def _is_spared(self, step: Step) -> bool:
        return step.name == "units" and not self._is_in_time(UNITS_BUILD_WITHIN_S)

    def _is_in_time(self, within_s: float) -> bool:
        return "OFFPATH_LONG" in self.environment or time.monotonic() - self.began <= within_s

    def _built(self, step: Step) -> list[int]:
        commands: list[Command] = [[*BELOW_TESTS, *command] for command in step.commands[: step.builds]]
        return run_until_one_fails(step, commands, self.environment)

    def of(self, step: Step) -> list[int] | None:
        """Waits for the exit codes of its commands that build. None: it is late, so its tests are spared."""
        if not step.builds:
            return []
        within_s = BEGIN_WITHIN_S.get(step.name)
        if within_s is None or "OFFPATH_LONG" in self.environment:
            return self.exits[step.name].result()
        try:
            exits = self.exits[step.name].result(max(0.0, self.began + within_s - time.monotonic()))
        except TimeoutError:
            return None
        return exits if self._is_in_time(within_s) else None


def run_until_one_fails(step: Step, commands: list[Command], environment: dict[str, str]) -> list[int]:
    exits: list[int] = []
    for command in commands:
        exits.append(run_command(command, step.log, environment))
        if exits[-1] != 0 and step.name != "lint":
            break
    return exits


def print_indented(text: str) -> None:
    """The last lines of it: a failure's reason is at its end."""
    for line in text.splitlines()[-LOG_TAIL_LINES:]:
        print(f"  | {line}")


def run_again(step: Step, tally: Tally, environment: dict[str, str]) -> Tally:
    """Runs the failed tests alone. Those that fail again are the step's failures."""
    assert step.again is not None
    run_command(step.again.command, step.log, environment)
    again = step.again.count()
    if again.passed + again.failed < tally.failed:
        return tally  # not all of them ran
    unsteady = [name for name in tally.failures if name not in again.failures]
    passed = tally.passed + tally.failed - again.failed
    return Tally(passed, again.failed, tally.skipped, again.failures, tally.reasons | again.reasons, unsteady)


def run_step(step: Step, builds: Builds, environment: dict[str, str]) -> Tally:
    """Waits for the step's build, runs its tests and prints the result."""
    print(f"{step.name:<8} … ", end="", flush=True)
    began = time.monotonic()
    exits = builds.of(step)
    if exits is None:
        minutes = (time.monotonic() - builds.began) / 60
        print(f"skipped, because {minutes:.0f} minutes are over; ./dev test --only {step.name}")
        return Tally(skipped=1)
    if not any(exits):
        with builds.trees[step.tree]:
            exits += run_until_one_fails(step, step.commands[step.builds :], environment)
    tally = step.count(exits)
    all_ran = step.again is not None and exits[-1] == step.again.exit_code
    if 0 < tally.failed <= AGAIN_MAX and all_ran and "OFFPATH_LONG" not in environment:
        with builds.trees[step.tree]:
            tally = run_again(step, tally, environment)
    print(f"{tally}  ({time.monotonic() - began:.0f} s)", flush=True)
    for name in tally.unsteady:
        print(f"  unsteady: {name}")
        print_indented(tally.reasons.get(name, ""))
    if tally.failed:
        if any(name not in tally.reasons for name in tally.failures):
            print_indented(step.log.read_text(errors="replace"))
        for name in tally.failures:
            print(f"  failed: {name}")
            print_indented(tally.reasons.get(name, ""))
        print(f"  all of it: {step.log.relative_to(ROOT)}; again: ./dev test --only {step.name}", flush=True)
    return tally


def steps_of(only: str | None, long: bool) -> list[Callable[[], Step]]:
    """The steps in order. Making one removes stale reports."""
    # The short run uses fixed seeds, so a failure comes from the change; the long one looks for unknown failures.
    seconds, seed = (FUZZ_SECONDS_LONG, 0) if long else (FUZZ_SECONDS, 1)
    fuzz = [f"-DOFFPATH_FUZZ_SECONDS={seconds}", f"-DOFFPATH_FUZZ_SEED={seed}"]
    named: dict[str, Callable[[], Step]] = {
        "lint": lint_step,
        "docs": docs_step,
        "whole": lambda: ctest_step("whole", None, tree="release"),
        "pytest": lambda: pytest_step(None),
        "asan": lambda: ctest_step("asan", None),
        "fuzz": lambda: ctest_step("fuzz", None, fuzz, tree="asan"),
        "tsan": lambda: ctest_step("tsan", None),
        "units": units_step,
    }
    steps = list(named.values())
    named["release"] = lambda: ctest_step("release", None)
    named["worlds"] = worlds_step
    named["arm"] = arm_step
    named["dpdk"] = dpdk_step
    named["hw"] = hardware_step
    named["package"] = package_step
    named["ray"] = ray_step
    named["spark"] = spark_step
    named["node"] = node_step
    named["hw-arm"] = lambda: hardware_step("hw-arm")
    if only in named:
        return [named[only]]
    if only:
        return [lambda: ctest_step("release", only), lambda: pytest_step(only)]
    if long:
        return [
            *steps,
            worlds_step,
            arm_step,
            dpdk_step,
            hardware_step,
            named["hw-arm"],
            package_step,
            ray_step,
            spark_step,
            node_step,
        ]
    return [*steps, dpdk_step, hardware_step] if "CI" in os.environ else steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", description="Runs every test, quick ones first.")
    parser.add_argument("--long", action="store_true", help="more seeds, longer fuzzing, Arm, packages")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="a step (lint, docs, whole, pytest, asan, tsan, fuzz, units, release, worlds, arm, dpdk, hw, hw-arm, "
        "package, ray, spark, node) or names of tests",
    )
    parser.add_argument("--elapsed", type=float, default=0, metavar="S", help="how long ./dev test has run already")
    arguments = parser.parse_args()
    environment = dict(os.environ)
    if arguments.long:
        environment["OFFPATH_LONG"] = "1"
    LOGS.mkdir(parents=True, exist_ok=True)
    REPORTS.mkdir(parents=True, exist_ok=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes are ended
    steps = [make() for make in steps_of(arguments.only, arguments.long)]
    total = Tally()
    try:
        builds = Builds(steps, environment, arguments.elapsed)
        for step in steps:
            total += run_step(step, builds, environment)
            if step.name in BUILD_EVERYTHING:
                environment = environment | {"OFFPATH_BUILT": "1"}  # a test that misses a file of the build fails now
    finally:
        end_everything()
    if total.passed + total.failed == 0:
        total.fail(f"no test matches {arguments.only}")
        print(f"no test matches '{arguments.only}'")
    for name in total.unsteady:
        print(f"unsteady: {name} (failed beside other tests, passed alone)")
    for name in total.failures:
        print(f"failed: {name}")
    print(f"offpath: {total}")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
