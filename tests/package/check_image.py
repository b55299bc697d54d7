"""The image runs: its root file system is unpacked as a container runtime does it, and the agent in it serves.

Run by `./dev test --long` (tools/suite.py), after `./dev package image`.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from agent_modules import check_modules

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "build" / "package" / "image"
START_SECONDS_MAX = 60
LITTLE_LOCKED = (64 << 10, 128 << 10)
HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of this machine's part, by skopeo."""
    if os.geteuid() != 0:
        pytest.skip("only root can change its root directory")
    if shutil.which("skopeo") is None:
        pytest.skip("there is no skopeo; ./dev package installs it")
    folder = tmp_path_factory.mktemp("image")
    part = folder / "part"
    copy = ["skopeo", "--override-arch", HERE, "copy", "--quiet", f"oci:{IMAGE}", f"dir:{part}"]
    done = subprocess.run(copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((part / "manifest.json").read_text())
    root = folder / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        digest = layer["digest"].removeprefix("sha256:")
        subprocess.run(["tar", "-xzf", part / digest, "-C", root], check=True)
    return root


@pytest.fixture(scope="module")
def command() -> list[str]:
    """The command of a container of the image."""
    done = subprocess.run(["skopeo", "--override-arch", HERE, "inspect", "--config", f"oci:{IMAGE}"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = json.loads(done.stdout)["config"]
    return [*config["Entrypoint"], *config["Cmd"]]


@pytest.fixture(scope="module")
def agent(root: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """With namespaces of its own, as the chart's pod has them except for the network; with little locked memory."""
    inside = f'mount -t proc proc {root}/proc && exec chroot {root} "$@" --http unix:/run/offpath/http.sock'
    with subprocess.Popen(
        ["unshare", "--mount", "--net", "--ipc", "--uts", "sh", "-c", inside, "sh", *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, LITTLE_LOCKED),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


def get(path: Path, what: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", what)
    response = connection.getresponse()
    return response.status, response.read()


def test_the_agent_serves(root: Path, agent: subprocess.Popen[bytes]) -> None:
    sockets = root / "run/offpath"
    deadline = time.monotonic() + START_SECONDS_MAX
    while not (sockets / "http.sock").exists() or not (sockets / "agent.sock").exists():
        assert agent.poll() is None, agent.stdout and agent.stdout.read().decode()
        assert time.monotonic() < deadline, "it does not listen"
        time.sleep(0.05)
    assert get(sockets / "http.sock", "/healthz") == (200, b"ok\n")
    # Kubernetes cannot set the limit of locked memory, which RDMA needs; the agent raises it where it may.
    limits = Path(f"/proc/{agent.pid}/limits").read_text()
    raised = "unlimited" if may_raise_limits() else str(LITTLE_LOCKED[1])
    assert re.search(rf"^Max locked memory +{raised} +{raised}", limits, re.MULTILINE), limits


def test_a_program_of_the_node_sends_and_queries(root: Path, agent: subprocess.Popen[bytes]) -> None:
    """After the test above. The first query loads libarrow, in the container's file system."""
    libraries = root / "usr/lib/offpath"
    check_modules(root / "usr/bin/offpath-agent", libraries, libraries)
    with offpath.connect(f"unix:{root}/run/offpath/agent.sock") as session:
        out = session.stream("s", pa.schema([("id", pa.int64())]), rows_max=1000)
        out.send({"id": np.arange(1000)}, "step0").wait_stored(60)
        maps = Path(f"/proc/{agent.pid}/maps")
        assert "libarrow" not in maps.read_text()
        pool = session.pool("local:/s")
        assert pool.query("id >= 10", aggregates={"n": "count"}, timeout=60)["n"].to_pylist() == [990]
        loaded = {Path(line.split()[-1]) for line in maps.read_text().splitlines() if "arrow" in line}
        assert {"liboffpath_arrow", "libarrow_acero"} <= {re.split("[.-]", file.name)[0] for file in loaded}
        assert all(str(file.parent).endswith("/usr/lib/offpath") for file in loaded), loaded


def may_raise_limits() -> bool:
    cap_sys_resource = 24
    effective = re.search(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return effective is not None and bool(int(effective[1], 16) >> cap_sys_resource & 1)


def test_scanners_find_packages_and_licences(root: Path) -> None:
    packages = {each.name for each in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"offpath-agent", "libc6", "libibverbs1", "libstdc++6"} <= packages
    assert 'VERSION_ID="12"' in (root / "etc/os-release").read_text()
    assert (root / "usr/share/doc/offpath-agent/LICENSE.arrow").exists()
    assert {each.name for each in (root / "usr/share/doc").iterdir()} >= packages - {"gcc-12-base"}


def test_there_is_no_shell(root: Path) -> None:
    assert not (root / "bin/sh").exists() and not (root / "usr/bin/perl").exists()
