"""Programs that no preloaded library reaches, over the agent's TCP (``offpath sockets --supervise``)."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import AgentProcess, agent, until
from kernel_or_agent import GREETER_PORT, Place, answers, greeter, line_of, say
from network_pair import IPV4, KERNEL_ADDRESS, Family, NetworkPair, missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of, with_device
from offpath import sockets
from test_sockets_servers import serve_java
from unpacked_programs import UNPACKED

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)

ECHO = Path(__file__).with_name("supervised_echo.c")
PORT = "7780"


@pytest.fixture
def supervised(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> Place:
    return Place(pair, tmp_path, offloaded=True, supervised=True, family=family)


@pytest.fixture
def elsewhere(tmp_path: Path, pair: NetworkPair, request: pytest.FixtureRequest) -> Place:
    """In the kernel of ``far``."""
    family = request.getfixturevalue("family") if "served" in request.fixturenames else IPV4
    return Place(pair, tmp_path, offloaded=False, family=family)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program without shared libraries, which sends its input back, or asks another that does."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    built = tmp_path_factory.mktemp("echo") / "echo"
    words = ["-std=gnu11", "-O2", "-static", "-pthread", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *words, str(ECHO), "-o", str(built)], check=True)
    return str(built)


SENT = os.urandom(3_000_000)


def asked(place: Place, client: str, *words: str, given: bytes = SENT) -> bytes:
    """The output of a client in ``place`` with the input ``given``. Errors fail the test."""
    env = dict(os.environ)
    command = [client, *words]
    if place.supervised:
        env = place.environment()
        command = [str(sockets.find_supervisor()), "--", *command]
    enter = place.pair.near_command if place.offloaded else place.pair.far_command
    done = subprocess.run(enter(*command), input=given, capture_output=True, timeout=60, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", ["threads", "forks", "epoll", "uring"])
def test_a_static_server(supervised: Place, elsewhere: Place, echo: str, how: str) -> None:
    with supervised.serving(echo, "serve", PORT, how, supervised.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        for given in (b"", b"x", SENT):
            assert asked(elsewhere, echo, "ask", supervised.address, PORT, "blocks", given=given) == given
        several = answers(
            16, lambda: asked(elsewhere, echo, "ask", supervised.address, PORT, "blocks", given=SENT[:200_000])
        )
        assert several == [SENT[:200_000]] * 16


@pytest.mark.parametrize("how", ["blocks", "polls"])
def test_a_static_client(supervised: Place, elsewhere: Place, echo: str, how: str) -> None:
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        for given in (b"", b"x", SENT):
            assert asked(supervised, echo, "ask", elsewhere.address, PORT, how, given=given) == given
    with pytest.raises(AssertionError, match="Connection refused"):
        asked(supervised, echo, "ask", elsewhere.address, PORT, how)


def test_signals_interrupt_calls(supervised: Place, elsewhere: Place, echo: str) -> None:
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        assert asked(supervised, echo, "interrupted", elsewhere.address, PORT, "500") == b"500\n"


def test_an_attempt_that_ends_early_is_not_writable(supervised: Place) -> None:
    program = """
import errno, select, socket, struct, sys
s = socket.socket(FAMILY)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100_000))
try:
    s.connect((sys.argv[1], 7799))
except OSError as error:
    print(errno.errorcode[error.errno])
print(select.select([], [s], [], 0)[1])
"""
    nobody = supervised.peers_address[:-1] + "77"
    running = supervised.start(program, nobody)
    with supervised.ending(running):
        assert [line_of(running), line_of(running)] == ["EINPROGRESS", "[]"]


def test_urgent_data_and_both_ends(supervised: Place, elsewhere: Place, echo: str) -> None:
    program = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"ab")
s.send(b"c", socket.MSG_OOB)
s.sendall(b"d")
print(s.recv(4, socket.MSG_WAITALL))
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
own = s.getsockname()
s.shutdown(socket.SHUT_RDWR)
print(s.getsockname() == own)
"""
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        running = supervised.start(program, elsewhere.address, PORT)
        with supervised.ending(running):
            assert [line_of(running), line_of(running)] == ["b'abcd'", "True"]


# ---- Go, whose programs make their own system calls

GO = """
package main

import (
    "fmt"
    "io"
    "net"
    "net/http"
    "os"
)

// As a server it answers over HTTP with what it was sent; /other is what it gets itself from another server.
func main() {
    if os.Args[1] == "ask" {
        connection, err := net.Dial("tcp", os.Args[2])
        if err != nil {
            fmt.Fprintln(os.Stderr, err)
            os.Exit(1)
        }
        tcp := connection.(*net.TCPConn)
        go func() {
            io.Copy(tcp, os.Stdin)
            tcp.CloseWrite()
        }()
        if _, err := io.Copy(os.Stdout, tcp); err != nil {
            fmt.Fprintln(os.Stderr, err)
            os.Exit(1)
        }
        return
    }
    http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
        io.Copy(answer, request.Body)
    })
    http.HandleFunc("/other", func(answer http.ResponseWriter, _ *http.Request) {
        other, err := http.Get("http://" + os.Args[3])
        if err != nil {
            http.Error(answer, err.Error(), 502)
            return
        }
        defer other.Body.Close()
        io.Copy(answer, other.Body)
    })
    listener, err := net.Listen("tcp", ":"+os.Args[2])
    if err != nil {
        fmt.Fprintln(os.Stderr, err)
        os.Exit(1)
    }
    fmt.Println("ready")
    http.Serve(listener, nil)
}
"""


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = UNPACKED / "usr/lib/go-1.19"
    go = shutil.which("go", path=str(root / "bin")) or shutil.which("go")
    if go is None:
        pytest.skip("there is no Go: tools/programs.py unpacks it")
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(GO)
    env = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOCACHE": str(folder / "cache")}
    if go.startswith(str(root)):
        env["GOROOT"] = str(root)
    subprocess.run([go, "build", "-o", "program", "main.go"], cwd=folder, env=env, check=True)
    return str(folder / "program")


def test_a_server_of_go(supervised: Place, go_program: str, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(SENT[:300_000])
    with (
        greeter(supervised),
        supervised.serving(go_program, "serve", PORT, supervised.at_peer(GREETER_PORT)) as server,
    ):
        assert line_of(server) == "ready"
        posted = answers(30, lambda: supervised.curl(int(PORT), "", "--data-binary", f"@{body}"))
        assert posted == [body.read_bytes()] * 30
        assert answers(10, lambda: supervised.curl(int(PORT), "other")) == [b"hello"] * 10


def test_a_client_of_go(supervised: Place, elsewhere: Place, echo: str, go_program: str) -> None:
    peer = elsewhere.at(PORT)
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        for given in (b"x", SENT):
            assert asked(supervised, go_program, "ask", peer, given=given) == given
    with pytest.raises(AssertionError, match="connection refused"):
        asked(supervised, go_program, "ask", peer)


def test_java_supervised(supervised: Place, tmp_path: Path) -> None:
    serve_java(supervised, tmp_path)


# ---- ends

HOLDS = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
s.sendall(b"hello")
print(s.recv(5).decode(), flush=True)
try:
    print(s.recv(1))
except OSError as error:
    print(type(error).__name__)
"""


def test_a_server_that_is_killed_takes_its_connections_along(supervised: Place, elsewhere: Place, echo: str) -> None:
    with supervised.serving(echo, "serve", PORT, "threads", supervised.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        peer = elsewhere.start(HOLDS, supervised.address, PORT)
        with elsewhere.ending(peer):
            assert line_of(peer) == "hello"
            os.kill(supervised.pid_of(server), signal.SIGKILL)
            assert line_of(peer) == "b''"  # as the kernel's: everything was read
        assert server.wait(60) == -signal.SIGKILL  # the supervisor ends as its program did


# The program's own end of its connection: it prints how reading ends, and the kind of new sockets.
READS = """
import errno, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=None)
s.sendall(b"hello")
print(s.recv(5).decode(), flush=True)
try:
    print(s.recv(1), flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])))
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""


@pytest.mark.parametrize("dies", ["supervisor", "agent"])
def test_connections_end_with_an_error(
    supervised: Place, elsewhere: Place, served: AgentProcess, echo: str, dies: str
) -> None:
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        program = supervised.start(READS, elsewhere.address, PORT)
        with supervised.ending(program):
            assert line_of(program) == "hello"
            os.kill(program.pid if dies == "supervisor" else served.pid, signal.SIGKILL)
            assert line_of(program) == "ECONNRESET"
            assert line_of(program) == ("ENOSYS" if dies == "supervisor" else "ENETDOWN")


def test_a_report_and_the_status_of_the_program(supervised: Place, elsewhere: Place, echo: str) -> None:
    env = supervised.environment(address=None, report=True)
    program = (
        "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
        "socket.create_server(('127.0.0.1', 0)); socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        "socket.socketpair(); socket.socket(socket.AF_UNIX); sys.exit(7)"
    )
    command = [str(sockets.find_supervisor()), "--", sys.executable, "-c", program, elsewhere.address, PORT]
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        done = subprocess.run(
            supervised.pair.near_command(*command), env=env, capture_output=True, timeout=60, check=False
        )
    assert done.returncode == 7
    reported = (
        "1 offloaded, 1 left to the kernel (Unix), 1 left to the kernel (datagrams), 1 left to the kernel (loopback)"
    )
    assert done.stderr.decode() == f"offpath sockets: {reported}\n"


def test_the_command_line_supervises(supervised: Place) -> None:
    words = [
        sys.executable,
        "-m",
        "offpath",
        "sockets",
        "--supervise",
        "--agent",
        f"unix:{supervised.tmp_path}/agent.sock",
    ]
    family = supervised.family
    program = (
        family.prelude
        + "s = socket.create_server((EVERYWHERE, 7781), family=FAMILY); print(s.getsockname()[1], s.family.name)"
    )
    enter = supervised.pair.near_command
    done = subprocess.run(
        enter(*words, "--", sys.executable, "-c", program), capture_output=True, timeout=60, check=False
    )
    assert done.stdout.split() == [b"7781", family.name.encode()], done.stderr
    missing_program = subprocess.run([*words, "--", "/no/such/program"], capture_output=True, timeout=60, check=False)
    assert missing_program.returncode == 1
    assert b"/no/such/program: No such file" in missing_program.stderr


def test_signals_reach_the_program(supervised: Place) -> None:
    program = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(5)); print('ready', flush=True); signal.pause()"
    )
    with supervised.running(program) as running:
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 5


def test_the_program_keeps_its_ignored_signals(tmp_path: Path) -> None:
    env = sockets.environment(f"unix:{tmp_path}/nothing.sock", preload=False)
    supervisor = ["env", "--default-signal", "--ignore-signal=CHLD", str(sockets.find_supervisor()), "--"]
    command = [*supervisor, "grep", "SigIgn", "/proc/self/status"]
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=True)
    assert int(done.stdout.split()[1], 16) == 1 << (signal.SIGCHLD - 1)  # and not SIGPIPE, which the supervisor ignores


# ---- rights and bounds

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_user_without_rights_supervises(pair: NetworkPair, elsewhere: Place, echo: str, open_path: Path) -> None:
    program = open_path / "echo"
    shutil.copy(echo, program)
    with (
        agent(
            open_path, *with_device(1), "--set", "security.allow_uids=65534", http=False, launcher=pair.near_command()
        ),
        elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server,
    ):
        assert line_of(server) == f"ready {PORT}"
        env = sockets.environment(f"unix:{open_path}/agent.sock", preload=False)
        supervisor = [*NOBODY, str(sockets.find_supervisor()), "--"]
        command = pair.near_command(*supervisor, str(program), "ask", KERNEL_ADDRESS, PORT, "polls")
        done = subprocess.run(command, env=env, input=SENT, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == SENT


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.parametrize("listens", ["80,7781", "7781"])
def test_a_program_does_not_get_the_supervisors_rights(supervised: Place, listens: str) -> None:
    program = """
import ctypes, errno, socket, sys
libc = ctypes.CDLL(None)
libc.prctl(15, b"CapEff:400")  # PR_SET_NAME
def say(what, *arguments):
    try:
        what(*arguments)
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
for address in (EVERYWHERE, {"0.0.0.0": "127.0.0.1", "::": "::1"}[EVERYWHERE], sys.argv[1]):
    say(socket.socket(FAMILY).bind, (address, 80))
for option, value in ((socket.SO_MARK, 1), (socket.SO_PRIORITY, 7), (socket.SO_PRIORITY, 6), (46, 50)):
    say(socket.socket(FAMILY).setsockopt, socket.SOL_SOCKET, option, value)  # 46: SO_BUSY_POLL
say(socket.socket(FAMILY).bind, (sys.argv[1], 7781))
unnamed = socket.socket(FAMILY)
say(unnamed.bind, (sys.argv[1], 8080))
say(unnamed.listen)
libc.unshare(0x10000000)  # CLONE_NEWUSER, where the kernel allows it: every capability, in that namespace
say(socket.socket(FAMILY).bind, (sys.argv[1], 80))
"""
    program = supervised.family.prelude + program
    running = supervised.start_command(
        *NOBODY, "/usr/bin/env", "python3", "-c", program, supervised.address, OFFPATH_SOCKETS_LISTEN=listens
    )
    with supervised.ending(running):
        # 127.0.0.1 is the kernel's to refuse, with the program's rights, and the namespace's own low ports.
        assert [line_of(running) for _ in range(3)] == ["EACCES"] * 3
        assert [line_of(running) for _ in range(4)] == ["ENOPROTOOPT", "EPERM", "done", "EPERM"]
        assert [line_of(running) for _ in range(3)] == ["done", "done", "EADDRNOTAVAIL"]
        assert line_of(running) == "EACCES"


def test_a_supervisor_without_descriptors_leaves_nothing_to_the_kernel(supervised: Place) -> None:
    program = """
import errno, socket
made = socket.socket(FAMILY)
print("ready", flush=True)
input()
try:
    made.bind((EVERYWHERE, 7781))
    print("done")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    with supervised.running(program) as running:
        _, most = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (3, most))
        say(running)
        assert line_of(running) == "ENFILE"


def test_sockets_that_are_not_connected_are_bounded(supervised: Place) -> None:
    program = """
import errno, resource, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
made = []
try:
    while len(made) < 2000:
        made.append(socket.socket())
except OSError as error:
    print(errno.errorcode[error.errno])
made.clear()
socket.socket()
print("done")
"""
    running = supervised.start_command(sys.executable, "-c", program, OFFPATH_SOCKETS_MAX="16")
    with supervised.ending(running):
        assert [line_of(running), line_of(running)] == ["EMFILE", "done"]


def test_connections_that_end_leave_nothing(supervised: Place, elsewhere: Place, echo: str) -> None:
    with supervised.serving(echo, "serve", PORT, "threads", supervised.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"

        def ask() -> bytes:
            return asked(elsewhere, echo, "ask", supervised.address, PORT, "blocks", given=b"hello")

        def descriptors() -> int:
            return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))

        assert ask() == b"hello"
        assert until(lambda: len(list(Path(f"/proc/{supervised.pid_of(server)}/task").iterdir())) == 1)
        before = descriptors()
        assert answers(200, ask) == [b"hello"] * 200
        assert until(lambda: descriptors() <= before), descriptors()


@pytest.mark.parametrize("falls_back", [False, True])
def test_without_an_agent(pair: NetworkPair, elsewhere: Place, echo: str, tmp_path: Path, falls_back: bool) -> None:
    env = sockets.environment(f"unix:{tmp_path}/nothing.sock", preload=False, fallback=falls_back)
    command = [str(sockets.find_supervisor()), "--", echo, "ask", KERNEL_ADDRESS, PORT, "blocks"]
    with elsewhere.serving(echo, "serve", PORT, "threads", elsewhere.family.everywhere) as server:
        assert line_of(server) == f"ready {PORT}"
        done = subprocess.run(
            pair.far_command(*command), env=env, input=SENT, capture_output=True, timeout=60, check=False
        )
    if falls_back:
        assert (done.returncode, done.stdout) == (0, SENT)
    else:
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"connect: Network is down" in done.stderr
