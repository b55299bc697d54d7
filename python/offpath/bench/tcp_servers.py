"""Servers and agents of ``offpath bench tcp``: what its parts start on both ends of the network."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from .agent_process import AgentProcess
from .network_pair import AGENT_ADDRESS, NetworkPair
from .process_cost import on_core
from .programs import ProgramError, default_cores

PORT = 7000
SOCKETS = 8192  # of an offloaded program: 4,096 idle connections, and accept slots of its listeners
BOUNDS = (f"tcp.flows_of_program={SOCKETS}", "tcp.memory_of_program=32GiB")
START_SECONDS_MAX = 60.0


def sockets_command(agent: AgentProcess, sockets: int = SOCKETS) -> list[str]:
    """The command in front of an offloaded program."""
    return [sys.executable, "-m", "offpath", "sockets", "--agent", agent.address, "--sockets", str(sockets), "--"]


@contextmanager
def server(command: list[str], core: int) -> Iterator[subprocess.Popen]:
    """A server on ``core`` once it has said that it listens."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=on_core(core))
    try:
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
        if not readable or process.stdout.readline() != "listening\n":
            raise ProgramError(f"{' '.join(command)} does not listen")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def start_agent(
    pair: NetworkPair, *settings: str, device: str = "near", address: str = AGENT_ADDRESS, network: str = ""
) -> AbstractContextManager[AgentProcess]:
    """``network``: also listens there, for other machines."""
    others = (f"tcp.device={device}", f"tcp.address={address}/24", *BOUNDS, *settings)
    launcher = tuple(pair.near_command())
    return AgentProcess.start(default_cores()[1], others=others, launcher=launcher, network=network)
