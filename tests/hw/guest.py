"""Guests with an RDMA device, for machines that have none: QEMU's software emulation, Debian's kernel, soft-RoCE.

A guest is the kernel of Debian's package (unpacked, never installed), an initramfs of busybox and a few kernel
modules, and a root directory, read-only, over virtio-9p. For a guest with this machine's processor that is this
machine's own root, so programs built here run there unchanged; for one with another processor it is the root that
programs are cross-built with (tools/sysroot.py), and the built programs lie in /mnt. A guest has a share that it may
write to, boots in a few seconds, runs one script, and powers itself off.
"""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In the order of loading; their dependencies are loaded before them automatically.
MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe")

INIT = """#!/bin/sh
# Loads the guest's modules, then runs its script in the given root directory.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo 4 >/proc/sys/kernel/printk
for module in $(cat /modules); do insmod "$module" || echo "guest: $module was not loaded"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /machine || echo 'guest: no root'
for folder in proc sys dev; do mount --bind "/$folder" "/machine/$folder"; done
mkdir -p /machine/dev/shm
for folder in tmp run var/tmp dev/shm; do mount -t tmpfs tmpfs "/machine/$folder"; done
mkdir /machine/run/out
if [ "$(cat /built)" = yes ]; then
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro buildtree /machine/mnt ||
    echo 'guest: no build'
fi
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,access=any out /machine/run/out || echo 'guest: no results'
hostname "guest$(cat /machine/run/out/number)"
ulimit -l unlimited
chroot /machine /bin/bash /run/out/script.sh >/dev/console 2>&1
echo $? >/machine/run/out/exit
sync
poweroff -f
"""


# Large frames make large RDMA packets, and so fewer of them to emulate.
SET_UP = """
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
ip link set lo up
ip link set eth0 mtu 9000
ip address add 10.77.0.{number}/24 dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
mount -t cgroup2 cgroup2 /sys/fs/cgroup
"""


# Runs the commands that Guest.run puts there, one after the other.
SERVE = """
number=0
while true; do
  command=/run/out/command$number
  if [ -e $command.ready ]; then
    bash $command >$command.log 2>&1
    echo $? >$command.code
    mv $command.code $command.exit
    number=$((number + 1))
  else
    sleep 0.1
  fi
done
"""


@dataclass(frozen=True)
class Machine:
    """The differences between guests with this machine's processor and with another."""

    qemu: tuple[str, ...]
    console: str
    root: Path = Path("/")
    built: Path | None = None  # seen in the guest as /mnt


HERE = Machine(("qemu-system-x86_64", "-machine", "q35", "-cpu", "max"), "ttyS0")
# The cores of a BlueField-2.
ARM = Machine(
    ("qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"), "ttyAMA0",
    ROOT / "build/arm/sysroot", ROOT / "build",
)  # fmt: skip


class GuestError(RuntimeError):
    """The guest could not be built or did not obey."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def unpack_kernel(folder: Path) -> tuple[Path, str]:
    """Where Debian's kernel lies unpacked, and its version. Downloads it the first time."""
    found = sorted(folder.glob("boot/vmlinuz-*"))
    if not found:
        # The flavour for clouds has no rdma_rxe.
        depends = run("apt-cache", "depends", "linux-image-amd64")
        package = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line)
        download = folder.with_name("download")
        shutil.rmtree(download, ignore_errors=True)
        download.mkdir(parents=True)
        run("apt-get", "download", "-q", package, cwd=download)
        run("dpkg-deb", "-x", next(download.glob("*.deb")), folder)
        shutil.rmtree(download)
        found = sorted(folder.glob("boot/vmlinuz-*"))
    version = found[-1].name.removeprefix("vmlinuz-")
    if not (folder / "lib/modules" / version / "modules.dep.bin").exists():
        run("depmod", "-b", folder, version)
    return found[-1], version


def build_initramfs(machine: Machine, kernel: Path, version: str, target: Path) -> None:
    """busybox, the modules in their order, and /init."""
    tree = target.with_suffix(".tree")
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "machine", "lib"):
        (tree / name).mkdir(parents=True)
    installed = shutil.which("busybox", path=f"{machine.root}/bin:{machine.root}/usr/bin")
    shutil.copy(installed or machine.root / "bin/busybox", tree / "bin/busybox")
    for name in ("sh", "mount", "insmod", "echo", "cat", "mkdir", "chroot", "sync", "poweroff", "hostname"):
        (tree / "bin" / name).symlink_to("busybox")
    order: list[str] = []
    for module in MODULES:
        for line in run("/sbin/modprobe", "-d", kernel, "-S", version, "--show-depends", module).splitlines():
            kind, _, path = line.partition(" ")
            if kind == "insmod" and path.strip() not in order:
                order.append(path.strip())
    for path in order:
        shutil.copy(path, tree / "lib" / Path(path).name)
    (tree / "modules").write_text("".join(f"/lib/{Path(path).name}\n" for path in order))
    (tree / "built").write_text("yes" if machine.built else "no")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=tree, capture_output=True, check=True
    ).stdout
    target.write_bytes(gzip.compress(packed, 1))
    shutil.rmtree(tree)


def prepare(folder: Path, machine: Machine = HERE) -> tuple[Path, Path]:
    """The kernel and the initramfs below `folder`, made if they are not there. Another processor's kernel has to be."""
    kernel = folder / "kernel"
    image, version = unpack_kernel(kernel)
    initramfs = folder / f"initramfs-{version}.gz"
    if not initramfs.exists() or initramfs.stat().st_mtime < Path(__file__).stat().st_mtime:
        build_initramfs(machine, kernel, version, initramfs)
    return image, initramfs


@dataclass
class Guest:
    """One guest. `network` is QEMU's -netdev without its id; `number` makes addresses (10.77.0.`number`) differ. A
    second network is that of eth1, which is down and has no address."""

    folder: Path
    script: str = SERVE
    number: int = 1
    network: str = "user,restrict=on"
    second_network: str | None = None
    memory_mb: int = 2048
    cores: int = 2
    machine: Machine = HERE
    kernel: Path | None = None  # the folder that it lies below, if not the guest's own
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    commands: int = field(default=0, init=False)

    @property
    def out(self) -> Path:
        return self.folder / f"out{self.number}"

    @property
    def log(self) -> Path:
        return self.folder / f"guest{self.number}.log"

    @property
    def control(self) -> Path:
        return self.folder / f"control{self.number}"

    def start(self) -> None:
        self.commands = 0
        image, initramfs = prepare(self.kernel or self.folder, self.machine)
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        (self.out / "script.sh").write_text(SET_UP.format(number=self.number) + self.script)
        (self.out / "number").write_text(str(self.number))
        command = [
            *self.machine.qemu,
            "-accel",
            "tcg,thread=multi",
            "-smp",
            str(self.cores),
            "-m",
            str(self.memory_mb),
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-kernel",
            str(image),
            "-initrd",
            str(initramfs),
            "-append",
            f"console={self.machine.console} quiet panic=-1 mitigations=off random.trust_cpu=on",
            "-serial",
            "stdio",
            "-virtfs",
            f"local,path={self.machine.root},mount_tag=root,security_model=none,readonly=on,multidevs=remap",
            "-virtfs",
            f"local,path={self.out},mount_tag=out,security_model=none",
            *self.card("net", self.network, 0),
            *(self.card("second", self.second_network, 1) if self.second_network else ()),
            "-device",
            "virtio-rng-pci",
            "-qmp",
            f"unix:{self.control},server=on,wait=off",
        ]
        if self.machine.built:
            share = f"local,path={self.machine.built},mount_tag=buildtree,security_model=none,readonly=on"
            command += ["-virtfs", share]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log.open("wb"), stderr=subprocess.STDOUT
        )

    def card(self, name: str, network: str, number: int) -> tuple[str, ...]:
        """QEMU's words for a network card, which the guest calls eth`number`."""
        device = f"virtio-net-pci,netdev={name},romfile=,mac=52:54:00:00:{number:02x}:{self.number:02x}"
        return "-netdev", f"{network},id={name}", "-device", device

    def wait(self, seconds: float) -> int:
        """The exit code of the guest's script; kills the guest if it takes longer."""
        assert self.process is not None
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GuestError(f"the guest was not done after {seconds:.0f} s; see {self.log}") from None
        code = self.out / "exit"
        if not code.exists():
            raise GuestError(f"the guest ended without a result; see {self.log}")
        return int(code.read_text())

    def begin(self, command: str) -> int:
        """Runs a command in the guest after those before it; returns its number."""
        number = self.commands
        self.commands += 1
        (self.out / f"command{number}").write_text(command)
        (self.out / f"command{number}.ready").touch()
        return number

    def finish(self, number: int, seconds: float) -> tuple[int, str]:
        """The exit code and the output of a command."""
        assert self.process is not None
        code, log = self.out / f"command{number}.exit", self.out / f"command{number}.log"
        give_up = time.monotonic() + seconds
        while not code.exists():
            if self.process.poll() is not None:
                raise GuestError(f"the guest ended; see {self.log}")
            if time.monotonic() > give_up:
                said = log.read_text(errors="replace")[-500:] if log.exists() else "nothing"
                raise GuestError(f"a command was not done after {seconds:.0f} s; it said: {said}")
            time.sleep(0.05)
        return int(code.read_text()), log.read_text(errors="replace")

    def await_word(self, number: int, word: str, seconds: float) -> None:
        """Until a command that goes on has said this."""
        log, give_up = self.out / f"command{number}.log", time.monotonic() + seconds
        while not log.exists() or word not in log.read_text(errors="replace"):
            if time.monotonic() > give_up or (self.out / f"command{number}.exit").exists():
                said = log.read_text(errors="replace")[-500:] if log.exists() else "nothing"
                raise GuestError(f"a command did not say '{word}'; it said: {said}")
            time.sleep(0.1)

    def run(self, command: str, seconds: float) -> str:
        """The output of a command that has to succeed."""
        code, said = self.finish(self.begin(command), seconds)
        if code != 0:
            raise GuestError(f"a command ended with exit code {code}: {said[-800:]}")
        return said

    def set_cable(self, plugged: bool) -> None:
        """Pulls the cable of the guest's network card, or plugs it in again."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(10)
            control.connect(str(self.control))
            lines = control.makefile("rw")
            lines.readline()  # its greeting
            for command in (
                {"execute": "qmp_capabilities"},
                {"execute": "set_link", "arguments": {"name": "net", "up": plugged}},
            ):
                lines.write(json.dumps(command) + "\n")
                lines.flush()
                while "return" not in (answer := json.loads(lines.readline())):
                    if "error" in answer:
                        raise GuestError(f"QEMU refuses {command}: {answer['error']}")

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
