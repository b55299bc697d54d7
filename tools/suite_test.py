"""suite.py counts the tests that ran, and counts everything that did not succeed as failed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import suite

GOOGLETEST = """<testsuites><testsuite name="Ring">
<testcase name="Wraps" status="run" result="completed" classname="Ring" />
<testcase name="Full" status="run" result="completed" classname="Ring"><failure message="no"/></testcase>
<testcase name="Remote" status="run" result="skipped" classname="Ring"><skipped message="no device"/></testcase>
<testcase name="DISABLED_Old" status="notrun" result="suppressed" classname="Ring" />
</testsuite></testsuites>"""


def ctest_report(status: str) -> str:
    return f'<testsuite><testcase name="ring_test" classname="ring_test" status="{status}"/></testsuite>'


def test_cases_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "ring_test.xml").write_text(GOOGLETEST)
    tally = suite.count_testcases(tmp_path / "ring_test.xml")
    assert (tally.passed, tally.failed, tally.skipped, tally.failures) == (1, 1, 2, ["Ring.Full"])
    assert tally.reasons == {"Ring.Full": "no"}


@pytest.mark.parametrize(
    ("status", "cases", "expected"),
    [
        ("run", None, (1, 0, 0)),  # not a GoogleTest program
        ("fail", None, (0, 1, 0)),
        ("notrun", None, (0, 1, 0)),  # not built
        ("disabled", None, (0, 0, 1)),
        ("fail", GOOGLETEST, (1, 1, 2)),
        ("fail", GOOGLETEST.replace('<failure message="no"/>', ""), (2, 1, 2)),  # crashed after its last case
        ("run", GOOGLETEST.replace('<failure message="no"/>', ""), (2, 0, 2)),
    ],
)
def test_ctest(tmp_path: Path, status: str, cases: str | None, expected: tuple[int, int, int]) -> None:
    (tmp_path / "ctest.xml").write_text(ctest_report(status))
    if cases:
        (tmp_path / "ring_test.xml").write_text(cases)
    tally = suite.count_ctest(tmp_path / "ctest.xml", tmp_path)
    assert (tally.passed, tally.failed, tally.skipped) == expected


def test_a_command_that_fails_before_any_test_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "REPORTS", tmp_path)
    step = suite.ctest_step("asan", None)
    assert str(step.count([0, 1])) == "0 passed, 1 failed"
    assert step.count([0, 1]).failures == ["asan: build"]
    assert suite.pytest_step(None).count([suite.pytest_exit_no_tests]).failed == 1
    assert suite.pytest_step("x").count([suite.pytest_exit_no_tests]).failed == 0


def test_every_step_configures_the_tree_that_its_presets_build_and_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    presets = json.loads((suite.ROOT / "CMakePresets.json").read_text())
    monkeypatch.setattr(suite, "ROOT", tmp_path)  # making a step removes its stale reports: not those of this tree
    monkeypatch.setattr(suite, "REPORTS", tmp_path)
    monkeypatch.delenv("CI", raising=False)  # its further steps build nothing where their tools are missing
    for step in [make() for make in suite.steps_of(None, False) if make not in (suite.lint_step, suite.docs_step)]:
        if step.name == "pytest":
            continue
        configured = step.commands[0][2]
        for kind in ("buildPresets", "testPresets"):
            trees = {preset["name"]: preset.get("configurePreset") for preset in presets[kind]}
            assert trees[step.name] == configured


@pytest.mark.parametrize(
    ("log", "code", "expected"),
    [
        ("doctor passed 15.2 s fine\nmoves FAILED 3.0 s why\noffpath: 1 passed, 1 failed\n", 1, "1 passed, 1 failed"),
        ("hw: skipped, there is no kernel for a guest: no network\n", 0, "0 passed, 0 failed, 1 skipped"),
        ("something else went wrong\n", 1, "0 passed, 1 failed"),
        ("offpath: 2 passed, 0 failed\n", 1, "2 passed, 1 failed"),
    ],
)
def test_what_guests_report_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: str, code: int, expected: str
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite.shutil, "which", lambda _: "/usr/bin/qemu-system-x86_64")
    for name in ("hw", "hw-arm"):
        (tmp_path / f"test-{name}.log").write_text(log)
        assert str(suite.hardware_step(name).count([code])) == expected


def test_without_a_compiler_for_arm_its_tests_are_skipped_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite.shutil, "which", lambda tool: None if "g++" in tool else f"/usr/bin/{tool}")
    step = suite.arm_step()
    assert "no aarch64-linux-gnu-g++" in step.commands[0][1]
    assert "qemu" not in step.commands[0][1]
    assert str(step.count([0])) == "0 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize(("exits", "failure"), [([1], "dpu-aarch64: build"), ([0, 8], "dpu-aarch64: ctest")])
def test_arm_counts_what_failed_before_its_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exits: list[int], failure: str
) -> None:
    monkeypatch.setattr(suite, "REPORTS", tmp_path)
    monkeypatch.setattr(suite.shutil, "which", lambda tool: f"/usr/bin/{tool}")
    assert suite.arm_step().count(exits).failures == [failure]


def test_without_dpdk_its_tests_are_skipped_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    step = suite.dpdk_step()
    assert "no libdpdk" in step.commands[0][1]
    assert str(step.count([0])) == "0 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize(
    ("exits", "failure"),
    [([0, 1], "dpdk: build"), ([0, 0, 8], "dpdk: ctest"), ([0, 0, 0, 2], "pytest tests/e2e/test_dpdk.py")],
)
def test_dpdk_counts_what_failed_before_its_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exits: list[int], failure: str
) -> None:
    monkeypatch.setattr(suite, "REPORTS", tmp_path)
    monkeypatch.setattr(suite.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    assert suite.dpdk_step().count(exits).failures == [failure]


def test_dpdk_counts_a_pytest_that_fails_without_a_failed_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "REPORTS", tmp_path)
    monkeypatch.setattr(suite.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    step = suite.dpdk_step()
    (tmp_path / "pytest-dpdk.xml").write_text('<testsuite><testcase name="a" classname="t"/></testsuite>')
    assert str(step.count([0, 0, 0, 0])) == "1 passed, 0 failed"
    assert step.count([0, 0, 0, 3]).failures == ["pytest tests/e2e/test_dpdk.py"]


@pytest.mark.parametrize(("arguments", "minutes", "runs"), [([], 10, True), ([], 51, False), (["--long"], 51, True)])
def test_a_slow_machine_is_spared_the_second_run_of_unit_tests(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    minutes: int,
    runs: bool,
) -> None:
    ran: list[str] = []
    clock = [0.0]

    def run(step: suite.Step, environment: dict[str, str]) -> suite.Tally:
        assert ("OFFPATH_BUILT" in environment) == ("whole" in ran)  # files of the build may not be missing then
        ran.append(step.name)
        if step.name == "asan":
            clock[0] += minutes * 60
        return suite.Tally(passed=1)

    for name in ("ROOT", "LOGS", "REPORTS"):  # making a step removes its stale reports: not those of this tree
        monkeypatch.setattr(suite, name, tmp_path)
    monkeypatch.setattr(suite, "run_step", run)
    monkeypatch.setattr(suite.signal, "signal", lambda *_: None)
    monkeypatch.setattr(suite.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(suite.shutil, "which", lambda _: None)
    monkeypatch.setattr(suite.sys, "argv", ["suite.py", *arguments])
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("OFFPATH_BUILT", raising=False)
    assert suite.main() == 0
    assert ("units" in ran) == runs
    assert ("./dev test --only units" in capsys.readouterr().out) != runs


def test_a_site_with_a_problem_is_one_failure() -> None:
    step = suite.docs_step()
    assert str(step.count([0])) == "1 passed, 0 failed"
    assert (str(step.count([1])), step.count([1]).failures) == ("0 passed, 1 failed", ["docs"])


def test_a_hanging_command_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "STEP_SECONDS_MAX", 0.2)
    log = tmp_path / "log"
    assert suite.run_command(["sh", "-c", "sleep 1000 & wait"], log, dict(os.environ)) == 124
    assert "took too long" in log.read_text()


def test_a_failure_is_printed_with_its_reason_and_without_one_with_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    for reason in ("it was not so\nExpected: 1", ""):
        tally = suite.Tally()
        tally.fail("Ring.Full", reason)
        suite.run_step(suite.Step("some", [["echo", "the log"]], lambda _, tally=tally: tally), dict(os.environ))
        printed = capsys.readouterr().out
        assert "  failed: Ring.Full\n" in printed
        assert ("  | Expected: 1\n" in printed) == bool(reason)
        assert ("  | the log\n" in printed) == (not reason)


def test_closing_line() -> None:
    tally = suite.Tally(passed=3)
    assert str(tally) == "3 passed, 0 failed"
    tally += suite.Tally(passed=1, failed=2, skipped=4, failures=["a", "b"])
    assert str(tally) == "4 passed, 2 failed, 4 skipped"
