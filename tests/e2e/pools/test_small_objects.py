"""Objects of a page or less: many to a mapping, whichever way they are read."""

from __future__ import annotations

import secrets
from pathlib import Path

import offpath
from agent_process import agent

SIZES = (0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 10_000)  # enclosed, copied, with a descriptor of their own


def test_they_are_read_as_they_were_put_here_and_over_the_network(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    both = ["--listen", f"unix:{tmp_path}/agent.sock", "--listen", "tcp:127.0.0.1:0"]
    with agent(tmp_path, *both, "--set", f"security.key_file={key}") as running:
        addresses = running.ready.get("addresses") or [running.ready["address"]]
        objects = {f"{size}": secrets.token_bytes(size) for size in SIZES}
        with offpath.connect(f"unix:{tmp_path}/agent.sock") as session:
            for row, data in objects.items():
                session.pool("local:/small").put(data, row, timeout=60)
        for address in addresses:
            with offpath.connect(address, key_file=key) as session:
                pool = session.pool("local:/small")
                held = {row: pool.get_bytes(row, timeout=60) for row in objects}
                pool.put(b"x" * 4096, "another", timeout=60)
                pool.drop("another", timeout=60)
                assert {row: each.to_pybytes() for row, each in held.items()} == objects, address


def test_thousands_of_them_take_a_few_frames(tmp_path: Path) -> None:
    count = 5_000
    with (
        agent(tmp_path, "--set", "limits.frames_max=16") as running,
        offpath.connect(running.ready["address"]) as session,
    ):
        pool = session.pool("local:/small")
        for row in range(count):
            pool.put(row.to_bytes(8, "little") * 200, f"{row}", timeout=60)
        assert all(
            pool.get_bytes(f"{row}", timeout=60).to_pybytes() == row.to_bytes(8, "little") * 200 for row in range(count)
        )
        assert pool.drop(timeout=60) == count
