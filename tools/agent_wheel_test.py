"""The agent's wheel: pip installs it for any Python, and its program starts by its command."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import agent_wheel
import pytest
import wheel_notices
import wheels
from building import PackageError, version
from client_wheel import HOST, Machine

ROOT = Path(__file__).resolve().parent.parent
HERE = Machine(HOST, Path("/"))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """The files of an installation, with a script as the agent."""
    libraries = ("offpath/libarrow.so.1", "offpath/liboffpath_arrow-1a.so", "offpath/liboffpath_flight-1a.so",
                 "liboffpath.so.0", "liboffpath_openssl.so.0", "liboffpath_sockets.so")  # fmt: skip
    names = ["bin/offpath-agent", "bin/offpath-worker", "lib/cmake/offpath/offpathConfig.cmake"]
    for name in (*names, *(f"lib/{each}" for each in libraries)):
        file = tmp_path / "prefix" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('#!/bin/sh\necho "$0" "$@"\n')
        file.chmod(0o755 if "bin" in name else 0o644)
    return tmp_path / "prefix"


def test_pip_installs_it_and_its_command_starts_the_program(prefix: Path, tmp_path: Path) -> None:
    wheel = agent_wheel.write_wheel(prefix, tmp_path, HERE)
    assert wheel.name == f"offpath_agent-{version()}-{agent_wheel.tag(HERE)}.whl"
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin/python"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", wheel], check=True)
    (site,) = environment.glob("lib/python3.*/site-packages")
    said = subprocess.run([environment / "bin/offpath-agent", "--memory", "1GiB"], capture_output=True, text=True)
    assert said.stdout.split() == [str(site / "offpath_agent/bin/offpath-agent"), "--memory", "1GiB"], said.stderr
    installed = {file.relative_to(site / "offpath_agent").as_posix() for file in site.glob("offpath_agent/*/**/*")}
    assert {"bin/offpath-worker", "lib/offpath/libarrow.so.1", "lib/offpath/liboffpath_arrow-1a.so",
            "lib/offpath/liboffpath.so.0",
            "lib/offpath/liboffpath_openssl.so.0", "lib/liboffpath_sockets.so"} <= installed  # fmt: skip
    assert not any("cmake" in name for name in installed)
    shown = subprocess.run([*pip, "show", "--verbose", "offpath-agent"], capture_output=True, text=True).stdout
    told = dict(re.findall(r"^(\w+): *(.*)$", shown, re.MULTILINE))
    assert (told["Version"], told["Requires"]) == (version(), "")
    (licenses,) = site.glob("offpath_agent-*.dist-info/licenses")
    of_others = {file.relative_to(licenses).as_posix() for file in licenses.glob("*/*.txt")}
    assert of_others == {"arrow/LICENSE.txt", "arrow/NOTICE.txt"} | {
        f"{package}/copyright.txt" for package in wheel_notices.IN_THE_AGENT
    }


@pytest.mark.parametrize(
    ("name", "pattern"), [("libarrow.so.1", "libarrow"), ("liboffpath_flight-1a.so", "liboffpath_flight-")]
)
def test_a_prefix_without_libarrow_or_what_loads_it_is_refused(
    prefix: Path, tmp_path: Path, name: str, pattern: str
) -> None:
    (prefix / "lib/offpath" / name).unlink()
    with pytest.raises(PackageError, match=rf"lib/offpath/{pattern}\*"):
        agent_wheel.write_wheel(prefix, tmp_path, HERE)


def test_another_processors_is_built_with_what_is_linked_in_alike(tmp_path: Path) -> None:
    arm = Machine("aarch64", tmp_path / "arm")
    here, there = (agent_wheel.settings_for(each, tmp_path, tmp_path / "libraries", ("OFFPATH_BENCH=OFF",))
                   for each in (HERE, arm))  # fmt: skip
    assert here["httplib_DIR"] == tmp_path / "libraries" and here["ZSTD_LIBRARY"] == tmp_path / "libraries/libzstd.a"
    assert there == here | {"CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/aarch64.cmake"}


def test_it_is_built_as_the_debian_package_is() -> None:
    """Both bring libarrow, and are without the parts that the whole wheel leaves out."""
    rules = (ROOT / "packaging/debian/rules").read_text()
    debian = dict(re.findall(r"-D(OFFPATH_\w+)=(\w+)", rules))
    left_out = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["cmake"]["define"]
    wheel = {**left_out, **agent_wheel.DEFINES, **dict(each.split("=") for each in wheels.WHEEL_DEFINES)}
    assert len(debian) >= 8
    assert {name: wheel[name] for name in debian} == debian
