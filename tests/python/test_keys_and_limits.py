"""Keys that change while programs are connected, and one user's share of an agent."""

import os
import re
import secrets
import signal
import time
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest
from certificate import make_certificate

SCHEMA = pa.schema([("value", pa.int64())])


def write_key(path: Path) -> Path:
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


def log_until(agent: offpath.Agent, text: str, begin: int = 0) -> str:
    """The log from byte `begin` until `text` is in a whole line of it: a thread of the agent writes it."""
    end = time.monotonic() + 60
    while text not in (said := agent.log[begin:]) or not said.endswith("\n"):
        assert time.monotonic() < end, agent.log
        time.sleep(0.01)
    return said


def reload(agent: offpath.Agent) -> str:
    """The agent's log after SIGHUP."""
    before = len(agent.log)
    os.kill(agent.pid, signal.SIGHUP)
    return log_until(agent, "SIGHUP", before)


def address_of(agent: offpath.Agent, kind: str) -> str:
    return next(each for each in agent.addresses if each.startswith(kind))


def send_and_get(session: offpath.Session, stream: offpath.Stream, row: str) -> None:
    stream.send({"value": np.arange(100)}, key=(row, "rank0")).wait_stored()
    assert session.pool(f"local:/{stream.name}").get(row, "rank0", timeout=60).num_rows == 100


def test_a_key_is_changed_while_programs_are_connected(tmp_path):
    key, old = write_key(tmp_path / "key"), tmp_path / "old"
    old.write_bytes(key.read_bytes())
    old.chmod(0o600)
    settings = {"security.key_file": key, "security.old_key_files": old}
    with offpath.Agent.start(listen=["tcp:127.0.0.1:0"], settings=settings, log_level="info") as agent:
        tcp = address_of(agent, "tcp")
        with offpath.connect(tcp, key_file=old) as lasting:
            stream = lasting.stream("lasting", SCHEMA, rows_max=100)
            send_and_get(lasting, stream, "before")

            # The agents first: both keys are good, and the log names who is to be given the new one.
            write_key(key)
            assert "keys and certificate were read again" in reload(agent)
            offpath.connect(tcp, key_file=key).close()
            offpath.connect(tcp, key_file=old, name="straggler").close()
            said = log_until(agent, "knows an old key only")
            assert re.findall(r"(\S+) \(process \d+\) knows an old key only", said) == ["straggler"]

            # Then the old one goes. Programs that are connected stay so.
            stale = write_key(tmp_path / "stale")
            stale.write_bytes(old.read_bytes())
            old.write_bytes(key.read_bytes())
            reload(agent)
            with pytest.raises(offpath.Denied, match="does not know the agent's key"):
                offpath.connect(tcp, key_file=stale)
            send_and_get(lasting, stream, "after")


def test_a_key_that_cannot_be_read_changes_nothing(tmp_path):
    key = write_key(tmp_path / "key")
    with offpath.Agent.start(
        listen=["tcp:127.0.0.1:0"], settings={"security.key_file": key}, log_level="info"
    ) as agent:
        kept = tmp_path / "kept"
        kept.write_bytes(key.read_bytes())
        kept.chmod(0o600)
        write_key(key).chmod(0o644)
        said = reload(agent)
        assert "nothing was changed" in said and "chmod 600" in said
        offpath.connect(address_of(agent, "tcp"), key_file=kept).close()


@pytest.fixture
def tls(tmp_path):
    """The settings of an agent with a certificate, and where it lies."""
    key = write_key(tmp_path / "key")
    files = {"tls_certificate": tmp_path / "certificate", "tls_key": tmp_path / "private", "key_file": key}
    return {f"security.{name}": path for name, path in files.items()}


def test_a_certificate_is_changed_while_programs_are_connected(tls, tmp_path):
    key, certificate = tls["security.key_file"], tls["security.tls_certificate"]
    make_certificate(tmp_path)
    with offpath.Agent.start(listen=["tls:127.0.0.1:0"], settings=tls, log_level="info") as agent:
        address = address_of(agent, "tls")
        with offpath.connect(address, key_file=key, tls_ca_file=certificate) as lasting:
            before = tmp_path / "before"
            before.write_bytes(certificate.read_bytes())
            make_certificate(tmp_path, days=3)
            reload(agent)
            offpath.connect(address, key_file=key, tls_ca_file=certificate).close()
            with pytest.raises(offpath.Denied, match="certificate is refused"):
                offpath.connect(address, key_file=key, tls_ca_file=before)
            send_and_get(lasting, lasting.stream("lasting", SCHEMA, rows_max=100), "after")


def test_programs_of_one_user_are_bounded():
    with offpath.Agent.start(settings={"limits.user_channels_max": 2}) as agent:
        with offpath.connect(agent.address), offpath.connect(agent.address):
            with pytest.raises(offpath.TooLarge, match=rf"2 programs of user {os.getuid()}.*limits.user_channels_max"):
                offpath.connect(agent.address)
        end = time.monotonic() + 60
        while True:  # those that left make room, as soon as the agent has seen it
            try:
                offpath.connect(agent.address).close()
                break
            except offpath.TooLarge:
                assert time.monotonic() < end


def test_streams_of_one_user_are_bounded():
    with offpath.Agent.start(settings={"limits.user_streams_max": 1}) as agent:
        with offpath.connect(agent.address) as first, offpath.connect(agent.address) as second:
            stream = first.stream("one", SCHEMA, rows_max=10)
            with pytest.raises(offpath.TooLarge, match=r"1 streams of user \d+.*limits.user_streams_max"):
                second.stream("two", SCHEMA, rows_max=10)
            stream.close()
            second.stream("two", SCHEMA, rows_max=10)


def test_memory_of_one_user_is_bounded():
    with offpath.Agent.start(memory="64MiB", settings={"memory.user_bytes_max": "1MiB"}) as agent:
        with offpath.connect(agent.address) as session:
            stream = session.stream("large", SCHEMA, rows_max=1_000_000)
            with pytest.raises(offpath.TooLarge, match="1048576"):
                stream.send({"value": np.arange(500_000)}, key=("row", "rank0"))
            stream.send({"value": np.arange(50_000)}, key=("row", "rank0")).wait_stored()
