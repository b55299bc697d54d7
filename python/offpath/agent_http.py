"""Reads the pages that an agent serves over HTTP: its status and metrics."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from .errors import AgentError

DEFAULT = "127.0.0.1:9477"
WAIT_S = 5.0
BUSY_S = 10.0  # how long an agent is asked again whose loop has no processor to answer with: it answers 503
FRESH_S = 1.0  # ten times as long as an agent reuses a status


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("agent", timeout=WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(self._path)


def default_sockets() -> list[Path]:
    """The sockets at which agents listen by default: this user's, then root's."""
    places = [Path("/run/offpath/agent.sock")]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() != 0 and runtime.startswith("/"):
        places.insert(0, Path(runtime) / "offpath/agent.sock")
    return places


def find_agent_address(given: str | None) -> str | None:
    """The given address, OFFPATH_AGENT, or the first default socket that exists; None without any."""
    if named := given or os.environ.get("OFFPATH_AGENT"):
        return named
    return next((f"unix:{place}" for place in default_sockets() if place.exists()), None)


def pages_beside(socket_path: Path) -> Path:
    """Where an agent at this socket has its pages by default: ``http.sock`` beside ``agent.sock``, ``http-3.sock``
    beside ``agent-3.sock``, and ``NAME-http.sock`` beside another ``NAME.sock``."""
    stem = socket_path.name.removesuffix(".sock")
    usual = stem == "agent" or stem.startswith("agent-")
    return socket_path.with_name(f"{stem.replace('agent', 'http', 1) if usual else f'{stem}-http'}.sock")


def find_http(http_address: str | None, agent_address: str | None) -> str:
    """Where an agent's pages are: given; beside the Unix socket of the agent that is given (``pages_beside``);
    OFFPATH_AGENT_HTTP; beside the socket of the agent that is found; or the port that packaging/offpath.toml opens, if
    the agent there is this one, or none was named.

    Raises AgentError, which names the agent, if there is nothing at any of these.
    """
    if http_address:
        return http_address
    if agent_address and agent_address.startswith("unix:"):
        path = Path(agent_address.removeprefix("unix:"))
        if not path.exists():
            raise AgentError(f"no agent at {agent_address}: there is no such socket")
        if pages_beside(path).exists():
            return f"unix:{pages_beside(path)}"
    if given := os.environ.get("OFFPATH_AGENT_HTTP"):
        return given
    agent = find_agent_address(agent_address)
    if agent is None:
        if not answers(DEFAULT):
            raise AgentError(f"no agent at {' or '.join(map(str, default_sockets()))}, where agents listen by default, "
                             f"and no status pages at {DEFAULT}: start one with `offpath agent`, or name it by --agent "
                             "or OFFPATH_AGENT")  # fmt: skip
        return DEFAULT
    if agent.startswith("unix:"):
        beside = pages_beside(Path(agent.removeprefix("unix:")))
        if beside.exists():
            return f"unix:{beside}"
    if answers(DEFAULT) and agent in fetch_status(DEFAULT)["addresses"]:
        return DEFAULT
    raise AgentError(f"the agent at {agent} has no status pages beside its socket, nor are its own at {DEFAULT}: it is "
                     "not there, or was started without --http; if it has some, name them by --http")  # fmt: skip


def answers(where: str) -> bool:
    """Whether a server listens at HOST:PORT."""
    host, _, port = where.rpartition(":")
    try:
        socket.create_connection((host, int(port)), WAIT_S).close()
    except OSError:
        return False
    return True


def fetch(where: str, page: str) -> str:
    """Fetches one page. Raises AgentError with the remedy if no agent answers."""
    give_up = time.monotonic() + BUSY_S
    while True:
        response, body = ask(where, page)
        if response.status == 200:
            return body
        if response.status != 503 or time.monotonic() >= give_up:
            raise AgentError(f"{where}{page}: {response.status} {response.reason}: {body.strip()[:200]}")
        time.sleep(0.1)


def ask(where: str, page: str) -> tuple[http.client.HTTPResponse, str]:
    """The agent's answer now. Raises AgentError with the remedy if no agent does."""
    if where.startswith("unix:"):
        connection: http.client.HTTPConnection = UnixConnection(where.removeprefix("unix:"))
    else:
        connection = http.client.HTTPConnection(where.removeprefix("http://").rstrip("/"), timeout=WAIT_S)
    try:
        connection.request("GET", page)
        response = connection.getresponse()
        return response, response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise AgentError(f"no agent answers HTTP at {where} ({error}): start it with --http, "
                         "and name the address by --http or OFFPATH_AGENT_HTTP") from error  # fmt: skip
    finally:
        connection.close()


def fetch_status(where: str) -> dict[str, Any]:
    """``/status.json``."""
    return json.loads(fetch(where, "/status.json"))


def without_members(where: str, pool: str, agent: str | None = None) -> str:
    """A warning if no member of the agent's group is a member of a pool that was just made; empty if some are, or if
    another agent than ``agent`` answers there."""
    until = time.monotonic() + FRESH_S
    while True:
        status = fetch_status(where)
        here = next((each for each in status["pools"] if each["name"] == pool.partition("?")[0]), None)
        if here is not None or agent not in (None, status["name"]) or time.monotonic() >= until:
            break
        time.sleep(FRESH_S / 20)  # the agent may answer with a status that it made for another request shortly before
    if here is None or here["members"] > 0 or agent not in (None, status["name"]):
        return ""
    names = ", ".join(each["name"] for each in status["members"]) or status["name"]
    return (f"no member's name matches {here['options']}; the members are {names}. Puts fail until a member comes "
            "whose name does.")  # fmt: skip
