"""Descriptors that programs hand to an agent, perhaps in bad faith: the agent does not wait for their close."""

import array
import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import offpath
import pytest
from agent_process import AgentProcess, agent

WAIT_SECONDS = 30  # for an answer that takes a millisecond
LINGER_SECONDS = 600
OFFER = 11
FRAME = struct.pack("<IHH", 8, OFFER, 0) + struct.pack("<Q", 1)  # an offer, which has no place before hello


@contextlib.contextmanager
def lingering() -> Iterator[socket.socket]:
    """A socket whose last close waits: its peer takes no bytes. At the end the peer resets it, and the wait is over."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    try:
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(65536))
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_SECONDS))
        yield ours
    finally:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        ours.close()


def hand_over(to: socket.socket, given: socket.socket, data: bytes, flags: int = 0, count: int = 1) -> None:
    rights = array.array("i", [given.fileno()] * count)
    to.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], flags)


def connect(running: AgentProcess) -> socket.socket:
    to = socket.socket(socket.AF_UNIX)
    to.settimeout(WAIT_SECONDS)
    to.connect(running.ready["address"].removeprefix("unix:"))
    return to


def refused_frame(to: socket.socket, given: socket.socket) -> None:
    """The agent receives it, and refuses the frame."""
    hand_over(to, given, FRAME)


def more_than_fit(to: socket.socket, given: socket.socket) -> None:
    """The kernel closes those of a message that find no room."""
    hand_over(to, given, FRAME, count=100)


def out_of_band(to: socket.socket, given: socket.socket) -> None:
    """The kernel drops a byte out of band, and the descriptors with it."""
    hand_over(to, given, b"!", socket.MSG_OOB)
    to.sendall(FRAME)


def unread(to: socket.socket, given: socket.socket) -> None:
    """It lies behind a frame that is refused, in the socket that is closed."""
    to.sendall(FRAME)
    for _ in range(40):  # each takes a call to receive
        hand_over(to, given, b"?")


@pytest.mark.parametrize("way", [refused_frame, more_than_fit, out_of_band, unread])
def test_a_descriptor_whose_close_waits_holds_nobody_up(
    tmp_path: Path, way: Callable[[socket.socket, socket.socket], None]
) -> None:
    with agent(tmp_path, http=False) as running:
        with lingering() as given, connect(running) as to:
            os.kill(running.pid, signal.SIGSTOP)  # it gets the last reference
            way(to, given)
            given.close()
            os.kill(running.pid, signal.SIGCONT)
            with contextlib.suppress(ConnectionResetError):
                while to.recv(4096):  # until it is refused
                    pass
            offpath.connect(running.ready["address"], timeout=WAIT_SECONDS).close()
        assert running.process.poll() is None
        assert running.stop() == 0
