"""Functions of plug-ins over objects of pools: with real workers, on one agent and on two."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pytest
from agent_group import PATIENCE_S, Group, new_group
from agent_process import find_program, run_agent, until
from built import needs_built

BUILT = find_program().parents[1]
PARTICLES, HOSTILE = BUILT / "examples" / "particles_plugin.so", BUILT / "tests" / "hostile_plugin.so"

pytestmark = needs_built(PARTICLES, HOSTILE)


def configured(directory: Path, *more: str) -> list[str]:
    """Plug-ins in a folder of the test's own that no other user can write to."""
    plugins = ""
    for name, built in (("particles", PARTICLES), ("hostile", HOSTILE)):
        plugins += f'[[plugin]]\nname = "{name}"\npath = "{shutil.copy(built, directory)}"\ndeadline = "5s"\n'
    (directory / "agent.toml").write_text("\n".join([plugins, *more]))
    return ["--config", str(directory / "agent.toml")]


def put(session: offpath.Session, pool: str, row: str, column: str, values: np.ndarray) -> None:
    stream = session.stream(f"{row}-{column}", destination="native", pool=pool)
    stream.send(values, key=(row, column)).wait_stored(PATIENCE_S)
    stream.close()


def mean_of(frame: offpath.Frame | None) -> tuple[int, float]:
    assert frame is not None
    result = np.frombuffer(frame.buffer(), dtype=[("count", "u8"), ("mean", "f8")])[0]
    return int(result["count"]), float(result["mean"])


@pytest.fixture(params=["local", "tcp"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with new_group(tmp_path, request.param) as made:
        yield made


def start(group: Group, name: str, *more: str, join: str | None = None) -> None:
    directory = group.directory / f"{name}-plugins"
    directory.mkdir()
    group.start(name, *configured(directory, *more), *(["--join", group.address(join)] if join else []))


def two_agents(group: Group, *more: str) -> None:
    start(group, "a", *more)
    start(group, "b", *more, join="a")
    assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)


def calls(group: Group, name: str) -> int:
    return int(group.running[name].status()["computes"]["calls"])


def test_functions_over_an_object_and_over_a_row(group: Group) -> None:
    start(group, "a")
    with group.connect("a") as session:
        pool = session.pool("local:/p")
        x, y, z = (np.linspace(0, 1, 1000, dtype=np.float32) ** power for power in (1, 2, 3))
        for name, values in (("x", x), ("y", y), ("z", z)):
            put(session, "local:/p", "step1", name, values)
        assert mean_of(pool.compute("particles/mean", "step1", "x")) == (1000, pytest.approx(0.5))
        count, _ = mean_of(pool.compute("particles.mean", "step1"))  # the old form of the name
        assert count == 3000
        box = np.array([0.2, 0, 0, 0.6, 1, 1], np.float32)
        expected = np.flatnonzero((x >= 0.2) & (x < 0.6) & (y < 1) & (z < 1))
        inside = pool.compute("particles/bounding_box", "step1", arguments=box.tobytes())
        assert inside is not None and np.array_equal(np.frombuffer(inside.buffer(), np.uint32), expected)
        assert pool.compute("particles/bounding_box", "step1", arguments=box.tobytes(), result="inside") is None
        assert np.array_equal(np.frombuffer(pool.get_bytes("step1", "inside"), np.uint32), expected)
        pool.compute("particles/mean", "step1", "x", result=("means", ""))
        assert len(pool.get_bytes("means", "mean")) == 16
        # A result that could not be handed over was computed once, and lasts no longer than the push.
        assert calls(group, "a") == 5
        del inside
        assert until(
            lambda: (
                group.running["a"].status()["pools"]
                and "offpath_pool_leases 0" in group.running["a"].get("/metrics")[2]
            )
        )


def test_a_computation_that_waits_is_shown_with_what_it_waits_for(group: Group) -> None:
    two_agents(group)
    with group.connect("a") as session:
        pool = session.pool("hash:/p?members=b")
        pool.create()
        future = pool.compute_async("particles/mean", "later", "x", timeout=PATIENCE_S)

        def waiting(name: str) -> Any:
            return group.running[name].status()["waiting_gets"]["longest"]

        assert until(lambda: waiting("a") and waiting("b"))
        (here,), (there,) = waiting("a"), waiting("b")
        assert here["what"] == there["what"] == "the computation"
        assert here["why"] == "member b has been asked to call particles.mean" and here["pid"] == os.getpid()
        assert there["why"].startswith("particles.mean waits for its object: ")
        assert there["waits_s"] >= 1 and there["row"] == "later"
        assert "\noffpath_gets_waiting 1\n" in group.running["a"].get("/metrics")[2]
        put(session, "hash:/p?members=b", "later", "x", np.ones(4, np.float32))
        assert mean_of(future.result(PATIENCE_S)) == (4, 1.0)
        assert until(lambda: not waiting("a") and not waiting("b"))


def test_a_large_output_is_copied_off_the_loop(group: Group) -> None:
    start(group, "a")
    with group.connect("a") as session:
        for name in "xyz":
            put(session, "local:/p", "big", name, np.full(1_000_000, 0.5, np.float32))
        box = np.array([0, 0, 0, 1, 1, 1], np.float32)
        inside = session.pool("local:/p").compute("particles/bounding_box", "big", arguments=box.tobytes())
        assert inside is not None and np.array_equal(np.frombuffer(inside.buffer(), np.uint32), np.arange(1_000_000))


def test_what_fails_says_who_and_why_and_the_agent_goes_on(group: Group) -> None:
    start(group, "a")
    with group.connect("a") as session:
        pool = session.pool("local:/p")
        put(session, "local:/p", "r", "c", np.zeros(4, np.float32))
        for function, text in (
            ("fails", "member a: .*x is negative"),
            ("throws", "member a: .*no such particle"),
            ("crashes", "member a: .*SIGSEGV"),
            ("writes_to_an_input", "member a: .*SIGSEGV"),
            ("shrinks", "member a: .*is marked as Arrow, but is not Arrow data|made 2 outputs"),
        ):
            with pytest.raises((offpath.FunctionFailed, offpath.Invalid), match=text):
                pool.compute(f"hostile/{function}", "r", "c")
        with pytest.raises(offpath.FunctionFailed, match=r"marked as Arrow"):
            pool.compute("hostile/shrinks", "r", "c", result="out")
        with pytest.raises(offpath.Timeout, match=r"member a: .*loops"):
            pool.compute("hostile/loops", "r", "c", timeout=0.5)
        for function in ("nothing/mean", "particles/nothing", "particles.nothing"):
            with pytest.raises(offpath.NotFound, match="nothing"):
                pool.compute(function, "r", "c")
        with pytest.raises(offpath.Invalid, match="'mean': it is named plugin/function"):
            pool.compute("mean", "r", "c")
        with pytest.raises(offpath.NotFound, match="no object"):
            pool.compute("particles/mean", "r", "other", timeout=0)
        with pytest.raises(offpath.NotFound, match='no objects in row "other"'):
            pool.compute("particles/mean", "other", timeout=0)
        with pytest.raises(offpath.Timeout, match="no object"):
            pool.compute("particles/mean", "r", "other", timeout=0.1)
        with pytest.raises(offpath.TooLarge, match="32769"):
            pool.compute("hostile/echo", "r", "c", bytes(32769))
        echoed = pool.compute("hostile/echo", "r", "c", b"x" * 32768)
        assert echoed is not None and bytes(echoed) == b"x" * 32768
        assert mean_of(pool.compute("particles/mean", "r", "c")) == (4, 0.0)


def test_functions_run_where_the_row_lies(group: Group) -> None:
    two_agents(group)
    with group.connect("a") as session:
        pool = session.pool("hash:/p")
        for step in range(16):
            put(session, "hash:/p", f"step{step}", "x", np.full(100, step, np.float32))
        for step in range(16):
            assert mean_of(pool.compute("particles/mean", f"step{step}", "x")) == (100, step)
        # Every row once, and each of the two has some. A status is not of this very moment.
        assert until(lambda: calls(group, "a") + calls(group, "b") == 16)
        assert min(calls(group, "a"), calls(group, "b")) > 0
        row = next(f"step{step}" for step in range(16) if called_at(pool, f"step{step}") == "b")
        # Large outputs are delivered, results are put to their own owners.
        for name in "xyz":
            put(session, "hash:/p", row, name, np.full(100_000, 0.5, np.float32))
        box = np.array([0, 0, 0, 1, 1, 1], np.float32).tobytes()
        inside = pool.compute("particles/bounding_box", row, arguments=box)
        assert inside is not None and np.array_equal(np.frombuffer(inside.buffer(), np.uint32), np.arange(100_000))
        for target in range(4):
            assert pool.compute("particles/bounding_box", row, arguments=box, result=(f"inside{target}", "of")) is None
            assert len(pool.get_bytes(f"inside{target}", "of")) == 400_000
        # The other member's failures carry its name.
        for function, error, text in (
            ("fails", offpath.FunctionFailed, "member b .*x is negative"),
            ("crashes", offpath.FunctionFailed, "member b .*SIGSEGV"),
            ("nothing", offpath.NotFound, "member b .*nothing"),
        ):
            with pytest.raises(error, match=text):
                pool.compute(f"hostile/{function}", row, "x")
        with pytest.raises(offpath.Timeout, match=r"member b .*loops"):
            pool.compute("hostile/loops", row, "x", timeout=0.5)
        with pytest.raises(offpath.NotFound, match="no object"):
            pool.compute("particles/mean", row, "other", timeout=0)


def called_at(pool: offpath.Pool, row: str) -> str:
    """The member that calls functions over a row's object: the message of one that fails says it."""
    with pytest.raises(offpath.FunctionFailed) as raised:
        pool.compute("hostile/fails", row, "x")
    return str(raised.value).split("member ")[1][0]


def test_a_computation_waits_for_objects_of_another_member(group: Group) -> None:
    two_agents(group)
    results: dict[str, tuple[int, float]] = {}
    with group.connect("a") as asking, group.connect("b") as putting:
        put(putting, "hash:/later", "first", "x", np.zeros(1, np.float32))

        def ask(row: str) -> None:
            with group.connect("a") as own:
                results[row] = mean_of(own.pool("hash:/later").compute("particles/mean", row, "x", timeout=PATIENCE_S))

        threads = [threading.Thread(target=ask, args=(f"r{i}",)) for i in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert not results
        for i in range(6):
            put(putting, "hash:/later", f"r{i}", "x", np.full(10, i, np.float32))
        for thread in threads:
            thread.join(PATIENCE_S)
        assert results == {f"r{i}": (10, i) for i in range(6)}
        with pytest.raises(offpath.Timeout):
            asking.pool("hash:/later").compute("particles/mean", "never", timeout=0.2)


def test_an_owner_that_dies_during_a_call_is_said(group: Group) -> None:
    two_agents(group)
    with group.connect("a") as session:
        pool = session.pool("hash:/p")
        for step in range(8):
            put(session, "hash:/p", f"step{step}", "x", np.zeros(10, np.float32))
        row = next(f"step{step}" for step in range(8) if called_at(pool, f"step{step}") == "b")
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                pool.compute("hostile/waits_until_cancelled", row, "x", timeout=4)
            except offpath.Error as error:
                raised.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert until(lambda: group.running["b"].status()["computes"]["calling"] == 1)
        group.running["b"].stop(signal.SIGKILL)
        asking.join(PATIENCE_S)
        assert len(raised) == 1 and isinstance(raised[0], (offpath.PeerLost, offpath.Timeout))
        assert group.running["a"].process.poll() is None


def test_a_program_that_goes_cancels_its_call_at_another_member(group: Group) -> None:
    two_agents(group)
    with group.connect("a") as session:
        for step in range(8):
            put(session, "hash:/p", f"step{step}", "x", np.zeros(10, np.float32))
        row = next(f"step{step}" for step in range(8) if called_at(session.pool("hash:/p"), f"step{step}") == "b")
    ask = (
        "import offpath, sys; key = sys.argv[3:];"
        "session = offpath.connect(sys.argv[1], **({'key_file': key[0]} if key else {}));"
        "session.pool('hash:/p').compute('hostile/waits_until_cancelled', sys.argv[2], 'x', timeout=300)"
    )
    key = [str(group.key)] if group.key else []
    program = subprocess.Popen([sys.executable, "-c", ask, group.address("a"), row, *key])
    try:
        assert until(lambda: group.running["b"].status()["computes"]["calling"] == 1, PATIENCE_S)
    finally:
        program.kill()
        program.wait()
    assert until(lambda: group.running["b"].status()["computes"]["calling"] == 0, PATIENCE_S)


TRIGGER = """
[[trigger]]
pool = "hash:/t?replicas=2"
row = "step*"
column = "x*"
plugin = "particles"
function = "mean"
result_column = "xmean"
"""
TIMER = """
[[trigger]]
pool = "local:/ticks"
plugin = "hostile"
function = "counts_calls"
result_row = "ticks"
result_column = "calls"
every = "50ms"
"""


def test_triggers_call_functions_once_for_each_object_and_on_a_timer(group: Group) -> None:
    two_agents(group, TRIGGER, TIMER)
    with group.connect("a") as session:
        pool = session.pool("hash:/t?replicas=2")
        for step in range(8):
            put(session, pool.name, f"step{step}", "x", np.full(10, step, np.float32))
            put(session, pool.name, f"other{step}", "x", np.zeros(1, np.float32))
        for step in range(8):
            got = np.frombuffer(
                pool.get_bytes(f"step{step}", "xmean", timeout=PATIENCE_S), dtype=[("count", "u8"), ("mean", "f8")]
            )
            assert got["count"][0] == 10 and got["mean"][0] == step

        def called(name: str) -> int:
            return int(group.running[name].status()["triggers"][0]["calls"])

        # Not at both replicas, not on results (xmean matches x*), not on other rows.
        time.sleep(0.3)
        assert called("a") + called("b") == 8 and min(called("a"), called("b")) > 0
        ticks = session.pool("local:/ticks")
        assert until(lambda: int(bytes(ticks.get_bytes("ticks", "calls", timeout=PATIENCE_S))) >= 3)
        metrics = group.running["a"].get("/metrics")[2]
        assert f'offpath_trigger_calls_total{{function="particles.mean"}} {called("a")}' in metrics


FAILING = """
[[trigger]]
pool = "local:/f"
plugin = "hostile"
function = "crashes"
result_column = "out"
queue = 1
calls = 1
"""


def test_a_trigger_that_crashes_or_is_too_slow_is_counted_and_the_agent_goes_on(group: Group) -> None:
    start(group, "a", FAILING, FAILING.replace("local:/f", "local:/slow").replace("crashes", "loops"))
    with group.connect("a") as session:
        put(session, "local:/f", "r", "c", np.zeros(1, np.float32))
        for i in range(4):
            put(session, "local:/slow", f"r{i}", "c", np.zeros(1, np.float32))
        crashing, slow = (
            (lambda: group.running["a"].status()["triggers"][0]),
            (lambda: group.running["a"].status()["triggers"][1]),
        )
        assert until(lambda: crashing()["failed"] == 1 and slow()["dropped"] == 2)
        assert "SIGSEGV" in crashing()["failure"] and group.running["a"].says("local:/f")
        assert len(session.pool("local:/slow").keys()) == 4
        assert group.running["a"].says("objects arrive faster than")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('plugin = "other"', "there is no [[plugin]] with the name 'other'"),
        ('result_column = ""', "trigger.result_column"),
        ('pool = "nowhere"', "trigger.pool"),
        ('result_row = "r"', "trigger.result_row"),
    ],
)
def test_triggers_that_make_no_sense_are_refused_at_start(tmp_path: Path, change: str, said: str) -> None:
    lines = [line for line in FAILING.splitlines() if not line.startswith(change.split(" =")[0] + " ")] + [change]
    result = run_agent(*configured(tmp_path, "\n".join(lines)), "--check-config")
    assert result.returncode == 2 and said in result.stderr


def test_the_command_line_computes(group: Group, tmp_path: Path) -> None:
    start(group, "a")
    with group.connect("a") as session:
        put(session, "local:/p", "r", "c", np.ones(4, np.float32))
    if group.key:
        return  # the command takes its key from the environment, as its other commands do
    command = [sys.executable, "-m", "offpath", "pool", "compute", "--agent", group.address("a"), "local:/p"]
    out = tmp_path / "out"
    writes = [*command, "particles/mean", "r", "c", "--out", str(out)]
    subprocess.run(writes, check=True)
    assert np.frombuffer(out.read_bytes()[:8], np.uint64)[0] == 4
    out.write_bytes(b"mine")
    refused = subprocess.run(writes, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "exists already; --force replaces it" in refused.stderr
    assert out.read_bytes() == b"mine"
    subprocess.run([*writes, "--force"], check=True)
    assert np.frombuffer(out.read_bytes()[:8], np.uint64)[0] == 4
    subprocess.run([*command, "particles/mean", "r", "c", "--result-column", "m"], check=True)
    failed = subprocess.run([*command, "hostile/fails", "r", "c"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "x is negative" in failed.stderr


@needs_built(BUILT / "tests" / "requests_program")
def test_a_program_in_cpp_asks_for_everything_at_once(tmp_path: Path) -> None:
    with new_group(tmp_path, "local") as group:
        start(group, "a")
        command = [BUILT / "tests" / "requests_program", group.address("a")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
