"""An agent of a program's own ends with the program, however that ends, and leaves nothing in /tmp."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import offpath
import pytest
from offpath import agent, agent_directory, sockets
from waiting import until

WAIT_SECONDS = 60
PROGRAM = """
import os, sys, time, offpath
agent = offpath.Agent.start()
print(agent.pid, agent.address, flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(monkeypatch):
    """A directory for temporary files, of the test's own and with a short name: sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="own-") as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def lives(pid: int) -> bool:
    """A thread of it is there: the first one may be a zombie while others still hold the files."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


@pytest.fixture
def program(place):
    """A program with an agent of its own: (process, process id of the agent, directory of the agent)."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            pid, address = process.stdout.readline().split()
            yield process, int(pid), Path(address.removeprefix("unix:")).parent
        finally:
            process.kill()
            if lives(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


def test_starting_again_under_the_same_name_ends_the_agent_before(place):
    cell = "agent = offpath.Agent.start()"
    names = {"offpath": offpath}
    exec(cell, names)
    first = names["agent"].pid
    exec(cell, names)
    gc.collect()
    assert not Path(f"/proc/{first}").exists() and names["agent"].running
    assert len(list(place.iterdir())) == 1
    with offpath.connect(names["agent"].address) as session:
        assert session.info.agent_pid == names["agent"].pid
    del names["agent"]
    assert list(place.iterdir()) == []


def test_the_agent_of_a_killed_program_ends_and_the_next_start_removes_its_directory(place, program):
    process, agent_pid, directory = program
    process.kill()
    assert until(lambda: not lives(agent_pid), WAIT_SECONDS)
    assert directory.exists()
    with offpath.Agent.start():
        assert not directory.exists()
    assert list(place.iterdir()) == []


def test_a_directory_stays_while_one_of_its_processes_lives(place, program):
    process, agent_pid, directory = program
    with offpath.Agent.start():
        assert directory.exists()  # of a program that runs
    os.kill(agent_pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    with offpath.Agent.start():
        assert directory.exists()  # of an agent that cannot end
    os.kill(agent_pid, signal.SIGKILL)
    assert until(lambda: not lives(agent_pid), WAIT_SECONDS)
    with offpath.Agent.start():
        assert not directory.exists()


def make(path: Path, lock: bytes | None) -> Path:
    path.mkdir(mode=0o700)
    if lock is not None:
        (path / agent_directory.LOCK).write_bytes(lock)
    return path


def test_what_is_not_provably_left_behind_stays(place):
    left = make(place / "offpath-left", agent_directory.MARK)
    others = [
        make(place / "offpath-without-a-lock", None),
        make(place / "offpath-of-another-kind", b"somebody's"),
        make(place / "results-of-mine", agent_directory.MARK),
        make(place / "offpath-open-to-others", agent_directory.MARK),
    ]
    others[-1].chmod(0o755)
    elsewhere = make(place / "elsewhere", agent_directory.MARK)
    (place / "offpath-link").symlink_to(elsewhere)
    linked = make(place / "offpath-linked-lock", None)
    (linked / agent_directory.LOCK).symlink_to(elsewhere / agent_directory.LOCK)
    with offpath.Agent.start():
        assert not left.exists()
        assert all(path.exists() for path in [*others, elsewhere, place / "offpath-link", linked])


def test_a_forked_child_that_ends_leaves_the_agent_to_its_parent(place):
    code = """
import os, sys, offpath
agent = offpath.Agent.start()
child = os.fork()
if child == 0:
    sys.exit(0)  # with handlers at a program's exit
os.waitpid(child, 0)
assert agent.running
offpath.connect(agent.address).close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_SECONDS)
    assert list(place.iterdir()) == []


def test_a_start_that_fails_leaves_nothing(place):
    with pytest.raises(offpath.AgentError, match="did not start"):
        offpath.Agent.start(memory="nonsense")
    assert list(place.iterdir()) == []


def test_the_agent_and_the_preload_library_of_the_wheel_beside_are_found(tmp_path, monkeypatch):
    for name in ("OFFPATH_AGENT_PROGRAM", "OFFPATH_BUILD_DIR", "OFFPATH_SOCKETS_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    for module in (agent, sockets):
        monkeypatch.setattr(module, "__file__", str(tmp_path / "offpath" / "module.py"))
    program, library = tmp_path / "offpath_agent/bin/offpath-agent", tmp_path / "offpath_agent/lib" / sockets.LIBRARY
    for file in (program, library):
        file.parent.mkdir(parents=True)
        file.touch(0o755)
    assert offpath.find_agent() == str(program)
    assert sockets.find_library() == library
