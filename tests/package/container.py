"""A bare Debian 12 with an init of its own, in which packages are installed as an administrator would do it.

The base system is made once by mmdebstrap, from the mirrors this machine installs from, and kept as
build/package/bookworm.tar. Each container is a fresh copy of it below a temporary folder, booted by systemd-nspawn.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "build" / "package" / "bookworm.tar"
# systemd runs the service; the rest compiles programs on the packages.
BASE_PACKAGES = "systemd,systemd-sysv,dbus,gcc,libc6-dev,pkg-config,cmake,make,curl"
BOOT_SECONDS_MAX = WAIT_SECONDS_MAX = 120


def why_not() -> str | None:
    """The reason why containers cannot run here, if there is one."""
    if os.geteuid() != 0:
        return "only root can boot a container"
    missing = [name for name in ("mmdebstrap", "systemd-nspawn", "nsenter") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (./dev package installs them)" if missing else None


def make_base() -> str | None:
    """Makes the base system if it is not there; why it could not be made."""
    if BASE.exists():
        return None
    BASE.parent.mkdir(parents=True, exist_ok=True)
    unfinished = BASE.with_suffix(".part.tar")
    command = ["mmdebstrap", "--variant=apt", f"--include={BASE_PACKAGES}", "bookworm", str(unfinished)]
    made = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if made.returncode != 0:
        return f"mmdebstrap could not make a base system: {made.stderr[-500:]}"
    unfinished.rename(BASE)
    return None


class Container:
    """Its root directory is `root`; `boot` starts its init, `run` runs a command in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.log = folder / "boot.log"
        self.nspawn: subprocess.Popen[bytes] | None = None
        self.leader = 0
        subprocess.run(["tar", "-C", self.root, "--exclude=./dev/*", "-xf", BASE], check=True)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")

    def prepare(self, *command: str) -> None:
        """Runs a command before there is an init, with this machine's network."""
        done = subprocess.run(
            ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--resolv-conf=off", "--pipe", "-D", self.root,
             "--setenv=DEBIAN_FRONTEND=noninteractive", *command],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def boot(self) -> None:
        with self.log.open("wb") as log:
            self.nspawn = subprocess.Popen(
                ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--private-network", "--resolv-conf=off",
                 "--boot", "-D", self.root],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while time.monotonic() < deadline and self.nspawn.poll() is None:
            children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
            if children:
                self.leader = int(children[0])
                state = self.attempt("systemctl", "is-system-running", "--wait")
                if state.stdout.strip() in ("running", "degraded"):
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the container did not boot: {self.log.read_text(errors='replace')[-2000:]}")

    def words(self, *command: str, user: str = "root") -> list[str]:
        """The command line that runs `command` in the container, from outside."""
        enter = ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]
        return [*enter, "--", "env", "-i", *environment, *become, *command]

    def attempt(self, *command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*command, user=user), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600
        )

    def run(self, *command: str, user: str = "root") -> str:
        """The command's output, standard error included; the test fails with it if the command does."""
        done = self.attempt(*command, user=user)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return (done.stdout + done.stderr).strip()

    def fetch(self, packages: str) -> None:
        """Downloads packages and their dependencies before the boot: the booted machine is on no network."""
        install = f"apt-get -q -y --download-only --no-install-recommends install {packages}"
        self.prepare("sh", "-c", f"apt-get -q update && {install}")

    def install(self, packages: str) -> str:
        return self.run("sh", "-c", f"apt-get -q -y --no-install-recommends install {packages}")

    def until(self, condition: str, or_show: str = "true") -> None:
        """Waits until a line of shell succeeds; the test fails with the output of `or_show` if it never does."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while self.attempt("sh", "-c", condition).returncode != 0:
            assert time.monotonic() < deadline, f"never: {condition}\n{self.run('sh', '-c', or_show)}"
            time.sleep(0.2)

    def stop(self) -> None:
        if self.nspawn is None:
            return
        if self.nspawn.poll() is None:
            self.attempt("systemctl", "poweroff")
            try:
                self.nspawn.wait(60)
            except subprocess.TimeoutExpired:
                self.nspawn.send_signal(signal.SIGKILL)
                self.nspawn.wait()
