"""Settings for the end-to-end tests."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(params=[1, 2], ids=["1-core", "2-cores"])
def cores(request: pytest.FixtureRequest) -> int:
    """Of the agent that ``served`` is, for connections."""
    return int(request.param)


@pytest.fixture
def served(tmp_path: Path, pair: NetworkPair, cores: int) -> Iterator[AgentProcess]:
    """An agent at tmp_path/agent.sock that has the device in ``near``; its pages are at tmp_path/http.sock."""
    settings = ["--set", "tcp.device=near", "--set", f"tcp.address={AGENT_ADDRESS}/24", "--set", f"tcp.cores={cores}"]
    settings += ["--set", "tcp.flows_of_program=8192", "--http", f"unix:{tmp_path}/http.sock"]
    with agent(tmp_path, *settings, http=False, launcher=pair.near_command()) as running:
        yield running
