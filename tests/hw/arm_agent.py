"""The agent on the DPU's processor: its tests on a kernel of their own, and a program of x86-64 on the other machine.

One guest is aarch64, as a BlueField is, and runs what preset dpu-aarch64 built; the other is the program's. Frames that
the Arm agent makes have to be those of an agent on this machine, bit for bit.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import offpath
from checks import chosen
from guest import ARM, ROOT, prepare
from sockets_guests import DEVICE, Trio, possible, sockets_nginx, sockets_redis, sockets_stream, trio_of
from two_guests import ADDRESS, Pair, expect, results_of, starting

BUILT = "/mnt/dpu-aarch64"
# Those that skip tests under qemu-user, for want of a kernel.
TESTS = (
    "local_link_test",
    "local_link_faults_test",
    "handshake_users_test",
    "control_socket_test",
    "buffer_cache_test",
)
LIBRARIES = "/mnt/arm/wheel/pyarrow"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
ARM_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
STREAM_MIB = 8  # each way, by an emulated agent
WHEEL_PROGRAM = ROOT / "tests/package/embedded_agent.py"
AGENT_PROGRAM = f"env LD_LIBRARY_PATH={LIBRARIES} {BUILT}/bin/offpath-agent"


def environment_of_the_wheel() -> Path:
    """Where the wheel that was built last and all it requires are installed, without running anything of it."""
    (wheel,) = (ROOT / "build/package/wheel-aarch64").glob("offpath-*.whl")
    prefix = ROOT / "build/arm/environment"
    shutil.rmtree(prefix, ignore_errors=True)
    platforms = [word for tag in (wheel.stem.split("-")[-1], *ARM_PLATFORMS) for word in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", prefix / "lib" / PYTHON / "site-packages",
               "--only-binary=:all:", *platforms, wheel]  # fmt: skip
    installed = subprocess.run(command, capture_output=True, text=True)
    expect(installed.returncode == 0, installed.stderr)
    # With a target pip omits files beside site-packages.
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            outside, found, beside = name.partition(".data/data/")
            if found and "/" not in outside and not name.endswith("/"):
                (prefix / beside).parent.mkdir(parents=True, exist_ok=True)
                (prefix / beside).write_bytes(archive.read(name))
    return prefix


def passed_tests(pair: Pair, test: str, seconds: float) -> tuple[int, str]:
    """The number of passed tests of a program, and its output."""
    said = pair.agent.run(f"LD_LIBRARY_PATH={LIBRARIES} {BUILT}/tests/{test}", seconds)
    passed = re.search(r"\[  PASSED  \] (\d+) test", said)
    expect(passed is not None, f"{test} says of no test that it passed: {said[-500:]}")
    return int(passed[1]), said


def arm_kernel(pair: Pair) -> str:
    """Tests of system calls that qemu-user lacks. Tests of users that this guest does not have are skipped."""
    passed = 0
    for test in TESTS:
        more, said = passed_tests(pair, test, 200)
        passed += more
        expect("qemu-user" not in said, f"{test} was skipped as if there were no kernel")
    return f"{passed} tests passed"


def arm_conformance(pair: Pair) -> str:
    """Every link's suite over the links that qemu-user cannot run: on one machine, and over RDMA."""
    passed, said = passed_tests(pair, "link_conformance_test --gtest_filter='*/local*:*/verbs'", 900)
    expect("/verbs" in said, "there was no RDMA device")
    return f"{passed} tests passed"


def arm_moves(pair: Pair) -> str:
    """The move service between a program of x86-64 and an agent of aarch64."""
    return pair.host.run(pair.program("move"), 300).strip()


def arm_frames(pair: Pair) -> str:
    """The frames of an agent on this machine and of the one on Arm, from the same program."""
    program = ROOT / "tests/hw/frame_digests.py"
    with offpath.Agent.start() as agent:
        command = [sys.executable, str(program), agent.address]
        wanted = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found = json.loads(pair.host.run(f"cd {ROOT} && exec {sys.executable} {program} {ADDRESS} /tmp/key", 300))
    differing = [name for name in wanted if found.get(name) != wanted[name]]
    expect(not differing and found.keys() == wanted.keys(), f"frames differ: {', '.join(differing)}")
    return f"{len(wanted)} frames, {sum(int(each.split()[0]) for each in wanted.values()) / 1e6:.1f} MB, are the same"


def arm_sockets(trio: Trio) -> str:
    """Programs of x86-64 whose TCP connections are those of an agent of aarch64."""
    return "; ".join(check(trio) for check in possible((sockets_nginx, sockets_redis, sockets_stream)))


def arm_wheel(pair: Pair) -> str:
    """A Python program on Arm, with the wheel and its requirements, and an agent that it starts."""
    prefix = f"/mnt/{environment_of_the_wheel().relative_to(ROOT / 'build')}"
    site = f"{prefix}/lib/{PYTHON}/site-packages"
    said = pair.agent.run(f"""mkdir -p /tmp/wheel && export HOME=/tmp/wheel TMPDIR=/tmp/wheel
PYTHONPATH={site} python3 -c {shlex.quote(WHEEL_PROGRAM.read_text())}""", 600)  # fmt: skip
    package, agent, maps = said.split(maxsplit=2)
    expect(package.startswith(site) and agent.startswith(prefix), f"these are not the wheel's: {package}, {agent}")
    expect(f"{site}/pyarrow/libarrow.so" in maps, "the agent has another libarrow than pyarrow's")
    return "1,000 rows through an agent of the wheel"


CHECKS: tuple[Callable[[Trio], str], ...] = (
    arm_kernel, arm_moves, arm_frames, arm_sockets, arm_wheel, arm_conformance,
)  # fmt: skip


def check_arm(folder: Path, only: str = "") -> list[dict[str, object]]:
    """The results of the checks whose names match."""
    kernel = ROOT / "build/arm"
    checks = chosen(CHECKS, only)
    trio = trio_of(folder / "arm", folder, ARM, kernel, STREAM_MIB)

    def start() -> None:
        prepare(kernel, ARM)
        trio.start_agent(starting(AGENT_PROGRAM, *DEVICE))
        trio.start_host()
        if arm_sockets in checks:
            trio.start_peer()

    return results_of("arm_guest", trio, start, checks)
