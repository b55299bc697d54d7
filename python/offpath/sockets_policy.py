"""The policy file of ``offpath sockets --policy``: which ports and networks of a program go over the agent."""

from __future__ import annotations

import difflib
import ipaddress
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .errors import Error

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Policy:
    """The keys of the table ``[sockets]``, as the options of the same names; None: not set.

    ``listen`` is a list of ports, ``connect`` one of networks of IPv4 and IPv6; an empty one means that none is
    offloaded. ``address`` is the agent's address, or its addresses."""

    agent: str | None = None
    address: str | list[str] | None = None
    listen: list[int] | None = None
    connect: list[str] | None = None
    fallback: bool | None = None
    report: bool | None = None
    sockets: int | None = None
    ring: int | None = None
    supervise: bool | None = None


KEYS = [field.name for field in fields(Policy)]


def is_ring(size: int) -> bool:
    """Whether a socket's first rings may have so many bytes."""
    return 4096 <= size <= 4 << 20 and size.bit_count() == 1


def read_policy(path: Path) -> Policy:
    """Raises Error with the file's name, and the line if known, for invalid values."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {error}") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Error(f"{path}: {error}") from error
    lines = text.splitlines()
    for name in tables:
        if name != "sockets":
            raise Error(f"{path}:{_line_of(lines, name)}: '{name}' is outside of the only table, [sockets]")
    table = tables.get("sockets", {})
    if not isinstance(table, dict):
        raise Error(f"{path}:{_line_of(lines, 'sockets')}: sockets is a table: [sockets]")
    for key, value in table.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(KEYS)}"
            raise Error(f"{path}:{_line_of(lines, key)}: unknown key sockets.{key}{hint}")
        if (wrong := _CHECKS[key](value)) is not None:
            what, item = wrong
            raise Error(f"{path}:{_line_of(lines, key, item)}: sockets.{key}: {what}")
    return Policy(**table)


# The error of a value, and the item that has it.
_Wrong = tuple[str, Any] | None


def _text(value: Any) -> _Wrong:
    return None if isinstance(value, str) and value else ("expected a text in quotes", None)


def _switch(value: Any) -> _Wrong:
    return None if isinstance(value, bool) else ("expected true or false", None)


def _ports(value: Any) -> _Wrong:
    if not isinstance(value, list):
        return "expected a list of ports, such as [80, 8000]", None
    for port in value:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            return f"{port!r} is not a port (1 to 65535)", port
    return None


def _count(value: Any) -> _Wrong:
    good = isinstance(value, int) and not isinstance(value, bool) and 16 <= value <= 1 << 20
    return None if good else ("expected a number from 16 to 1048576", None)


def _ring(value: Any) -> _Wrong:
    good = isinstance(value, int) and not isinstance(value, bool) and is_ring(value)
    return None if good else ("expected a power of two from 4096 to 4194304", None)


def _address(value: Any) -> _Wrong:
    versions = set()
    for address in value if isinstance(value, list) else [value]:
        item = address if isinstance(value, list) else None
        try:
            read = ipaddress.ip_address(address if isinstance(address, str) and "%" not in address else "")
        except ValueError:
            return f"{address!r} is not an IP address", item
        if read.is_unspecified or read.is_loopback or read.is_multicast:
            return f"{address!r} is not an address of an agent", item
        if read.version in versions:
            return f"{address!r} is the second address of its family", item
        versions.add(read.version)
    return None


def _networks(value: Any) -> _Wrong:
    if not isinstance(value, list):
        return 'expected a list of networks, such as ["10.9.0.0/24", "2001:db8::/32"]', None
    for network in value:
        try:
            ipaddress.ip_network(network if isinstance(network, str) else "")
        except ValueError as error:
            return f"{network!r} is not a network ({error})", network
    return None


def check_option(key: str, words: str) -> None:
    """Raises Error for a value of ``--address`` or ``--connect`` that the key of this name could not have."""
    if (wrong := _CHECKS[key](words.split(",") if words else [])) is not None:
        raise Error(f"--{key} {words}: {wrong[0]}")


_CHECKS: dict[str, Callable[[Any], _Wrong]] = {
    "agent": _text,
    "address": _address,
    "listen": _ports,
    "connect": _networks,
    "fallback": _switch,
    "report": _switch,
    "sockets": _count,
    "ring": _ring,
    "supervise": _switch,
}


def _line_of(lines: list[str], key: str, item: Any = None) -> int:
    """Where the key stands, from 1; with an item of its value, the line from there on that has it."""
    begins = re.compile(rf"""\s*(sockets\s*\.\s*)?["']?{re.escape(key)}["']?\s*[.=]""")
    header = re.compile(rf"""\s*\[+\s*["']?{re.escape(key)}\b""")
    at = next((number for test in (begins, header) for number, line in enumerate(lines) if test.match(line)), 0)
    if item is not None:
        at = next((number for number in range(at, len(lines)) if str(item) in lines[number]), at)
    return at + 1
