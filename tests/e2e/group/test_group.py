"""Agents that form a group, as processes: by a list, by joining; one is killed, started again, stopped, continued.

Times that are asserted are compared with `group.dead_after`, and with room for a busy machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import offpath
import pytest
from agent_group import DEAD_AFTER_S, PATIENCE_S, Group
from agent_process import find_program, until
from certificate import make_certificate
from offpath.agent_http import fetch_status
from offpath.run.parallel import find_mpiexec


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.stop_all()


NAMES = ["a", "b", "c", "d"]
ALL_ALIVE = dict.fromkeys(NAMES, "alive")
REPLACED = 3  # the exit status of an agent whose name another one has


def test_a_list_of_addresses_makes_a_group(group: Group) -> None:
    group.start_by_list(*NAMES)
    assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
    told = group.members("a")["c"]
    assert told["address"] == group.address("c")
    assert told["http"] == group.running["c"].ready["http"].removeprefix("http://").rstrip("/")

    # Tables cross over channels like those of programs, small ones within the requests. A member that a third one
    # announced may not have sent its own table yet.
    def read_from() -> dict[str, int]:
        return {each["program"]: each["requests"] for each in group.running["a"].status()["channels"]}

    assert until(lambda: read_from() and all(read_from().values()), PATIENCE_S), read_from()
    assert set(read_from()) <= {"agent b", "agent c", "agent d"}
    assert all(until(lambda n=n: group.running[n].status()["group"]["addresses_waiting"] == 0) for n in NAMES)


def test_joining_any_member_joins_all_over_the_network(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    group = Group(tmp_path, key)
    try:
        group.start("a")
        for before, name in pairwise(NAMES):
            group.start(name, "--join", group.address(before))
        assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
        assert {each["link"] for each in group.running["a"].status()["channels"]} == {"tcp"}
    finally:
        group.stop_all()


def test_a_wrong_key_joins_nothing(tmp_path: Path) -> None:
    keys = [tmp_path / "key", tmp_path / "another"]
    for key in keys:
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
    group, stranger = Group(tmp_path, keys[0]), Group(tmp_path, keys[1])
    try:
        group.start("a")
        stranger.start("x", "--join", group.address("a"))
        assert until(lambda: stranger.running["x"].status()["group"]["connect_failures"] >= 3, PATIENCE_S)
        assert group.states("a") == {"a": "alive"}
        assert stranger.states("x") == {"x": "alive"}
        told = [line for line in stranger.running["x"].log().splitlines() if "cannot connect" in line]
        assert len(told) == 1, "once, not with every attempt"
        assert group.address("a") in told[0]
        assert "key" in told[0]
    finally:
        group.stop_all()
        stranger.stop_all()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_a_wrong_certificate_joins_nothing(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    authorities = {}
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
        authorities[name] = make_certificate(tmp_path / name)
    certificate, private = authorities["right"]
    group = Group(tmp_path, key)
    try:
        first = group.start("a", "--listen", "tls:127.0.0.1:0", "--set", f"security.tls_certificate={certificate}",
                            "--set", f"security.tls_key={private}")  # fmt: skip
        tls = next(address for address in first.ready["addresses"] if address.startswith("tls:"))
        stranger = group.start("x", "--join", tls, "--set", f"group.tls_ca={authorities['wrong'][0]}")
        assert until(lambda: stranger.status()["group"]["connect_failures"] >= 3, PATIENCE_S)
        assert group.states("a") == {"a": "alive"}
        assert group.states("x") == {"x": "alive"}
        told = [line for line in stranger.log().splitlines() if "cannot connect" in line]
        assert len(told) == 1, "once, not with every attempt"
        assert tls in told[0]
        assert "certificate" in told[0]
        group.start("b", "--join", tls, "--set", f"group.tls_ca={certificate}")
        assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)
    finally:
        group.stop_all()


def test_a_killed_member_is_dead_for_all_in_time_and_comes_back_as_another(group: Group) -> None:
    group.start_by_list(*NAMES)
    assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
    others = NAMES[:3]
    assert group.running["d"].stop(signal.SIGKILL) == -signal.SIGKILL
    killed = time.monotonic()
    assert until(lambda: group.all_know(others, ALL_ALIVE | {"d": "dead"}), PATIENCE_S)
    # A busy machine may take as long again; a minute of TCP's own patience it must not be.
    assert time.monotonic() - killed < 3 * DEAD_AFTER_S
    assert all("dead" in group.running[name].log() for name in others)
    # On a busy machine it may have refuted a suspicion before, with a higher number, which then all know.
    dead = {group.members(name)["d"]["incarnation"] for name in others}
    assert len(dead) == 1
    group.start("d", "--join", group.address("b"))
    assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
    assert all(group.members(name)["d"]["incarnation"] > max(dead) for name in NAMES)


def test_a_stopped_member_is_suspected_then_dead_and_comes_back_as_its_next_incarnation(group: Group) -> None:
    group.start_by_list(*NAMES)
    assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
    first = group.members("a")["b"]["incarnation"]
    others = ["a", "c", "d"]
    os.kill(group.running["b"].pid, signal.SIGSTOP)
    try:
        assert until(lambda: group.all_know(others, ALL_ALIVE | {"b": "dead"}), PATIENCE_S)
    finally:
        os.kill(group.running["b"].pid, signal.SIGCONT)
    for name in others:
        log = group.running[name].log()
        assert log.index("member b") < log.index("suspect") < log.rindex("dead")
    assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
    assert all(group.members(name)["b"]["incarnation"] == first + 1 for name in NAMES)
    assert group.running["b"].says("it was taken for dead")
    # It judged no member by the time it had missed.
    assert " dead, " not in group.running["b"].log()


def test_a_member_that_is_stopped_says_so(group: Group) -> None:
    group.start_by_list(*NAMES)
    assert until(lambda: group.all_know(NAMES, ALL_ALIVE), PATIENCE_S)
    assert group.running["c"].stop() == 0
    others = ["a", "b", "d"]
    assert until(lambda: group.all_know(others, ALL_ALIVE | {"c": "left"}), PATIENCE_S)
    assert " dead, " not in group.running["a"].log()


def test_a_second_process_of_one_name_replaces_the_first(group: Group, tmp_path: Path) -> None:
    group.start_by_list("a", "b")
    assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)
    (tmp_path / "second").mkdir()
    second = Group(tmp_path / "second")
    try:
        session = group.connect("b")
        second.start("b", "--join", group.address("a"))
        assert_replaced(group, second)
        with pytest.raises(offpath.PeerLost, match="agent b has ended: another agent of its name took over"):
            session.pool("local:/after").put(b"x", "here", timeout=PATIENCE_S)
        with second.connect("b") as of_the_second:
            of_the_second.pool("local:/after").put(b"x", "here", timeout=PATIENCE_S)
        assert second.running["b"].process.poll() is None
    finally:
        second.stop_all()


def test_a_stopped_process_whose_name_was_taken_ends_when_it_goes_on(group: Group, tmp_path: Path) -> None:
    group.start_by_list("a", "b")
    assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)
    (tmp_path / "second").mkdir()
    second = Group(tmp_path / "second")
    try:
        os.kill(group.running["b"].pid, signal.SIGSTOP)
        second.start("b", "--join", group.address("a"))
        assert until(lambda: group.members("a")["b"]["address"] == second.address("b"), PATIENCE_S)
        assert until(lambda: second.states("b") == {"a": "alive", "b": "alive"}, PATIENCE_S)
        os.kill(group.running["b"].pid, signal.SIGCONT)
        assert_replaced(group, second)
        assert second.states("b") == {"a": "alive", "b": "alive"}
    finally:
        second.stop_all()


def assert_replaced(group: Group, second: Group) -> None:
    """The first process of the name b has ended by itself, with the reason, and the second one is the member."""
    first = group.running["b"]
    assert first.process.wait(PATIENCE_S) == REPLACED, first.log()
    assert "this agent ends: another agent of its name took over" in first.log()
    assert second.address("b") in first.log()
    assert not Path(group.address("b").removeprefix("unix:")).exists()
    assert until(lambda: group.members("a")["b"]["address"] == second.address("b"), PATIENCE_S)


def test_members_are_shown_to_people_and_to_prometheus(group: Group) -> None:
    group.start_by_list("a", "b")
    assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)
    http = group.running["a"].ready["http"].removeprefix("http://").rstrip("/")
    command = [sys.executable, "-m", "offpath", "members", "--http", http]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert group.address("b") in shown and "alive" in shown
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [each["name"] for each in told] == ["a", "b"]
    assert [each["self"] for each in told] == [True, False]
    assert {"incarnation", "address", "http", "state", "for_s"} <= set(told[1])
    assert 'offpath_members{state="alive"} 2' in group.running["a"].get("/metrics")[2]
    group.running["b"].stop(signal.SIGKILL)
    assert until(lambda: 'offpath_members{state="dead"} 1' in group.running["a"].get("/metrics")[2], PATIENCE_S)


OPEN_MPI = shutil.which("mpirun.openmpi")


def launcher_of(kind: str) -> tuple[list[str], dict[str, str]]:
    """The beginning of its command, and the environment for it."""
    if kind == "pmi":
        return [find_mpiexec()], {**os.environ}
    if OPEN_MPI is None:
        pytest.skip("there is no Open MPI (Debian: libopenmpi-dev)")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [OPEN_MPI, "--oversubscribe", "-x", "OFFPATH_AGENT"], {**os.environ, **root}


PROGRAM = """
import offpath
with offpath.connect() as session:
    print(session.info.agent_name, *sorted(each.name for each in session.members() if each.state == "alive"))
"""


@pytest.mark.parametrize("kind", ["pmi", "pmix", "pmix without local ranks"])
def test_agents_that_one_launcher_started_find_each_other(tmp_path: Path, kind: str) -> None:
    """The system chooses the ports, and MPI's launcher passes them on. Programs that it starts find an agent."""
    begin, environment = launcher_of(kind)
    alone = ["env", "-u", "OMPI_COMM_WORLD_LOCAL_RANK"] if kind == "pmix without local ranks" else []
    environment["OFFPATH_AGENT"] = f"unix:{tmp_path}/1.sock"
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    names = {f"dpu{index}" for index in range(3)}
    command = [*begin, "-n", str(len(names)), *alone, find_program(), "--mpi", "--name", "dpu{index}",
               "--key-file", key, "--listen", "tcp:127.0.0.1:0", "--listen", f"unix:{tmp_path}/{{index}}.sock",
               "--http", f"unix:{tmp_path}/{{index}}.http"]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def all_know_all() -> bool:
        places = [tmp_path / f"{index}.http" for index in range(len(names))]
        if not all(place.exists() for place in places):
            return False
        tables = [fetch_status(f"unix:{place}")["members"] for place in places]
        alive = [{member["name"] for member in table if member["state"] == "alive"} for table in tables]
        return all(each == names for each in alive)

    try:
        assert until(all_know_all, PATIENCE_S), (tmp_path / "log").read_text()
        ran = subprocess.run([*begin, "-n", "2", sys.executable, "-c", PROGRAM], env=environment,
                             capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
        assert ran.stdout.splitlines() == ["dpu1 dpu0 dpu1 dpu2"] * 2, ran.stderr
    finally:
        launcher.terminate()
        launcher.wait(PATIENCE_S)


def test_one_that_a_launcher_with_pmix_left_alone_says_so(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "PMIX_"))}
    environment["PMIX_NAMESPACE"] = "nobody's"
    command = [find_program(), "--mpi", "--listen", f"unix:{tmp_path}/agent.sock"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert "PMIx" in ended.stderr


def test_one_that_should_ask_a_launcher_and_has_none_says_what_to_do(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "PMIX_"))}
    command = [find_program(), "--mpi", "--listen", f"unix:{tmp_path}/agent.sock"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert "start it by mpirun of MPICH" in ended.stderr and "group.members" in ended.stderr
