"""Programs of which the same test looks at sockets of the kernel and at offloaded ones."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from network_pair import IPV4, Family, NetworkPair
from offpath import sockets
from unpacked_programs import LIBRARIES


@dataclass
class Place:
    """Where a program runs whose sockets are looked at: its address, as seen by peers in the namespace ``far``."""

    pair: NetworkPair
    tmp_path: Path
    offloaded: bool
    supervised: bool = False  # offloaded by the supervisor, not by the preload library
    family: Family = IPV4  # of its address

    @property
    def address(self) -> str:
        return self.family.agent if self.offloaded else self.family.kernel

    @property
    def peers_address(self) -> str:
        """The address of peers: the kernel's in ``far``."""
        return self.family.kernel

    def at(self, port: int | str) -> str:
        """A port of its address, as in a URL."""
        return f"{self.family.url(self.address)}:{port}"

    def at_peer(self, port: int | str) -> str:
        return f"{self.family.url(self.peers_address)}:{port}"

    def environment(self, **options: Any) -> dict[str, str]:
        """The command in front of an offloaded program."""
        agent = f"unix:{self.tmp_path}/agent.sock"
        return sockets.environment(agent, **{"address": self.family.own, "preload": not self.supervised, **options})

    def start(self, program: str, *words: str) -> subprocess.Popen[str]:
        """Python, with its input and output as pipes, and with FAMILY and EVERYWHERE."""
        return self.start_command(sys.executable, "-c", self.family.prelude + program, *words)

    def start_command(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        enter = self.pair.near_command if self.offloaded else self.pair.far_command
        env = self.environment() if self.offloaded else dict(os.environ)
        if self.supervised:
            command = (str(sockets.find_supervisor()), "--", *command)
        return subprocess.Popen(enter(*command), env={**env, **variables}, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip

    def pid_of(self, started: subprocess.Popen[str]) -> int:
        """Of the program itself."""
        if not self.supervised:
            return started.pid
        return int(Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()[0])

    @contextmanager
    def ending(self, started: subprocess.Popen[str]) -> Iterator[None]:
        """It and its children end with the block."""
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    @contextmanager
    def running(self, program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Once it has written a line, "ready"."""
        started = self.start(program, *words)
        with self.ending(started):
            assert line_of(started) == "ready"
            yield started

    def peer(self, program: str, *words: str) -> str:
        """The output of a program with the kernel's sockets in ``far``."""
        program = self.family.prelude + program
        done = subprocess.run(self.pair.far_command(sys.executable, "-c", program, self.address, *words),
                              capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def serving(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """A program of packages/programs.txt, or another one. It may not be listening when this returns."""
        started = self.start_command(*command, LD_LIBRARY_PATH=str(LIBRARIES))
        with self.ending(started):
            yield started

    def asked(self, *command: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """By a peer in the kernel of ``far``."""
        return subprocess.run(self.pair.far_command(*command), input=given, capture_output=True, timeout=120,
                              check=False)  # fmt: skip

    def curl(self, port: int, path: str = "", *options: str) -> bytes:
        url = f"http://{self.at(port)}/{path}"
        return self.asked("curl", "--silent", "--fail", "--max-time", "60", *options, url).stdout


GREETER_PORT = 7799
GREETS = """
import http.server, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = FAMILY
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *_):
        pass
server = Server((EVERYWHERE, int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
"""


@contextmanager
def greeter(place: Place) -> Iterator[None]:
    """A server that another server asks: in the kernel of ``far``, at ``GREETER_PORT``."""
    program = place.family.prelude + GREETS
    command = place.pair.far_command(sys.executable, "-c", program, str(GREETER_PORT))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as greets:
        assert line_of(greets) == "ready"
        try:
            yield
        finally:
            greets.kill()


def answers(count: int, ask: Callable[[], bytes]) -> list[bytes]:
    """To questions of which several are asked at once."""
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda _: ask(), range(count)))


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def say(program: subprocess.Popen[str], line: str = "") -> None:
    assert program.stdin is not None
    program.stdin.write(line + "\n")
    program.stdin.flush()
