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
    "exchange": {"base", "wire", "loop", "channel", "group", "offpath"},
    "tcp": {"base", "wire", "loop", "channel"},
    "host": {"base", "wire", "link", "channel", "frame", "offpath"},
    "sockets": {"base", "wire", "channel", "offpath"},
}
MAY_INCLUDE["agent"] = set(MAY_INCLUDE) - {"host", "sockets"} | {"offpath"}

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
    "arrow/": ("src/mover/agent_serialise", "src/mover/arrow_memory", "src/pool/", "src/sift/", "bench/", "tests/"),
    "parquet/": ("bench/", "tests/"),
    "lz4": ("src/mover/body_compressor",),
    "zstd": ("src/mover/body_compressor",),
    "openssl/": ("src/link/openssl_", "src/link/test_certificate"),
    "mpi.h": ("src/group/", "src/exchange/mpi_carrier", "apps/md/"),
    "infiniband/": ("src/link/verbs_",),
    "rdma/": ("src/link/verbs_",),
    "doca_": ("src/link/doca_", "tests/doca_card/"),
    "rte_": ("src/tcp/dpdk_port",),
    "httplib.h": ("src/agent/",),
    "prometheus/": ("src/agent/",),
    "spdlog/": ("src/agent/",),
    "CLI/": ("src/agent/", "bench/"),
    "toml++/": ("src/base/config",),
    "flatbuffers/": ("src/frame/",),
    "seccomp.h": ("src/plugin/system_calls",),
    "nanobind/": ("python/",),
    "ucp/": ("bench/",),
    "benchmark/": ("bench/",),
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


def check_include(path: Path, quoted: bool, header: str) -> str | None:
    """What is wrong with `path` including `header`, or None."""
    for prefix, homes in HOMES.items():
        if header.startswith(prefix) and not path.as_posix().startswith(homes):
            return f"<{header}> belongs to {', '.join(homes)} alone"
    first = header.split("/")[0]
    folder, allowed = place_of(path)
    if first in EVERYTHING and "/" in header:
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
    if path.parts[0] != "src" or "test" in path.name or path.as_posix() == UNBOUNDED_HOME:
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


def check_tree(root: Path) -> list[str]:
    """All problems below `root`, and folders of src the table does not know."""
    problems = []
    for folder in sorted((root / "src").glob("*/")):
        if folder.is_dir() and folder.name not in MAY_INCLUDE:
            problems.append(f"src/{folder.name}:1: this folder is not in the table of tools/layers.py")
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
