"""Programs as they are, over offloaded sockets of both families, each beside a peer in the kernel of another network
namespace."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_process import AgentProcess, connections_of, until
from kernel_or_agent import Place
from network_pair import Family, NetworkPair, missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of
from unpacked_programs import LIBRARIES, UNPACKED, program

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)

LONG = "OFFPATH_LONG" in os.environ  # ./dev test --long


class Sides:
    """The two namespaces. Which of them is offloaded is said with each program."""

    def __init__(self, tmp_path: Path, pair: NetworkPair, family: Family) -> None:
        self.tmp_path, self.pair, self.family = tmp_path, pair, family
        self.most: int | None = None  # sockets of an offloaded program
        self.served_by = 0

    def command(self, offloaded: bool, *words: str) -> list[str]:
        return self.pair.near_command(*words) if offloaded else self.pair.far_command(*words)

    def environment(self, offloaded: bool) -> dict[str, str]:
        made = dict(os.environ)
        if offloaded:
            made = Place(self.pair, self.tmp_path, True, family=self.family).environment(most=self.most)
        return {**made, "LD_LIBRARY_PATH": str(LIBRARIES)}

    def address(self, offloaded: bool) -> str:
        return self.family.agent if offloaded else self.family.kernel

    def at(self, offloaded: bool, port: int) -> str:
        """Its port, as in a URL."""
        return f"{self.family.url(self.address(offloaded))}:{port}"

    def run(self, offloaded: bool, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.command(offloaded, *words), env=self.environment(offloaded), capture_output=True,
                              timeout=60, check=False)  # fmt: skip

    @contextmanager
    def server(self, offloaded: bool, *words: str) -> Iterator[Path]:
        """Its log. It may not be listening when this returns. Its processes end with the block; ``served_by`` is the
        first of them."""
        path = self.tmp_path / "server.log"
        with path.open("wb") as log:
            started = subprocess.Popen(self.command(offloaded, *words), env=self.environment(offloaded), stdout=log,
                                       stderr=log, start_new_session=True)  # fmt: skip
        self.served_by = started.pid
        try:
            yield path
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


@pytest.fixture
def sides(tmp_path: Path, pair: NetworkPair, served: AgentProcess, family: Family) -> Sides:
    return Sides(tmp_path, pair, family)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "small").write_text("hello\n")
    (folder / "large").write_bytes(os.urandom(3_000_000))
    return folder


PATIENT = ["--timeout", "30s"]  # of wrk: an answer that a busy machine delays for 2 s is no error


def expect_site(sides: Sides, site: Path, log: Path, port: int) -> None:
    """Both files come whole, and wrk, with 50 connections kept open, gets no wrong answer."""
    address = f"http://{sides.at(True, port)}"
    curl = ["curl", "--silent", "--fail", "--max-time", "60"]
    assert until(lambda: sides.run(False, *curl, f"{address}/small").stdout == b"hello\n"), log.read_text()
    assert sides.run(False, *curl, f"{address}/large").stdout == (site / "large").read_bytes()
    asked = sides.run(False, program("wrk"), *PATIENT, "-t2", "-c50", "-d1", f"{address}/small")
    assert asked.returncode == 0, asked
    assert b"requests in" in asked.stdout and b"Socket errors" not in asked.stdout, asked.stdout.decode()
    assert b"Non-2xx" not in asked.stdout, asked.stdout.decode()


def lighttpd(tmp_path: Path, site: Path, port: int, family: Family) -> list[str]:
    """The command that serves ``site``."""
    configuration = tmp_path / "lighttpd.conf"
    configuration.write_text(
        f'server.document-root = "{site}"\nserver.port = {port}\nserver.modules = ()\n'
        f'server.bind = "{family.url(family.everywhere)}"\n'
    )
    modules = next(UNPACKED.glob("usr/lib/lighttpd"), Path("/usr/lib/lighttpd"))
    return [program("lighttpd"), "-D", "-f", str(configuration), "-m", str(modules)]


def test_lighttpd(tmp_path: Path, sides: Sides, site: Path) -> None:
    with sides.server(True, *lighttpd(tmp_path, site, 7401, sides.family)) as log:
        expect_site(sides, site, log, 7401)


@pytest.mark.parametrize("offloaded", ["server", "client"])
def test_a_file_of_a_gibibyte(tmp_path: Path, sides: Sides, site: Path, offloaded: str) -> None:
    sent, received = site / "file", tmp_path / "received"
    with sent.open("wb") as file:
        for _ in range(1024 if LONG else 64):
            file.write(os.urandom(1 << 20))
    serves = offloaded == "server"
    with sides.server(serves, *lighttpd(tmp_path, site, 7407, sides.family)) as log:
        address = f"http://{sides.at(serves, 7407)}"
        curl = ["curl", "--silent", "--fail", "--max-time", "50"]
        assert until(lambda: sides.run(not serves, *curl, f"{address}/small").returncode == 0), log.read_text()
        assert sides.run(not serves, *curl, "--output", str(received), f"{address}/file").returncode == 0
    with sent.open("rb") as one, received.open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()


def test_connections_that_end_leave_nothing(tmp_path: Path, sides: Sides, site: Path, served: AgentProcess) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{sides.served_by}/fd"))

    with sides.server(True, *lighttpd(tmp_path, site, 7408, sides.family)) as log:
        address = f"http://{sides.at(True, 7408)}/small"
        ask_once = ["curl", "--silent", "--fail", "--max-time", "20", address]
        assert until(lambda: sides.run(False, *ask_once).returncode == 0), log.read_text()
        assert until(lambda: b"ESTABLISHED" not in connections_of(tmp_path))
        before = descriptors()
        ended, bursts, resident = 0, 0, 0
        while bursts < 2 or ended < (100_000 if LONG else 5_000):
            asked = sides.run(False, program("wrk"), *PATIENT, "-t1", "-c50", "-d1", "-H", "Connection: close", address)
            assert asked.returncode == 0 and b"Socket errors" not in asked.stdout, asked
            ended += int(asked.stdout.partition(b" requests in")[0].split()[-1])
            bursts += 1
            resident = resident or served.resident_bytes()  # after the first
        for state in (b"ESTABLISHED", b"CLOSE-WAIT"):
            assert until(lambda state=state: state not in connections_of(tmp_path))
        assert until(lambda: descriptors() <= before)  # fewer: lighttpd has given up a file that it kept open
        # Ended connections are remembered for a minute, at most 16,385 of them: 256 bytes each and their index.
        assert served.resident_bytes() - resident < 16 << 20


def test_nginx_with_two_processes(tmp_path: Path, sides: Sides, site: Path) -> None:
    nginx = program("nginx")
    (tmp_path / "logs").mkdir()
    temporary = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"daemon off; worker_processes 2; error_log stderr; pid {tmp_path}/pid; user root;\n"
        "events { worker_connections 500; }\n"
        f"http {{ access_log off; sendfile on; {temporary} server {{\n"
        f"listen {sides.family.url(sides.family.everywhere)}:7402; root {site}; }} }}\n"
    )
    tmp_path.chmod(0o755)
    with sides.server(True, nginx, "-p", str(tmp_path), "-c", str(configuration)) as log:
        expect_site(sides, site, log, 7402)


def test_wrk(sides: Sides, site: Path) -> None:
    wrk = program("wrk")
    words = ["7403", "--directory", str(site), "--bind", sides.family.everywhere]
    with sides.server(False, sys.executable, "-m", "http.server", *words) as log:
        address = f"http://{sides.at(False, 7403)}/small"
        assert until(lambda: sides.run(False, "curl", "--silent", address).stdout == b"hello\n"), log.read_text()
        asked = sides.run(True, wrk, *PATIENT, "-t2", "-c20", "-d1", address)
        assert asked.returncode == 0, asked
        assert b"requests in" in asked.stdout and b"Socket errors" not in asked.stdout, asked.stdout.decode()


# Values of all lengths by eight threads, each of which reads back its own values.
MEMCACHED_CLIENT = """
import os, socket, sys, threading

def work(number):
    s = socket.create_connection((sys.argv[1], 7404), 60)
    answers = s.makefile("rb")
    for i in range(300):
        name, value = b"k%d_%d" % (number, i % 50), os.urandom(1 + i * 137 % 50_000).hex().encode()
        s.sendall(b"set %s 0 0 %d\\r\\n%s\\r\\n" % (name, len(value), value))
        assert answers.readline() == b"STORED\\r\\n"
        s.sendall(b"get %s\\r\\n" % name)
        header = answers.readline()
        assert header == b"VALUE %s 0 %d\\r\\n" % (name, len(value)), header
        assert answers.read(len(value) + 2) == value + b"\\r\\n" and answers.readline() == b"END\\r\\n"
    served.append(number)

served = []
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(*sorted(served))
"""


def test_memcached_with_four_threads(sides: Sides) -> None:
    # -M: nothing that was stored makes room for something else.
    words = ["-u", "root", "-l", sides.family.everywhere, "-p", "7404", "-U", "0", "-t", "4", "-m", "1024", "-M"]
    with sides.server(True, program("memcached"), *words):
        hello = f"import socket; socket.create_connection(('{sides.address(True)}', 7404), 1)"
        assert until(lambda: sides.run(False, sys.executable, "-c", hello).returncode == 0)
        done = sides.run(False, sys.executable, "-c", MEMCACHED_CLIENT, sides.address(True))
        assert done.stdout == b"0 1 2 3 4 5 6 7\n", done


# An iperf3 server gives streams their roles in the order in which it accepts them. If the client has begun them in
# another order, --bidir hangs: both ends send on one stream, and neither on the other
# (https://github.com/esnet/iperf/issues/2029). The order may change between two cores of an agent while one of them has
# no processor. Connections from these two ports are one core's (Ports.OfOneIperf3AreOneCores).
CLIENT_PORTS_OF_ONE_CORE = ["--cport", "20009"]  # and 20010


@pytest.mark.parametrize(
    "way", [[], ["--reverse"], ["--parallel", "4"], ["--bidir"]], ids=["to", "from", "four", "both"]
)
@pytest.mark.parametrize("offloaded", ["server", "client"])
def test_iperf3(sides: Sides, cores: int, offloaded: str, way: list[str]) -> None:
    iperf3 = program("iperf3")
    serves = offloaded == "server"
    with sides.server(serves, iperf3, "--server", "--port", "7405"):  # for both families
        address = sides.address(serves)
        client = [iperf3, "--client", address, "--port", "7405", "--bytes", "20M", *way]
        if serves and cores > 1 and "--bidir" in way:  # once in a namespace, where the ports stay in use for a minute
            client += CLIENT_PORTS_OF_ONE_CORE
        deadline = time.monotonic() + 60
        done = sides.run(not serves, *client)
        while b"unable to connect" in done.stderr and time.monotonic() < deadline:
            time.sleep(0.1)
            done = sides.run(not serves, *client)
        assert done.returncode == 0 and b"iperf Done." in done.stdout, done


ASYNCIO_SERVER = """
import asyncio

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(echo, EVERYWHERE, 7406)
    await server.serve_forever()

asyncio.run(main())
"""

ASYNCIO_CLIENT = """
import asyncio, os, sys

async def exchange(number):
    reader, writer = await asyncio.open_connection(sys.argv[1], 7406)
    data = os.urandom(100_000 + 1000 * number)
    async def send():
        for at in range(0, len(data), 7000):
            writer.write(data[at : at + 7000])
            await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    assert await reader.read() == data
    await sending
    writer.close()
    await writer.wait_closed()

async def main():
    await asyncio.gather(*(exchange(number) for number in range(40)))
    print("done")

asyncio.run(main())
"""


MANY_CLIENT = """
import asyncio, os, sys

async def exchange(reader, writer):
    data = os.urandom(1000)
    writer.write(data)
    assert await reader.readexactly(len(data)) == data

async def main():
    few = asyncio.Semaphore(50)
    async def connect():
        async with few:
            return await asyncio.open_connection(sys.argv[1], 7406)
    made = await asyncio.gather(*(connect() for _ in range(int(sys.argv[2]))))
    for _ in range(3):
        await asyncio.gather(*(exchange(*each) for each in made))
    print(len(made))

asyncio.run(main())
"""


@pytest.mark.parametrize("offloaded", ["server", "client"])
def test_thousands_of_connections_at_once(sides: Sides, offloaded: str) -> None:
    serves, count = offloaded == "server", 4096 if LONG else 512
    sides.most = count + 300
    python = ["prlimit", f"--nofile={4 * count}", sys.executable, "-c"]
    with sides.server(serves, *python, sides.family.prelude + ASYNCIO_SERVER) as log:
        address = sides.address(serves)
        hello = f"import socket; socket.create_connection(('{address}', 7406), 1)"
        assert until(lambda: sides.run(not serves, sys.executable, "-c", hello).returncode == 0), log.read_text()
        done = sides.run(not serves, *python, MANY_CLIENT, address, str(count))
        assert (done.returncode, done.stdout) == (0, b"%d\n" % count), (done, log.read_text())


@pytest.mark.parametrize("offloaded", ["server", "client"])
def test_asyncio(sides: Sides, offloaded: str) -> None:
    serves = offloaded == "server"
    with sides.server(serves, sys.executable, "-c", sides.family.prelude + ASYNCIO_SERVER) as log:
        address = sides.address(serves)
        hello = f"import socket; socket.create_connection(('{address}', 7406), 1)"
        assert until(lambda: sides.run(not serves, sys.executable, "-c", hello).returncode == 0), log.read_text()
        done = sides.run(not serves, sys.executable, "-c", ASYNCIO_CLIENT, address)
        assert (done.returncode, done.stdout) == (0, b"done\n"), done
