"""Sockets as programs see them: the same test with the kernel's sockets and with offloaded ones, of both families."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from agent_process import until
from kernel_or_agent import Place, line_of, say
from network_pair import missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)


SERVER_THAT_IS_KILLED = """
import os, signal, socket, sys
listener = socket.create_server((EVERYWHERE, 7600), family=FAMILY)
print("ready", flush=True)
c, _ = listener.accept()
while len(c.recv(1 << 16, socket.MSG_PEEK)) < 8:
    pass
c.recv(int(sys.argv[1]))
c.sendall(b"x")
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
TELLS_HOW_IT_ENDS = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7600), timeout=60)
s.sendall(b"question")
assert s.recv(1) == b"x"
time.sleep(0.3)  # its acknowledgement may be late, and a server that is killed before it comes resets
print("answered", flush=True)
try:
    print("FIN" if s.recv(1) == b"" else "data")
except ConnectionResetError:
    print("RST")
"""


@pytest.mark.parametrize(("reads", "ends"), [("8", "FIN"), ("3", "RST")])
def test_a_server_that_is_killed_resets_peers_whose_bytes_it_did_not_read(place: Place, reads: str, ends: str) -> None:
    with place.running(SERVER_THAT_IS_KILLED, reads) as server:
        peer = subprocess.Popen(place.pair.far_command(sys.executable, "-c", TELLS_HOW_IT_ENDS, place.address),
                                stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert line_of(peer) == "answered"
        say(server)
        assert line_of(peer) == ends
        assert peer.wait(timeout=60) == 0


STOPS_READING = """
import socket, sys
listener = socket.create_server((EVERYWHERE, 7601), family=FAMILY)
print("ready", flush=True)
c, _ = listener.accept()
sys.stdin.readline()
"""
SENDS_UNTIL_IT_FAILS = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7601), timeout=60)
print("connected", flush=True)
try:
    while True:
        s.sendall(bytes(1 << 20))
except (ConnectionResetError, BrokenPipeError) as error:
    print("reset")
"""


# Its window is closed, so that the peer only asks for room.
def test_a_peer_that_waits_for_room_is_reset_by_the_death_of_the_server(place: Place) -> None:
    with place.running(STOPS_READING) as server:
        peer = subprocess.Popen(place.pair.far_command(sys.executable, "-c", SENDS_UNTIL_IT_FAILS, place.address),
                                stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert line_of(peer) == "connected"
        with pytest.raises(subprocess.TimeoutExpired):
            peer.wait(timeout=2)
        os.kill(place.pid_of(server), signal.SIGKILL)
        assert line_of(peer) == "reset"
        assert peer.wait(timeout=60) == 0


# Fills the send buffer, and then prints how much it can write at each writable event.
POLLS_BEFORE_IT_WRITES = """
import select, socket
listener = socket.create_server((EVERYWHERE, 7602), family=FAMILY)
print("ready", flush=True)
c, _ = listener.accept()
c.setblocking(False)
waits = {"poll": select.poll(), "epoll": select.epoll()}
for each in waits.values():
    each.register(c, select.POLLOUT)


def write():
    total = 0
    try:
        while True:
            total += c.send(bytes(1 << 16))
    except BlockingIOError:
        return total


write()
for name, wait in waits.items():
    least = 1 << 30
    for _ in range(20):
        assert wait.poll(30) if name == "epoll" else wait.poll(30000)
        least = min(least, write())
    print(name, least >= 1 << 14, flush=True)
"""
READS_SLOWLY = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7602), timeout=60)
time.sleep(0.5)
while s.recv(4096):
    time.sleep(0.0002)
"""


def test_room_to_write_is_a_third_of_the_buffer(place: Place) -> None:
    with place.running(POLLS_BEFORE_IT_WRITES) as writer:
        peer = subprocess.Popen(place.pair.far_command(sys.executable, "-c", READS_SLOWLY, place.address))
        try:
            assert [line_of(writer) for _ in range(2)] == ["poll True", "epoll True"]
        finally:
            peer.kill()
            peer.wait()


BINDS = """
import errno, socket, sys
address = sys.argv[1]


def made(*options):
    s = socket.socket(FAMILY)
    for option in options:
        s.setsockopt(socket.SOL_SOCKET, option, 1)
    return s


def outcome(call, *words):
    try:
        call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def report(what, *results):
    print(what, *results, flush=True)


first, second = made(), made()
report("bind", outcome(first.bind, (address, 7603)), outcome(second.bind, (address, 7603)))
report("the same again", outcome(first.bind, (address, 7604)))
report("listen", outcome(first.listen), outcome(made(socket.SO_REUSEADDR).bind, (address, 7603)))
first.close()
report("after its close", outcome(second.bind, (address, 7603)), outcome(second.listen))
second.close()

bound = made()
bound.bind((address, 7605))
copy = bound.dup()
bound.close()
report("a copy", outcome(made().bind, (address, 7605)), outcome(copy.listen), copy.getsockname()[1])
copy.close()
report("after the copy", outcome(made().bind, (address, 7605)))

one, two = made(socket.SO_REUSEADDR), made(socket.SO_REUSEADDR)
report("reuse address", outcome(one.bind, (address, 7606)), outcome(two.bind, (address, 7606)))
report("both listen", outcome(one.listen), outcome(two.listen))

one, two = made(socket.SO_REUSEPORT), made(socket.SO_REUSEPORT)
report("reuse port", outcome(one.bind, (address, 7607)), outcome(two.bind, (address, 7607)))
report("both listen", outcome(one.listen), outcome(two.listen), one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
report("without the option", outcome(made().bind, (address, 7607)))

held = made()
held.bind((address, 7608))
print("ready", flush=True)
sys.stdin.readline()
"""
BINDS_PRINTS = [
    "bind done EADDRINUSE",
    "the same again EINVAL",
    "listen done EADDRINUSE",
    "after its close done done",
    "a copy EADDRINUSE done 7605",
    "after the copy done",
    "reuse address done done",
    "both listen done EADDRINUSE",
    "reuse port done done",
    "both listen done done 1",
    "without the option EADDRINUSE",
    "ready",
]
BINDS_ONCE = """
import errno, socket, sys
s = socket.socket(FAMILY)
try:
    s.bind((sys.argv[1], 7608))
    print("done")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@pytest.mark.parametrize("own", [True, False], ids=["its-address", "every-address"])
def test_bind_says_that_a_port_is_taken(place: Place, own: bool) -> None:
    address = place.address if own else place.family.everywhere
    program = place.start(BINDS, address)
    try:
        assert [line_of(program) for _ in BINDS_PRINTS] == BINDS_PRINTS
        another = place.start(BINDS_ONCE, address)  # another program, while the first has it
        assert line_of(another) == "EADDRINUSE"
        another.wait(timeout=60)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert until(lambda: line_of(place.start(BINDS_ONCE, address)) == "done")


ANY_PORT = """
import socket, sys
s = socket.socket(FAMILY)
s.bind((sys.argv[1], 0))
s.listen()
print("ready", flush=True)
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"hello")
    c.close()
"""
SAYS_WHAT_IT_HEARS = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
print(s.recv(5).decode())
"""


def test_any_port_of_an_address_is_one_that_peers_reach(place: Place) -> None:
    with place.running(ANY_PORT, place.address) as server:
        assert place.peer(SAYS_WHAT_IT_HEARS, line_of(server)) == "hello"


WORKERS_WITH_LISTENERS_OF_THEIR_OWN = """
import os, socket, sys


def bound():
    s = socket.socket(FAMILY)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((EVERYWHERE, 7609))
    return s


first = bound()
for worker in range(4):
    said, says = os.pipe()
    if os.fork() == 0:
        s = bound()
        s.listen()
        os.write(says, b"x")
        while True:
            c, _ = s.accept()
            c.sendall(b"%d" % worker)
            c.close()
    os.close(says)
    assert os.read(said, 1) == b"x"
print("ready", flush=True)
sys.stdin.readline()
"""
ASKS_OFTEN = """
import socket, sys
heard = set()
for _ in range(100):
    with socket.create_connection((sys.argv[1], 7609), timeout=60) as s:
        heard.add(s.recv(1))
print(len(heard))
"""


def test_workers_with_listeners_of_their_own_share_a_port(place: Place) -> None:
    with place.running(WORKERS_WITH_LISTENERS_OF_THEIR_OWN):
        assert place.peer(ASKS_OFTEN) == "4"


HINTS = """
import socket
listener = socket.create_server((EVERYWHERE, 7610), family=FAMILY)
print("ready", flush=True)
c, _ = listener.accept()
for level, name, value in (
    (socket.IPPROTO_IP, socket.IP_TOS, 0x10),
    (socket.SOL_SOCKET, socket.SO_PRIORITY, 3),
    (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1),
):
    c.setsockopt(level, name, value)
    assert c.getsockopt(level, name) == value, name
c.sendall(b"hello")
"""


def test_options_that_only_hint_are_accepted(place: Place) -> None:
    with place.running(HINTS):
        assert place.peer(SAYS_WHAT_IT_HEARS, "7610") == "hello"


# As programs that confine themselves do, after they have accepted a connection.
MAY_OPEN_NOTHING = """
import resource, select, socket, time
listener = socket.create_server((EVERYWHERE, 7611), family=FAMILY)
print("ready", flush=True)
c, _ = listener.accept()
resource.setrlimit(resource.RLIMIT_NOFILE, (1, 1))
waited, worked = 0.0, 0.0
for number in range(3):
    began, used = time.monotonic(), time.process_time()
    if number == 1:  # readiness is shown at the descriptor
        wait = select.poll()
        wait.register(c, select.POLLIN)
        assert wait.poll(20000)
    assert c.recv(1) == b"x"
    waited, worked = waited + time.monotonic() - began, worked + time.process_time() - used
    if number == 2:
        assert worked < waited / 4, (worked, waited)  # it slept, in each of the three
    c.sendall(b"y")
"""
SENDS_NOW_AND_THEN = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7611), timeout=60)
for _ in range(3):
    time.sleep(0.5)
    s.sendall(b"x")
    assert s.recv(1) == b"y"
print("done")
"""


def test_a_program_that_may_open_no_descriptor_waits_without_spinning(place: Place) -> None:
    with place.running(MAY_OPEN_NOTHING):
        assert place.peer(SENDS_NOW_AND_THEN) == "done"


UVLOOP_ECHO = """
import asyncio, sys
import uvloop


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(echo, EVERYWHERE, 7612)
    print("ready", flush=True)
    await server.serve_forever()


uvloop.run(main())
"""
ASKS_FOR_ECHOES = """
import socket, sys
made = [socket.create_connection((sys.argv[1], 7612), timeout=60) for _ in range(20)]
for number, each in enumerate(made):
    each.sendall(b"%4d" % number)
print(all(each.recv(4, socket.MSG_WAITALL) == b"%4d" % number for number, each in enumerate(made)))
for each in made:
    each.shutdown(socket.SHUT_WR)
print(all(each.recv(1) == b"" for each in made))  # the server has closed it
"""


# libuv has an io_uring carry its calls of epoll_ctl, and closes descriptors by number.
def test_an_event_loop_of_libuv_serves(place: Place) -> None:
    with place.running(UVLOOP_ECHO):
        assert place.peer(ASKS_FOR_ECHOES) == "True\nTrue"


# As the process of sshd that speaks to peers before they are known: a filter kills it for calls that it does not need.
# The child is to have all that Python needs by then.
CONFINED = """
import ctypes, os, platform, resource, select, socket, struct, sys
how = sys.argv[1]
listener = socket.create_server((EVERYWHERE, 7613), family=FAMILY)
print("ready", flush=True)
c, _ = listener.accept()
c.sendall(c.recv(1))
others = [listener.accept()[0] for _ in range(8)]
FORBIDDEN = {"x86_64": [110, 44, 45, 46, 47, 53, 299, 307, 232, 281, 24, 28, 48],
             "aarch64": [173, 206, 207, 211, 212, 199, 243, 269, 22, 124, 233, 210]}


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def confine():
    calls = FORBIDDEN[platform.machine()]
    load, is_equal, give = 0x20, 0x15, 0x06
    code = [(load, 0, 0, 0)]
    code += [(is_equal, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    code += [(give, 0, 0, 0x7FFF0000), (give, 0, 0, 0)]  # allow; kill the thread
    words = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, 1))
    program = Program(len(code), ctypes.addressof(words))
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()


child = os.fork()
if child == 0:
    wait = select.poll()
    wait.register(c, select.POLLIN)
    several = select.poll()
    for each in others:
        several.register(each, select.POLLIN)
    assert several.poll(0) == []  # from now on they show what has happened to them
    confine()
    for _ in range(3):
        assert wait.poll(20000)
        os.write(c.fileno(), os.read(c.fileno(), 4))
    left = 1 << 25  # so fast a stream gets larger rings, and gives those before back
    while left > 0:
        piece = os.read(c.fileno(), min(left, 1 << 20))
        assert piece
        left -= len(piece)
    assert os.read(c.fileno(), 4) == b"done"  # all that was sent has arrived
    for each in others:
        assert os.read(each.fileno(), 4) == b""
    if how == "killed":
        ctypes.CDLL(None).getppid()
    os._exit(7)
c.close()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ASKS_THE_CONFINED = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7613), timeout=60)
s.sendall(b"1")
assert s.recv(1) == b"1"  # accepted: several cores may hand over connections in another order than they were made
others = [socket.create_connection((sys.argv[1], 7613), timeout=60) for _ in range(8)]
for _ in range(3):
    time.sleep(0.1)
    s.sendall(b"ping")
    assert s.recv(4, socket.MSG_WAITALL) == b"ping"
s.sendall(bytes(1 << 25))
s.sendall(b"done")
for each in others:
    time.sleep(0.1)  # it waits for this one
    each.shutdown(socket.SHUT_WR)
print(s.recv(1))
"""


# "killed": by a call that the filter forbids, which its parent learns.
@pytest.mark.parametrize(("how", "ends"), [("exits", "7"), ("killed", str(-signal.SIGSYS))])
def test_a_process_with_a_seccomp_filter_reads_and_writes(place: Place, how: str, ends: str) -> None:
    with place.running(CONFINED, how) as server:
        assert place.peer(ASKS_THE_CONFINED) == "b''"
        assert line_of(server) == ends
