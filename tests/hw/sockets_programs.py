"""Programs at either end of the connections in sockets_guests.py, with offloaded sockets or with the kernel's.

Usage: sockets_programs.py site ADDRESS PORT SHA256   clients of a web server, whose file has this hash
                           values ADDRESS PORT        clients of redis, each of which gets back what it has set
                           serve PORT MIB             one end of a stream of so many MiB each way at once
                           stream ADDRESS PORT MIB    its other end
                           hold PORT                  keeps the connections that it accepts
                           wait ADDRESS PORT          waits for a byte, and says how the connection ended

A client tries again until a server listens. Each but `hold` ends with a line of what it has seen.
"""

from __future__ import annotations

import hashlib
import http.client
import random
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from checks import expect

CLIENTS, REQUESTS, VALUES = 8, 10, 25  # requests of a client, values of a client
VALUE_BYTES_MAX = 65_536
MIB = 1 << 20
LISTENS_WITHIN_S = 90.0
ANSWERS_WITHIN_S = 90.0


def connected(address: str, port: int) -> socket.socket:
    """A connection, once a server listens."""
    until = time.monotonic() + LISTENS_WITHIN_S
    while True:
        try:
            return socket.create_connection((address, port), ANSWERS_WITHIN_S)
        except OSError as error:
            if time.monotonic() > until:
                raise OSError(f"{address}:{port}: {error}") from error
            time.sleep(0.1)


def site(address: str, port: int, sha: str) -> str:
    connected(address, port).close()

    def ask(_: int) -> int:
        client = http.client.HTTPConnection(address, port, timeout=ANSWERS_WITHIN_S)
        total = 0
        for _ in range(REQUESTS):
            client.request("GET", "/file")
            body = client.getresponse().read()
            expect(hashlib.sha256(body).hexdigest() == sha, f"the file came with {len(body)} bytes, or changed")
            total += len(body)
        client.close()
        return total

    with ThreadPoolExecutor(CLIENTS) as clients:
        total = sum(clients.map(ask, range(CLIENTS)))
    return f"{CLIENTS * REQUESTS} answers on {CLIENTS} connections, {total / MIB:.0f} MiB, were right"


def values(address: str, port: int) -> str:
    connected(address, port).close()

    def work(number: int) -> int:
        own = random.Random(number)
        total = 0
        with connected(address, port) as client, client.makefile("rb") as answers:
            wanted = {}
            for name in (b"key%d_%d" % (number, each) for each in range(VALUES)):
                wanted[name] = own.randbytes(own.randrange(VALUE_BYTES_MAX))
                words = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in (b"SET", name, wanted[name]))
                client.sendall(b"*3\r\n" + words)
                said = answers.readline()
                expect(said == b"+OK\r\n", f"SET was answered with {said!r}")
            for name, value in wanted.items():
                client.sendall(b"GET %s\r\n" % name)
                said = answers.readline()
                expect(said == b"$%d\r\n" % len(value), f"GET of {len(value)} bytes was answered with {said!r}")
                expect(answers.read(len(value) + 2) == value + b"\r\n", f"a value of {len(value)} bytes has changed")
                total += len(value)
        return total

    with ThreadPoolExecutor(CLIENTS) as clients:
        total = sum(clients.map(work, range(CLIENTS)))
    return f"{CLIENTS * VALUES} values, {total / MIB:.1f} MiB, came back unchanged"


def received(connection: socket.socket, count: int) -> hashlib._Hash:
    """The hash of the next `count` bytes."""
    seen = hashlib.sha256()
    while count > 0:
        data = connection.recv(min(count, MIB))
        expect(data != b"", f"the stream ended {count} bytes before its end")
        seen.update(data)
        count -= len(data)
    return seen


def both_ways(connection: socket.socket, own: str, mib: int) -> str:
    """Sends and receives at once, then compares hashes with the other end's."""
    connection.settimeout(ANSWERS_WITHIN_S)
    sent = hashlib.sha256()

    def pour() -> None:
        source = random.Random(own)
        for _ in range(mib):
            piece = source.randbytes(MIB)
            sent.update(piece)
            connection.sendall(piece)

    with ThreadPoolExecutor(1) as sender:
        pouring = sender.submit(pour)
        seen = received(connection, mib * MIB)
        pouring.result()
    connection.sendall(sent.digest() + seen.digest())
    length = 2 * sent.digest_size
    theirs = b""
    while len(theirs) < length and (more := connection.recv(length - len(theirs))):
        theirs += more
    expect(theirs == seen.digest() + sent.digest(), f"the hashes of {mib} MiB differ between both ends")
    return f"{mib} MiB each way at once, the same hashes at both ends"


def serve(port: int, mib: int) -> str:
    with socket.create_server(("0.0.0.0", port)) as listener:
        connection, _ = listener.accept()
        with connection:
            return both_ways(connection, "served", mib)


def stream(address: str, port: int, mib: int) -> str:
    with connected(address, port) as connection:
        return both_ways(connection, "asked", mib)


def hold(port: int) -> None:
    with socket.create_server(("0.0.0.0", port)) as listener:
        held = [listener.accept()]
        while held:
            held.append(listener.accept())


def wait(address: str, port: int) -> str:
    with connected(address, port) as connection:
        connection.settimeout(None)
        print("connected", flush=True)
        try:
            return f"received {connection.recv(1)!r}"
        except OSError as error:
            return f"{type(error).__name__}: {error}"


def main() -> None:
    what, *words = sys.argv[1:]
    programs = {"site": site, "values": values, "serve": serve, "stream": stream, "hold": hold, "wait": wait}
    print(programs[what](*(int(word) if word.isdigit() else word for word in words)))


if __name__ == "__main__":
    main()
