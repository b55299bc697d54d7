"""Settings for the end-to-end tests."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# The modules that these tests share, and tests of each room: some files run tests of others again, elsewhere.
sys.path.extend(str(room) for room in sorted({test.parent for test in Path(__file__).parent.rglob("test_*.py")}))

from agent_process import AgentProcess, agent
from kernel_or_agent import Place
from network_pair import Family
from offloading_agents import SETUPS, Setup, agent_where_it_can_be, setup_of, with_device
from offpath.bench.network_pair import LINK_CARD_ADDRESS, CardPair, device_at_card, network_pair_with_card


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="offpath-open-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def pair() -> Iterator[CardPair]:
    with network_pair_with_card() as made:
        yield made


setup = setup_of(SETUPS)


@pytest.fixture
def family(setup: Setup) -> Family:
    return setup.family


@pytest.fixture
def cores(setup: Setup) -> int:
    """Of the agent that ``served`` is, for connections."""
    return setup.cores


@pytest.fixture
def served(tmp_path: Path, pair: CardPair, setup: Setup, cores: int) -> Iterator[AgentProcess]:
    """An agent that has the device; its pages are at tmp_path/http.sock. Programs in ``near`` connect to
    tmp_path/agent.sock: this agent, which is there with the device, or one that relays over tcp: to this agent, which
    is with the device in ``card``."""
    pages = ["--http", f"unix:{tmp_path}/http.sock"]
    if not setup.linked:
        device, near = with_device(cores, setup.family, setup.device), pair.near_command()
        with agent_where_it_can_be(tmp_path, *device, *pages, http=False, launcher=near) as running:
            yield running
        return
    key, card = tmp_path / "link.key", tmp_path / "card"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    card.mkdir()
    keyed = ["--key-file", str(key)]
    listens = ["--listen", f"tcp:{LINK_CARD_ADDRESS}:0", "--insecure-network", *keyed]
    device = with_device(cores, setup.family)
    with (
        device_at_card(pair),
        agent(card, *device, *pages, *listens, http=False, launcher=pair.card_command()) as running,
    ):
        relay = ["--set", f"tcp.device=agent:{running.ready['address']}", *keyed]
        with agent(tmp_path, *relay, http=False, launcher=pair.near_command()):
            yield running


@pytest.fixture(params=["kernel", "agent", "supervised"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, pair: CardPair, served: AgentProcess, family: Family
) -> Place:
    return Place(pair, tmp_path, request.param != "kernel", request.param == "supervised", family)


@pytest.fixture
def cgroups() -> Iterator[tuple[Path, str]]:
    """A directory in which cgroups with the cpu controller can be made, and their file with the limit."""
    for root, limit in ((Path("/sys/fs/cgroup"), "cpu.max"), (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us")):
        own = root / f"offpath-test-{os.getpid()}"
        try:
            own.mkdir()
        except OSError:
            continue
        try:
            if os.access(own / limit, os.W_OK):
                yield own, limit
                return
        finally:
            for child in sorted(own.rglob("*"), reverse=True):
                if child.is_dir():
                    child.rmdir()
            own.rmdir()
    pytest.skip("no cgroup with the cpu controller can be made here: it takes root, or a delegation")
