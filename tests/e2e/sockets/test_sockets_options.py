"""Options of sockets, and invalid addresses, have the same effect over the agent as in the kernel: a program prints the
same for both."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_process import AgentProcess
from echo_server import echo_server
from kernel_or_agent import Place
from network_pair import IPV6, Family, NetworkPair, missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)

BEGIN = """
import ctypes, errno, select, socket, struct, sys, threading, time
server, port, own = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SOL, TCP, IP, IP6 = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6


def outcome(call, *words):
    try:
        result = call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done" if result is None else result
"""

# Values that the kernel keeps as they are, rounds, and refuses.
KEEPS = """
QUICKACK, DEFER_ACCEPT, SYNCNT, LINGER2, FASTOPEN, NOTSENT_LOWAT, CONGESTION = 12, 9, 7, 8, 23, 25, 13
RCVLOWAT, PRIORITY, OOBINLINE, BUSY_POLL = socket.SO_RCVLOWAT, 12, socket.SO_OOBINLINE, 46
TOS, BIND_ADDRESS_NO_PORT, TCLASS = socket.IP_TOS, 24, socket.IPV6_TCLASS
options = {
    (TCP, DEFER_ACCEPT): 5, (TCP, SYNCNT): 3, (TCP, LINGER2): 20, (TCP, NOTSENT_LOWAT): 16384,
    (SOL, RCVLOWAT): 7, (IP, TOS): 16, (SOL, PRIORITY): 4, (SOL, OOBINLINE): 1, (SOL, BUSY_POLL): 10,
    (IP, BIND_ADDRESS_NO_PORT): 1, (TCP, socket.TCP_USER_TIMEOUT): 40000, (TCP, socket.TCP_KEEPIDLE): 100,
    (TCP, socket.TCP_KEEPINTVL): 20, (TCP, socket.TCP_KEEPCNT): 5, (SOL, socket.SO_KEEPALIVE): 1,
    (TCP, socket.TCP_NODELAY): 1,
}
lingers = struct.pack("ii", 1, 5)


def values(s):
    numbers = [(name, s.getsockopt(*name)) for name in options]
    return numbers, s.getsockopt(TCP, CONGESTION, 16), s.getsockopt(SOL, socket.SO_LINGER, 8), s.getsockopt(SOL, 19)


def set_all(s):
    for name, value in options.items():
        s.setsockopt(*name, value)
    s.setsockopt(TCP, CONGESTION, b"reno")
    s.setsockopt(SOL, socket.SO_LINGER, lingers)


mapped = [(socket.AF_INET6, "::ffff:" + server)] if FAMILY == socket.AF_INET else []
for family, address in [(FAMILY, server), *mapped]:
    for when in ("before", "after"):
        s = socket.socket(family)
        print(when, "as made", values(s)[0] if when == "before" else "")
        if when == "before":
            set_all(s)
        s.connect((address, port))
        if when == "after":
            set_all(s)
        print(when, "connected", values(s))
        if family == socket.AF_INET6:
            s.setsockopt(IP6, TCLASS, 0x20)
            print(s.getsockopt(IP6, TCLASS))
        s.close()
for level, name, value in ((TCP, SYNCNT, 0), (TCP, SYNCNT, 128), (TCP, DEFER_ACCEPT, 0), (SOL, RCVLOWAT, 0),
                           (SOL, RCVLOWAT, -5), (TCP, CONGESTION, b"nosuch"), (TCP, 9999, 1), (SOL, 9999, 1),
                           (IP, 9999, 1), (IP6, TCLASS, 1), (TCP, SYNCNT, b"x"), (IP, TOS, b"x"), (IP, TOS, b""),
                           (SOL, socket.SO_LINGER, b"xxxx"), (SOL, socket.SO_SNDLOWAT, 1)):
    s = socket.create_connection((server, port))
    print(level, name, value, outcome(s.setsockopt, level, name, value))
    if name in (DEFER_ACCEPT, SYNCNT, RCVLOWAT) and value != -5:
        print(s.getsockopt(level, name))
    s.close()
print(s.family.name)

listener = socket.socket(FAMILY)
set_all(listener)
listener.setsockopt(TCP, FASTOPEN, 5)
listener.bind((EVERYWHERE, 7630))
listener.listen()
print("listening", values(listener), listener.getsockopt(TCP, FASTOPEN))
print("ready", flush=True)
c, _ = listener.accept()
print("accepted", values(c), c.getsockopt(TCP, FASTOPEN))
c.recv(5)
c.sendall(b"x")
c.recv(1)  # its end, which the peer is to begin
c.close()
"""
HELLO = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
    s.sendall(b"hello")
    s.recv(1)
"""


def said(place: Place, program: str, port: str, peers_port: str = "") -> list[str]:
    """With an echo server at ``port``, and, after a line "ready", a peer that connects to ``peers_port``."""
    with echo_server(place.pair, port, place.family):
        started = place.start(BEGIN + program, place.peers_address, port, place.address)
        with place.ending(started):
            assert started.stdout is not None
            lines = []
            for line in started.stdout:
                lines.append(line.strip().replace(place.address, "own"))
                if lines[-1] == "ready":
                    place.peer(HELLO, peers_port)
            assert started.wait(60) == 0, lines
    return lines


@pytest.fixture
def places(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> list[Place]:
    return [Place(pair, tmp_path, offloaded, family=family) for offloaded in (False, True)]


@pytest.fixture
def all_places(places: list[Place], tmp_path: Path, pair: NetworkPair, family: Family) -> list[Place]:
    return [*places, Place(pair, tmp_path, offloaded=True, supervised=True, family=family)]


def both(places: list[Place], program: str, port: str, peers_port: str = "") -> tuple[list[str], ...]:
    return tuple(said(place, program, port, peers_port) for place in places)


def test_options_are_kept_whenever_they_are_set(places: list[Place]) -> None:
    in_the_kernel, offloaded = both(places, KEEPS, "7631", "7630")
    assert offloaded == in_the_kernel


# Fewer bytes than the mark are not worth a wake, but a call that does not wait gets them.
LOW_WATER = """
s = socket.create_connection((server, port))
s.setsockopt(SOL, socket.SO_RCVLOWAT, 7)
waits = {"poll": select.poll(), "epoll": select.epoll(), "edge": select.epoll()}
waits["poll"].register(s, select.POLLIN)
waits["epoll"].register(s, select.EPOLLIN)
waits["edge"].register(s, select.EPOLLIN | select.EPOLLET)


def there(count):
    while True:
        try:
            if len(s.recv(100, socket.MSG_PEEK | socket.MSG_DONTWAIT)) >= count:
                return
        except BlockingIOError:
            time.sleep(0.01)


def ready(limit):
    return [name for name, wait in waits.items() if wait.poll(limit if name == "poll" else limit / 1000)]


s.sendall(b"abc")
there(3)
print("3 of 7", ready(100))
s.sendall(b"defg")
there(7)
print("7 of 7", ready(20000), s.recv(100))
print("none", ready(0))


def later(*pieces):
    def send():
        for piece in pieces:
            time.sleep(0.2)
            s.sendall(piece)
    threading.Thread(target=send).start()


later(b"abc", b"defg")
print("waits for 7", len(s.recv(100)))
later(b"abc", b"de", b"fg")
print("no more than is asked for", len(s.recv(5)), len(s.recv(2)))
s.sendall(b"abc")
there(3)
print("at once", s.recv(100, socket.MSG_DONTWAIT), outcome(s.recv, 100, socket.MSG_DONTWAIT))
s.settimeout(0.5)
s.setblocking(True)
s.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 0, 400000))
s.sendall(b"abc")
there(3)
print("in time", s.recv(100))
s.sendall(b"abc")
there(3)
s.shutdown(socket.SHUT_WR)
print("the end", ready(20000), s.recv(100), s.recv(100))
"""


def test_a_low_water_mark_says_when_there_is_enough(places: list[Place]) -> None:
    in_the_kernel, offloaded = both(places, LOW_WATER, "7632")
    assert offloaded == in_the_kernel
    assert "7 of 7 ['poll', 'epoll', 'edge'] b'abcdefg'" in offloaded


# In ``far``: the traffic classes of packets from an address whose source port, or else target port, is one of these. It
# ends with its input.
WATCHES = """
import select, struct, sys
address, sources, targets = sys.argv[1], *({int(port) for port in ports.split()} for ports in sys.argv[2:])
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("ready", flush=True)
classes = {}
while sys.stdin not in (there := select.select([frames, sys.stdin], [], [])[0]) or frames in there:
    frame = frames.recv(65536)
    kind, packet = struct.unpack_from("!H", frame, 12)[0], frame[14:]
    if kind == 0x0800 and packet[9] == 6:
        source, traffic_class, tcp = socket.inet_ntop(socket.AF_INET, packet[12:16]), packet[1], 4 * (packet[0] & 15)
    elif kind == 0x86dd and packet[6] == 6:
        source, tcp = socket.inet_ntop(socket.AF_INET6, packet[8:24]), 40
        traffic_class = struct.unpack_from("!H", packet)[0] >> 4 & 255
    else:
        continue
    if source == address:
        for port in {packet[tcp] << 8 | packet[tcp + 1]} & sources | {packet[tcp + 2] << 8 | packet[tcp + 3]} & targets:
            classes.setdefault(port, set()).add(traffic_class)
print({port: sorted(classes[port]) for port in sorted(classes)})
"""
CLASSES = """
V6 = FAMILY == socket.AF_INET6
LEVEL, NAME, PRIORITY = *((IP6, socket.IPV6_TCLASS) if V6 else (IP, socket.IP_TOS)), 12


def begin(value):
    s = socket.socket(FAMILY)
    s.setsockopt(LEVEL, NAME, value)
    return s


def exchange(s):
    s.sendall(b"hello")
    print(s.recv(5, socket.MSG_WAITALL), s.getsockopt(LEVEL, NAME), s.getsockopt(SOL, PRIORITY))


with begin(0xb8) as s:
    s.connect((server, port))
    exchange(s)
with socket.create_connection((server, port + 1)) as s:
    for value in (0x48, 0x13, 0):
        s.setsockopt(LEVEL, NAME, value)
        exchange(s)
    if not V6:
        s.setsockopt(LEVEL, NAME, b"\x28")
        exchange(s)
    s.setsockopt(SOL, PRIORITY, 3)
    s.setsockopt(LEVEL, NAME, 0x10)
    exchange(s)
    for value in (256, -1, -2):
        print(value, outcome(s.setsockopt, LEVEL, NAME, value), s.getsockopt(LEVEL, NAME))
with begin(0x23) as listener:
    print(listener.getsockopt(LEVEL, NAME))
    listener.bind((EVERYWHERE, 7639))
    listener.listen()
    print("ready", flush=True)
    c, _ = listener.accept()
    with c:
        c.recv(5)
        c.sendall(b"x")
        print(c.getsockopt(LEVEL, NAME), c.getsockopt(SOL, PRIORITY))
        c.recv(1)
"""


@contextmanager
def watched(place: Place, sources: str, targets: str) -> Iterator[list[str]]:
    """When the block has ended: the output of WATCHES about the place's packets."""
    program = place.family.prelude + WATCHES
    command = place.pair.far_command(sys.executable, "-c", program, place.address, sources, targets)
    said: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "ready\n"
        yield said
        said.append(watch.communicate()[0].strip())


def test_packets_have_the_traffic_class(all_places: list[Place]) -> None:
    """Of a connection from its first packet on, likewise of a listener's, and when it is set later. The bits of ECN are
    not the program's."""
    told = []
    for place in all_places:
        with echo_server(place.pair, "7641", place.family), watched(place, "7639", "7640 7641") as classes:
            lines = said(place, CLASSES, "7640", "7639")
        told.append(lines + classes)
    in_the_kernel, offloaded, supervised = told
    assert offloaded == in_the_kernel
    assert supervised == in_the_kernel
    set_later = "[0, 16, 72]" if all_places[0].family is IPV6 else "[0, 16, 40, 72, 252]"
    assert offloaded[-1] == f"{{7639: [32], 7640: [184], 7641: {set_later}}}"


CONGESTION = """
NAME = 13


def congestion(s):
    return s.getsockopt(TCP, NAME, 16)


s = socket.create_connection((server, port))
for name in (b"reno", b"cubic\\0", b"reno\\0junk", b"nosuch", b"", b"a name that is too long", b"cubi"):
    print(name, outcome(s.setsockopt, TCP, NAME, name), congestion(s))
s.sendall(b"hello")
print(s.recv(5, socket.MSG_WAITALL))
s.close()
for when in ("before", "after"):
    s = socket.socket(FAMILY)
    for name in (b"reno", b"cubic"):
        s.setsockopt(TCP, NAME, name)
    if when == "after":
        s.connect((server, port))
    copy = s.dup()
    s.setsockopt(TCP, NAME, b"reno")
    if when == "before":
        copy.connect((server, port))
    print(when, congestion(s), congestion(copy))
    s.close()
    copy.close()
listener = socket.socket(FAMILY)
listener.setsockopt(TCP, NAME, b"reno")
listener.bind((EVERYWHERE, 7643))
listener.listen()
print("listener", congestion(listener))
print("ready", flush=True)
c, _ = listener.accept()
print("accepted", congestion(c))
c.recv(5)
c.sendall(b"x")
c.recv(1)
"""


def test_congestion_control_is_chosen_by_name(all_places: list[Place]) -> None:
    in_the_kernel, offloaded, supervised = both(all_places, CONGESTION, "7644", "7643")
    assert offloaded == in_the_kernel
    assert supervised == in_the_kernel


OWN_CONGESTION = """
NAME = 13
s = socket.create_connection((server, port))
print(s.getsockopt(TCP, NAME, 16).rstrip(b"\\0").decode())
for name in (b"dctcp", b"timely", b"bbr", b"vegas"):
    print(name.decode(), outcome(s.setsockopt, TCP, NAME, name), s.getsockopt(TCP, NAME, 16).rstrip(b"\\0").decode())
    s.sendall(b"hello")
    s.recv(5, socket.MSG_WAITALL)
"""


def test_congestion_control_is_the_agents(all_places: list[Place]) -> None:
    """A program of root may choose any that the agent has, and no other."""
    for place in all_places[1:]:
        assert said(place, OWN_CONGESTION, "7645") == [
            "cubic", "dctcp done dctcp", "timely done timely", "bbr ENOENT timely", "vegas ENOENT timely"
        ]  # fmt: skip


# Before connect it is the kernel's choice, afterwards the agent's.
CONGESTION_WITHOUT_RIGHTS = """
import os
os.setuid(65534)
NAME = 13
for name in (b"reno", b"dctcp", b"bbr", b"vegas", b"nosuch", b""):
    s = socket.socket(FAMILY)
    print("before", name.decode(), outcome(s.setsockopt, TCP, NAME, name), s.getsockopt(TCP, NAME, 16))
s = socket.create_connection((server, port))
for name in (b"reno", b"dctcp", b"timely", b"cubic", b"nosuch"):
    print(name.decode(), outcome(s.setsockopt, TCP, NAME, name), s.getsockopt(TCP, NAME, 16).rstrip(b"\\0").decode())
s.sendall(b"hello")
print(s.recv(5, socket.MSG_WAITALL))
"""


def test_supervised_programs_choose_congestion_control_by_their_own_rights(all_places: list[Place]) -> None:
    """The supervisor is root's, and its program is not."""
    in_the_kernel, supervised = (said(place, CONGESTION_WITHOUT_RIGHTS, "7646") for place in all_places[::2])
    assert supervised[:6] == in_the_kernel[:6]
    assert supervised[6:] == [
        "reno done reno", "dctcp EPERM reno", "timely EPERM reno", "cubic done cubic", "nosuch ENOENT cubic",
        "b'hello'",
    ]  # fmt: skip


BAD_ADDRESSES = """
libc = ctypes.CDLL(None, use_errno=True)
NONE, KERNELS = ctypes.c_void_p(None), ctypes.c_void_p(-4096)
number, length = ctypes.c_int(1), ctypes.c_int(4)
room = ctypes.create_string_buffer(128)


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint), ("parts", ctypes.c_void_p),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


def told(call, *words):
    got = getattr(libc, call)(*words)
    return got if got >= 0 else errno.errorcode[ctypes.get_errno()]


s = socket.create_connection((server, port))
fd = s.fileno()
unbound = socket.socket(FAMILY)
for bad in (NONE, KERNELS):
    part = Part(bad.value, 5)
    message = Message(parts=ctypes.addressof(part), count=1)
    print("write", told("send", fd, bad, 5, 0), told("write", fd, bad, 5), told("writev", fd, ctypes.byref(part), 1),
          told("writev", fd, bad, 1), told("sendmsg", fd, bad, 0), told("sendmsg", fd, ctypes.byref(message), 0))
    print("nothing there", told("recv", fd, bad, 5, socket.MSG_DONTWAIT))
    s.sendall(b"hello")
    assert len(s.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL)) == 5
    print("read", told("recv", fd, bad, 5, 0), told("read", fd, bad, 5), told("readv", fd, ctypes.byref(part), 1),
          told("readv", fd, bad, 1), told("recvmsg", fd, bad, 0), told("recvmsg", fd, ctypes.byref(message), 0))
    print("still there", s.recv(5))
    print("get", told("getsockopt", fd, TCP, 1, bad, ctypes.byref(length)), told("getsockopt", fd, TCP, 1, room, bad),
          told("getsockname", fd, bad, ctypes.byref(length)), told("getpeername", fd, room, bad))
    print("set", told("setsockopt", fd, TCP, 1, bad, 4), told("setsockopt", fd, IP, 1, bad, 4),
          told("setsockopt", fd, TCP, 13, bad, 4), told("setsockopt", fd, SOL, socket.SO_LINGER, bad, 8))
    print("address", told("connect", fd, bad, 28), told("bind", unbound.fileno(), bad, 28))
    print("ioctl", told("ioctl", fd, 0x541B, bad), told("ioctl", fd, 0x5421, bad))
    epoll = select.epoll()
    epoll.register(s, select.EPOLLOUT)
    print("epoll", told("epoll_wait", epoll.fileno(), bad, 5, 1000),
          told("epoll_ctl", epoll.fileno(), 3, fd, bad))
part = Part(ctypes.addressof(room), -1)
print("negative", told("readv", fd, ctypes.byref(part), 1), told("writev", fd, ctypes.byref(part), 1),
      told("readv", fd, ctypes.byref(part), -1), told("readv", fd, ctypes.byref(part), 1025))
length.value = -1
print("lengths", told("getsockopt", fd, TCP, 1, room, ctypes.byref(length)),
      told("getsockname", fd, room, ctypes.byref(length)), told("send", fd, NONE, 0, 0))
s.sendall(b"hello")
s.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL)
print("discards", told("recv", fd, NONE, 5, socket.MSG_TRUNC))
length.value = 3
room.raw = bytes(128)
print("short", told("getsockname", fd, room, ctypes.byref(length)), length.value, room.raw[:2], room.raw[3:6])
"""


def test_addresses_that_are_none_are_refused(places: list[Place]) -> None:
    in_the_kernel, offloaded = both(places, BAD_ADDRESSES, "7633")
    assert offloaded == in_the_kernel
