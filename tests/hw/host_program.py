"""The program of the machine without the agent, in the tests with two guests.

Usage: host_program.py move|stream|endure ADDRESS KEY [SECONDS]. `move`: batches there and back, checked. `stream`: the
same batch again and again for a while, each one checked; no error may come. `endure`: sends until the channel ends, and
says how it ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
import offpath
import pyarrow as pa
import rdma_checks
from checks import expect

ROWS = 16_384
WAIT_S = 200.0  # longer than a silent machine goes unnoticed


def batches(session: offpath.Session, name: str) -> Iterator[int]:
    """Sends one batch and reads it back, for as long as it is asked for the next. Passes the library's exceptions
    on."""
    schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
    values = np.arange(ROWS)
    pool = session.pool(f"local:/{name}")
    with session.stream(name, schema, rows_max=ROWS, keep=4) as stream:
        number = 0
        while True:
            values += 1
            stream.send({"value": values}, key=f"batch{number}").wait_stored(WAIT_S)
            back = pool.get_batch(f"batch{number}", timeout=WAIT_S)["value"].to_numpy()
            expect(np.array_equal(back, values), f"batch {number} came back changed")
            number += 1
            yield number


def main() -> None:
    what, address, key = sys.argv[1:4]
    with offpath.connect(address, key_file=key, name=what) as session:
        if what == "move":
            print(rdma_checks.move_batches(session))
        elif what == "stream":
            end = time.monotonic() + float(sys.argv[4])
            longest, before = 0.0, time.monotonic()
            for number in batches(session, "streamed"):
                now = time.monotonic()
                longest, before = max(longest, now - before), now
                if number == 1:
                    print("sending", flush=True)
                if now > end:
                    break
            print(f"{number} batches, the longest took {longest:.1f} s")
        else:
            began = time.monotonic()
            try:
                for number in batches(session, "endured"):
                    began = time.monotonic()
                    if number == 1:
                        print("sending", flush=True)
            except offpath.Error as error:
                print(f"{type(error).__name__} after {time.monotonic() - began:.0f} s: {error}")


if __name__ == "__main__":
    main()
