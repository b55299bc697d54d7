"""A machine that falls silent: the agent in one network namespace, a program in another, frames between them dropped.

Neither side gets a sign of it, no reset and no lost carrier: each has to notice by itself, within the time that the
agent's `limits.silence` says.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import agent_process
import pytest
from certificate import make_certificate
from switched_network import AGENT, Network, switched_network

SILENCE_S = 3
# Including the delays of a busy machine; by default the kernel would try for a quarter of an hour.
NOTICED_S = 4 * SILENCE_S
# How a program may be caught: as it sends, or asleep with nothing under way.
SENDS = """
import os, sys
import numpy as np, offpath, pyarrow as pa
address, key, ca, way = sys.argv[1:5]
rows = 1 << 18
values = np.arange(rows)
schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
with offpath.connect(address, key_file=key, tls_ca_file=ca or None, name="silenced") as session:
    with session.stream("frames", schema, rows_max=rows, keep=2) as stream:
        try:
            for number in range(1 << 30):
                stream.send({"value": values}, key=f"frame{number}").wait_stored(60.0)
                print(number, flush=True)
                if way == "sleeps":
                    session.pool("local:/frames").get("a frame that never comes", timeout=60.0)
        except offpath.Error as error:
            print(type(error).__name__, error, flush=True)
            os._exit(0)  # closing a lost session would raise again
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with switched_network() as made:
        yield made


class Program:
    """The program in its namespace; its lines, and the time of each."""

    def __init__(self, network: Network, address: str, key: Path, ca: str, way: str) -> None:
        self.process = subprocess.Popen(
            [*network.at("program"), sys.executable, "-c", SENDS, address, str(key), ca, way],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self.said_at: list[float] = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said_at.append(time.monotonic())
            self.lines.append(line.strip())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()


@contextlib.contextmanager
def program_and_agent(network: Network, directory: Path, kind: str, way: str, silence: str) -> Iterator:
    key = directory / "key"
    key.write_text("a key that both of them know")
    key.chmod(0o600)
    arguments = ["--listen", f"{kind}:{AGENT}:0", "--key-file", str(key), "--insecure-network"]
    ca = ""
    if kind == "tls":
        ca, private = map(str, make_certificate(directory, f"IP:{AGENT}"))
        arguments += ["--set", f"security.tls_certificate={ca}", "--set", f"security.tls_key={private}"]
    arguments += ["--set", f"limits.silence={silence}"]
    with agent_process.agent(directory, *arguments, http=False, launcher=network.at("agent")) as agent:
        program = Program(network, agent.ready["address"], key, ca, way)
        try:
            assert agent_process.until(lambda: program.lines), agent.log()
            assert program.lines[0] == "0", program.lines
            yield program, agent
        finally:
            program.end()


@pytest.mark.parametrize(("kind", "way"), [("tcp", "sends"), ("tcp", "sleeps"), ("tls", "sends"), ("tls", "sleeps")])
def test_both_sides_notice_and_say_what_happened(network: Network, tmp_path: Path, kind: str, way: str) -> None:
    if kind == "tls" and shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    with program_and_agent(network, tmp_path, kind, way, f"{SILENCE_S}s") as (program, agent):
        network.set_cable(False)
        cut = time.monotonic()
        told = f"no answer from the other machine for {SILENCE_S} s"
        assert agent_process.until(lambda: told in agent.log(), NOTICED_S), agent.log()
        assert agent_process.until(lambda: not program.lines[-1].isdigit(), NOTICED_S), program.lines[-1]
        assert program.lines[-1].startswith("PeerLost"), program.lines[-1]
        assert told in program.lines[-1]
        assert program.said_at[-1] - cut < NOTICED_S


def test_a_cut_that_is_shorter_is_no_end(network: Network, tmp_path: Path) -> None:
    with program_and_agent(network, tmp_path, "tcp", "sends", "60s") as (program, agent):
        network.set_cable(False)
        time.sleep(1.0)
        network.set_cable(True)
        sent = len(program.lines)
        assert agent_process.until(lambda: len(program.lines) > sent + 3), program.lines[-1]
        assert all(line.isdigit() for line in program.lines)
        assert "ended" not in agent.log(), agent.log()
