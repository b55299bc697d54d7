"""IPv6 sockets behave over the agent as in the kernel, where the agent has an IPv6 address.

Tests that do not depend on the family run with sockets of both (SETUPS_OF_BOTH_FAMILIES in offloading_agents.py); these
are about addresses, ports of two families, and sockets left to the kernel."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, until
from echo_server import echo_server
from kernel_or_agent import Place, line_of, say
from network_pair import (
    AGENT_ADDRESS,
    AGENT_ADDRESS_6,
    IPV4,
    IPV6,
    KERNEL_ADDRESS,
    KERNEL_ADDRESS_6,
    Family,
    NetworkPair,
    missing,
)
from offloading_agents import SETUPS, SETUPS_OF_IPV6, setup_of
from offpath import sockets

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_IPV6)


@pytest.fixture(params=["agent", "supervised"])
def offloaded(
    request: pytest.FixtureRequest, tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> Place:
    return Place(pair, tmp_path, True, request.param == "supervised", family)


ECHO_PORT, NOBODYS_PORT = "7820", "7821"
# Its own addresses, and those of a peer.
BEGIN = """
import ctypes, errno, os, select, socket, struct, sys
own4, own6, server4, server6 = sys.argv[1:5]
echo, nobody = 7820, 7821
INET, INET6, SOL, IP6 = socket.AF_INET, socket.AF_INET6, socket.SOL_SOCKET, socket.IPPROTO_IPV6
V6ONLY, ADDRFORM = socket.IPV6_V6ONLY, 1
libc = ctypes.CDLL(None, use_errno=True)


def mapped(address):
    return "::ffff:" + address


def made(family=INET6, *options):
    s = socket.socket(family)
    for level, name, value in options:
        s.setsockopt(level, name, value)
    return s


def outcome(call, *words):
    try:
        result = call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done" if result is None else result


def said(name):
    own = {own4: "own4", mapped(own4): "mapped own4", own6: "own6"}
    peer = {server4: "peer4", mapped(server4): "mapped peer4", server6: "peer6"}
    where = {**peer, **own}[name[0]] if name[0] in {**peer, **own} else name[0]
    return where, len(name), name[2:]


def names(s):
    return said(s.getsockname()), said(s.getpeername()), s.getsockopt(SOL, socket.SO_DOMAIN)


def report(what, *results):
    print(what, *results, flush=True)


only = (IP6, V6ONLY, 1)
"""


def addresses(place: Place) -> list[str]:
    own = (AGENT_ADDRESS, AGENT_ADDRESS_6) if place.offloaded else (KERNEL_ADDRESS, KERNEL_ADDRESS_6)
    return [*own, KERNEL_ADDRESS, KERNEL_ADDRESS_6]


def lines_of(place: Place, program: str, *peers: str) -> list[str]:
    """The program's output. After each line "ready" the next peer runs, with the addresses."""
    waiting = list(peers)
    started = place.start(BEGIN + program, *addresses(place))
    lines = []
    with place.ending(started):
        assert started.stdout is not None
        for line in started.stdout:
            lines.append(line.strip())
            if lines[-1] == "ready":
                lines.append(place.peer(waiting.pop(0), *addresses(place)))
        assert started.wait(60) == 0, lines
    assert not waiting
    return lines


def expect_as_in_the_kernel(offloaded: Place, program: str, *peers: str) -> list[str]:
    """Returns its output in both."""
    kernel = Place(offloaded.pair, offloaded.tmp_path, False, family=offloaded.family)
    with echo_server(offloaded.pair, ECHO_PORT, IPV6), echo_server(offloaded.pair, ECHO_PORT, IPV4):
        there, here = (lines_of(each, program, *peers) for each in (kernel, offloaded))
    here = [line.replace("peer4", "own4").replace("peer6", "own6") for line in here]  # in ``far`` they are the same
    assert here == there
    return here


LISTENS_FOR_BOTH = """
listener = made()
report("as made", listener.getsockopt(IP6, V6ONLY))
listener.bind(("::", 7822))
listener.listen()
report("listens", listener.getsockname(), listener.getsockopt(IP6, V6ONLY), outcome(listener.setsockopt, *only))
print("ready", flush=True)
for _ in range(4):
    assert select.select([listener], [], [], 20)[0]
    c, peer = listener.accept()
    report("accepted", said(peer), *names(c), c.getsockopt(IP6, V6ONLY))
    c.sendall(c.recv(5)[::-1])
    c.recv(1)  # its end, which the peer is to begin
"""
ASKS_BOTH = """
import socket, sys
for address in (sys.argv[2], sys.argv[3]) * 2:
    with socket.create_connection((address, 7822), timeout=60) as s:
        s.sendall(b"hello")
        print(s.recv(5, socket.MSG_WAITALL).decode(), end=" ")
"""


def test_a_listener_for_both_families_serves_both(offloaded: Place) -> None:
    lines = expect_as_in_the_kernel(offloaded, LISTENS_FOR_BOTH, ASKS_BOTH)
    assert lines[1] == "listens ('::', 7822, 0, 0) 0 EINVAL"
    assert sum("accepted ('mapped own4', 4, (0, 0))" in line for line in lines) == 2
    assert sum("accepted ('own6', 4, (0, 0))" in line for line in lines) == 2


LISTENS_FOR_ONE = """
for what, address, options in (("v6 only", "::", [only]), ("own", own6, []), ("mapped", mapped(own4), []),
                               ("mapped every", "::ffff:0.0.0.0", []), ("v4", "0.0.0.0", None)):
    listener = made(INET if options is None else INET6, (SOL, socket.SO_REUSEADDR, 1), *(options or []))
    listener.bind((address, 7823))
    listener.listen()
    report(what, said(listener.getsockname()))
    print("ready", flush=True)
    listener.settimeout(60)
    c, peer = listener.accept()
    report("accepted", said(peer), *names(c))
    c.close()
    listener.close()
"""
ASKS_EACH = """
import socket, sys
for address in (sys.argv[2], sys.argv[3]):
    try:
        socket.create_connection((address, 7823), timeout=60).recv(1)
        print("served", end=" ")
    except ConnectionRefusedError:
        print("refused", end=" ")
"""


def test_a_listener_for_one_family_refuses_the_other(offloaded: Place) -> None:
    lines = expect_as_in_the_kernel(offloaded, LISTENS_FOR_ONE, *[ASKS_EACH] * 5)
    assert [line for line in lines if "served" in line] == [
        "refused served",
        "refused served",
        "served refused",
        "served refused",
        "served refused",
    ]


CONNECTS = """
s = made()
report("refused", outcome(s.connect, (server6, nobody)), outcome(s.connect, (server6, echo)), *names(s))
s.sendall(b"hello")
report("echo", s.recv(5, socket.MSG_WAITALL), outcome(s.connect, (server6, echo)))
s.close()
s = made()
s.setblocking(False)
report("begins", outcome(s.connect, (server6, echo)))
assert select.select([], [s], [], 20)[1]
report("then", s.getsockopt(SOL, socket.SO_ERROR), *names(s))
s.close()
for what, family, options, own, to in (
    ("mapped", INET6, [], None, mapped(server4)), ("v4", INET, [], None, server4),
    ("from its address", INET6, [], own6, server6), ("from its mapped one", INET6, [], mapped(own4), mapped(server4)),
    ("from every address", INET6, [], "::", server6), ("from every one to mapped", INET6, [], "::", mapped(server4)),
    ("alone", INET6, [only], None, server6), ("alone, to mapped", INET6, [only], None, mapped(server4)),
    ("alone, from its address", INET6, [only], own6, server6),
    ("from mapped to v6", INET6, [], mapped(own4), server6), ("from v6 to mapped", INET6, [], own6, mapped(server4)),
    ("from mapped every", INET6, [], "::ffff:0.0.0.0", mapped(server4)),
    ("from mapped every to v6", INET6, [], "::ffff:0.0.0.0", server6),
    ("link-local without a scope", INET6, [], None, "fe80::77"), ("a group", INET6, [], None, "ff0e::1"),
):
    s = made(family, *options)
    if own is not None:
        s.bind((own, 0))
    report(what, outcome(s.connect, (to, echo)))
    if s.connect_ex((to, echo)) == errno.EISCONN:
        report("names", *names(s))
    s.close()
for port in (7824, 7825):
    s = made(INET6, (SOL, socket.SO_REUSEADDR, 1))
    s.bind((own6, port))
    report("from a port", outcome(s.connect, (server6, echo)), s.getsockname()[1], outcome(s.bind, (own6, port)))
    s.close()


def short(call, fd, family, length, address=server6, port=echo):
    name = struct.pack("=HHI16sI", family, socket.htons(port), 0, socket.inet_pton(INET6, address), 0)
    return "done" if getattr(libc, call)(fd, name, length) == 0 else errno.errorcode[ctypes.get_errno()]


for family, length in ((INET6, 27), (INET6, 24), (INET6, 23), (INET6, 16), (INET, 28), (99, 28)):
    s = made()
    report("connect", family, length, short("connect", s.fileno(), family, length))
    s = made()
    report("bind", family, length, short("bind", s.fileno(), family, length, own6, nobody))
s = made(INET)
report("v6 of v4", short("connect", s.fileno(), INET6, 28), short("bind", s.fileno(), INET6, 28))
for room in (28, 24, 4, 0):
    s = made()
    s.connect((server6, echo))
    name, length = ctypes.create_string_buffer(28), ctypes.c_int(room)
    libc.getpeername(s.fileno(), name, ctypes.byref(length))
    report("getpeername", room, length.value, name.raw[:2] + name.raw[2:room])
"""


def test_connections_of_ipv6(offloaded: Place) -> None:
    lines = expect_as_in_the_kernel(offloaded, CONNECTS)
    assert "from mapped to v6 EAFNOSUPPORT" in lines
    assert "alone, to mapped ENETUNREACH" in lines
    assert "link-local without a scope EINVAL" in lines


# Every address beside every other one, at one port.
PORTS = """
REUSE = {"": [], "address": [(SOL, socket.SO_REUSEADDR, 1)], "port": [(SOL, socket.SO_REUSEPORT, 1)]}
PLACES = [("v4", INET, "0.0.0.0", []), ("own v4", INET, own4, []), ("both", INET6, "::", []),
          ("v6", INET6, "::", [only]), ("own v6", INET6, own6, []), ("mapped", INET6, mapped(own4), []),
          ("mapped every", INET6, "::ffff:0.0.0.0", [])]
port = 7830
for how, reuse in REUSE.items():
    for one, family, address, options in PLACES:
        for other, other_family, other_address, other_options in PLACES:
            first, second = made(family, *options, *reuse), made(other_family, *other_options, *reuse)
            report(how, one, "/", other, outcome(first.bind, (address, port)),
                   outcome(second.bind, (other_address, port)), outcome(first.listen), outcome(second.listen))
            first.close()
            second.close()
first, second = made(), made(INET)
first.bind(("::", port))
first.listen()
report("a listener for both", outcome(second.bind, ("0.0.0.0", port)), outcome(second.bind, (own4, port)))
first.close()
report("its port is free", outcome(second.bind, (own4, port)), outcome(second.listen))
"""


def test_ports_conflict_across_families(offloaded: Place) -> None:
    lines = expect_as_in_the_kernel(offloaded, PORTS)
    assert "v4 / v6 done done done done" in lines
    assert "v4 / both done EADDRINUSE done done" in lines  # the second one listens at a port of the kernel's choice


CHANGES = """
s = made()
for value in (1, 0, 1, 7, 0):
    report("set", outcome(s.setsockopt, IP6, V6ONLY, value), s.getsockopt(IP6, V6ONLY))
report("short", outcome(s.setsockopt, IP6, V6ONLY, b"x"))
s.bind((own6, 0))
report("bound", outcome(s.setsockopt, IP6, V6ONLY, 1), s.getsockopt(IP6, V6ONLY))
s.close()
s = made(INET6, only)
s.bind(("::", 7826))
report("bound to all", outcome(s.setsockopt, IP6, V6ONLY, 0), s.getsockopt(IP6, V6ONLY), s.getsockname())
s.close()
s = made()
report("not connected", outcome(s.getsockopt, IP6, ADDRFORM))
report("fails", outcome(s.connect, (server6, nobody)), outcome(s.setsockopt, *only), s.getsockopt(IP6, V6ONLY))
report("alone now", outcome(s.connect, (mapped(server4), echo)), outcome(s.connect, (server6, echo)))
report("connected", outcome(s.setsockopt, IP6, V6ONLY, 0), s.getsockopt(IP6, V6ONLY))
report("form", s.getsockopt(IP6, ADDRFORM))
"""


def test_a_socket_changes_its_family(offloaded: Place) -> None:
    expect_as_in_the_kernel(offloaded, CHANGES)


FORMS = """
s = made()
s.connect((server6, echo))
report("no IPv4", outcome(s.setsockopt, IP6, ADDRFORM, INET), outcome(s.setsockopt, IP6, ADDRFORM, INET6))
s.close()
s = made()
s.connect((mapped(server4), echo))
report("before", *names(s), outcome(s.setsockopt, IP6, ADDRFORM, 99), outcome(s.setsockopt, IP6, ADDRFORM, b"x"))
report("becomes IPv4", outcome(s.setsockopt, IP6, ADDRFORM, INET), s.getsockopt(SOL, socket.SO_DOMAIN))
four = socket.socket(INET, fileno=os.dup(s.fileno()))
report("names", *names(four), outcome(s.setsockopt, *only))
four.sendall(b"hello")
report("echo", four.recv(5, socket.MSG_WAITALL))
"""
FORMS_IN_OLDER_KERNELS = [
    "no IPv4 EADDRNOTAVAIL EINVAL",
    "before ('mapped own4', 4, (0, 0)) ('mapped own4', 4, (0, 0)) 10 EINVAL EINVAL",
    "becomes IPv4 done 2",
    "names ('own4', 2, ()) ('own4', 2, ()) 2 ENOPROTOOPT",
    "echo b'hello'",
]


IPV6_ADDRFORM = 1  # linux/in6.h


def kernel_changes_forms() -> bool:
    """Whether IPV6_ADDRFORM can be set here: Linux 6.18.44, for one, answers ENOPROTOOPT."""
    with socket.socket(socket.AF_INET6) as unconnected:
        try:
            unconnected.setsockopt(socket.IPPROTO_IPV6, IPV6_ADDRFORM, socket.AF_INET)
        except OSError as error:
            return error.errno != errno.ENOPROTOOPT
    return True


def test_a_connection_of_ipv4_becomes_a_socket_of_ipv4(offloaded: Place) -> None:
    if kernel_changes_forms():
        assert expect_as_in_the_kernel(offloaded, FORMS) == FORMS_IN_OLDER_KERNELS
        return
    with echo_server(offloaded.pair, ECHO_PORT, IPV6), echo_server(offloaded.pair, ECHO_PORT, IPV4):
        lines = lines_of(offloaded, FORMS)
    assert [line.replace("peer4", "own4") for line in lines] == FORMS_IN_OLDER_KERNELS


# A call that fails leaves the socket as it was.
REFUSES = """
def named(call, s, family, length, address=server6, port=echo):
    name = struct.pack("=HHI16sI", family, socket.htons(port), 0, socket.inet_pton(INET6, address), 0)
    done = getattr(libc, call)(s.fileno(), name, length & 0xffffffff if length < 0 else length)
    return "done" if done == 0 else errno.errorcode[ctypes.get_errno()]


s = made(INET6, only)
report("mapped, then its own", outcome(s.bind, (mapped(own4), 7835)), outcome(s.bind, (own6, 0)),
       outcome(s.connect, (server6, echo)), *names(s))
s.close()
s = made(INET6, only)
report("mapped, then native", outcome(s.connect, (mapped(server4), echo)), outcome(s.connect, (server6, echo)),
       *names(s))
s.close()
s = made(INET6, (SOL, socket.SO_REUSEADDR, 1))
report("short, then bound", named("bind", s, INET6, 16, own6), named("bind", s, INET, 28, own6),
       outcome(s.bind, (own6, 7836)), named("bind", s, INET6, 16, own6), s.getsockname()[1])
report("short, then connected", named("connect", s, INET6, 16), named("connect", s, INET, 28),
       named("connect", s, INET6, 1), outcome(s.connect, (server6, echo)), s.getsockname()[1])
s.close()
s = made()
report("no address", named("connect", s, socket.AF_UNSPEC, 28), outcome(s.connect, (server6, echo)), *names(s))
s.close()
s = made(INET6, (SOL, socket.SO_REUSEADDR, 1))
s.bind((own6, 7837))
report("nobody, then somebody", outcome(s.connect, (server6, nobody)), outcome(s.setsockopt, IP6, V6ONLY, 0),
       named("connect", s, INET6, 16), named("connect", s, socket.AF_UNSPEC, 28), outcome(s.connect, (server6, echo)),
       s.getsockname()[1])
report("lengths", outcome(lambda: libc.setsockopt(s.fileno(), IP6, 67, struct.pack("i", 1), -1)),
       errno.errorcode[ctypes.get_errno()])
s.close()
"""


def test_a_call_that_fails_leaves_the_socket_as_it_was(offloaded: Place) -> None:
    lines = expect_as_in_the_kernel(offloaded, REFUSES)
    assert lines[0].startswith("mapped, then its own EINVAL done done"), lines
    assert "nobody, then somebody ECONNREFUSED EINVAL EINVAL done done 7837" in lines


OPTIONS = """
HOPS, DISCOVER, DONTFRAG, PREFERENCES, AUTOLABEL = socket.IPV6_UNICAST_HOPS, 23, socket.IPV6_DONTFRAG, 72, 70
TCLASS, RECVTCLASS = socket.IPV6_TCLASS, socket.IPV6_RECVTCLASS
values = {TCLASS: 0x48, RECVTCLASS: 1, HOPS: 9, DISCOVER: 2, DONTFRAG: 1, PREFERENCES: 1, AUTOLABEL: 0}


def all_of(s):
    return [outcome(s.getsockopt, IP6, name) for name in (*values, V6ONLY)]


def set_all(s):
    return [outcome(s.setsockopt, IP6, name, value) for name, value in values.items()]


report("as made", all_of(made()))
for to in (server6, mapped(server4)):
    for when in ("before", "after"):
        s = made()
        if when == "before":
            set_all(s)
        s.connect((to, echo))
        report(when, set_all(s) if when == "after" else "", all_of(s))
        s.close()
for name, value in ((TCLASS, 256), (TCLASS, -1), (TCLASS, -2), (HOPS, 256), (HOPS, -1), (HOPS, 0), (DISCOVER, 99),
                    (PREFERENCES, 3), (PREFERENCES, 0x200), (PREFERENCES, 5), (RECVTCLASS, 5), (DONTFRAG, b"x"),
                    (9999, 1), (V6ONLY, 1)):
    s = made()
    s.connect((server6, echo))
    report(name, value, outcome(s.setsockopt, IP6, name, value), outcome(s.getsockopt, IP6, name))
    s.close()
s = socket.create_connection((server4, echo))
report("of IPv4", outcome(s.setsockopt, IP6, HOPS, 3), outcome(s.getsockopt, IP6, V6ONLY))
listener = made(INET6, (IP6, TCLASS, 0x20), (IP6, HOPS, 5), (SOL, socket.SO_REUSEADDR, 1))
listener.bind(("::", 7827))
listener.listen()
print("ready", flush=True)
for _ in range(2):
    c, _ = listener.accept()
    report("accepted", all_of(c))
    c.close()
"""
HEARS_THE_END = """
import socket, sys
for address in (sys.argv[3], sys.argv[2]):
    print(socket.create_connection((address, 7827), timeout=60).recv(1), end=" ")
"""


def test_options_of_ipv6_are_kept_and_checked(offloaded: Place) -> None:
    expect_as_in_the_kernel(offloaded, OPTIONS, HEARS_THE_END)


# The executed program finds a socket of the same family, and children accept from it.
HANDS_ON = """
listener = made(INET6, only, (SOL, socket.SO_REUSEADDR, 1))
listener.bind(("::", 7828))
listener.listen()
os.set_inheritable(listener.fileno(), True)
if os.fork() != 0:
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.execv(sys.executable, [sys.executable, "-c", '''
import os, socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
print("ready", flush=True)
for _ in range(2):
    if os.fork() == 0:
        c, peer = listener.accept()
        c.sendall((listener.family.name + " " + c.getpeername()[0]).encode())
        c.shutdown(socket.SHUT_WR)
        c.recv(1)
        os._exit(0)
for _ in range(2):
    os.wait()
''', str(listener.fileno())])
"""
HEARS_LINES = """
import socket, sys
for _ in range(2):
    s = socket.create_connection((sys.argv[1], 7828), timeout=60)
    print(s.makefile().read(), end=" ")
"""


def test_children_and_executed_programs_serve_ipv6(offloaded: Place) -> None:
    lines = expect_as_in_the_kernel(offloaded, HANDS_ON, HEARS_LINES)
    assert lines == ["ready", " ".join([f"AF_INET6 {KERNEL_ADDRESS_6}"] * 2)]


# ---- sockets left to the kernel

NEARS = "fd0a::1"  # the kernel's in ``near``


@contextmanager
def kernels_address(pair: NetworkPair) -> Iterator[None]:
    subprocess.run(pair.near_command("ip", "addr", "add", f"{NEARS}/128", "dev", "lo", "nodad"), check=True)
    try:
        yield
    finally:
        subprocess.run(pair.near_command("ip", "addr", "del", f"{NEARS}/128", "dev", "lo"), check=True)


# Each is left to the kernel, and works there; then the agent's sockets.
STAYS = """
def served(family, address, to, *options):
    listener = made(family, *options)
    listener.bind((address, 0))
    listener.listen()
    s = made(family)
    s.settimeout(60)
    s.connect((to, listener.getsockname()[1]))
    c, peer = listener.accept()
    c.sendall(b"x")
    return s.recv(1) == b"x" and peer[0] == s.getsockname()[0]


report("stays", served(INET6, "::1", "::1"), served(INET6, "::1", "::"), served(INET6, "fd0a::1", "fd0a::1"))
listener = made(INET6, only)
listener.bind(("::", 7829))
report("listens", outcome(listener.listen))
s = made()
s.setblocking(False)
report("connects", outcome(s.connect, (server6, echo)))
"""


def reported(place: Place, program: str, **options: Any) -> tuple[list[str], str]:
    """Its output, and its report at the end."""
    command = [sys.executable, "-c", place.family.prelude + BEGIN + program, *addresses(place)]
    if place.supervised:
        command = [str(sockets.find_supervisor()), "--", *command]
    done = subprocess.run(place.pair.near_command(*command), env=place.environment(report=True, **options),
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.strip().rpartition("offpath sockets: ")[2]


def test_loopback_and_what_is_not_named_stay_with_the_kernel(offloaded: Place, pair: NetworkPair) -> None:
    with echo_server(pair, ECHO_PORT, IPV6), kernels_address(pair):
        said, report = reported(offloaded, STAYS, connect=f"{KERNEL_ADDRESS_6}/64")
    assert said == ["stays True True True", "listens done", "connects EINPROGRESS"]
    assert report.startswith("2 offloaded"), report
    assert "(loopback)" in report and "(not named by --listen or --connect)" in report and "IPv6" not in report


# Of an agent with an IPv4 address alone.
@pytest.mark.parametrize("setup", [SETUPS["1-core"], SETUPS["over-a-link"]], ids=["ipv4", "ipv4-linked"], indirect=True)
def test_sockets_of_ipv6_stay_with_the_kernel(offloaded: Place, pair: NetworkPair) -> None:
    with kernels_address(pair):
        said, report = reported(offloaded, STAYS)
    assert said == ["stays True True True", "listens done", "connects ENETUNREACH"]
    assert report.startswith("0 offloaded"), report
    assert "left to the kernel (IPv6)" in report and "(loopback)" in report
    _, report = reported(offloaded, "s = made()\ns.bind(('::', 7829))\ns.listen()\n")
    assert report.startswith("1 offloaded"), report


GETADDRINFO = """
import socket
for host in ("localhost", "10.9.0.1", "fd09::1", None):
    print(socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE if host is None else 0))
"""


def test_names_are_looked_up_as_without_an_agent(offloaded: Place) -> None:
    plain = subprocess.run(offloaded.pair.near_command(sys.executable, "-c", GETADDRINFO), capture_output=True,
                           text=True, timeout=60, check=True).stdout  # fmt: skip
    started = offloaded.start_command(sys.executable, "-c", GETADDRINFO)
    with offloaded.ending(started):
        assert started.communicate(timeout=60)[0] == plain


# ---- reports about them

HOLDS = """
listener = made()
listener.bind(("::", 7831))
listener.listen()
s = socket.create_connection((server6, echo))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_addresses_stand_in_brackets(offloaded: Place) -> None:
    pages = ["--http", f"unix:{offloaded.tmp_path}/http.sock"]
    shows = [sys.executable, "-m", "offpath", "sockets", "ss", *pages]

    def rows() -> list[dict[str, str]]:
        told = subprocess.run([*shows, "--json"], capture_output=True, timeout=60, check=True).stdout
        made: list[dict[str, str]] = json.loads(told)
        return made

    with echo_server(offloaded.pair, ECHO_PORT, IPV6):
        holds = offloaded.start(BEGIN + HOLDS, *addresses(offloaded))
        with offloaded.ending(holds):
            assert line_of(holds) == "ready"
            assert until(lambda: len(rows()) == 2)
            connection = next(row for row in rows() if row["remote"])
            listener = next(row for row in rows() if not row["remote"])
            assert connection["remote"] == f"[{KERNEL_ADDRESS_6}]:{ECHO_PORT}"
            assert connection["local"].startswith(f"[{AGENT_ADDRESS_6}]:")
            assert listener["local"] == "[::]:7831"
            table = subprocess.run(shows, capture_output=True, text=True, timeout=60, check=True).stdout
            assert f"[{KERNEL_ADDRESS_6}]:{ECHO_PORT}" in table and "[::]:7831" in table
            say(holds)
            assert holds.wait(60) == 0


# ---- without an agent

CONNECTS_ONCE = """
s = made()
report(outcome(s.connect, (server6, echo)), outcome(made(INET6, only).connect, ("::1", echo)))
"""


@pytest.mark.parametrize(("falls_back", "expected"), [(False, "ENETDOWN done"), (True, "done done")])
@pytest.mark.parametrize("supervised", [False, True], ids=["preloaded", "supervised"])
def test_without_an_agent(tmp_path: Path, pair: NetworkPair, supervised: bool, falls_back: bool, expected: str) -> None:
    place = Place(pair, tmp_path, False, family=IPV6)
    env = sockets.environment(f"unix:{tmp_path}/nothing.sock", preload=not supervised, fallback=falls_back)
    command = [sys.executable, "-c", IPV6.prelude + BEGIN + CONNECTS_ONCE, *addresses(place)]
    if supervised:
        command = [str(sockets.find_supervisor()), "--", *command]
    with echo_server(pair, ECHO_PORT, IPV6):
        done = subprocess.run(pair.far_command(*command), env=env, capture_output=True, text=True, timeout=60,
                              check=False)  # fmt: skip
    assert done.stdout.strip() == expected, done.stderr
