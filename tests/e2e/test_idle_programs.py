"""Programs that are idle beside one that keeps the agent busy: the agent does not poll most of them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import offpath
from agent_process import agent
from side_thread import side_thread
from waiting import until

IDLE = 40  # more than are polled
IDLE_SECONDS = 0.3  # longer than it is before it is not polled


def busy_program(address: str) -> contextlib.AbstractContextManager[None]:
    def ask(over: threading.Event) -> None:
        with offpath.connect(address, name="busy") as session:
            while not over.is_set():
                session.probe(60)

    return side_thread(ask)


def test_idle_programs_are_served_beside_a_busy_one(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    listen = ["--listen", f"unix:{tmp_path}/agent.sock", "--listen", "tcp:127.0.0.1:0", "--key-file", str(key)]
    with agent(tmp_path, *listen) as a, contextlib.ExitStack() as sessions:
        addresses = a.ready["addresses"]
        idle = [
            sessions.enter_context(offpath.connect(addresses[i % 2], key_file=key, ring_slots=64)) for i in range(IDLE)
        ]
        with busy_program(addresses[0]):
            for _ in range(2):
                time.sleep(IDLE_SECONDS)
                for each in idle:
                    each.probe(60)
            time.sleep(IDLE_SECONDS)
            for each in idle[: IDLE // 2]:
                each.close()
            assert until(lambda: len(a.status()["channels"]) == IDLE // 2 + 1)
            time.sleep(IDLE_SECONDS)
            for each in idle[IDLE // 2 :]:
                each.probe(60)
