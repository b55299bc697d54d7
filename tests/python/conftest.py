"""The package against a real agent: the one of the build that runs these tests, or of the environment it is installed
in."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share
# The package of a build directory, if one is named; programs that tests start find it too.
if (build := os.environ.get("OFFPATH_BUILD_DIR")) and (Path(build) / "python/offpath").exists():
    package = str(Path(build) / "python")
    sys.path.insert(0, package)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))

import secrets

import offpath
import pytest


@pytest.fixture(scope="session")
def agent():
    with offpath.Agent.start(memory="2GiB") as started:
        yield started


@pytest.fixture
def session(agent):
    with offpath.connect(agent.address) as connected:
        yield connected


@pytest.fixture(params=["direct", "staged"])
def any_session(request, agent):
    """Over memory that is read where it lies, and over copies in staging memory."""
    with offpath.connect(agent.address, force_staging=request.param == "staged") as connected:
        assert connected.info.staged == (request.param == "staged")
        yield connected


@pytest.fixture(scope="session")
def tcp_agent(tmp_path_factory):
    """An agent that listens on loopback TCP too; (agent, address, key file)."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    with offpath.Agent.start(listen=["tcp:127.0.0.1:0"], settings={"security.key_file": key}) as started:
        yield started, next(each for each in started.addresses if each.startswith("tcp:")), key


@pytest.fixture
def name(request):
    """A stream name of the test's own."""
    return f"{request.node.name}-{secrets.token_hex(3)}"
