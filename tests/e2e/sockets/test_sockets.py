"""Unmodified programs over the agent's TCP (``offpath sockets``), against Linux's own in another network namespace."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, agent, pages_of, until
from echo_server import echo_server
from network_pair import AGENT_ADDRESS, IPV6, KERNEL_ADDRESS, Family, NetworkPair, missing
from offloading_agents import SETUPS_AND_IPV6_ONCE, SETUPS_OF_XDP, environment, fetch, setup_of, with_device
from offpath import sockets
from unpacked_programs import LIBRARIES, program

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of({**SETUPS_AND_IPV6_ONCE, **SETUPS_OF_XDP})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """One small file and one that takes many rings."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "small").write_text("hello\n")
    (folder / "large").write_bytes(random.Random(1).randbytes(8 << 20))
    return folder


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def http_server(address: str) -> list[str]:
    return [sys.executable, "-m", "http.server", "8000", "--bind", address]


def curl(address: str, path: str) -> list[str]:
    return ["curl", "--silent", "--show-error", "--fail", "--max-time", "20", f"http://{address}:8000/{path}"]


@pytest.mark.parametrize("bound", ["everywhere", "agent"])
def test_a_server_of_python_answers_curl(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, files: Path, bound: str
) -> None:
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            pair.near_command(*http_server(getattr(family, bound))),
            cwd=files,
            env=environment(tmp_path, family),
            stderr=log,
            stdout=log,
        )
    try:
        assert until(lambda: fetch(pair.far_command(*curl(family.url(family.agent), "small"))).stdout == b"hello\n"), (
            tmp_path / "server.log"
        ).read_text()
        large = fetch(pair.far_command(*curl(family.url(family.agent), "large")))
        assert large.returncode == 0, large.stderr
        assert digest(large.stdout) == digest((files / "large").read_bytes())
        assert (
            fetch(pair.far_command(*curl(family.url(family.agent), "none"))).returncode == 22
        )  # 404 is also an answer
        assert server.poll() is None
    finally:
        server.kill()
        server.wait()


def test_the_command_line_starts_programs(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    program = (
        f"{family.prelude}s = socket.socket(FAMILY); s.bind((EVERYWHERE, 8001)); s.listen(); "
        "print(s.type, s.getsockname()[1])"
    )
    words = [
        sys.executable,
        "-m",
        "offpath",
        "sockets",
        "--agent",
        f"unix:{tmp_path}/agent.sock",
        "--listen",
        "8001",
        "--",
    ]
    done = fetch(pair.near_command(*words, sys.executable, "-c", program))
    assert done.stdout.split() == [b"SocketKind.SOCK_STREAM" if sys.version_info < (3, 11) else b"1", b"8001"], done
    missing_program = fetch([*words, "/no/such/program"])
    assert missing_program.returncode == 1
    assert b"/no/such/program" in missing_program.stderr


def test_curl_asks_a_server_in_the_kernel(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family, files: Path
) -> None:
    server = subprocess.Popen(pair.far_command(*http_server(family.everywhere)), cwd=files, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.1)
        assert until(lambda: fetch(pair.far_command(*curl(family.url(family.kernel), "small"))).stdout == b"hello\n")
        # The only way from there is over the agent.
        assert fetch(pair.near_command(*curl(family.url(family.kernel), "small"))).returncode == 7
        env = environment(tmp_path, family)
        assert fetch(pair.near_command(*curl(family.url(family.kernel), "small")), env).stdout == b"hello\n"
        large = fetch(pair.near_command(*curl(family.url(family.kernel), "large")), env)
        assert digest(large.stdout) == digest((files / "large").read_bytes())
        refused = fetch(
            pair.near_command("curl", "--silent", "--max-time", "20", f"http://{family.url(family.kernel)}:9/"), env
        )
        assert refused.returncode == 7
    finally:
        server.kill()
        server.wait()


ECHO_TO_THE_END = """
import os, select, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"ready")
poll = select.epoll()
poll.register(s, select.EPOLLIN | select.EPOLLRDHUP)
print(poll.poll(20) != [], flush=True)
try:
    print(s.recv(1))
except OSError as error:
    print(type(error).__name__, flush=True)
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])))
except OSError as error:
    print(os.strerror(error.errno))
"""


SENDS_TWICE = """
import socket
s = socket.create_server((EVERYWHERE, 7300), family=FAMILY)
print("listening", flush=True)
c, _ = s.accept()
for _ in range(2):
    c.sendall(bytes(range(256)) * 16384)
    c.recv(1)
"""
READS_TWICE = """
import os, socket, sys, time
def there():  # bytes of the memory that connections lie in
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    found = [os.stat(path) for path in paths if "memfd:" in os.path.realpath(path)]
    return max(found, key=lambda each: each.st_size).st_blocks * 512
s = socket.create_connection((sys.argv[1], 7300))
before = there()
for _ in range(2):
    got = bytearray()
    while len(got) < 4 << 20:
        got += s.recv(1 << 16)
    assert got == bytes(range(256)) * 16384
    used = there()
    assert used > before + (40 << 10), (before, used)  # its ring has grown
    until = time.monotonic() + 60
    while there() > before + (36 << 10):  # all but the edges
        assert time.monotonic() < until, (before, used, there())
        time.sleep(0.1)
    s.send(b"x")
print("read", flush=True)
"""


# The connection is open and idle; later data arrives as usual.
def test_memory_that_was_read_goes_back(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    server = subprocess.Popen(
        pair.far_command(sys.executable, "-c", family.prelude + SENDS_TWICE), stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None and server.stdout.readline() == b"listening\n"
        command = pair.near_command(sys.executable, "-c", READS_TWICE, family.kernel)
        reader = subprocess.run(
            command, capture_output=True, timeout=200, check=False, env=environment(tmp_path, family)
        )
        assert reader.stdout == b"read\n", reader.stderr
    finally:
        server.kill()
        server.wait()


def test_a_program_learns_that_its_agent_is_gone(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    listen = "; ".join([f"{family.prelude}s = socket.create_server((EVERYWHERE, 7100), family=FAMILY)",
                        "print('listening', flush=True)", "c, _ = s.accept()", "c.recv(5)",
                        "print('there', flush=True)", "c.recv(1)"])  # fmt: skip
    peer = subprocess.Popen(pair.far_command(sys.executable, "-c", listen), stdout=subprocess.PIPE)
    assert peer.stdout is not None
    assert peer.stdout.readline() == b"listening\n"
    program = subprocess.Popen(pair.near_command(sys.executable, "-c", ECHO_TO_THE_END, family.kernel, "7100"),
                               env=environment(tmp_path, family), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    try:
        assert peer.stdout.readline() == b"there\n"
        served.process.kill()
        out, err = program.communicate(timeout=60)
        assert out.split(b"\n")[:3] == [b"True", b"ConnectionResetError", b"Network is down"], (out, err)
        assert b"every connection is lost" in err
    finally:
        for each in (peer, program):
            each.kill()
            each.wait()


ECHOES = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in range(20):
    s.sendall(b"x")
    assert s.recv(1) == b"x"
"""


def test_the_time_until_a_segment_is_acknowledged_is_counted(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess
) -> None:
    def counted() -> dict[str, Any]:
        latency: dict[str, Any] = pages_of(tmp_path)["latency"]["tcp_acknowledged"]
        return latency

    assert counted()["count"] == 0, "no segment has been sent"
    with echo_server(pair, "7107"):
        done = fetch(pair.near_command(sys.executable, "-c", ECHOES, KERNEL_ADDRESS, "7107"), environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert until(lambda: counted()["count"] >= 10), "each echo is a round trip"  # a status is a moment old
    times = counted()
    assert 0 < times["p50_s"] <= times["p99_s"] < 10 and times["sum_s"] > 0
    assert sum(bucket["count"] for bucket in times["buckets"]) == times["count"]


EVERY_KIND = """
import socket, sys
listener = socket.create_server(("0.0.0.0", 7102))
client = socket.create_connection((sys.argv[1], 7102))
local = socket.create_connection(("127.0.0.1", 7102))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
socket.create_server(("::1", 0), family=socket.AF_INET6)
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
client.send(b"x")
print(listener.accept()[0].recv(1).decode())
"""


def test_without_an_agent_sockets_fail_or_are_the_kernels_as_was_said(tmp_path: Path, pair: NetworkPair) -> None:
    command = pair.far_command(sys.executable, "-c", EVERY_KIND, KERNEL_ADDRESS)
    nowhere = f"unix:{tmp_path}/agent.sock"
    failing = fetch(command, sockets.environment(nowhere))
    assert b"Network is down" in failing.stderr, failing
    done = fetch(command, sockets.environment(nowhere, fallback=True, report=True))
    assert done.stdout == b"x\n", done
    said = done.stderr.decode().splitlines()[-1]
    assert said.startswith("offpath sockets: 0 offloaded, "), said
    for reason in ("1 left to the kernel (Unix)", "1 left to the kernel (datagrams)",
                   "2 left to the kernel (loopback)", "2 left to the kernel (no agent)"):  # fmt: skip
        assert reason in said, said


# By the echo server, which returns all data.
KIN_OF_TRANSFER = """
import ctypes, os, socket, sys

class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("parts", ctypes.POINTER(Part)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]

class Message(ctypes.Structure):
    _fields_ = [("header", Header), ("length", ctypes.c_uint)]

def messages(buffers):
    made = (Message * len(buffers))()
    for message, buffer in zip(made, buffers):
        message.header.parts = ctypes.pointer(Part(ctypes.addressof(buffer), len(buffer)))
        message.header.count = 1
    return made

libc = ctypes.CDLL(None, use_errno=True)
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
out = [ctypes.create_string_buffer(letter * 1000, 1000) for letter in (b"a", b"b", b"c")]
sent = messages(out)
assert libc.sendmmsg(s.fileno(), sent, 3, 0) == 3 and [each.length for each in sent] == [1000] * 3
into = [ctypes.create_string_buffer(1000) for _ in range(3)]
got = messages(into)
assert libc.recvmmsg(s.fileno(), got, 3, socket.MSG_WAITALL, None) == 3
assert [each.length for each in got] == [1000] * 3 and [each.raw for each in into] == [each.raw for each in out]
assert libc.recvmmsg(s.fileno(), got, 3, socket.MSG_DONTWAIT, None) == -1

pipe_out, pipe_in = os.pipe()
back_out, back_in = os.pipe()
data = os.urandom(1_000_000)
returned, at, filled = b"", 0, 0
s.setblocking(False)
while len(returned) < len(data):
    if filled == 0 and at < len(data):
        filled = os.write(pipe_in, data[at : at + 50_000])
        at += filled
    try:
        if filled > 0:
            filled -= os.splice(pipe_out, s.fileno(), filled)
    except BlockingIOError:
        pass
    try:
        returned += os.read(back_out, os.splice(s.fileno(), back_in, 65536))
    except BlockingIOError:
        pass
assert returned == data
s.setblocking(True)
s.shutdown(socket.SHUT_WR)
assert os.splice(s.fileno(), back_in, 65536) == 0
print("done")
"""


def test_messages_and_splices(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> None:
    with echo_server(pair, "7103", family):
        command = pair.near_command(sys.executable, "-c", KIN_OF_TRANSFER, family.kernel, "7103")
        done = fetch(command, environment(tmp_path, family))
        assert (done.stdout, done.stderr) == (b"done\n", b"")


def test_connections_are_listed(tmp_path: Path, pair: NetworkPair) -> None:
    settings = ["--set", "tcp.device=near", "--set", f"tcp.address={AGENT_ADDRESS}/24"]
    settings += ["--http", f"unix:{tmp_path}/http.sock"]
    program = "; ".join(["import socket", "s = socket.create_server(('0.0.0.0', 8002))", "print('there', flush=True)",
                         "c, _ = s.accept()", "c.send(b'hello')", "c.recv(1)", "print('here', flush=True)",
                         "c.recv(1)"])  # fmt: skip
    list_command = [sys.executable, "-m", "offpath", "sockets", "ss", "--agent", f"unix:{tmp_path}/agent.sock"]
    with agent(tmp_path, *settings, http=False, launcher=pair.near_command()):
        server = subprocess.Popen(
            pair.near_command(sys.executable, "-c", program), env=environment(tmp_path), stdout=subprocess.PIPE
        )
        assert server.stdout is not None
        assert server.stdout.readline() == b"there\n"
        ask = "; ".join(["import socket, time", f"s = socket.create_connection(('{AGENT_ADDRESS}', 8002))", "s.recv(5)",
                         "s.send(b'x')", "time.sleep(60)"])  # fmt: skip
        client = subprocess.Popen(pair.far_command(sys.executable, "-c", ask))
        try:
            assert server.stdout.readline() == b"here\n"
            rows = json.loads(fetch([*list_command, "--json"]).stdout)
            assert [(each["state"], each["local"], each["received"], each["offered"]) for each in rows] == [
                ("LISTEN", "0.0.0.0:8002", 0, 0), ("ESTABLISHED", f"{AGENT_ADDRESS}:8002", 1, 5)]  # fmt: skip
            assert {each["pid"] for each in rows} == {server.pid}
            drawn = fetch(list_command).stdout.decode()
            assert f"{AGENT_ADDRESS}:8002" in drawn and KERNEL_ADDRESS in drawn and "LISTEN" in drawn
        finally:
            for each in (server, client):
                each.kill()
                each.wait()


# By the echo server; then its answers are lost, and keepalive finds out.
OPTIONS = """
import errno, socket, struct, sys
TCP = socket.IPPROTO_TCP
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
options = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2, socket.TCP_CORK: 1}
assert [s.getsockopt(TCP, name) for name in options] == [7200, 75, 9, 0]
for name, value in options.items():
    s.setsockopt(TCP, name, value)
    assert s.getsockopt(TCP, name) == value
for value in (0, 30000, 0):
    s.setsockopt(TCP, socket.TCP_USER_TIMEOUT, value)
    assert s.getsockopt(TCP, socket.TCP_USER_TIMEOUT) == value
for name, value in ((socket.TCP_KEEPIDLE, 0), (socket.TCP_KEEPCNT, 128), (socket.TCP_USER_TIMEOUT, -1)):
    try:
        s.setsockopt(TCP, name, value)
    except OSError as error:
        assert error.errno == errno.EINVAL
    else:
        raise AssertionError(name)
for part in (b"one", b"two"):
    s.send(part)
s.setsockopt(TCP, socket.TCP_CORK, 0)
assert s.recv(6, socket.MSG_WAITALL) == b"onetwo"
segment = s.getsockopt(TCP, socket.TCP_MAXSEG)
info = s.getsockopt(TCP, socket.TCP_INFO, 104)
state, *_ = info
sender_segment = struct.unpack_from("I", info, 16)[0]
round_trip_us, window = struct.unpack_from("I", info, 68)[0], struct.unpack_from("I", info, 80)[0]
assert (state, sender_segment) == (1, segment) and 500 < segment < 65536 and round_trip_us > 0 and window > 0
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 0 < s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
print("ready", flush=True)
sys.stdin.readline()
try:
    s.recv(1)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_options_hold_after_connecting(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> None:
    command = pair.near_command(sys.executable, "-c", OPTIONS, family.kernel, "7106")
    lost = ["ip", "-6" if family is IPV6 else "-4", "route", "{}", "blackhole", family.agent]
    with (
        echo_server(pair, "7106", family),
        subprocess.Popen(
            command, env=environment(tmp_path, family), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program,
    ):
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            subprocess.run(pair.far_command(*[word.format("add") for word in lost]), check=True)
            assert program.communicate(b"go\n", timeout=60)[0] == b"ETIMEDOUT\n"
        finally:
            removal = pair.far_command(*[word.format("del") for word in lost])
            subprocess.run(removal, check=False, stderr=subprocess.DEVNULL)
            program.kill()


def test_redis_serves_and_its_benchmark_asks(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    env, alone = ({**each, "LD_LIBRARY_PATH": str(LIBRARIES)} for each in (environment(tmp_path, family), os.environ))
    redis = [program("redis-server"), "--bind", family.everywhere, "--save", "", "--protected-mode", "no", "--port"]
    near = subprocess.Popen(
        pair.near_command(*redis, "6379"), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    far = subprocess.Popen(
        pair.far_command(*redis, "6380"), env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ask = [program("redis-benchmark"), "-t", "set,get", "--csv", "-c", "20"]
    try:
        for address, port, enter, with_env in (
            (family.agent, "6379", pair.far_command, alone),
            (family.kernel, "6380", pair.near_command, env),
        ):
            ping = enter(program("redis-cli"), "-h", address, "-p", port, "ping")
            assert until(lambda ping=ping, with_env=with_env: fetch(ping, with_env).stdout == b"PONG\n")
            for words in (["-n", "4000"], ["-n", "8000", "-P", "16"], ["-n", "100", "-d", "1048576"]):
                done = fetch(enter(*ask, "-h", address, "-p", port, *words), with_env)
                assert done.returncode == 0, done.stderr
                assert done.stdout.count(b"\n") == 3, done.stdout  # a title, SET and GET
    finally:
        for each in (near, far):
            each.kill()
            each.wait()


# Also in a program of several processes.
IS_REFUSED = """
import os, socket
for number in range(3):
    if os.fork() == 0:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
        raise SystemExit
    os.wait()
try:
    socket.create_connection(("203.0.113.1", 7), 5)
except OSError as error:
    print(error.strerror)
"""


def test_why_there_is_no_agent_is_said_once_and_reported(tmp_path: Path, pair: NetworkPair) -> None:
    env = sockets.environment(f"unix:{tmp_path}/agent.sock", report=True)
    done = fetch(pair.near_command(sys.executable, "-c", IS_REFUSED), env)
    assert done.stdout == b"Network is down\n", done
    reason, report = done.stderr.decode().splitlines()
    assert reason.startswith(f"offpath sockets: no connections over unix:{tmp_path}/agent.sock: "), reason
    assert report.startswith("offpath sockets: 0 offloaded, 3 left to the kernel (datagrams); "), report
    assert report.endswith(reason.split(": ", 3)[-1]), report


# Each of its processes tries.
EACH_IS_REFUSED = """
import os, socket
for number in range(3):
    child = os.fork()
    if child != 0:
        os.wait()
    try:
        socket.create_connection(("203.0.113.1", 7), 5)
    except OSError as error:
        print(error.strerror, flush=True)
    if child == 0:
        os._exit(0)
"""
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


# The socket's mode refuses if no other user is allowed; otherwise the agent itself refuses.
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.parametrize("allowed", ["", "1"], ids=["nobody-is-allowed", "another-is-allowed"])
@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "supervised"])
def test_a_user_who_is_not_allowed_is_told_why_once(
    open_path: Path, pair: NetworkPair, allowed: str, preload: bool
) -> None:
    users = ["--set", f"security.allow_uids={allowed}"] if allowed else []
    env = sockets.environment(f"unix:{open_path}/agent.sock", report=True, preload=preload)
    supervisor = [] if preload else [str(sockets.find_supervisor()), "--"]
    with agent(open_path, *with_device(1), *users, http=False, launcher=pair.near_command()):
        refused = fetch(pair.near_command(*NOBODY, *supervisor, "/usr/bin/env", "python3", "-c", EACH_IS_REFUSED), env)
    assert refused.stdout == b"Network is down\n" * 6, refused
    reason, report = refused.stderr.decode().splitlines()
    assert reason.startswith(f"offpath sockets: no connections over unix:{open_path}/agent.sock: "), reason
    why = reason.split("agent.sock: ", 1)[1]
    assert ("uid 65534 may not use this agent" if allowed else "security.allow_uids") in why
    assert report.startswith("offpath sockets: 0 offloaded") and report.endswith(f"; {why}"), report
