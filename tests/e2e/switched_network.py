"""Two network namespaces that a switch joins, and a cable between them that can be pulled.

Neither side gets a sign of it: no reset, and no lost carrier.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Of the namespaces "agent" and "program".
AGENT, PROGRAM = "10.78.0.1", "10.78.0.2"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """Two namespaces whose cables end in a switch, in a third one, where the program's can be pulled."""

    def __init__(self) -> None:
        self.names = {place: f"offpath-{place}-{os.getpid()}" for place in ("agent", "program", "switch")}

    def make(self) -> None:
        switch = self.names["switch"]
        for name in self.names.values():
            ip("netns", "add", name)
        ip("-n", switch, "link", "add", "switch0", "type", "bridge")
        ip("-n", switch, "link", "set", "switch0", "up")
        for place, address in (("agent", AGENT), ("program", PROGRAM)):
            ip("-n", self.names[place], "link", "add", "eth0", "type", "veth", "peer", "name", place, "netns", switch)
            ip("-n", self.names[place], "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                ip("-n", self.names[place], "link", "set", link, "up")
            ip("-n", switch, "link", "set", place, "up")
        self.set_cable(True)
        ip("-n", switch, "link", "set", "agent", "master", "switch0")

    def set_cable(self, plugged: bool) -> None:
        end = ("master", "switch0") if plugged else ("nomaster",)
        ip("-n", self.names["switch"], "link", "set", "program", *end)

    def at(self, place: str) -> list[str]:
        """Words before a command that run it there."""
        return ["ip", "netns", "exec", self.names[place]]

    def remove(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@contextmanager
def switched_network() -> Iterator[Network]:
    """Skips the test where there are no network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip` (iproute2)")
    made = Network()
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield made
    finally:
        made.remove()
