"""Unmodified programs whose TCP connections go over the agent: their socket calls, by a library that is preloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import Error

LIBRARY = "liboffpath_sockets.so"


def find_library() -> Path:
    """The preload library: OFFPATH_SOCKETS_LIBRARY, of the build in OFFPATH_BUILD_DIR, in the environment this package
    is installed in, or the system's. Raises Error naming where it was looked for."""
    if given := os.environ.get("OFFPATH_SOCKETS_LIBRARY"):
        return Path(given)
    places = []
    if build := os.environ.get("OFFPATH_BUILD_DIR"):
        places.append(Path(build) / "lib")
    package = Path(__file__).resolve().parent
    if len(package.parents) > 2:
        places.append(package.parents[2])  # PREFIX/lib/pythonX.Y/site-packages/offpath
    places += sorted(Path("/usr/lib").glob("*-linux-gnu"))
    for place in places:
        if (place / LIBRARY).exists():
            return place / LIBRARY
    raise Error(f"{LIBRARY} is not in {', '.join(map(str, places))}; set OFFPATH_SOCKETS_LIBRARY to it")


def environment(agent: str, *, address: str | None = None, listen: str | None = None, connect: str | None = None,
                base: Mapping[str, str] = os.environ) -> dict[str, str]:  # fmt: skip
    """What a program is started with. ``agent``: unix:/path. ``address``: the agent's own, where the program may bind
    to it. ``listen``: ports such as "80,8000". ``connect``: networks such as "10.9.0.0/24". None: every one."""
    made = {**base, "OFFPATH_AGENT": agent}
    for name, value in (("ADDRESS", address), ("LISTEN", listen), ("CONNECT", connect)):
        made.pop(f"OFFPATH_SOCKETS_{name}", None)
        if value is not None:
            made[f"OFFPATH_SOCKETS_{name}"] = value
    others = made.get("LD_PRELOAD")
    made["LD_PRELOAD"] = f"{find_library()}:{others}" if others else str(find_library())
    return made
