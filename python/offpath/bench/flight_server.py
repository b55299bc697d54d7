"""An Arrow Flight server in Python, the peer of a move: ``python -m offpath.bench.flight_server CORE``.

Prints its port, then serves until it is ended. A put that carries metadata is the last of its batch: the server keeps
the batch and answers.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import pyarrow as pa
import pyarrow.flight as flight

PR_SET_PDEATHSIG = 1


class HoldingServer(flight.FlightServerBase):
    """Holds the record batches of the last put."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.held: list[pa.RecordBatch] = []

    def do_put(self, context, descriptor, reader, writer) -> None:
        arriving: list[pa.RecordBatch] = []
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            if chunk.data is not None:
                arriving.append(chunk.data)
            if chunk.app_metadata is not None:
                self.held, arriving = arriving, []
                writer.write(pa.py_buffer(b"stored"))


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.sched_setaffinity(0, {int(sys.argv[1])})
    server = HoldingServer()
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
