"""Offloaded sockets of programs that are several processes: after ``fork`` and after ``exec``, whichever of them
dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from agent_process import AgentProcess, connections_of, until
from network_pair import Family, NetworkPair, missing
from offloading_agents import SETUPS_AND_IPV6_ONCE, setup_of
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_AND_IPV6_ONCE)


def environment(tmp_path: Path, family: Family) -> dict[str, str]:
    """With FAMILY, for programs of C."""
    return {**sockets.environment(f"unix:{tmp_path}/agent.sock", address=family.own), "FAMILY": family.name}


@contextmanager
def serving_command(
    tmp_path: Path, pair: NetworkPair, family: Family, *command: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose sockets are offloaded, once it has said that it listens; its processes end with it."""
    server = subprocess.Popen(pair.near_command(*command),
                              env=environment(tmp_path, family),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listening\n"
        yield server
    finally:
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@contextmanager
def serving(
    tmp_path: Path, pair: NetworkPair, family: Family, program: str, *words: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The same for a program of Python."""
    with serving_command(tmp_path, pair, family, sys.executable, "-c", family.prelude + program, *words) as server:
        yield server


class Peer:
    """Connections of the kernel's in the other network namespace, by a program that obeys the test."""

    PROGRAM = """
import socket, sys
made = []
for line in sys.stdin:
    what, *words = line.split()
    answer = b"done"
    try:
        if what == "connect":
            made.append(socket.create_connection((words[0], int(words[1])), timeout=60))
        elif what == "send":
            made[int(words[0])].sendall(words[1].encode() + b"\\n")
        elif what == "line":
            answer = b""
            while not answer.endswith(b"\\n"):
                more = made[int(words[0])].recv(1)
                if not more:
                    answer = b"the end"
                    break
                answer += more
        elif what == "finish":
            made[int(words[0])].shutdown(socket.SHUT_WR)
    except OSError as error:
        answer = type(error).__name__.encode()
    sys.stdout.buffer.write(answer.strip() + b"\\n")
    sys.stdout.flush()
"""

    def __init__(self, pair: NetworkPair) -> None:
        self.process = subprocess.Popen(pair.far_command(sys.executable, "-c", self.PROGRAM),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip

    def ask(self, *words: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()

    def echoes(self, connection: int, text: str) -> bool:
        return self.ask("send", connection, text) == "done" and self.ask("line", connection) == text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def peer(pair: NetworkPair) -> Iterator[Peer]:
    made = Peer(pair)
    yield made
    made.close()


# Each connection gets the number of its process, and an echo of its data.
PREFORK = """
import os, selectors, socket, sys
listener = socket.create_server((EVERYWHERE, int(sys.argv[1])), family=FAMILY)
listener.setblocking(sys.argv[2] == "blocking")


def echo_in_turns():  # one process, many connections
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connection.sendall(b"%d\\n" % os.getpid())
                selector.register(connection, selectors.EVENT_READ)
            elif data := key.fileobj.recv(65536):
                key.fileobj.sendall(data)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()

def echo():  # one after the other
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"%d\\n" % os.getpid())
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.close()

for _ in range(3):
    if os.fork() == 0:
        echo() if sys.argv[2] == "blocking" else echo_in_turns()
print("listening", flush=True)
while True:
    os.wait()
"""


def state_of(process: str) -> str:
    """S: it sleeps. R: it runs, or no processor is free for it."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("waits", ["blocking", "epoll"])
def test_children_accept_from_their_parents_listener(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer, waits: str
) -> None:
    with serving(tmp_path, pair, family, PREFORK, "7200", waits) as server:
        connections: dict[str, list[int]] = {}
        for number in range(3):
            assert peer.ask("connect", family.agent, 7200) == "done"
            accepted_by = peer.ask("line", number)
            connections.setdefault(accepted_by, []).append(number)
            if waits == "epoll":  # it might take the next one too
                time.sleep(0.2)  # until it waits again
                assert until(lambda process=accepted_by: state_of(process) == "S")
                os.kill(int(accepted_by), signal.SIGSTOP)
        assert len(connections) == 3, connections  # processes
        for process in connections:
            os.kill(int(process), signal.SIGCONT)
        assert str(server.pid) not in connections
        for of_process in connections.values():
            for number in of_process:
                assert peer.echoes(number, f"hello-{number}")

        first, *others = connections
        os.kill(int(first), signal.SIGKILL)  # its connections end, and no others
        for number in connections[first]:
            assert peer.ask("line", number) in {"the end", "ConnectionResetError"}
        os.kill(server.pid, signal.SIGKILL)  # who opened the channel to the agent
        for process in others:
            for number in connections[process]:
                assert peer.echoes(number, f"again-{number}")

        # And there are new ones.
        number = sum(map(len, connections.values()))
        if waits == "blocking":
            assert peer.ask("finish", connections[others[0]][0]) == "done"
            assert peer.ask("line", connections[others[0]][0]) == "the end"
        assert peer.ask("connect", family.agent, 7200) == "done"
        assert peer.ask("line", number) in others
        assert peer.echoes(number, "new")


FORKING_HTTP = """
import http.server, os, socketserver, sys
class Server(socketserver.ForkingMixIn, http.server.HTTPServer):
    address_family = FAMILY
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        if self.path == "/parent":
            self.path = "/" + str(os.getppid())
        super().do_GET()
os.chdir(sys.argv[1])
with Server((EVERYWHERE, 7201), Handler) as server:
    print("listening", flush=True)
    server.serve_forever()
"""


def test_a_server_forks_for_every_request(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    content = os.urandom(3 << 20)
    (folder / "large").write_bytes(content)
    url = f"http://{family.url(family.agent)}:7201"
    with serving(tmp_path, pair, family, FORKING_HTTP, str(folder)) as server:
        (folder / str(server.pid)).write_text("a child of it\n")
        curl = pair.far_command("curl", "--silent", "--show-error", "--fail", "--max-time", "20")
        several = [subprocess.Popen([*curl, f"{url}/large"], stdout=subprocess.PIPE) for _ in range(4)]
        for each in several:
            assert each.communicate(timeout=30)[0] == content
        for _ in range(20):
            asked = subprocess.run([*curl, f"{url}/parent"], capture_output=True, timeout=60, check=False)
            assert asked.stdout == b"a child of it\n", asked
        assert server.poll() is None


# A handler has the connection for its input and output.
INETD = """
import os, socket, subprocess, sys
listener = socket.create_server((EVERYWHERE, int(sys.argv[1])), family=FAMILY)
print("listening", flush=True)
handler = sys.argv[3:]
while True:
    connection, _ = listener.accept()
    if sys.argv[2] == "fork":
        if os.fork() == 0:
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            os.execvp(handler[0], handler)
    elif sys.argv[2] == "subprocess":
        subprocess.Popen(handler, stdin=connection, stdout=connection)
    elif sys.argv[2] == "spawn":
        actions = [(os.POSIX_SPAWN_DUP2, connection.fileno(), to) for to in (0, 1)]
        os.posix_spawnp(handler[0], handler, os.environ, file_actions=actions)
    elif sys.argv[2] == "spawn with what is left":
        for to in (0, 1):
            os.dup2(connection.fileno(), to)
        os.posix_spawnp(handler[0], handler, os.environ)
        for to in (0, 1):
            os.dup2(os.open(os.devnull, os.O_RDWR), to)
    else:
        os.dup2(connection.fileno(), 0)
        os.dup2(connection.fileno(), 1)
        os.execvp(handler[0], handler)
    connection.close()
"""


@pytest.mark.parametrize("way", ["fork", "subprocess", "spawn", "spawn with what is left", "in place"])
def test_a_handler_is_executed_with_the_connection(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer, way: str
) -> None:
    with serving(tmp_path, pair, family, INETD, "7202", way, "cat"):
        count = 1 if way == "in place" else 3
        for number in range(count):
            assert peer.ask("connect", family.agent, 7202) == "done"
            assert peer.echoes(number, f"hello-{number}")
        for number in range(count):
            assert peer.echoes(number, f"again-{number}")
            assert peer.ask("finish", number) == "done"
            assert peer.ask("line", number) == "the end"


# Threads that each accept a connection and spawn programs with it, one after another.
SPAWNS = r"""
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static int listener, count;
static char **words;
static void *serve(void *unused) {
  (void)unused;
  const int fd = accept4(listener, 0, 0, SOCK_CLOEXEC);
  for (int i = 0; i < count; ++i) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int to = 0; to < 2; ++to) posix_spawn_file_actions_adddup2(&actions, fd, to);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    pid_t child = 0;
    if (posix_spawnp(&child, words[0], &actions, 0, words, environ) != 0) exit(1);
    posix_spawn_file_actions_destroy(&actions);
    if (waitpid(child, 0, 0) != child) exit(1);
  }
  close(fd);
  return 0;
}
int main(int argc, char **argv) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = v4.sin_port};
  const int is_6 = getenv("FAMILY") && strcmp(getenv("FAMILY"), "AF_INET6") == 0;
  const struct sockaddr *at = is_6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4;
  const int threads = argc > 4 ? atoi(argv[2]) : 0;
  count = atoi(argv[3]);
  words = argv + 4;
  listener = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, at, is_6 ? sizeof v6 : sizeof v4) != 0 || listen(listener, 4) != 0) return 1;
  puts("listening");
  fflush(stdout);
  pthread_t all[8];
  for (int i = 0; i < threads; ++i) pthread_create(&all[i], 0, serve, 0);
  for (int i = 0; i < threads; ++i) pthread_join(all[i], 0);
  return 0;
}
"""


@pytest.fixture(scope="module")
def spawns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("spawns")
    (folder / "spawns.c").write_text(SPAWNS)
    subprocess.run([compiler, "-pthread", "-o", str(folder / "spawns"), str(folder / "spawns.c")], check=True)
    return folder / "spawns"


def test_a_child_that_closes_all_it_does_not_know_has_its_connection(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer, spawns: Path
) -> None:
    with serving_command(tmp_path, pair, family, str(spawns), "7209", "1", "1", "cat"):
        assert peer.ask("connect", family.agent, 7209) == "done"
        for text in ("one", "two"):
            assert peer.echoes(0, text)
        assert peer.ask("finish", 0) == "done"
        assert peer.ask("line", 0) == "the end"


def test_threads_that_spawn_at_once_each_hand_their_connection_on(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer, spawns: Path
) -> None:
    threads, lines = 4, 60
    with serving_command(tmp_path, pair, family, str(spawns), "7211", str(threads), str(lines), "echo", "a-line"):
        for _ in range(threads):
            assert peer.ask("connect", family.agent, 7211) == "done"
        for number in range(threads):
            for _ in range(lines):
                assert peer.ask("line", number) == "a-line"
            assert peer.ask("line", number) == "the end"


# A child with one connection and without this library outlives its parent's close.
SPAWNS_A_STRANGER = """
import os, socket, sys
listener = socket.create_server((EVERYWHERE, 7212), family=FAMILY)
print("listening", flush=True)
first = listener.accept()[0]
first.sendall(b"accepted\\n")
second = listener.accept()[0]
env = dict(os.environ, LD_PRELOAD="/nowhere/liboffpath_sockets.so")
actions = [(os.POSIX_SPAWN_DUP2, first.fileno(), 0)]
child = os.posix_spawnp("sleep", ["sleep", "1000"], env, file_actions=actions)
first.close()
second.close()
os.waitpid(child, 0)
"""


def test_what_closes_with_exec_ends_though_a_child_of_posix_spawn_lives(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer
) -> None:
    with serving(tmp_path, pair, family, SPAWNS_A_STRANGER):
        assert peer.ask("connect", family.agent, 7212) == "done"
        assert peer.ask("line", 0) == "accepted"  # several cores may hand over both in another order
        assert peer.ask("connect", family.agent, 7212) == "done"
        assert peer.ask("line", 1) == "the end"
        assert connections_of(tmp_path).count(b"ESTABLISHED") == 1  # the one that the child has


# Puts a file at every number that it does not use itself: low ones, and those where this library keeps its own.
EVERY_NUMBER = """
import os, resource, socket, subprocess, sys
listener = socket.create_server((EVERYWHERE, 7213), family=FAMILY)
print("listening", flush=True)
made = [listener.accept()[0]]
null = os.open(os.devnull, os.O_RDWR)
used = {0, 1, 2, null, listener.fileno(), made[0].fileno()}
middle = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
placed = []
for number in [*range(3, 64), *range(middle, middle + 64)]:
    if number in used:
        continue
    try:
        placed.append(os.dup2(null, number, inheritable=False))
    except OSError:  # one of the few that it cannot give up
        assert number >= middle
assert {*range(3, 64)} - used <= {*placed}
assert len([number for number in placed if number >= middle]) > 50
made.append(listener.accept()[0])
for connection in made:
    connection.sendall(b"%d\\n" % all(os.path.sameopenfile(null, number) for number in placed))
child = subprocess.Popen(["cat"], stdin=made[0], stdout=made[0])
if os.fork() == 0:
    made[0].close()
    while data := made[1].recv(1000):
        made[1].sendall(data)
    os._exit(0)
for connection in made:
    connection.close()
os.wait(), os.wait()
"""


def test_a_program_puts_what_it_likes_at_any_number(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer
) -> None:
    with serving(tmp_path, pair, family, EVERY_NUMBER) as server:
        for _ in range(2):
            assert peer.ask("connect", family.agent, 7213) == "done"
        for number in range(2):
            assert peer.ask("line", number) == "1"
            for text in ("one", "two"):
                assert peer.echoes(number, text)
            assert peer.ask("finish", number) == "done"
            assert peer.ask("line", number) == "the end"
        assert server.wait(60) == 0


# Reads lines from a stream on each connection, and answers by another.
STREAMS = r"""
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7206)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7206)};
  int is_6 = getenv("FAMILY") && strcmp(getenv("FAMILY"), "AF_INET6") == 0;
  int listener = socket(is_6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  if (bind(listener, is_6 ? (void*)&v6 : (void*)&v4, is_6 ? sizeof v6 : sizeof v4) != 0 ||
      listen(listener, 4) != 0)
    return 1;
  int fd = accept(listener, 0, 0);
  FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
  char line[100];
  while (fgets(line, sizeof line, in) != 0) {
    if (strcmp(line, "bye\n") == 0) break;
    fprintf(out, "%d %s", fileno(in) == fd, line);
    fflush(out);
  }
  fputs("the last\n", out); /* which exit() writes */
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_streams_of_the_c_library(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer
) -> None:
    (tmp_path / "streams.c").write_text(STREAMS)
    subprocess.run(["cc", "-o", str(tmp_path / "streams"), str(tmp_path / "streams.c")], check=True)
    server = subprocess.Popen(
        pair.near_command(str(tmp_path / "streams")),
        env=environment(tmp_path, family),
    )
    try:
        assert until(lambda: peer.ask("connect", family.agent, 7206) == "done")
        for text in ("one", "two"):
            assert peer.ask("send", 0, text) == "done"
            assert peer.ask("line", 0) == f"1 {text}"
        assert peer.ask("send", 0, "bye") == "done"
        assert peer.ask("line", 0) == "the last"
        assert peer.ask("line", 0) == "the end"
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()


def test_standard_streams_of_a_handler(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer
) -> None:
    with serving(tmp_path, pair, family, INETD, "7207", "subprocess", "sed", "-u", "s/hello/bye/"):
        assert peer.ask("connect", family.agent, 7207) == "done"
        for number in range(3):
            assert peer.ask("send", 0, f"hello-{number}") == "done"
            assert peer.ask("line", 0) == f"bye-{number}"
        assert peer.ask("finish", 0) == "done"
        assert peer.ask("line", 0) == "the end"


def test_nothing_of_processes_that_were_killed_is_left(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer
) -> None:
    with serving(tmp_path, pair, family, PREFORK, "7203", "epoll"):
        for number in range(4):
            assert peer.ask("connect", family.agent, 7203) == "done"
            assert peer.ask("line", number).isdigit()
        assert connections_of(tmp_path).count(b"ESTABLISHED") == 4
    for number in range(4):
        assert peer.ask("line", number) in {"the end", "ConnectionResetError"}
    assert until(lambda: b"LISTEN" not in connections_of(tmp_path) and b"ESTABLISHED" not in connections_of(tmp_path))


# A child has the only connection; its parent makes no call on sockets.
IDLE_PARENT = """
import os, socket, sys
listener = socket.create_server((EVERYWHERE, 7214), family=FAMILY)
print("listening", flush=True)
connection, _ = listener.accept()
listener.close()
child = os.fork()
if child != 0:
    connection.close()
    connection = None
    sys.stdin.readline()
connection.sendall(b"%d\\n" % os.getpid())
connection.recv(1)
"""


@pytest.mark.parametrize("times", range(3))
def test_the_end_of_a_child_ends_its_connection_though_its_parent_does_nothing(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, peer: Peer, times: int
) -> None:
    with serving(tmp_path, pair, family, IDLE_PARENT):
        assert peer.ask("connect", family.agent, 7214) == "done"
        os.kill(int(peer.ask("line", 0)), signal.SIGKILL)
        assert peer.ask("line", 0) in {"the end", "ConnectionResetError"}


TWO_LISTENERS = """
import socket, sys
made = [socket.create_server((EVERYWHERE, port), family=FAMILY) for port in (7204, 7205)]
print("listening", flush=True)
"""


def test_a_policy_file_says_which_ports(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    policy = tmp_path / "policy.toml"
    said = f'agent = "unix:{tmp_path}/agent.sock"\naddress = {family.own.split(",")}\nlisten = [7205]\nreport = true\n'
    policy.write_text("[sockets]\n" + said)
    command = [sys.executable, "-m", "offpath", "sockets", "--policy", str(policy)]
    program = ["--", sys.executable, "-c", family.prelude + TWO_LISTENERS]

    def run(*options: str) -> str:
        done = subprocess.run(pair.near_command(*command, *options, *program), capture_output=True, timeout=60,
                              check=False)  # fmt: skip
        assert done.stdout == b"listening\n", done
        return done.stderr.decode()

    assert "1 offloaded, 1 left to the kernel (not named by --listen or --connect)" in run()
    assert "2 offloaded" in run("--listen", "7204,7205")
    policy.write_text("[sockets]\nlisten = [0]\n")
    wrong = subprocess.run([*command, *program], capture_output=True, timeout=60, check=False)
    assert wrong.returncode == 1
    assert b"policy.toml:2: sockets.listen: 0 is not a port" in wrong.stderr.replace(b"\n", b"")


# As many connections as may be, and one more.
AS_MANY_AS_MAY_BE = """
import errno, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
made, code = [], 0
while code == 0 and len(made) < 5000:
    try:
        made.append(socket.create_connection((sys.argv[1], 7208)))
    except OSError as error:
        code = error.errno
for each in made:
    assert each.recv(1) == b"x"
print(len(made), errno.errorcode.get(code))
"""

GREETER = """
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server((EVERYWHERE, 7208), family=FAMILY, backlog=1000)
print("listening", flush=True)
made = []
while True:
    made.append(listener.accept()[0])
    made[-1].send(b"x")
"""


@pytest.mark.parametrize("most", [20, 2000])
def test_there_are_as_many_sockets_as_was_said(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, most: int
) -> None:
    greeter = subprocess.Popen(pair.far_command(sys.executable, "-c", family.prelude + GREETER), stdout=subprocess.PIPE)
    try:
        assert greeter.stdout is not None
        assert greeter.stdout.readline() == b"listening\n"
        command = pair.near_command(sys.executable, "-c", AS_MANY_AS_MAY_BE, family.kernel)
        env = sockets.environment(f"unix:{tmp_path}/agent.sock", address=family.own, most=most)
        done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
        assert done.stdout.decode() == f"{most} EMFILE\n", done
    finally:
        greeter.kill()
        greeter.wait()
