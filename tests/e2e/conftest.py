"""Settings for the end-to-end tests."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share

from agent_process import AgentProcess, agent
from network_pair import AGENT_ADDRESS, NetworkPair, network_pair


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="offpath-open-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def pair() -> Iterator[NetworkPair]:
    with network_pair() as made:
        yield made


class Place(NamedTuple):
    """Where programs' connections are: an agent with so many cores for them, here or beyond a relay and a link."""

    cores: int
    linked: bool


PLACES = {"1-core": Place(1, False), "2-cores": Place(2, False), "over-a-link": Place(1, True)}


@pytest.fixture(params=list(PLACES.values()), ids=list(PLACES))
def place(request: pytest.FixtureRequest) -> Place:
    where: Place = request.param
    return where


@pytest.fixture
def cores(place: Place) -> int:
    """Of the agent that ``served`` is, for connections."""
    return place.cores


def with_device(cores: int) -> list[str]:
    settings = ["tcp.device=near", f"tcp.address={AGENT_ADDRESS}/24", f"tcp.cores={cores}"]
    return [word for each in [*settings, "tcp.flows_of_program=8192"] for word in ("--set", each)]


@pytest.fixture
def served(tmp_path: Path, pair: NetworkPair, place: Place, cores: int) -> Iterator[AgentProcess]:
    """An agent that has the device in ``near``; its pages are at tmp_path/http.sock. Programs connect to
    tmp_path/agent.sock: this agent, or one that relays to it over tcp:."""
    pages = ["--http", f"unix:{tmp_path}/http.sock"]
    if not place.linked:
        with agent(tmp_path, *with_device(cores), *pages, http=False, launcher=pair.near_command()) as running:
            yield running
        return
    key, card = tmp_path / "link.key", tmp_path / "card"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    card.mkdir()
    listens = ["--listen", "tcp:127.0.0.1:0", "--key-file", str(key)]
    with agent(card, *with_device(cores), *pages, *listens, http=False, launcher=pair.near_command()) as running:
        device = f"tcp.device=agent:{running.ready['address']}"
        relay = ["--set", device, "--key-file", str(key)]
        with agent(tmp_path, *relay, http=False, launcher=pair.near_command()):
            yield running
