"""Permissions to connect to the agent, and to look into it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from agent_process import agent, find_program, until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes on two unprivileged users, which needs root")
USER, STRANGER = 54321, 54322  # of no account

# Runs as another user; argv: the agent's process id.
LOOK_INTO = """
import ctypes, os, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(16)
here, there = Vector(ctypes.addressof(buffer), 16), Vector(int(sys.argv[2], 16), 16)
read = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
print("readv", read, os.strerror(ctypes.get_errno()) if read < 0 else "")
for name in ("mem", "maps", "environ", "exe"):
    try:
        os.readlink(f"/proc/{pid}/exe") if name == "exe" else open(f"/proc/{pid}/{name}", "rb").read(1)
        print(name, "open")
    except OSError as error:
        print(name, error.strerror)
try:
    print("fds", len(os.listdir(f"/proc/{pid}/fd")))
except OSError as error:
    print("fds", error.strerror)
print("attach", libc.ptrace(16, pid, 0, 0))
"""


def copy_program(directory: Path) -> tuple[Path, dict[str, str]]:
    """The agent and its libraries where other users can run them, and its environment: clones lie in homes."""
    libraries = directory / "lib"
    libraries.mkdir()
    listed = subprocess.run(["ldd", find_program()], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path = line.partition("=> ")[2].split(" (")[0]
        if path.startswith("/") and not path.startswith(("/lib", "/usr/lib")):
            shutil.copy(path, libraries)
    program = shutil.copy(find_program(), directory)
    for made in (libraries, *libraries.iterdir(), Path(program)):
        made.chmod(0o755)
    return Path(program), {**os.environ, "LD_LIBRARY_PATH": str(libraries)}


def as_user(uid: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in command],
        user=uid,
        group=uid,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Runs as another user; argv: the agent's socket. The frame of a hello, with its descriptor and without content.
HELLO = """
import os, socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.settimeout(60)
try:
    socket.send_fds(s, [struct.pack("<IHH", 0, 1, 0)], [os.memfd_create("x")])
except BrokenPipeError:
    pass  # refused already; why is there to be read
print(s.recv(4096))
"""


def some_address(pid: int) -> str:
    """Where the agent's stack begins, which only root can find out."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[stack]"):
            return line.split("-")[0]
    raise AssertionError("no stack")


@needs_root
@pytest.mark.parametrize("looker", [USER, STRANGER])
def test_nobody_looks_into_the_agent(open_path: Path, looker: int) -> None:
    home = open_path / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    program, environment = copy_program(open_path)
    process = subprocess.Popen(
        [program, "--ready", "--listen", f"unix:{home}/agent.sock"],
        user=USER,
        group=USER,
        extra_groups=[],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=environment,
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        # The interpreter of this environment may lie where other users cannot go.
        seen = as_user(looker, "/usr/bin/python3", "-c", LOOK_INTO, str(process.pid), some_address(process.pid))
        assert seen.returncode == 0, seen.stderr
        said = dict(line.split(" ", 1) for line in seen.stdout.splitlines())
        assert said["readv"].startswith("-1 Operation not permitted")
        assert said["attach"] == "-1"
        for name in ("mem", "maps", "environ", "exe", "fds"):
            assert said[name] in ("Permission denied", "Operation not permitted"), (name, said)
    finally:
        process.terminate()
        assert process.wait(60) == 0


@needs_root
def test_another_user_is_refused_and_told_why(open_path: Path) -> None:
    with agent(open_path, "--allow-uid", str(USER)) as a:
        path = a.ready["address"].removeprefix("unix:")
        assert Path(path).stat().st_mode & 0o777 == 0o666  # who is let in, the handshake decides
        refused = as_user(STRANGER, "/usr/bin/python3", "-c", HELLO, path)
        assert f"uid {STRANGER} may not use this agent" in refused.stdout, refused
        assert a.says(f"uid {STRANGER} may not use this agent")
        admitted = as_user(USER, "/usr/bin/python3", "-c", HELLO, path)  # and then refused for its empty hello
        assert "may not use this agent" not in admitted.stdout, admitted
        assert until(lambda: a.status()["acceptor"]["refused"] == 2)


@needs_root
def test_without_a_list_other_users_do_not_even_reach_the_socket(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        path = Path(a.ready["address"].removeprefix("unix:"))
        assert path.stat().st_mode & 0o777 == 0o600


def test_rights_are_given_up(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        fields = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{a.pid}/status").read_text().splitlines() if ":\t" in line
        )
        kept = 1 << 19 if os.geteuid() == 0 else 0  # CAP_SYS_PTRACE
        assert int(fields["CapEff"], 16) & ~kept == 0
        assert int(fields["CapPrm"], 16) & ~kept == 0
        assert fields["NoNewPrivs"].strip() == "1"
        assert fields["Umask"].strip() == "0077"


@needs_root
def test_even_ptrace_can_be_given_up(tmp_path: Path) -> None:
    with agent(tmp_path, "--set", "security.keep_ptrace=false") as a:
        assert "CapEff:\t0000000000000000" in Path(f"/proc/{a.pid}/status").read_text()


def test_a_core_is_never_written(tmp_path: Path) -> None:
    with agent(tmp_path) as a:
        limits = Path(f"/proc/{a.pid}/limits").read_text() if os.geteuid() == 0 else ""
        if not limits:
            pytest.skip("the limits of a process that cannot be looked into are shown to root alone")
        line = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
        assert line.split()[4:6] == ["0", "0"]


@needs_root
def test_an_ordinary_process_can_be_looked_into() -> None:
    """So the refusals above are the agent's doing."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("the kernel forbids it for every process (Yama)")
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", "print(1, flush=True); input()"],
        user=USER,
        group=USER,
        extra_groups=[],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        seen = as_user(USER, "/usr/bin/python3", "-c", LOOK_INTO, str(process.pid), some_address(process.pid))
        assert "readv" in seen.stdout and "readv -1" not in seen.stdout, seen.stdout + seen.stderr
    finally:
        process.kill()
        process.wait()
