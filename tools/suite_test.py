"""suite.py counts the tests that ran, and counts everything that did not succeed as failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest
import suite
from waiting import until

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
    assert suite.pytest_step(None).count([suite.PYTEST_EXIT_NO_TESTS]).failed == 1
    assert suite.pytest_step("x").count([suite.PYTEST_EXIT_NO_TESTS]).failed == 0


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


def programs_of_tests() -> list[tuple[str, set[Path], set[str]]]:
    """Name, sources and labels of each offpath_test."""
    found = []
    for top in ("apps", "src", "tests"):
        for lists in (suite.ROOT / top).rglob("CMakeLists.txt"):
            for name, rest in re.findall(r"offpath_test\((\w+)\s([^)]*)\)", lists.read_text()):
                words = rest.replace("${PROJECT_SOURCE_DIR}", str(suite.ROOT)).split()
                labels = words[words.index("LABELS") + 1 :] if "LABELS" in words else ["unit"]
                found.append((name, {lists.parent / word for word in words if word.endswith(".cc")}, set(labels)))
    return found


def test_worlds_that_a_sanitizer_leaves_out_are_tried_optimised() -> None:
    """Also where the last step, `units`, is skipped."""
    presets = json.loads((suite.ROOT / "CMakePresets.json").read_text())["testPresets"]
    filters = {preset["name"]: preset.get("filter", {}) for preset in presets}
    always = set(filters["whole"]["include"]["label"].split("|"))
    assert set(filters["units"]["exclude"]["label"].split("|")) <= always, "no program runs in neither step"
    programs = programs_of_tests()
    sources = {source for _, theirs, labels in programs if labels & always for source in theirs}
    leaving_out = re.compile(r"\b(?:fewer_if_sanitized|each_seed|is_sanitized)\b")
    tests = [path for top in ("apps", "src", "tests") for path in (suite.ROOT / top).rglob("*_test.cc")]
    found = [path for path in tests if leaving_out.search(path.read_text())]
    assert len(found) >= 20
    assert [str(path) for path in found if path not in sources] == [], "add the label sim"


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

    def run(command: suite.Command, log: Path, environment: dict[str, str]) -> int:
        if log.name == "test-lint.log":
            assert "OFFPATH_BUILT" not in environment
        if log.name == "test-pytest.log":
            assert "OFFPATH_BUILT" in environment  # files of the build may not be missing then
        if "ctest" in command:
            ran.append(log.name)
        elif log.name == "test-asan.log" and "--build" in command:
            clock[0] += minutes * 60
        return 0

    for name in ("ROOT", "LOGS", "REPORTS"):  # making a step removes its stale reports: not those of this tree
        monkeypatch.setattr(suite, name, tmp_path)
    monkeypatch.setattr(suite, "run_command", run)
    monkeypatch.setattr(suite, "ending", threading.Event())
    monkeypatch.setattr(suite.signal, "signal", lambda *_: None)
    monkeypatch.setattr(suite.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(suite.shutil, "which", lambda _: None)
    monkeypatch.setattr(suite.sys, "argv", ["suite.py", *arguments])
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("OFFPATH_BUILT", raising=False)
    assert suite.main() == 0
    assert ("test-units.log" in ran) == runs
    assert ("./dev test --only units" in capsys.readouterr().out) != runs


@pytest.mark.parametrize(("elapsed_s", "long", "built"), [(0, False, True), (3700, False, False), (3700, True, True)])
def test_a_very_slow_machine_is_spared_the_sanitizers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    elapsed_s: float,
    long: bool,
    built: bool,
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    environment = {"PATH": os.environ["PATH"]} | ({"OFFPATH_LONG": "1"} if long else {})
    step = suite.Step("asan", [["true"], ["true"]], lambda exits: suite.Tally(passed=len(exits)), 1, "a")
    tally = suite.run_step(step, suite.Builds([step], environment, elapsed_s), environment)
    assert (tally.passed, tally.skipped) == ((2, 0) if built else (0, 1))
    assert ("skipped, because 62 minutes are over; ./dev test --only asan" in capsys.readouterr().out) != built


def test_a_build_that_is_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "ending", threading.Event())
    monkeypatch.setitem(suite.BEGIN_WITHIN_S, "asan", 0.1)
    step = suite.Step("asan", [["sleep", "1000"], ["true"]], lambda _: suite.Tally(passed=1), 1, "a")
    builds = suite.Builds([step], dict(os.environ))
    assert builds.of(step) is None
    suite.end_everything()


def steps_that_say(said: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[suite.Step, suite.Step]:
    """A test that waits for the other's build."""
    monkeypatch.setattr(suite, "LOGS", said.parent)
    monkeypatch.setattr(suite, "ROOT", said.parent)
    wait = ["sh", "-c", f"for i in $(seq 5000); do [ ! -e {said} ] || exit 0; sleep 0.02; done; exit 1"]

    def count(exits: list[int]) -> suite.Tally:
        return suite.Tally(passed=exits.count(0), failed=len(exits) - exits.count(0))

    return suite.Step("tests", [wait], count), suite.Step("build", [["touch", said], ["true"]], count, 1, "a")


def test_a_step_is_built_while_the_tests_of_one_before_it_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tests, built = steps_that_say(tmp_path / "said", monkeypatch)
    builds = suite.Builds([tests, built], dict(os.environ))
    assert str(suite.run_step(tests, builds, dict(os.environ))) == "1 passed, 0 failed"
    assert str(suite.run_step(built, builds, dict(os.environ))) == "2 passed, 0 failed"


def test_no_tree_is_built_while_its_tests_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = tmp_path / "said"
    tests, built = steps_that_say(said, monkeypatch)
    tests.commands = [["sh", "-c", f"sleep 0.2; [ ! -e {said} ]"]]
    builds = suite.Builds([], dict(os.environ))
    builds.exits[built.name] = suite.Future()
    with builds.trees["a"]:
        builder = threading.Thread(target=builds._build, args=([built],))
        builder.start()
        assert suite.run_until_one_fails(tests, tests.commands, dict(os.environ)) == [0]
    builder.join()
    assert said.exists() and builds.of(built) == [0]


def test_a_build_that_fails_has_no_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, built = steps_that_say(tmp_path / "said", monkeypatch)
    built.commands[0] = ["false"]
    builds = suite.Builds([built], dict(os.environ))
    assert str(suite.run_step(built, builds, dict(os.environ))) == "0 passed, 1 failed"


def test_what_builds_beside_tests_is_ended_with_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "ending", threading.Event())
    _, built = steps_that_say(tmp_path / "said", monkeypatch)
    built.commands[0] = ["sh", "-c", f"touch {tmp_path}/said; exec sleep 1000"]
    builds = suite.Builds([built], dict(os.environ))
    assert until((tmp_path / "said").exists)
    suite.end_everything()
    assert builds.of(built) in ([-9], [143])  # the second if nobody waited for it yet
    assert suite.run_command(["sleep", "1000"], tmp_path / "log", dict(os.environ)) == 143


def test_a_site_with_a_problem_is_one_failure() -> None:
    step = suite.docs_step()
    assert str(step.count([0])) == "1 passed, 0 failed"
    assert (str(step.count([1])), step.count([1]).failures) == ("0 passed, 1 failed", ["docs"])


def test_a_hanging_command_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "STEP_SECONDS_MAX", 0.2)
    log = tmp_path / "log"
    assert suite.run_command(["sh", "-c", "sleep 1000 & wait"], log, dict(os.environ)) == 124
    assert "took too long" in log.read_text()


def test_a_build_has_more_time_than_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "STEP_SECONDS_MAX", 2)
    monkeypatch.setattr(suite, "BUILDS_FACTOR", 100)
    command = [*suite.BELOW_TESTS, "sleep", "2.5"]
    assert suite.run_command(command, tmp_path / "log", dict(os.environ)) == 0


def test_a_failure_is_printed_with_its_reason_and_without_one_with_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    for reason in ("it was not so\nExpected: 1", ""):
        tally = suite.Tally()
        tally.fail("Ring.Full", reason)
        step = suite.Step("some", [["echo", "the log"]], lambda _, tally=tally: tally)
        suite.run_step(step, suite.Builds([step], dict(os.environ)), dict(os.environ))
        printed = capsys.readouterr().out
        assert "  failed: Ring.Full\n" in printed
        assert ("  | Expected: 1\n" in printed) == bool(reason)
        assert ("  | the log\n" in printed) == (not reason)


def test_closing_line() -> None:
    tally = suite.Tally(passed=3)
    assert str(tally) == "3 passed, 0 failed"
    tally += suite.Tally(passed=1, failed=2, skipped=4, failures=["a", "b"])
    assert str(tally) == "4 passed, 2 failed, 4 skipped"


def failing_step(failures: int, passes_again: int, code: int = 1) -> suite.Step:
    """A step of one passed test and so many failed ones, of which so many pass when they run alone."""
    first = suite.Tally(passed=1)
    for index in range(failures):
        first.fail(f"t{index}", "it was late")
    second = suite.Tally(passed=passes_again)
    for index in range(passes_again, failures):
        second.fail(f"t{index}", "it was late again")
    again = suite.Again(["true"], 1, lambda: second)
    return suite.Step("some", [["sh", "-c", f"exit {code}"]], lambda _: first, again=again)


@pytest.mark.parametrize(
    ("failures", "passes_again", "long", "expected", "unsteady"),
    [
        (2, 2, False, "3 passed, 0 failed", ["t0", "t1"]),
        (2, 1, False, "2 passed, 1 failed", ["t0"]),
        (2, 2, True, "1 passed, 2 failed", []),
        (suite.AGAIN_MAX + 1, suite.AGAIN_MAX + 1, False, f"1 passed, {suite.AGAIN_MAX + 1} failed", []),
    ],
)
def test_a_failed_test_runs_once_more_alone(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failures: int,
    passes_again: int,
    long: bool,
    expected: str,
    unsteady: list[str],
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    step = failing_step(failures, passes_again)
    environment = {"PATH": os.environ["PATH"]} | ({"OFFPATH_LONG": "1"} if long else {})
    tally = suite.run_step(step, suite.Builds([], environment), environment)
    assert (str(tally), tally.unsteady) == (expected, unsteady)
    printed = capsys.readouterr().out
    assert all(f"  unsteady: {name}\n  | it was late\n" in printed for name in unsteady)


@pytest.mark.parametrize(("code", "ran_again"), [(2, 1), (1, 0)])
def test_a_step_whose_tests_did_not_all_run_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, ran_again: int
) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    step = failing_step(1, ran_again, code)
    step.again = suite.Again(["true"], 1, lambda: suite.Tally(passed=ran_again))
    assert str(suite.run_step(step, suite.Builds([], {}), dict(os.environ))) == "1 passed, 1 failed"


UNSTEADY = """
import pathlib
def test_right(): pass
def test_never(): assert False
def test_once():
    first = not pathlib.Path("tried").exists()
    pathlib.Path("tried").touch()
    assert not first
"""


def test_pytest_and_ctest_run_only_failed_tests_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ROOT", "LOGS", "REPORTS"):
        monkeypatch.setattr(suite, name, tmp_path)
    (tmp_path / "test_unsteady.py").write_text(UNSTEADY)
    environment = dict(os.environ) | {"PYTEST_ADDOPTS": "-p no:randomly"}
    tally = suite.run_step(suite.pytest_step(None), suite.Builds([], environment), environment)
    assert (str(tally), tally.unsteady) == ("2 passed, 1 failed", ["test_unsteady.test_once"])
    assert tally.failures == ["test_unsteady.test_never"]

    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p NONE)\nenable_testing()\n"
        "add_test(NAME once COMMAND sh -c [=[[ -e ran ] || { touch ran; exit 1; }]=])\n"
        "add_test(NAME never COMMAND false)\nadd_test(NAME always COMMAND true)\n"
    )
    presets = {
        "version": 6,
        "configurePresets": [{"name": "asan", "binaryDir": "${sourceDir}/build/asan", "generator": "Ninja"}],
        "buildPresets": [{"name": "asan", "configurePreset": "asan"}],
        "testPresets": [{"name": "asan", "configurePreset": "asan"}],
    }
    (tmp_path / "CMakePresets.json").write_text(json.dumps(presets))
    step = suite.ctest_step("asan", None)
    tally = suite.run_step(step, suite.Builds([step], environment), environment)
    assert (str(tally), tally.failures, tally.unsteady) == ("2 passed, 1 failed", ["never"], ["once"])
