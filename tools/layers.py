#!/usr/bin/env python3
"""Checks that every #include keeps to the layers: who may include whom, and where third-party headers live.

Usage: tools/layers.py [ROOT]. Prints `file:line: what is wrong`, one a line, and exits 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# A folder of src may include itself and what stands here. `offpath` is include/offpath.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "wire": {"base"},
    "plugin": {"base", "wire", "offpath"},
    "link": {"base", "wire"},
    "channel": {"base", "wire", "link"},
    "loop": {"base"},
    "group": {"base", "wire", "loop", "channel"},
    "frame": {"base", "wire"},
    "mover": {"base", "wire", "loop", "link", "channel", "frame"},
    "pool": {"base", "wire", "loop", "channel", "group", "frame", "mover", "plugin"},
    "task": {"base", "wire", "loop", "channel", "group", "frame", "mover", "plugin"},
    "sift": {"base", "wire", "loop", "channel", "group", "frame", "mover", "pool"},
    "telemetry": {"base", "wire", "loop", "channel", "offpath"},
    "exchange": {"base", "wire", "loop", "channel", "group", "telemetry"},
    "tcp": {"base", "wire", "loop", "connections"},
    "connections": {"base", "wire", "link", "channel"},
    "host": {"base", "wire", "link", "channel", "frame", "offpath"},
    "sockets": {"base", "wire", "connections", "offpath"},
}
MAY_INCLUDE["service"] = set(MAY_INCLUDE) - {"host", "sockets", "connections", "tcp", "offpath"}
MAY_INCLUDE["agent"] = set(MAY_INCLUDE) - {"host", "sockets"} | {"offpath"}
MAY_INCLUDE["testing"] = set(MAY_INCLUDE) | {"offpath"}

# Folders of src that have rooms, from the bottom up. A room may include the rooms before it, and what lies in its
# folder itself; what lies in the folder itself may include all of its rooms. Rooms have no rooms.
ROOMS: dict[str, tuple[str, ...]] = {
    "wire": ("messages", "areas"),
    "link": ("control", "local", "stream", "card", "verbs", "doca", "handshake"),
    "pool": ("directory", "table", "query", "members", "compute", "flight"),
    "sift": ("split", "kept", "tracks"),
    "telemetry": ("host_sampler",),
    "tcp": ("segment", "congestion", "port", "stack", "program", "slow_path"),
    "host": ("send", "requests", "exchange", "tasks"),
    "agent": ("config", "telemetry", "connections", "status"),
}

# Test doubles: a program of the product includes none of them. Tests and fuzzers of src do, and the folders beside src.
DOUBLES = "testing"
FILES_MAX = 45  # in one folder, tests included

# Folders beside src: what of src they may include.
EVERYTHING = set(MAY_INCLUDE) | {"offpath"}
BESIDE_SRC: dict[str, set[str]] = {
    "include": {"offpath"},
    "tests": EVERYTHING,
    "bench": EVERYTHING,
    "apps": {"offpath"},
    "python": {"offpath"},
    "examples": {"offpath"},
}

# Only this one header of include/offpath is open to these folders of src.
ONE_HEADER = {"plugin": "offpath/plugin.h"}

# Third-party headers by prefix, and the path prefixes of the files that may include them.
HOMES: dict[str, tuple[str, ...]] = {
    "arrow/": (
        "src/mover/agent_serialise",
        "src/mover/arrow_memory",
        "src/pool/",
        "src/sift/",
        "src/testing/pool/",
        "bench/",
        "tests/",
    ),
    "parquet/": ("bench/", "tests/"),
    "lz4": ("src/mover/body_compressor",),
    "zstd": ("src/mover/body_compressor",),
    "openssl/": ("src/link/control/openssl_", "src/testing/link/certificate"),
    "mpi.h": ("src/group/", "src/exchange/mpi_carrier", "apps/md/"),
    "infiniband/": ("src/link/verbs/",),
    "rdma/": ("src/link/verbs/",),
    "doca_": ("src/link/doca/", "tests/doca_card/"),
    "rte_": ("src/tcp/port/dpdk_port",),
    "httplib.h": ("src/agent/",),
    "prometheus/": ("src/agent/",),
    "spdlog/": ("src/agent/",),
    "CLI/": ("src/agent/", "bench/"),
    "toml++/": ("src/base/config",),
    "flatbuffers/": ("src/frame/",),
    "seccomp.h": ("src/plugin/system_calls",),
    "nanobind/": ("python/",),
    "ucp/": ("bench/",),
}

# Only one file of src may write these, tests apart: libarrow gets bounded memory (mover::ArrowMemory).
UNBOUNDED = re.compile(r"\bdefault_memory_pool\b|\bCombineChunks(?:ToBatch)?\(\)")
UNBOUNDED_HOME = "src/mover/arrow_memory.cc"

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".inc"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')


def place_of(path: Path) -> tuple[str, set[str]]:
    """The name of the folder a file belongs to, and what that folder may include. `path` is relative to the root."""
    if path.parts[0] == "src":
        folder = path.parts[1]
        return folder, MAY_INCLUDE.get(folder, set()) | {folder}
    return path.parts[0], BESIDE_SRC[path.parts[0]]


def is_test(path: Path) -> bool:
    return path.stem.endswith(("_test", "_fuzz")) or path.parts[:2] == ("src", DOUBLES) or path.parts[0] != "src"


def check_room(path: Path, header: str) -> str | None:
    """What is wrong with `path` including `header` of its own folder of src, or None."""
    folder, own, other = path.parts[1], path.parts[2:-1], Path(header).parts[1:-1]
    rooms = ROOMS.get(folder, ())
    if not own or not other or own == other or is_test(path):
        return None
    below = rooms[: rooms.index(own[0])] if own[0] in rooms else ()
    if other[0] not in below:
        return (
            f'{folder}/{own[0]} may not include "{header}"; of {folder} it may include {", ".join(below) or "no room"}'
        )
    return None


def check_include(path: Path, quoted: bool, header: str) -> str | None:
    """What is wrong with `path` including `header`, or None."""
    for prefix, homes in HOMES.items():
        if header.startswith(prefix) and not path.as_posix().startswith(homes):
            return f"<{header}> belongs to {', '.join(homes)} alone"
    first = header.split("/")[0]
    folder, allowed = place_of(path)
    if first in EVERYTHING and "/" in header:
        if first == DOUBLES and is_test(path):
            return None
        if first == folder and path.parts[0] == "src" and folder != DOUBLES:
            return check_room(path, header)
        if first not in allowed:
            others = ", ".join(sorted(allowed - {folder})) or "nothing"
            return f'{folder} may not include "{header}"; it may include {others}'
        if first == "offpath" and folder in ONE_HEADER and header != ONE_HEADER[folder]:
            return f'{folder} may include "{ONE_HEADER[folder]}" of include/offpath, not "{header}"'
        return None
    generated = header.endswith("_generated.h")
    if quoted and path.parts[0] == "src" and "/" not in header and not generated:
        return f'"{header}" is written without its folder: "{folder}/{header}"'
    return None


def check_memory(path: Path, line: str) -> str | None:
    """What is wrong with a line of `path` that has libarrow allocate, or None."""
    if is_test(path) or path.as_posix() == UNBOUNDED_HOME:
        return None
    if match := UNBOUNDED.search(line):
        return f"{match[0]} is memory without a bound; give it a mover::ArrowMemory"
    return None


def check_file(root: Path, path: Path) -> list[str]:
    """All problems of one file, as `file:line: text`."""
    problems = []
    for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match and (wrong := check_include(path, match[1] == '"', match[2])):
            problems.append(f"{path}:{number}: {wrong}")
        if wrong := check_memory(path, line):
            problems.append(f"{path}:{number}: {wrong}")
    return problems


def check_folders(root: Path) -> list[str]:
    """Folders and rooms of src that the tables do not know, and those that hold too much."""
    problems = []
    for folder in sorted(path for path in (root / "src").rglob("*") if path.is_dir()):
        parts = folder.relative_to(root / "src").parts
        if parts[-1].endswith("_corpus"):
            continue
        known = parts[0] in MAY_INCLUDE and (
            len(parts) == 1 or parts[0] == DOUBLES or parts[1:] in [(r,) for r in ROOMS.get(parts[0], ())]
        )
        if not known:
            problems.append(f"src/{'/'.join(parts)}:1: this folder is not in the tables of tools/layers.py")
        count = sum(path.is_file() for path in folder.iterdir())
        if count > FILES_MAX:
            problems.append(
                f"src/{'/'.join(parts)}:1: {count} files, more than {FILES_MAX}: give it rooms (tools/layers.py)"
            )
    return problems


def check_tree(root: Path) -> list[str]:
    """All problems below `root`."""
    problems = check_folders(root)
    for top in ["src", *BESIDE_SRC]:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                problems += check_file(root, file.relative_to(root))
    return problems


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    problems = check_tree(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
