"""Programs that wait for offloaded sockets: in epoll and its kin, in several threads, and with signals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import AgentProcess
from echo_server import echo_server
from network_pair import Family, NetworkPair, missing
from offloading_agents import SETUPS_AND_IPV6_ONCE, environment, fetch, setup_of

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_AND_IPV6_ONCE)

# The received bytes equal the sent ones: the peer sends every byte back.
EPOLL_AND_KIN = """
import os, select, socket, sys, threading, time

def connection():
    made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made

s, other = connection(), connection()
epoll = select.epoll()
back, front = os.pipe()
epoll.register(back, select.EPOLLIN)
names = {s.fileno(): "socket", back: "pipe", other.fileno(): "other"}

def events(wait):
    return sorted((names[fd], what) for fd, what in epoll.poll(wait))

def say(what, expected, got):
    if expected != got:
        print(f"{what}: {got}, not {expected}", flush=True)

IN, OUT = select.EPOLLIN, select.EPOLLOUT
epoll.register(s, IN)
say("nothing came", [], events(0.05))
s.send(b"1")
say("a byte came", [("socket", IN)], events(10))
say("it is there still", [("socket", IN)], events(0))
os.write(front, b"x")
both, until = set(), time.monotonic() + 10
while len(both) < 2 and time.monotonic() < until:  # the kernel is not asked every time
    both |= set(events(10))
say("beside the kernel's", {("pipe", IN), ("socket", IN)}, both)
os.read(back, 1)
say("read", b"1", s.recv(100))
say("nothing is there", [], events(0))
os.write(front, b"x")
say("the kernel's alone", [("pipe", IN)], events(10))
os.read(back, 1)

epoll.modify(s, IN | select.EPOLLET)
for byte in (b"2", b"3"):
    s.send(byte)
    say("an edge", [("socket", IN)], events(10))
    say("an edge is told once", [], events(0.05))
epoll.modify(s, IN | select.EPOLLONESHOT)
say("one shot", [("socket", IN)], events(10))
say("no other", [], events(0.05))
epoll.modify(s, IN | OUT)
say("armed again", [("socket", IN | OUT)], events(10))
say("both bytes", b"23", s.recv(100))
epoll.modify(s, IN)

s.setblocking(False)
sent = 0
try:
    while True:
        sent += s.send(bytes(65536))
except BlockingIOError:
    pass
epoll.modify(s, OUT | select.EPOLLET)
left = sent
while left > 0:
    left -= len(s.recv(65536)) if select.select([s], [], [], 10)[0] else say("more", "", "nothing") or left
say("room again", [("socket", OUT)], events(10))
epoll.modify(s, IN)
s.setblocking(True)

got = []
reader = threading.Thread(target=lambda: got.append(other.recv(1)))
reader.start()
waiter = threading.Thread(target=lambda: got.append(events(10)))
waiter.start()
time.sleep(0.2)
other.send(b"4")
reader.join(10)
say("who waits in recv", [b"4"], got)
s.send(b"5")
waiter.join(10)
say("who waits in epoll", [b"4", [("socket", IN)]], got)
late = threading.Timer(0.2, lambda: epoll.register(other, OUT))
say("read", b"5", s.recv(1))
late.start()
say("registered while one waits", [("other", OUT)], events(10))
late.join()
epoll.unregister(other)

s.send(b"6")
say("poll", True, bool((lambda p: (p.register(s, select.POLLIN), p.poll(10000)))(select.poll())[1]))
say("select", [s], select.select([s], [], [], 10)[0])
copy = os.dup(epoll.fileno())
say("a copy of the set", [(s.fileno(), IN)], select.epoll.fromfd(copy).poll(10))
outer = select.epoll()
outer.register(epoll, IN)
say("nested", [(epoll.fileno(), IN)], outer.poll(10))
say("read", b"6", s.recv(1))
say("nested, and nothing there", [], outer.poll(0))
s.send(b"7")
say("nested, and it comes", [(epoll.fileno(), IN)], outer.poll(10))
say("inside", [("socket", IN)], events(0))
print("done")
"""


def test_epoll_and_its_kin(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> None:
    with echo_server(pair, "7101", family):
        command = pair.near_command(sys.executable, "-c", EPOLL_AND_KIN, family.kernel, "7101")
        done = fetch(command, environment(tmp_path, family))
        assert (done.stdout, done.stderr) == (b"done\n", b"")


# One thread waits for each answer in epoll, where only a wake ends its wait; another one connects, reads and closes, so
# the library's own thread begins and ends its sleep all the time.
WAITS_BESIDE_OTHERS = """
import os, select, socket, sys, threading
there = (sys.argv[1], int(sys.argv[2]))
ended = threading.Event()

def connect():
    while not ended.is_set():
        with socket.create_connection(there) as made:
            made.sendall(b"x")
            assert made.recv(1) == b"x"

def wait(number):
    with socket.create_connection(there) as made, select.epoll() as epoll:
        epoll.register(made, select.EPOLLIN)
        for i in range(400):
            made.sendall(b"y")
            if not epoll.poll(20):
                print(f"thread {number}: answer {i} was not told", flush=True)
                os._exit(1)
            assert made.recv(1) == b"y"

others = [threading.Thread(target=connect, daemon=True) for _ in range(2)]
waiting = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(2)]
for each in others + waiting:
    each.start()
for each in waiting:
    each.join()
ended.set()
for each in others:
    each.join()
print("done")
"""


def test_threads_in_epoll_are_woken_while_others_connect(
    tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family
) -> None:
    with echo_server(pair, "7104", family):
        command = pair.near_command(sys.executable, "-c", WAITS_BESIDE_OTHERS, family.kernel, "7104")
        done = fetch(command, environment(tmp_path, family))
        assert (done.stdout, done.stderr) == (b"done\n", b"")


# Each waiting call, interrupted repeatedly until its event comes after a while: returns its result, or its errno.
INTERRUPTED = """
import ctypes, os, signal, socket, struct, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGUSR1, lambda *_: None)
listener = socket.create_server((EVERYWHERE, 7104), family=FAMILY)
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
byte = ctypes.create_string_buffer(1)

def interrupted(call, end):
    main, returned = threading.main_thread().ident, threading.Event()
    def interrupt():
        while not returned.wait(0.05):
            signal.pthread_kill(main, signal.SIGUSR1)
    late = threading.Timer(0.6, end)
    others = [threading.Thread(target=interrupt), late]
    for each in others: each.start()
    got = call()
    code = ctypes.get_errno()
    returned.set()
    for each in others: each.join()
    return "EINTR" if got < 0 and code == 4 else "goes on" if got > 0 else str((got, code))

def recv():
    return libc.recv(s.fileno(), byte, 1, 0)

def echo():
    s.send(b"x")

for restarts in (False, True):
    signal.siginterrupt(signal.SIGUSR1, not restarts)
    print("recv", restarts, interrupted(recv, echo))
    if not restarts:
        s.recv(1)  # the echo
    print("accept", restarts, interrupted(lambda: libc.accept(listener.fileno(), None, None),
                                          lambda: (print("connect", flush=True), time.sleep(1))))
    if not restarts:
        listener.accept()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 20, 0))
print("recv with a limit", interrupted(recv, echo))
print("done", flush=True)
"""


def test_signals_interrupt_what_waits(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> None:
    command = pair.near_command(sys.executable, "-c", family.prelude + INTERRUPTED, family.kernel, "7105")
    said = []
    with (
        echo_server(pair, "7105", family),
        subprocess.Popen(command, env=environment(tmp_path, family), stdout=subprocess.PIPE) as program,
    ):
        try:
            assert program.stdout is not None
            for line in program.stdout:
                if line == b"connect\n":
                    hello = f"import socket; socket.create_connection(('{family.agent}', 7104), 60)"
                    fetch(pair.far_command(sys.executable, "-c", hello))
                else:
                    said.append(line.decode().strip())
        finally:
            program.kill()
    assert said == ["recv False EINTR", "accept False EINTR", "recv True goes on", "accept True goes on",
                    "recv with a limit EINTR", "done"]  # fmt: skip
