"""The wheel in a fresh virtual environment, far from the checkout.

Run by `./dev test --long` (tools/suite.py), after `./dev package`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheel_notices import IN_THE_AGENT

sys.path.insert(0, str(Path(__file__).parent))
from agent_modules import check_modules

HERE = Path(__file__).parent
ROOT = HERE.resolve().parents[1]
PROGRAM = (HERE / "embedded_agent.py").read_text()


@pytest.fixture(scope="module")
def wheel() -> Path:
    (wheel,) = (ROOT / "build" / "package" / "wheel").glob("offpath-*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the wheel and all it requires, as pip finds it."""
    environment = tmp_path_factory.mktemp("wheel") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install(environment, str(wheel))
    return environment


def install(environment: Path, wanted: str) -> None:
    installed = subprocess.run(
        [environment / "bin/python", "-m", "pip", "install", "--quiet", wanted], capture_output=True, text=True
    )
    assert installed.returncode == 0, installed.stderr


def attempt(environment: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """With nothing of this checkout in the way."""
    clean = {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    words = [str(word) for word in command]
    return subprocess.run(words, env=clean, cwd=environment, capture_output=True, text=True, check=False)


def run(environment: Path, *command: str | Path) -> str:
    done = attempt(environment, *command)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_says_on_what_it_runs(wheel: Path) -> None:
    assert re.search(r"-cp3\d+-cp3\d+-manylinux_2_\d+_(x86_64|aarch64)\.whl$", wheel.name), wheel.name


def test_it_brings_no_second_libarrow_and_no_openssl(wheel: Path) -> None:
    names = [os.path.basename(name) for name in zipfile.ZipFile(wheel).namelist()]
    assert [name for name in names if re.match(r"lib(arrow|parquet|ssl|crypto)\b", name)] == []
    assert any(name.startswith("libcpp-httplib") for name in names)  # its other requirements are included


def test_it_has_the_licences_of_what_is_in_it(wheel: Path) -> None:
    named = re.compile(r"\.dist-info/licenses/([^/]+)/[^/]+$")
    of_others = {found[1] for name in zipfile.ZipFile(wheel).namelist() if (found := named.search(name))}
    assert of_others == {*IN_THE_AGENT, "nanobind"}


def test_an_embedded_agent_end_to_end(environment: Path) -> None:
    package, agent, maps = run(environment, environment / "bin/python", "-P", "-c", PROGRAM).split(maxsplit=2)
    site = Path(package).parents[1]
    assert site.is_relative_to(environment) and Path(agent) == site / "offpath/bin/offpath-agent"
    libraries = {line.split()[-1] for line in maps.splitlines() if ".so" in line}
    assert any(path.startswith(f"{site}/pyarrow/libarrow.so") for path in libraries), libraries
    assert any(path.startswith(f"{site}/offpath.libs/libcpp-httplib") for path in libraries), libraries
    assert [path for path in libraries if str(ROOT) in path] == []


def test_its_agent_has_what_it_loads(environment: Path) -> None:
    (site,) = environment.glob("lib/python3.*/site-packages")
    check_modules(site / "offpath/bin/offpath-agent", site / "offpath/lib/offpath", site / "pyarrow")


def test_its_agent_serves_flight(environment: Path) -> None:
    program, client = (HERE / "embedded_flight.py").read_text(), HERE / "flight_client.py"
    assert run(environment, environment / "bin/python", "-P", "-c", program, client) == "[1.0, 2.0]\n"


def test_the_commands_are_on_the_path(environment: Path, wheel: Path) -> None:
    """The last test: it adds the packages of the command line to the environment."""
    version = re.search(r"#define OFP_VERSION_MAJOR (\d+)", (ROOT / "include/offpath/offpath.h").read_text())
    assert version is not None
    assert run(environment, "offpath-agent", "--version").startswith(f"offpath-agent {version[1]}.")
    without = attempt(environment, "offpath", "--help")
    assert without.returncode == 1 and "install the extra `cli`" in without.stderr
    install(environment, f"{wheel}[cli]")
    assert "agent" in run(environment, "offpath", "--help")
