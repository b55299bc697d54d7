"""Sends batches whose every byte is known and prints the resulting frames: a line of JSON, each frame's SHA-256 by
name.

Usage: frame_digests.py ADDRESS [KEY]. Frames are compared between agents on different processors: the batches take
every way that bytes are moved or changed on the agent (rows split, bits packed and shifted, offsets rebased, validity,
text, dictionaries, Arrow's own writer).
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import offpath
import pyarrow as pa

ROWS = 40_961  # odd, and more than one page of anything
WAIT_S = 120.0
DESTINATIONS = ("ipc", "ipc-page", "agent-serialise")


def batches() -> dict[str, pa.RecordBatch]:
    """One of each kind. Sliced ones begin within a byte of their bitmaps and within their offsets."""
    random = np.random.default_rng(20260101)
    numbers = random.integers(-(2**62), 2**62, ROWS)
    some = random.random(ROWS) < 0.3
    words = [None if skipped else f"word {number % 977}" for number, skipped in zip(numbers, some, strict=True)]
    lists = [None if skipped else list(range(number % 5)) for number, skipped in zip(numbers, some, strict=True)]
    whole = pa.record_batch({
        "int64": pa.array(numbers),
        "float32": pa.array(random.normal(size=ROWS).astype(np.float32), mask=some),
        "bool": pa.array(numbers % 3 == 0, mask=some),
        "utf8": pa.array(words),
        "large_utf8": pa.array(words, pa.large_utf8()),
        "list": pa.array(lists),
        "dictionary": pa.array(words).dictionary_encode(),
        "decimal": pa.array(numbers).cast(pa.decimal128(38, 2)),
        "struct": pa.array([{"a": int(number) % 100, "b": bool(number % 2)} for number in numbers]),
    })  # fmt: skip
    return {"whole": whole, "slice": whole.slice(13, 30_001), "one row": whole.slice(7, 1), "empty": whole.slice(5, 0)}


def interleaved() -> tuple[pa.Schema, dict[str, np.ndarray]]:
    """Columns of arrays of records, which the agent splits: rows of three, and records with a boolean."""
    random = np.random.default_rng(20260102)
    record = np.zeros(ROWS, np.dtype([("id", "i8"), ("x", "f4", 3), ("live", "?"), ("type", "i2")], align=True))
    record["id"] = random.integers(0, 2**62, ROWS)
    record["live"] = random.random(ROWS) < 0.5
    record["type"] = random.integers(0, 9, ROWS)
    x, v = random.normal(size=(ROWS, 3)), random.normal(size=(ROWS, 3)).astype(np.float32)
    columns = {"x": x[:, 0], "y": x[:, 1], "z": x[:, 2], "vx": v[:, 0], "vy": v[:, 1], "vz": v[:, 2],
               "id": record["id"], "live": record["live"], "type": record["type"]}  # fmt: skip
    fields = [pa.field(name, pa.from_numpy_dtype(values.dtype), nullable=False) for name, values in columns.items()]
    return pa.schema(fields), columns


def digests(session: offpath.Session) -> dict[str, str]:
    found = {}
    pool = session.pool("local:/digests")

    def look(name: str) -> None:
        frame = pool.get_frame(name, "", WAIT_S)
        found[name] = f"{frame.nbytes} {hashlib.sha256(frame.buffer()).hexdigest()}"

    for destination in DESTINATIONS:
        for kind, batch in batches().items():
            name = f"{destination}, {kind}"
            with session.stream("digests", batch.schema, rows_max=ROWS, destination=destination) as stream:
                stream.send(batch, key=name).wait_stored(WAIT_S)
            look(name)
    schema, columns = interleaved()
    with session.stream("digests", schema, rows_max=ROWS) as stream:
        stream.send(columns, key="interleaved").wait_stored(WAIT_S)
    look("interleaved")
    pool.drop()
    return found


def main() -> None:
    key = {"key_file": sys.argv[2]} if len(sys.argv) > 2 else {}
    with offpath.connect(sys.argv[1], name="digests", **key) as session:
        print(json.dumps(digests(session)))


if __name__ == "__main__":
    main()
