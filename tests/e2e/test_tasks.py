"""Tasks: functions of plug-ins over a program's memory, with real agents and workers."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pytest
from agent_process import AgentProcess, agent, find_program, until
from built import needs_built

BUILT = find_program().parents[1] / "tests" / "task_plugin.so"
PATIENCE_S = 40.0

pytestmark = needs_built(BUILT)


@contextlib.contextmanager
def started(
    directory: Path, *arguments: str, workers: int = 1, deadline: str = "600s", more: str = ""
) -> Iterator[AgentProcess]:
    plugin = shutil.copy(BUILT, directory)
    plugins = f'[[plugin]]\nname = "t"\npath = "{plugin}"\nworkers = {workers}\ndeadline = "{deadline}"\n'
    (directory / "agent.toml").write_text(plugins + more)
    with agent(directory, "--config", str(directory / "agent.toml"), *arguments) as running:
        yield running


@contextlib.contextmanager
def connected(link: str, directory: Path, **settings: Any) -> Iterator[offpath.Session]:
    """A program of an agent of its own, over this link."""
    key = directory / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    arguments = ["--listen", "tcp:127.0.0.1:0", "--key-file", str(key)] if link == "tcp" else []
    with started(directory, *arguments, **settings) as running:
        address = running.ready["address"] if link == "tcp" else f"unix:{directory}/agent.sock"
        with offpath.connect(address, key_file=key, force_staging=link == "staged") as session:
            assert session.info.staged == (link == "staged")
            yield session


@pytest.fixture(params=["local", "staged", "tcp"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[offpath.Session]:
    with connected(request.param, tmp_path) as made:
        yield made


def doubles(session: offpath.Session, count: int) -> np.ndarray:
    return session.alloc(8 * count).numpy(np.float64)


def test_a_task_over_the_programs_memory(session: offpath.Session) -> None:
    count = 200_000
    x, y = np.arange(count, dtype=np.float64), np.full(count, 0.5)
    z = doubles(session, count)
    with session.tasks() as tasks:
        for a in (2.0, -3.0):
            task = tasks.submit("t/axpy", {"x": x, "y": y}, {"z": z}, arguments=struct.pack("d", a))
            assert task.wait_pulled(PATIENCE_S)
            assert task.wait(PATIENCE_S)
            assert np.array_equal(z, a * x + y)
            assert task.output_bytes("z") == 8 * count
            info = task.info
            assert info.pulled_bytes == 16 * count and info.pushed_bytes == 8 * count
            assert info.ran_ns > 0 and not info.here


def milliseconds(count: float) -> bytes:
    return struct.pack("q", int(count * 1e6))


def pulled(task: offpath.Task) -> int:
    assert task.wait(PATIENCE_S)
    return task.info.pulled_bytes


def test_what_the_agent_has_does_not_cross_again(session: offpath.Session) -> None:
    x, out = np.arange(1000, dtype=np.float64), doubles(session, 1000)
    with session.tasks() as tasks:

        def join(given: object) -> int:
            return pulled(tasks.submit("t/join", {"x": given}, {"all": out}))

        assert join(offpath.Input(x, version=1)) == 8000
        assert join(offpath.Input(x, version=1)) == 0
        x[10:20] = -1.0
        assert join(offpath.Input(x, version=2, changed=(1, 80, 80))) == 80
        assert np.array_equal(out, x)
        assert join(offpath.Input(version=2, nbytes=8000)) == 0
        assert np.array_equal(out, x)
        x[:] = 7.0
        assert join(offpath.Input(x, version=5, changed=(4, 0, 8))) == 8000  # it does not have version 4
        assert np.array_equal(out, x)
        with pytest.raises(offpath.NotFound, match="version 6"):
            join(offpath.Input(version=6, nbytes=8000))
    # Dropped with the session.
    with session.tasks() as tasks, pytest.raises(offpath.NotFound):
        pulled(tasks.submit("t/join", {"x": offpath.Input(version=5, nbytes=8000)}, {"all": out}))


def test_an_input_in_pieces(session: offpath.Session) -> None:
    x, out = np.arange(3000, dtype=np.float64), doubles(session, 4000)
    pieces = [x[2000:], x[:1], x[5:5], x[100:900]]
    joined = np.concatenate([*pieces, x[:10]])
    with session.tasks() as tasks:
        task = tasks.submit("t/join", {"x": pieces, "y": (x[:10],), "none": []}, {"all": out})
        assert pulled(task) == joined.nbytes
        assert np.array_equal(out[: len(joined)], joined)
        for expected in (joined.nbytes - 80, 0):  # one input stays
            kept = tasks.submit("t/join", {"x": offpath.Input(pieces, version=1)}, {"all": out})
            assert pulled(kept) == expected
        with pytest.raises(offpath.TooLarge, match="1025 pieces, at most 1024"):
            tasks.submit("t/join", {"x": [x] * 1025}, {"all": out})
        many = tasks.submit("t/join", {"x": [x[:1]] * 1024}, {"all": out})
        assert pulled(many) == 8192


def test_an_output_stays_as_an_input(session: offpath.Session) -> None:
    x, out = np.arange(100, dtype=np.float64), doubles(session, 300)
    with session.tasks() as tasks:
        kept = {"all": offpath.Output(version=3, nbytes=2400)}
        made = tasks.submit("t/join", {"a": x, "b": x}, kept)
        again = tasks.submit(
            "t/join", {"all": offpath.Input(version=3, nbytes=1600), "c": x}, {"all": out}, after=[made]
        )
        assert pulled(again) == 800
        assert made.output_bytes("all") == 1600
        assert np.array_equal(out, np.concatenate([x, x, x]))


def test_tasks_of_a_lane_run_in_order_on_one_worker(tmp_path: Path) -> None:
    with connected("local", tmp_path, workers=2) as session:
        counts = session.alloc(4096).numpy(np.uint64)
        workers = []
        for lane in range(2):
            with session.tasks(lane=lane, lanes=2) as tasks:
                asked = [tasks.submit("t/count", {}, {"count": counts[i : i + 1]}) for i in range(20)]
                assert all(task.wait(PATIENCE_S) for task in asked)
                assert list(counts[:20]) == list(range(1, 21))
                workers.append({task.info.worker for task in asked})
                # Its worker ends: its state is lost, and the program can see that.
                with pytest.raises(offpath.FunctionFailed, match="SIGSEGV"):
                    tasks.submit("t/crash").wait(PATIENCE_S)
                task = tasks.submit("t/count", {}, {"count": counts[:1]})
                assert task.wait(PATIENCE_S)
                assert counts[0] == 1 and task.info.worker not in workers[-1]
        assert len(workers[0]) == len(workers[1]) == 1 and workers[0] != workers[1]


def test_tasks_after_others(session: offpath.Session) -> None:
    x, z = np.ones(1000), doubles(session, 1000)
    two = struct.pack("d", 2.0)
    with session.tasks() as tasks, session.tasks() as others:
        task = tasks.submit("t/axpy", {"x": x, "y": x}, {"z": z}, arguments=two)
        for turn in range(5):  # each reads the output of the one before
            task = (others, tasks)[turn % 2].submit("t/axpy", {"x": z, "y": x}, {"z": z}, arguments=two, after=[task])
        assert task.wait(PATIENCE_S)
        assert np.all(z == 127.0)
        failing = tasks.submit("t/complain")
        behind = others.submit("t/nothing", after=[task, failing])
        with pytest.raises(offpath.FunctionFailed, match="there are no particles"):
            failing.wait(PATIENCE_S)
        with pytest.raises(offpath.Cancelled, match=r"depends on task .* there are no particles"):
            behind.wait(PATIENCE_S)
        with pytest.raises(offpath.Cancelled, match="there are no particles"):
            tasks.submit("t/nothing", after=[failing]).wait(PATIENCE_S)
        assert tasks.submit("t/nothing", after=[task]).wait(PATIENCE_S)


def test_cancelled_and_late_tasks(session: offpath.Session) -> None:
    with session.tasks() as tasks:
        long, queued = (tasks.submit("t/nap", arguments=milliseconds(60_000)) for _ in range(2))
        assert not long.wait(0.05)
        queued.cancel()
        long.cancel()
        for task in (long, queued):
            with pytest.raises(offpath.Cancelled):
                task.wait(PATIENCE_S)
        with pytest.raises(offpath.Timeout):
            tasks.submit("t/nap", arguments=milliseconds(60_000), timeout=0.05).wait(PATIENCE_S)
        # A dropped task is cancelled, so that the next one has its turn.
        del task, long, queued
        tasks.submit("t/nap", arguments=milliseconds(60_000))
        assert tasks.submit("t/nothing").wait(PATIENCE_S)


def test_what_is_asked_for_wrongly_is_said(session: offpath.Session) -> None:
    x, small, elsewhere = np.ones(100), doubles(session, 10), np.zeros(100)
    one = struct.pack("d", 1.0)
    with session.tasks() as tasks:
        with pytest.raises(offpath.Denied, match="not memory of ofp_alloc"):
            tasks.submit("t/axpy", {"x": x, "y": x}, {"z": elsewhere}, arguments=one)
        with pytest.raises(offpath.FunctionFailed, match="the task has room for 80"):
            tasks.submit("t/axpy", {"x": x, "y": x}, {"z": small}, arguments=one).wait(PATIENCE_S)
        with pytest.raises(offpath.FunctionFailed, match="not among those that the task names"):
            tasks.submit("t/axpy", {"x": x, "y": x}, {"w": small}, arguments=one).wait(PATIENCE_S)
        with pytest.raises(offpath.NotFound, match="there are axpy"):
            tasks.submit("t/apxy").wait(PATIENCE_S)
        with pytest.raises(offpath.NotFound, match="no plug-in 'u'"):
            tasks.submit("u/axpy").wait(PATIENCE_S)
        with pytest.raises(offpath.Invalid, match="plug-in/function"):
            tasks.submit("axpy")
        with pytest.raises(offpath.FunctionFailed, match="SIGSEGV"):
            tasks.submit("t/crash").wait(PATIENCE_S)
        assert tasks.submit("t/nothing").wait(PATIENCE_S)


def test_no_more_are_under_way_than_was_said(session: offpath.Session) -> None:
    with session.tasks(tasks_max=2) as tasks:
        kept = [tasks.submit("t/nap", arguments=milliseconds(300)) for _ in range(2)]
        with pytest.raises(offpath.WouldBlock):
            tasks.submit("t/nothing")
        assert all(task.wait(PATIENCE_S) for task in kept)
        assert tasks.submit("t/nothing").wait(PATIENCE_S)


def test_tasks_are_given_as_they_end(tmp_path: Path) -> None:
    with connected("local", tmp_path, workers=2) as session, session.tasks() as tasks:
        with pytest.raises(offpath.NotFound):
            tasks.next()
        slow = tasks.submit("t/nap", arguments=milliseconds(60_000))
        quick = [tasks.submit("t/nothing") for _ in range(3)]
        failing = tasks.submit("t/complain")
        given = [tasks.next(PATIENCE_S) for _ in range(4)]
        assert {id(task) for task in given} == {id(task) for task in [*quick, failing]}
        assert all(task.done() for task in quick)
        with pytest.raises(offpath.FunctionFailed):
            failing.wait(0)
        assert tasks.next(0) is None
        with selectors.DefaultSelector() as selector:
            selector.register(session.event_fd, selectors.EVENT_READ)
            slow.cancel()
            while (over := tasks.next(0)) is None:
                assert selector.select(PATIENCE_S)
        assert over is slow
        more = [tasks.submit("t/nap", arguments=milliseconds(count)) for count in (20, 1)]
        assert {id(task) for task in tasks.as_completed(PATIENCE_S)} == {id(task) for task in more}
        kept = tasks.submit("t/nap", arguments=milliseconds(60_000))
        with pytest.raises(offpath.Timeout, match="under way"):
            list(tasks.as_completed(0.01))
        del kept  # cancelled, and not returned
        with pytest.raises(offpath.NotFound):
            tasks.next()


@needs_built(BUILT.parent / "tasks_program")
def test_tasks_are_given_to_a_program_in_cpp_as_they_end(tmp_path: Path) -> None:
    with started(tmp_path, workers=2):
        done = subprocess.run(
            [BUILT.parent / "tasks_program", f"unix:{tmp_path}/agent.sock"],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_task_is_given_when_its_agent_dies(tmp_path: Path) -> None:
    with started(tmp_path) as running, offpath.connect(f"unix:{tmp_path}/agent.sock") as session:
        with session.tasks() as tasks:
            kept = [tasks.submit("t/nap", arguments=milliseconds(60_000)) for _ in range(3)]
            assert tasks.next(0) is None
            running.stop(signal.SIGKILL)
            over = list(tasks.as_completed(PATIENCE_S))
            assert over == kept
            for task in over:
                with pytest.raises(offpath.PeerLost):
                    task.wait(0)


@pytest.mark.parametrize("link", ["local", "tcp"])
def test_an_agent_that_dies_leaves_the_task_to_the_program(link: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    arguments = ["--listen", "tcp:127.0.0.1:0", "--key-file", str(key)] if link == "tcp" else []
    with started(tmp_path, *arguments) as running:
        address = running.ready["address"] if link == "tcp" else f"unix:{tmp_path}/agent.sock"
        with offpath.connect(address, key_file=key) as session:
            x, z = np.arange(100.0), doubles(session, 100)
            with session.tasks(plugins={"t": BUILT}) as tasks:
                task = tasks.submit("t/nap", {"x": x}, arguments=milliseconds(60_000))
                assert task.wait_pulled(PATIENCE_S)
                running.stop(signal.SIGKILL)
                with pytest.raises(offpath.PeerLost):
                    task.wait(PATIENCE_S)
                assert tasks.run("t/axpy", {"x": x, "y": x}, {"z": z}, arguments=struct.pack("d", 4.0))
                assert np.array_equal(z, 5 * x)


def test_a_program_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import sys, offpath, struct, numpy as np\n"
        "s = offpath.connect(sys.argv[1]); t = s.tasks(lane=0)\n"
        "x = np.ones(100000)\n"
        "a = struct.pack('q', 60 * 10**9)\n"
        "k = [t.submit('t/nap', {'x': offpath.Input(x, version=1)}, arguments=a) for _ in range(8)]\n"
        "assert k[0].wait_pulled(60); print('under way', flush=True); sys.stdin.read()\n"
    )
    with started(tmp_path) as running:
        address = f"unix:{tmp_path}/agent.sock"
        program = subprocess.Popen(
            [sys.executable, "-c", code, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None and program.stdout.readline() == "under way\n"
        assert running.status()["tasks"]["running"] > 0
        program.kill()
        program.wait()
        assert until(lambda: running.status()["tasks"]["sessions"] == 0, PATIENCE_S)
        tasks = running.status()["tasks"]
        assert tasks["resident_bytes"] == 0
        with offpath.connect(address) as session, session.tasks() as again:
            assert again.submit("t/nothing").wait(PATIENCE_S)  # its worker is free


def test_functions_run_here_without_an_agent() -> None:
    x, z = np.arange(1000.0), np.zeros(1000)
    two = struct.pack("d", 2.0)
    with offpath.Tasks.here({"t": BUILT}) as tasks:
        first = tasks.submit("t/axpy", {"x": x, "y": x}, {"z": z}, arguments=two)
        second = tasks.submit("t/axpy", {"x": z, "y": x}, {"z": z}, arguments=two, after=[first])
        assert list(tasks.as_completed()) == [first, second]
        assert second.wait() and first.done()
        assert np.array_equal(z, 2 * 3 * x + x)
        assert second.info.here and second.output_bytes("z") == 8000
        failing = tasks.submit("t/complain")
        behind = tasks.submit("t/nothing", after=[failing])
        with pytest.raises(offpath.Cancelled, match="there are no particles"):
            behind.wait()
        kept = {"all": offpath.Output(version=3, nbytes=16000)}
        made = tasks.submit("t/join", {"a": x, "b": offpath.Input(x, version=1)}, kept)
        again = tasks.submit(
            "t/join", {"all": offpath.Input(version=3, nbytes=16000)}, {"all": np.zeros(2000)}, after=[made]
        )
        assert again.wait()
        pieces = {"x": [x[900:], x[:10]], "y": offpath.Input([x[:1], x[:1]], version=1)}
        assert tasks.submit("t/join", pieces, {"all": z}).wait()
        assert np.array_equal(z[:112], np.concatenate([x[900:], x[:10], x[:1], x[:1]]))
        with pytest.raises(offpath.FunctionFailed):  # after it has made its output
            tasks.submit("t/join_and_fail", {"x": [z[:500], z[500:]]}, {"all": z}).wait()
        assert np.array_equal(z[:112], np.concatenate([x[900:], x[:10], x[:1], x[:1]]))  # where pieces of an input are
        with pytest.raises(offpath.NotFound, match="has no plug-in"):
            tasks.submit("u/axpy").wait()
        cancelled = tasks.submit("t/nothing")
        cancelled.cancel()
        with pytest.raises(offpath.Cancelled):
            cancelled.wait()


def test_tasks_are_on_the_pages(tmp_path: Path) -> None:
    with started(tmp_path) as running, offpath.connect(f"unix:{tmp_path}/agent.sock") as session:
        x = np.ones(1000)
        with session.tasks() as tasks:
            assert tasks.submit("t/nap", {"x": offpath.Input(x, version=1)}, arguments=milliseconds(20)).wait(
                PATIENCE_S
            )
            told = running.status()["tasks"]
            assert told["asked"] == told["done"] == 1 and told["pulled_bytes"] == told["resident_bytes"] == 8000
            assert told["running_s"] >= 0.01
            _, _, metrics = running.get("/metrics")
            assert "offpath_tasks_total 1\n" in metrics and 'offpath_task_seconds_total{step="pull"}' in metrics
