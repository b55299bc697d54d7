"""An agent of several loops (``agent.cores``): what programs on different cores see of each other, and of a core that
dies."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_group import PATIENCE_S
from agent_process import AgentProcess, agent, find_program, run_agent, until
from built import needs_built
from offpath.agent_http import UnixConnection

PLUGIN = find_program().parent.parent / "examples" / "particles_plugin.so"
TASKS = find_program().parent.parent / "tests" / "task_plugin.so"
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
LINKS = ["unix", "tcp"]


@contextlib.contextmanager
def cores(directory: Path, count: int, *more: str, name: str = "a") -> Iterator[AgentProcess]:
    own = ["--cores", str(count), "--name", name, "--memory", "128MiB", "--set", "group.dead_after=2s"]
    with agent(directory, *own, *more) as running:
        yield running
        running.stop()  # as long as the cores take: whoever comes next finds their sockets free


@pytest.fixture(params=LINKS)
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentProcess]:
    if request.param == "unix":
        with cores(tmp_path, 2) as running:
            yield running
        return
    (tmp_path / "key").write_bytes(os.urandom(32))
    (tmp_path / "key").chmod(0o600)
    addresses = ["--listen", "tcp:127.0.0.1:0", "--listen", f"unix:{tmp_path}/agent.sock"]
    with cores(tmp_path, 2, *addresses, "--key-file", str(tmp_path / "key")) as running:
        yield running


def connect(running: AgentProcess, name: str = "program") -> offpath.Session:
    key = running.log_path.parent / "key"
    return offpath.connect(running.ready["address"], name=name, key_file=key if key.exists() else None)


def core_of(session: offpath.Session) -> int:
    return int(session.info.agent_name.partition("+")[2] or 0)


def of_each_core(running: AgentProcess, stack: contextlib.ExitStack, count: int = 2) -> list[offpath.Session]:
    """A program on each core, in their order."""
    sessions = [stack.enter_context(connect(running, f"program{i}")) for i in range(count)]
    return sorted(sessions, key=core_of)


def programs_of(status: dict[str, Any]) -> Counter[int]:
    """Programs by core; other members have channels, too."""
    return Counter(each["core"] for each in status["channels"] if not each["program"].startswith("agent "))


def rows(count: int) -> list[str]:
    return [f"step{i}" for i in range(count)]


def table(number: int, length: int = 100) -> dict[str, np.ndarray]:
    return {"x": np.arange(number, number + length, dtype=np.float64)}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


# ---- spreading


def test_programs_are_spread_over_the_cores(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(connect(two, f"program{i}")) for i in range(8)]
        assert Counter(map(core_of, sessions)) == {0: 4, 1: 4}
        assert until(lambda: programs_of(two.status()) == {0: 4, 1: 4})
        for session in [each for each in sessions if core_of(each) == 0]:
            session.close()
        assert until(lambda: programs_of(two.status()) == {1: 4})
        again = [stack.enter_context(connect(two, f"later{i}")) for i in range(4)]
        assert Counter(map(core_of, again)) == {0: 4}, "the core with the fewest gets the next"


def test_one_core_is_one_process(tmp_path: Path) -> None:
    with cores(tmp_path, 1) as running, connect(running) as session:
        assert session.info.agent_name == "a"
        assert Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text() == ""
        assert "cores" not in running.status() and "cores" not in running.ready
        assert running.status()["pid"] == running.pid
        assert 'core="' not in running.get("/metrics")[2]
        assert sorted(path.name for path in tmp_path.glob("*.sock")) == ["agent.sock"]


# ---- what programs see


def test_rows_are_found_whichever_core_a_program_is_on(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        first, second = of_each_core(two, stack)
        assert [core_of(first), core_of(second)] == [0, 1]
        for name in ("local:/p", "hash:/p", "rank:/p", "tag:/p"):
            here, there = first.pool(name), second.pool(name)
            for number, row in enumerate(rows(16)):
                (here if number % 2 else there).put(table(number), row)
            for number, row in enumerate(rows(16)):
                for pool in (here, there):
                    assert pool.get(row)["x"].to_pylist() == table(number)["x"].tolist()
            assert sorted(entry.row for entry in here.list()) == sorted(rows(16))
            assert len({entry.row for entry in there.list("step1*")}) == 7
            assert list(here.query("max(x)").to_pylist()[0].values()) == [114.0]
            here.put(table(500), "step3")
            assert there.get("step3")["x"][0].as_py() == 500.0, "a later put replaces, from wherever it comes"
            assert there.drop("step3") == 1
            with pytest.raises(offpath.NotFound):
                here.get("step3")
        assert [each["name"] for each in two.status()["members"]] == ["a"]


def test_a_get_waits_for_a_row_that_another_core_takes(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        first, second = of_each_core(two, stack)
        wanted = [first.pool("local:/later").want(row) for row in rows(8)]
        for number, row in enumerate(rows(8)):
            second.pool("local:/later").put(table(number), row)
        for number, each in enumerate(wanted):
            assert each.result(PATIENCE_S).table()["x"][0].as_py() == number


def test_large_objects_cross_between_cores(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        first, second = of_each_core(two, stack)
        for number, row in enumerate(rows(4)):
            first.pool("local:/large").put(table(number, 1 << 18), row)
        for number, row in enumerate(rows(4)):
            assert second.pool("local:/large").get(row)["x"][-1].as_py() == number + (1 << 18) - 1


def test_a_step_of_ranks_on_different_cores_appears_when_all_have_ended_it(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        sessions = of_each_core(two, stack)
        streams = [session.stream("ranked", SCHEMA, rows_max=100, pool="local:/ranked", ranks=2, rank=rank)
                   for rank, session in enumerate(sessions)]  # fmt: skip
        for step in rows(4):
            for rank, stream in enumerate(streams):
                part = {"id": np.arange(10), "x": np.full(10, float(rank))}
                stream.send(part, key=(step, f"rank{rank}"), snapshot=True).wait_stored(PATIENCE_S)
            streams[0].step_end(step)
        with pytest.raises(offpath.Error):
            sessions[1].pool("local:/ranked").get("step0", "rank0")
        for step in rows(4):
            streams[1].step_end(step)
            for session in sessions:
                assert session.pool("local:/ranked").get(step, "rank1", timeout=PATIENCE_S).num_rows == 10


def test_a_pool_of_all_cores_is_written_to_one_file(two: AgentProcess, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first, _ = of_each_core(two, stack)
        for number, row in enumerate(rows(8)):
            first.pool("local:/written").put(table(number), row)
        first.pool("local:/written").write(tmp_path / "all.arrow")
    with pa.memory_map(str(tmp_path / "all.arrow")) as file, pa.ipc.open_stream(file) as stream:
        assert stream.read_all().num_rows == 800


ATOMS, STEPS = 2000, 6


def send_particles(sessions: list[offpath.Session], pool: str) -> None:
    """A rank on each core."""
    streams = [session.stream("particles", SCHEMA, rows_max=ATOMS, pool=pool, ranks=2, rank=rank)
               for rank, session in enumerate(sessions)]  # fmt: skip
    for step in range(STEPS):
        for rank, ids in enumerate(np.array_split(np.random.default_rng(step).permutation(ATOMS), 2)):
            sent = streams[rank].send({"id": ids, "x": ids + step / 1024}, key=(f"step{step}", f"rank{rank}"),
                                      snapshot=True)  # fmt: skip
            sent.wait_stored(PATIENCE_S)


def assert_all_tracks(session: offpath.Session) -> None:
    tracks = session.tracks("sift:/tracks")
    tracks.flush(PATIENCE_S)
    found = tracks.table(timeout=PATIENCE_S)
    assert np.array_equal(found["id"].to_numpy(), np.repeat(np.arange(ATOMS), STEPS))
    assert np.array_equal(found["step"].to_numpy(), np.tile(np.arange(STEPS), ATOMS))


def test_particles_of_all_cores_become_one_set_of_tracks(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        sessions = of_each_core(two, stack)
        send_particles(sessions, "sift:/tracks?key=id&age=200ms")
        for session in sessions:
            assert_all_tracks(session)


def test_tracks_on_the_disks_of_cores_survive_a_core_and_the_agent(tmp_path: Path) -> None:
    def assert_back(session: offpath.Session, running: AgentProcess) -> None:
        def is_back() -> bool:
            with contextlib.suppress(offpath.Error):
                session.tracks("sift:/tracks").flush(PATIENCE_S)
                return True
            return False

        assert until(is_back, PATIENCE_S), running.log()
        assert_all_tracks(session)

    spill = ["--spill", str(tmp_path / "spill")]
    with cores(tmp_path, 2, *spill) as running, contextlib.ExitStack() as stack:
        first, second = of_each_core(running, stack)
        send_particles([first, second], "sift:/tracks?key=id&age=200ms&spill=durable")
        assert_all_tracks(first)
        os.kill(running.status()["cores"][1]["pid"], signal.SIGKILL)
        assert_back(first, running)
    with cores(tmp_path, 2, *spill) as running, connect(running) as session:
        assert_back(session, running)


@needs_built(PLUGIN)
def test_functions_are_called_where_the_row_is(tmp_path: Path) -> None:
    plugin = shutil.copy(PLUGIN, tmp_path)
    (tmp_path / "agent.toml").write_text(f'[[plugin]]\nname = "particles"\npath = "{plugin}"\n')
    with cores(tmp_path, 2, "--config", str(tmp_path / "agent.toml")) as running, contextlib.ExitStack() as stack:
        sessions = of_each_core(running, stack)
        for number, row in enumerate(rows(8)):
            stream = sessions[0].stream(row, destination="native", pool="local:/computed")
            stream.send(np.full(100, number, np.float32), key=(row, "x")).wait_stored(PATIENCE_S)
        for session in sessions:
            for number, row in enumerate(rows(8)):
                mean = session.pool("local:/computed").compute("particles/mean", row, "x", timeout=PATIENCE_S)
                assert mean is not None
                found = np.frombuffer(mean.buffer(), dtype=[("count", "u8"), ("mean", "f8")])[0]
                assert (found["count"], found["mean"]) == (100, number)
        status = running.status()
        assert status["computes"]["calls"] == 16
        assert sum(each["workers"] for each in status["plugins"]) == 2, "each core has workers of its own"


@needs_built(TASKS)
def test_tasks_run_for_programs_of_every_core(tmp_path: Path) -> None:
    plugin = shutil.copy(TASKS, tmp_path)
    (tmp_path / "agent.toml").write_text(f'[[plugin]]\nname = "t"\npath = "{plugin}"\n')
    with cores(tmp_path, 2, "--config", str(tmp_path / "agent.toml")) as running, contextlib.ExitStack() as stack:
        for session in of_each_core(running, stack):
            x, y = np.arange(1000, dtype=np.float64), np.full(1000, 0.5)
            z = session.alloc(8 * 1000).numpy(np.float64)
            with session.tasks() as tasks:
                task = tasks.submit("t/axpy", {"x": x, "y": y}, {"z": z}, arguments=struct.pack("d", 2.0))
                assert task.wait(PATIENCE_S)
            assert np.array_equal(z, 2 * x + y)


def test_updates_in_place_are_refused_by_name(two: AgentProcess) -> None:
    with connect(two) as session:
        raw = session.stream("raw", pool="local:/raw")
        raw.move([(np.zeros(64, dtype=np.uint8), 0)], key="restart").wait_stored(PATIENCE_S)
        with pytest.raises(offpath.Unsupported, match=r"agent\.cores"):
            raw.move([(np.ones(64, dtype=np.uint8), 0)], key="restart", update=True).wait_stored(PATIENCE_S)


# ---- pages


def page(path: Path, name: str) -> str:
    connection = UnixConnection(str(path))
    connection.request("GET", name)
    return connection.getresponse().read().decode()


def test_one_page_covers_all_cores(two: AgentProcess, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for session in of_each_core(two, stack):
            for row in rows(8):
                session.pool("local:/counted").put(table(1), f"{core_of(session)}{row}")
        assert until(lambda: next(each["frames"] for each in two.status()["pools"]) == 16)
        status = two.status()
        assert status["name"] == "a" and status["addresses"] == two.ready["addresses"]
        assert [each["core"] for each in status["cores"]] == [0, 1]
        assert all(each["answers"] for each in status["cores"])
        assert [each["pid"] for each in status["cores"]] == [each["pid"] for each in two.ready["cores"]]
        assert status["memory"]["bytes_max"] == 128 << 20, "the cores share it"
        assert len(status["pools"]) == 1
        own = [json.loads(page(tmp_path / f"agent+{core}-http.sock", "/status.json")) for core in range(2)]
        assert sum(each["mover"]["frames"] for each in own) == status["mover"]["frames"] == 16
        assert min(each["mover"]["frames"] for each in own) == 8
        code, kind, metrics = two.get("/metrics")
        assert code == 200 and kind.startswith("text/plain")
        assert {line.partition("{")[2][:9] for line in metrics.splitlines()
                if line.startswith("offpath_uptime_seconds{")} == {'core="0"}', 'core="1"}'}  # fmt: skip
        wanted = {"Accept": "application/openmetrics-text"}
        asked = urllib.request.Request(two.ready["http"] + "metrics", headers=wanted)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            assert answer.read().decode().endswith("# EOF\n")
        assert two.get("/healthz")[0] == 200


# ---- a core that dies


def test_a_killed_core_is_started_anew_and_its_programs_alone_are_told(two: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        first, second = of_each_core(two, stack)
        for number, row in enumerate(rows(16)):
            first.pool("local:/p").put(table(number), row)
        before = [each["pid"] for each in two.status()["cores"]]
        os.kill(before[1], signal.SIGKILL)
        with pytest.raises(offpath.PeerLost):
            while True:
                second.pool("local:/p").put(table(0), "mine")
        first.pool("local:/p").put(table(100), "after", timeout=PATIENCE_S)  # wherever it belongs
        assert first.pool("local:/p").get("after", timeout=PATIENCE_S).num_rows == 100
        with connect(two) as other:  # at once: the other core serves
            assert other.pool("local:/p").get("after", timeout=PATIENCE_S).num_rows == 100

        def is_back() -> bool:
            now = two.status()["cores"]
            return len(now) == 2 and now[1]["answers"] and now[1]["pid"] not in before

        assert until(is_back, PATIENCE_S), two.log()
        assert two.says("ended by signal 9; it is restarted"), two.log()
        assert until(lambda: "core 1 serves" in two.log().partition("restarted")[2], PATIENCE_S), two.log()
        with contextlib.ExitStack() as again:
            sessions = [again.enter_context(connect(two)) for _ in range(3)]
            assert 1 in map(core_of, sessions)
            left = {row for row in rows(16) for _ in [0] if is_there(first, row)}
            for session in sessions:  # what was on the other core is there, for everybody
                assert {row for row in rows(16) if is_there(session, row)} == left
            assert 0 < len(left) < 16


def is_there(session: offpath.Session, row: str) -> bool:
    """A core that has just started anew may be asked by one that still knows the former."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return session.pool("local:/p").get(row).num_rows == 100
        except offpath.NotFound:
            return False
        except offpath.PeerLost:
            if time.monotonic() > end:
                raise


def test_rows_on_disk_survive_a_core_and_more_cores(tmp_path: Path) -> None:
    spill = ["--spill", str(tmp_path / "spill")]
    with cores(tmp_path, 1, *spill) as running, connect(running) as session:
        for number, row in enumerate(rows(12)):
            session.pool("local:/kept?spill=durable").put(table(number), row)
    with cores(tmp_path, 2, *spill) as running, contextlib.ExitStack() as stack:
        first, second = of_each_core(running, stack)
        for number, row in enumerate(rows(12)):
            assert second.pool("local:/kept").get(row, timeout=PATIENCE_S)["x"][0].as_py() == number
        assert until(lambda: running.status()["remote"]["moved_rows"] > 0), "rows are spread over both cores"
        os.kill(running.status()["cores"][1]["pid"], signal.SIGKILL)
        for number, row in enumerate(rows(12)):
            assert until(lambda row=row: first.pool("local:/kept").get(row, timeout=PATIENCE_S) is not None)
            assert first.pool("local:/kept").get(row, timeout=PATIENCE_S)["x"][0].as_py() == number
        assert second is not first
    with cores(tmp_path, 1, *spill) as running:
        assert running.says("its objects are found only with agent.cores = 2 or more")


def test_a_core_that_ends_again_and_again_ends_the_agent(tmp_path: Path) -> None:
    with cores(tmp_path, 2) as running:
        killed: set[int] = set()

        def kill_another() -> bool:
            """Whether core 1 ran as another process, or the agent has ended."""
            if running.process.poll() is not None:
                return True
            with contextlib.suppress(OSError, AssertionError, KeyError):
                pid = running.status()["cores"][1]["pid"]
                if pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    return True
            return False

        while running.process.poll() is None and len(killed) <= 6:
            assert until(kill_another, PATIENCE_S), running.log()
        assert until(lambda: running.process.poll() is not None, PATIENCE_S), running.log()
        assert running.process.returncode == 1 and len(killed) == 6
        assert "it ended too often, and this agent ends" in running.log()


# ---- start and end


def test_cores_end_with_their_agent(tmp_path: Path) -> None:
    with cores(tmp_path, 3) as running:
        pids = [each["pid"] for each in running.ready["cores"]]
        assert len(set(pids)) == 3 and all(map(alive, pids)) and running.pid not in pids
        with connect(running) as session:
            session.pool("local:/p").put(table(0), "row")
            assert running.stop() == 0
            with pytest.raises(offpath.Error):
                session.pool("local:/p").get("row")
        assert not any(map(alive, pids))
        assert list(tmp_path.glob("*.sock")) == []


def test_cores_end_when_the_first_process_is_killed(tmp_path: Path) -> None:
    with cores(tmp_path, 2) as running:
        pids = [each["pid"] for each in running.ready["cores"]]
        os.kill(running.pid, signal.SIGKILL)
        assert until(lambda: not any(map(alive, pids)))


def test_a_second_agent_at_its_address_says_so(tmp_path: Path) -> None:
    with cores(tmp_path, 2):
        other = run_agent("--cores", "2", "--listen", f"unix:{tmp_path}/agent.sock")
        assert other.returncode == 1
        assert "another agent listens there already" in other.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "tcp:127.0.0.1:0"], "add a unix: address to agent.listen"),
        (["--listen", "unix:/run/a.sock", "--pin", "0"], "set agent.pins instead"),
        (["--listen", "unix:/run/a.sock", "--profile", "bluefield2"], "cannot have agent.profile"),
    ],
)
def test_what_several_cores_cannot_have_is_refused_by_the_check(options: list[str], why: str) -> None:
    checked = run_agent("--check-config", "--cores", "2", *options)
    assert checked.returncode == 2
    assert why in checked.stderr


# ---- more agents


def test_cores_of_two_agents_are_one_group(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(cores(places[0], 2))
        other = stack.enter_context(cores(places[1], 2, "--join", one.ready["address"], name="b"))

        def members(running: AgentProcess) -> set[str]:
            return {each["name"] for each in running.status()["members"] if each["state"] == "alive"}

        assert until(lambda: members(one) == {"a", "b", "b+1"} and members(other) == {"a", "a+1", "b"}, PATIENCE_S)
        near, far = stack.enter_context(connect(one)), stack.enter_context(connect(other))
        for number, row in enumerate(rows(16)):
            near.pool("hash:/copied?replicas=2").put(table(number), row)
        for number, row in enumerate(rows(16)):
            assert far.pool("hash:/copied").get(row, timeout=PATIENCE_S)["x"][0].as_py() == number
        for running in (one, other):  # a copy on each agent, and not two on one
            assert until(lambda running=running: [each["frames"] for each in running.status()["pools"]] == [16])
        near.pool("local:/own").put(table(0), "row")
        with pytest.raises(offpath.NotFound):
            far.pool("local:/own").get("row")
        with pytest.raises(offpath.NotFound):
            far.pool("local:/own").list()


def test_top_shows_an_agent_with_cores_once(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(cores(places[0], 2))
        other = stack.enter_context(agent(places[1], "--name", "b", "--join", one.ready["address"]))
        assert until(lambda: len(other.status()["members"]) == 3, PATIENCE_S)
        words = ["-m", "offpath", "top", "--once", "--http", other.ready["http"]]
        shown = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=True)
        assert "a+1" not in shown.stdout, shown.stdout


def test_a_program_that_says_nothing_holds_up_nobody(two: AgentProcess, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(f"{tmp_path}/agent.sock")
        with contextlib.ExitStack() as stack:
            assert [core_of(each) for each in of_each_core(two, stack, 4)].count(0) >= 1
