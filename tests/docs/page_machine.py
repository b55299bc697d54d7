"""A machine to itself for commands of a page: namespaces in which /etc and /run are copies, and no port is taken."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

# Names that pages have for machines: addresses of this one, on a device as a network's, so that an agent asks for the
# options that it needs between machines.
NAMES = {"10.77.0.11": "node1", "10.77.0.12": "node2", "10.77.0.13": "node3", "10.77.0.14": "scheduler"}
SET_UP = """
mount -t tmpfs none /run
cp -a /etc /run/etc 2>/dev/null || true
mount --bind /run/etc /etc
mkdir -p /etc/offpath
printf '%s' "$0" >>/etc/hosts
ip link set lo up
ip link add net0 type veth peer name net1
for end in net0 net1; do ip link set $end up; done
for address in $1; do ip address add "$address/24" dev net0; done
echo ready
exec sleep 3600
"""


class Machine:
    """Root of the tests is root there; any other user becomes it in a user namespace."""

    def __init__(self) -> None:
        others = os.geteuid() != 0
        hosts = "".join(f"{address} {name}\n" for address, name in NAMES.items())
        command = ["unshare", "--mount", "--net", *(["--map-root-user"] if others else [])]
        self.holder = subprocess.Popen(
            [*command, "sh", "-ec", SET_UP, hosts, " ".join(NAMES)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.holder.stdout is not None and self.holder.stderr is not None
        if self.holder.stdout.readline() != b"ready\n":
            self.close()
            pytest.skip(f"no namespaces for a machine of the page's own: {self.holder.stderr.read().decode()}")
        self.users = ["--user", "--preserve-credentials"] if others else []
        self.root = Path(f"/proc/{self.holder.pid}/root")

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()

    def command(self, directory: Path, command: list[Any]) -> list[Any]:
        """The same command there, in ``directory``."""
        enter = ["nsenter", f"--target={self.holder.pid}", *self.users, "--mount", "--net", "--"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', directory, *command]
