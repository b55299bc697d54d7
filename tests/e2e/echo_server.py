"""A server in the kernel of the other network namespace that sends all input back, on any number of connections."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from network_pair import IPV4, Family, NetworkPair

PROGRAM = """
import socket, sys, threading
def echo(connection):
    try:
        while data := connection.recv(65536):
            connection.sendall(data)
    except OSError:
        pass
    connection.close()
listener = socket.create_server((EVERYWHERE, int(sys.argv[1])), family=FAMILY)
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=echo, args=(connection,), daemon=True).start()
"""


@contextmanager
def echo_server(pair: NetworkPair, port: str, family: Family = IPV4) -> Iterator[None]:
    """It listens at ``port`` as long as the block runs."""
    command = pair.far_command(sys.executable, "-c", family.prelude + PROGRAM, port)
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listening\n"
        yield
    finally:
        server.kill()
        server.wait()
