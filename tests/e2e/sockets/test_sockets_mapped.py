"""Sockets of IPv6 that carry IPv4: listeners for both, and connections to mapped addresses, in the kernel and
offloaded."""

from __future__ import annotations

import pytest
from echo_server import echo_server
from kernel_or_agent import Place, line_of, say
from network_pair import KERNEL_ADDRESS, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

BEGIN = """
import errno, os, select, socket, sys
own = sys.argv[1]
mapped = "::ffff:" + own


def made(*options, family=socket.AF_INET6):
    s = socket.socket(family)
    for level, name, value in options:
        s.setsockopt(level, name, value)
    return s


def outcome(call, *words):
    try:
        call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def names(s):
    return [name()[0].replace(own, "own") for name in (s.getsockname, s.getpeername)]


def report(what, *results):
    print(what, *results, flush=True)


only = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
"""

LISTENS = """
listener = made()
listener.bind(("::", 7620))
report("bound", *listener.getsockname()[:2])
listener.listen()
report("listens", *listener.getsockname()[:2], listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
       listener.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET6,
       outcome(listener.setsockopt, *only))
print("ready", flush=True)
for how in ("waits", "polls"):
    if how == "polls":
        assert select.select([listener], [], [], 20)[0]
    c, peer = listener.accept()
    report("accepted", peer[0], len(peer), *names(c), c.family.name, c.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN))
    c.sendall(c.recv(5)[::-1])
    c.recv(1)  # its end, which the peer is to begin
"""
ASKS_TWICE = """
import socket, sys
for _ in range(2):
    with socket.create_connection((sys.argv[1], 7620), timeout=60) as s:
        s.sendall(b"hello")
        print(s.recv(5, socket.MSG_WAITALL).decode())
"""


def test_a_listener_for_both_families_has_peers_of_ipv4(place: Place) -> None:
    program = place.start(BEGIN + LISTENS, place.address)
    with place.ending(program):
        assert line_of(program) == "bound :: 7620"
        assert line_of(program) == "listens :: 7620 0 True EINVAL"
        assert line_of(program) == "ready"
        assert place.peer(ASKS_TWICE) == "olleh\nolleh"
        peer = "own" if place.address == KERNEL_ADDRESS else KERNEL_ADDRESS
        for _ in range(2):
            assert line_of(program) == f"accepted ::ffff:{KERNEL_ADDRESS} 4 ::ffff:own ::ffff:{peer} AF_INET6 10"
        assert program.wait(60) == 0


CONNECTS = """
server, port, nobodys = sys.argv[2], int(sys.argv[3]), 7622
there, nowhere = ("::ffff:" + server, port), ("::ffff:" + server, nobodys)
s = made()
report("refused", outcome(s.connect, nowhere), outcome(s.connect, there))
report("connected", *names(s), s.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN))
s.sendall(b"hello")
report("echo", s.recv(5, socket.MSG_WAITALL).decode(), outcome(s.connect, there))
s.close()

s = made()
s.setblocking(False)
report("begins", outcome(s.connect, there))
assert select.select([], [s], [], 20)[1]
report("then", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), *names(s))
s.close()

s = made()
s.bind((mapped, 0))
report("from its address", outcome(s.connect, there), *names(s))
s.close()
report("another family", outcome(made(family=socket.AF_INET).connect, (server, port)))
report("for IPv6 alone", outcome(made(only).connect, there), outcome(made(only).bind, (mapped, 7623)))
"""


def test_connections_to_mapped_addresses(place: Place) -> None:
    with echo_server(place.pair, "7621"):
        program = place.start(BEGIN + CONNECTS, place.address, KERNEL_ADDRESS, "7621")
        with place.ending(program):
            names = f"::ffff:own ::ffff:{'own' if place.address == KERNEL_ADDRESS else KERNEL_ADDRESS}"
            assert program.communicate(timeout=60)[0].splitlines() == [
                "refused ECONNREFUSED done",
                f"connected {names} 10",
                "echo hello EISCONN",
                "begins EINPROGRESS",
                f"then 0 {names}",
                f"from its address done {names}",
                "another family done",
                "for IPv6 alone ENETUNREACH EINVAL",
            ]


BINDS = """
both, four = ("::", 7624), ("0.0.0.0", 7624)
one, two = made(), made(family=socket.AF_INET)
report("both, then IPv4", outcome(one.bind, both), outcome(two.bind, four), outcome(one.bind, both))
one.close()
report("IPv4, then both", outcome(two.bind, four), outcome(made().bind, both))
six = made(only)
report("IPv6 alone beside IPv4", outcome(six.bind, both), outcome(six.listen), outcome(two.listen))
two.close()

one = made()
report("mapped", outcome(one.bind, (mapped, 7624)), outcome(made(family=socket.AF_INET).bind, (own, 7624)))
report("its name", one.getsockname()[0] == mapped, one.getsockname()[1], outcome(one.listen),
       one.getsockname()[:2] == (mapped, 7624))
one.close()

loop = made()
report("loopback", outcome(loop.bind, ("::1", 0)), outcome(loop.listen))
client = made()
report("to it", outcome(client.connect, loop.getsockname()), loop.accept()[1][0])

any_port = made()
any_port.bind((mapped, 0))
any_port.listen()
print(any_port.getsockname()[1], flush=True)
c, _ = any_port.accept()
c.sendall(b"hello")
c.recv(1)
sys.stdin.readline()
"""
SAYS_WHAT_IT_HEARS = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
print(s.recv(5).decode())
"""


def test_ports_are_those_of_both_families(place: Place) -> None:
    program = place.start(BEGIN + BINDS, place.address)
    with place.ending(program):
        assert [line_of(program) for _ in range(7)] == [
            "both, then IPv4 done EADDRINUSE EINVAL",
            "IPv4, then both done EADDRINUSE",
            "IPv6 alone beside IPv4 done done done",
            "mapped done EADDRINUSE",
            "its name True 7624 done True",
            "loopback done done",
            "to it done ::1",
        ]
        assert place.peer(SAYS_WHAT_IT_HEARS, line_of(program)) == "hello"
        say(program)
        assert program.wait(60) == 0


# The executed program finds a socket of the same family; so does a child.
HANDS_ON = """
listener = made()
listener.bind(("::", 7625))
listener.listen()
os.set_inheritable(listener.fileno(), True)
if os.fork() != 0:
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.execv(sys.executable, [sys.executable, "-c", '''
import socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
print("ready", flush=True)
c, peer = listener.accept()
c.sendall((listener.family.name + " " + peer[0]).encode())
c.recv(1)
''', str(listener.fileno())])
"""
HEARS_A_LINE = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7625), timeout=60)
print(s.recv(100).decode())
"""


def test_an_executed_program_has_a_socket_of_the_same_family(place: Place) -> None:
    with place.running(BEGIN + HANDS_ON, place.address):
        assert place.peer(HEARS_A_LINE) == f"AF_INET6 ::ffff:{KERNEL_ADDRESS}"
