"""The agent on the DPU's processor: its tests on a kernel of their own, and a program of x86-64 on the other machine.

One guest is aarch64, as a BlueField is, and runs what preset dpu-aarch64 built; the other is the program's. Frames that
the Arm agent makes have to be those of an agent on this machine, bit for bit.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import offpath
from checks import chosen
from guest import ARM, HERE, ROOT, Guest, GuestError, prepare
from two_guests import ADDRESS, AGENT, HOST, Pair, expect

BUILT = "/mnt/dpu-aarch64"
# Those that skip tests under qemu-user, for want of a kernel.
TESTS = (
    "local_link_test",
    "local_link_faults_test",
    "handshake_users_test",
    "control_socket_test",
    "buffer_cache_test",
)
IN_GUEST = "export LD_LIBRARY_PATH=/mnt/arm/wheel/pyarrow\n"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
ARM_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
WHEEL_PROGRAM = ROOT / "tests/package/embedded_agent.py"
START_AGENT = f"""
cp /run/out/key /tmp/key && chmod 600 /tmp/key
{IN_GUEST}
{BUILT}/bin/offpath-agent --listen {ADDRESS} --http unix:/tmp/http.sock --key-file /tmp/key --insecure-network \\
  >/run/out/agent.log 2>&1 &
for try in $(seq 900); do [ -S /tmp/http.sock ] && exit 0; sleep 0.1; done
exit 1
"""


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
    # pip leaves out what lies beside site-packages when it is given a target.
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            outside, found, beside = name.partition(".data/data/")
            if found and "/" not in outside and not name.endswith("/"):
                (prefix / beside).parent.mkdir(parents=True, exist_ok=True)
                (prefix / beside).write_bytes(archive.read(name))
    return prefix


def arm_kernel(pair: Pair) -> str:
    """What qemu-user has no system calls for. Skipped tests are those of users that this guest does not have."""
    passed = 0
    for test in TESTS:
        said = pair.agent.run(f"{IN_GUEST}{BUILT}/tests/{test}", 200)
        passed += int(re.search(r"\[  PASSED  \] (\d+) test", said)[1])
        expect("qemu-user" not in said, f"{test} was skipped as if there were no kernel")
    return f"{passed} tests passed"


def arm_conformance(pair: Pair) -> str:
    """Every link's suite over the links that qemu-user cannot run: on one machine, and over RDMA."""
    said = pair.agent.run(f"{IN_GUEST}{BUILT}/tests/link_conformance_test --gtest_filter='*/local*:*/verbs'", 900)
    passed = int(re.search(r"\[  PASSED  \] (\d+) tests", said)[1])
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


def arm_wheel(pair: Pair) -> str:
    """A program of Python on Arm, with the wheel and what it requires, and an agent that it starts."""
    prefix = f"/mnt/{environment_of_the_wheel().relative_to(ROOT / 'build')}"
    site = f"{prefix}/lib/{PYTHON}/site-packages"
    said = pair.agent.run(f"""mkdir -p /tmp/wheel && export HOME=/tmp/wheel TMPDIR=/tmp/wheel
PYTHONPATH={site} python3 -c {shlex.quote(WHEEL_PROGRAM.read_text())}""", 600)  # fmt: skip
    package, agent, maps = said.split(maxsplit=2)
    expect(package.startswith(site) and agent.startswith(prefix), f"these are not the wheel's: {package}, {agent}")
    expect(f"{site}/pyarrow/libarrow.so" in maps, "the agent has another libarrow than pyarrow's")
    return "1,000 rows through an agent of the wheel"


CHECKS: tuple[Callable[[Pair], str], ...] = (arm_kernel, arm_moves, arm_frames, arm_wheel, arm_conformance)


def check_arm(folder: Path, only: str = "") -> list[dict[str, object]]:
    """The results of the checks whose names match; one that fails ends those that come after it."""
    place = folder / "arm-network"
    place.unlink(missing_ok=True)
    network = f"addr.type=unix,addr.path={place}"
    kernel = ROOT / "build/arm"
    host = Guest(folder, number=HOST, network=f"stream,server=off,{network}", cores=1)
    agent = Guest(folder, number=AGENT, network=f"stream,server=on,{network}", machine=ARM, kernel=kernel)
    pair = Pair(host, agent, secrets.token_hex(32))
    results: list[dict[str, object]] = []
    try:
        prepare(kernel, ARM)
        prepare(folder, HERE)
        agent.start()
        (agent.out / "key").write_text(pair.key)
        agent.run("true", 120)  # up, so that its end of the network is there
        pair.agent.run(START_AGENT, 120)
        pair.start_host()
        for check in chosen(CHECKS, only):
            began = time.monotonic()
            try:
                passed, detail = True, check(pair)
            except (GuestError, TypeError) as error:  # TypeError: nothing of what was looked for was said
                passed, detail = False, str(error)
            seconds = round(time.monotonic() - began, 1)
            results.append({"name": check.__name__, "passed": passed, "detail": detail, "seconds": seconds})
            if not passed:
                break
    except GuestError as error:
        results.append({"name": "arm guest", "passed": False, "detail": str(error), "seconds": 0.0})
    finally:
        for guest in (host, agent):
            guest.kill()
    return results
