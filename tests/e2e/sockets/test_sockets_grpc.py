"""gRPC, whose sockets are of IPv6 whatever the address: a server for both families and a client of mapped addresses,
each with sockets of the kernel and offloaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

import pytest
from kernel_or_agent import Place, line_of
from network_pair import missing
from offloading_agents import SETUPS, SETUPS_OF_IPV6, setup_of

pytest.importorskip("grpc")
pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of({"2-cores": SETUPS["2-cores"], "ipv6-over-a-link": SETUPS_OF_IPV6["ipv6-over-a-link"]})

PORT = 7719
SERVES = f"""
from concurrent import futures
import grpc
class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/echo/one":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((Echo(),))
assert server.add_insecure_port("[::]:{PORT}") == {PORT}
server.start()
print("ready", flush=True)
server.wait_for_termination()
"""
# Calls one after the other, many at once, and a stream both ways.
ASKS = """
import os, sys
import grpc
with grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_http_proxy", 0)]) as channel:
    one, each = channel.unary_unary("/echo/one"), channel.stream_stream("/echo/each")
    for size in (0, 1, 100_000, 3_000_000):
        body = os.urandom(size)
        assert one(body, timeout=60, wait_for_ready=True) == body, size
    bodies = [os.urandom(2_000) for _ in range(200)]
    asked = [one.future(body, timeout=60) for body in bodies]
    assert [call.result() for call in asked] == bodies
    bodies = [os.urandom(50_000) for _ in range(40)]
    assert list(each(iter(bodies), timeout=60)) == bodies
    print("same", flush=True)
"""


@contextmanager
def server_of_a_peer(place: Place) -> Iterator[None]:
    with Popen(place.pair.far_command(sys.executable, "-c", SERVES), stdout=PIPE, text=True) as serves:
        try:
            assert line_of(serves) == "ready"
            yield
        finally:
            serves.kill()


def test_a_server_of_grpc(place: Place) -> None:
    with place.running(SERVES):
        asked = place.asked(sys.executable, "-c", ASKS, place.at(PORT))
    assert asked.stdout == b"same\n", asked.stderr


def test_a_client_of_grpc(place: Place) -> None:
    with server_of_a_peer(place):
        client = place.start_command(sys.executable, "-c", ASKS, place.at_peer(PORT))
        with place.ending(client):
            assert line_of(client) == "same"
            assert client.wait(60) == 0
