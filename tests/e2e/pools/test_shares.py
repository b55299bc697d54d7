"""The memory that one user leaves to the next one by default."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from agent_process import agent

SCHEMA = pa.schema([("value", pa.int64())])
ROWS = 2_000  # more than a page: each frame is a mapping
USER = 54321  # of no account

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes on a second user, which needs root")


def send_until_refused(session: offpath.Session, most: int) -> int:
    """How many frames the agent has taken."""
    stream = session.stream("frames", SCHEMA, rows_max=ROWS, pool=f"local:/frames-{os.getuid()}")
    for sent in range(most):
        try:
            stream.send({"value": np.full(ROWS, sent)}, key=f"row{sent}", wait=False).wait_stored(10)
        except (offpath.OutOfMemory, offpath.WouldBlock):
            return sent
    return most


def test_a_user_who_takes_all_frames_he_may_leaves_some_to_others(tmp_path: Path, open_path: Path) -> None:
    settings = ["--listen", f"unix:{open_path}/agent.sock", "--allow-uid", str(USER), "--set", "limits.frames_max=32"]
    with agent(tmp_path, *settings) as running, offpath.connect(running.ready["address"]) as session:
        pool = session.pool("local:/frames-0")
        assert send_until_refused(session, 64) == 28, running.log()
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:  # another user's program; its modules are loaded already
            taken = 0
            try:
                os.setgroups([])
                os.setresgid(USER, USER, USER)
                os.setresuid(USER, USER, USER)
                with offpath.connect(running.ready["address"]) as own:
                    taken = send_until_refused(own, 2)
            finally:
                os.write(theirs, bytes([taken]))
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(ours, 1) == bytes([2]), running.log()
        for descriptor in (ours, theirs):
            os.close(descriptor)
        for row in range(28):
            assert pool.get(f"row{row}", timeout=60)["value"][0].as_py() == row
