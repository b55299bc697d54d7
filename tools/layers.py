#!/usr/bin/env python3
"""Checks every #include against the layers: the folders that each folder may include, and the homes of third-party
headers. In each folder one header has to declare that it is read first, and which headers come next.

Usage: tools/layers.py [ROOT]. Prints `file:line: problem` for each problem, and exits 1 if there is any.
       tools/layers.py --write. Writes the tables below into docs/internals/architecture.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# A folder of src may include itself and these folders. `offpath` is include/offpath.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "actuator": {"base"},
    "wire": {"base", "offpath"},
    "link": {"base", "wire"},
    "channel": {"base", "wire", "link"},
    "plugin": {"base", "wire", "offpath"},
    "service": {"base", "wire", "link", "channel", "plugin"},
    "connections": {"base", "wire", "link", "channel"},
    "loop": {"base"},
    "group": {"base", "wire", "loop", "channel", "service"},
    "frame": {"base", "wire"},
    "mover": {"base", "wire", "loop", "link", "channel", "service", "frame"},
    "pool": {"base", "wire", "loop", "channel", "service", "group", "frame", "mover", "plugin"},
    "sift": {"base", "wire", "loop", "channel", "service", "group", "frame", "mover", "pool"},
    "task": {"base", "wire", "loop", "channel", "service", "group", "frame", "mover", "plugin"},
    "telemetry": {"base", "wire", "loop", "channel", "service", "offpath"},
    "exchange": {"base", "wire", "loop", "channel", "plugin", "service", "group", "telemetry", "offpath"},
    "tcp": {"base", "wire", "loop", "connections"},
    "host": {"base", "wire", "link", "channel", "frame", "offpath"},
    "sockets": {"base", "wire", "connections", "offpath"},
    "supervise": {"base", "wire", "connections", "sockets"},
}
MAY_INCLUDE["agent"] = set(MAY_INCLUDE) - {"host", "sockets", "supervise"} | {"offpath"}
MAY_INCLUDE["testing"] = set(MAY_INCLUDE) | {"offpath"}

# The contents of each folder of src.
HOLDS: dict[str, str] = {
    "base": "status, bytes, clock, log, configuration, file descriptors, a reserve of memory",
    "actuator": "limits of this machine that decisions set, and their keeper",
    "wire": "the channel as it lies in memory: slots, lines, control frames; names of memory, stale ones",
    "link": "ways to the other side's memory",
    "channel": "both ends of a channel: rings, leases, credit, wakes",
    "plugin": "users' functions, in worker processes",
    "service": "the dispatcher: requests in, effects out; what every service is to it",
    "connections": "a program's end of its TCP connections: area, rings, wakes",
    "loop": "one event loop per core: pollers, timers, jobs, mailboxes",
    "group": "agents that know each other: membership, suspicion and death, channels to others",
    "frame": "the layout of Arrow messages, without libarrow",
    "mover": "requests become plans, reads, frames, and objects of a store",
    "pool": "frames by key, in memory and on disk",
    "sift": "particles split by identifier, stage by stage, into tracks",
    "task": "functions over programs' memory: inputs pulled, run, outputs pushed",
    "telemetry": "samples of hosts, gauges of programs, alarms",
    "exchange": "records of agents exchanged by trees: topologies, views, grants",
    "tcp": "the TCP stack, and programs' connections on it",
    "host": "the host library, which implements include/offpath/offpath.h",
    "sockets": "socket calls of unmodified programs, over the agent",
    "supervise": "the same for programs that the preload library does not reach",
    "agent": "the daemon: configuration, wiring, status and metrics",
    "testing": "test doubles, which no program of the product links",
}

# Folders of src with rooms, from the bottom up, and the contents of each. A room may include the rooms before it, and
# files directly in its folder; those may include all rooms. Rooms have no rooms.
ROOMS: dict[str, dict[str, str]] = {
    "base": {
        "files": "bytes of files, names in directories",
        "hash": "FNV-1a, SplitMix64's finaliser, SipHash",
        "measure": "histograms of durations",
        "module": "parts of a program that are loaded when they are needed",
    },
    "wire": {
        "messages": "requests and replies of the rings, by subject",
        "areas": "memory that both sides map: exchanges, gauges, TCP",
        "query": "queries of pools: expressions, columns, aggregates",
    },
    "link": {
        "control": "control socket, authentication, TLS, the peer and its address space",
        "local": "one machine: sealed memory, process_vm_readv",
        "stream": "over TCP or TLS: the host's library serves reads",
        "card": "what RDMA and DMA have in common: registered memory, operations",
        "verbs": "RDMA (InfiniBand, RoCE)",
        "doca": "a BlueField's DMA engine",
        "handshake": "from a connection to a link",
    },
    "pool": {
        "directory": "names and options of pools, patterns, placement, versions of puts",
        "table": "objects of this member, in memory and on disk",
        "query": "filters, columns and aggregates over frames",
        "peers": "which pools and members there are, requests to members, lists, drops",
        "rows": "rows between members: puts and gets with their retries, moves, comparisons, repairs",
        "members": "pools over all members: the front, parts of queries, objects of services",
        "compute": "functions of plug-ins over objects, triggers",
        "flight": "Arrow Flight",
    },
    "sift": {
        "split": "the split itself: partition, geometry, row form",
        "publish": "pieces on their way to the next stage: their order, credit and retries",
        "kept": "what survives a restart: journal, copies, restore",
        "tracks": "runs, compaction, reading and querying tracks",
        "arrival": "pieces that arrive: their charges, checks and order",
        "elements": "elements that split, sort and merge; their records, and how they come back after a restart",
        "pools": "all pools of an agent: how they are made and agreed on, their effects, requests by kind",
    },
    "channel": {
        "host": "the parts of a program's end: requests, replies, wakes, streams, memory, waits",
        "agent": "the parts of an agent's end: transfers, answers, completion lines, wakes",
    },
    "connections": {"area": "the parts of an area: its rings, cells, handles, payload, processes, idle memory"},
    "exchange": {"decision": "functions that are called with each view, and how views are laid out for them"},
    "telemetry": {"host_sampler": "the sampler on the host, in plain C"},
    "tcp": {
        "segment": "headers, options, checksums, sequence numbers, frames",
        "congestion": "NewReno, CUBIC, DCTCP, TIMELY",
        "port": "devices: packet sockets, AF_XDP, DPDK, filters, addresses",
        "flow": "state: of one flow (SACK scoreboard, reassembly), of all flows, of what they share (next hops)",
        "stack": "what happens to flows: handshakes, acknowledgement, sending, timers",
        "area": "areas of programs on this machine, and copies of those on others",
        "program": "commands, ports, rings and events of programs",
        "slow_path": "handshakes and TIME-WAIT in a process of the host",
    },
    "host": {
        "send": "streams, sends, announced and staged memory",
        "requests": "pools, queries, tracks: requests and their replies",
        "exchange": "exchanges and gauges",
        "tasks": "tasks, on the agent or here",
    },
    "agent": {
        "services": "all services, given to the dispatcher",
        "config": "every key, and the checked values they become",
        "telemetry": "samplers and alarms joined with sockets and clocks",
        "connections": "TCP joined with devices, cores and processes",
        "cores": "several loops of one agent: their settings, connections and processes",
        "status": "status, metrics (credit waits among them) and the page",
    },
}

# Test doubles: no program of the product includes or links them. Tests, fuzzers and these folders do.
DOUBLES = "testing"
MAY_USE_DOUBLES = (("src", DOUBLES), ("tests",), ("bench",))
OF_TESTS = re.compile(r"offpath_(?:test|fuzzer)\([^)]*\)|#[^\n]*")
LINKED_DOUBLE = re.compile(rf"\b(?:offpath_)?{DOUBLES}_\w+")
FILES_MAX = 45  # in one folder of the product, tests included
PRODUCT = ("src", "include", "python", "apps", "integrations")

PAGE = "docs/internals/architecture.md"
BEGIN, END = "<!-- folders -->", "<!-- end of folders -->"

# Folders beside src: the folders of src that they may include.
EVERYTHING = set(MAY_INCLUDE) | {"offpath"}
BESIDE_SRC: dict[str, set[str]] = {
    "include": {"offpath"},
    "tests": EVERYTHING,
    "bench": EVERYTHING,
    "apps": {"offpath"},
    "python": {"offpath"},
    "examples": {"offpath"},
    "integrations": {"offpath", "frame", "base"},
}

# These folders of src may include only one header of include/offpath.
ONE_HEADER = {"wire": "offpath/plugin.h", "plugin": "offpath/plugin.h", "exchange": "offpath/decision.h"}

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
    "lz4": ("src/mover/body_compressor", "src/testing/mover/decompressed"),
    "zstd": ("src/mover/body_compressor", "src/testing/mover/decompressed"),
    "openssl/": ("src/link/control/openssl_", "src/testing/link/certificate"),
    "pmix": ("src/group/pmix_launcher",),
    "mpi.h": ("src/group/", "src/exchange/mpi_carrier", "apps/md/", "integrations/lammps/", "include/offpath/mpi.h"),
    "infiniband/": ("src/link/verbs/",),
    "rdma/": ("src/link/verbs/",),
    "doca_": ("src/link/doca/", "tests/doca_card/"),
    "rte_": ("src/tcp/port/dpdk_port",),
    "xdp/": ("src/tcp/port/xdp_device",),
    "bpf/": ("src/tcp/port/xdp_device",),
    "httplib.h": ("src/agent/",),
    "spdlog/": ("src/agent/",),
    "CLI/": ("src/agent/", "bench/"),
    "toml++/": ("src/base/config",),
    "flatbuffers/": ("src/frame/",),
    "seccomp.h": ("src/plugin/system_calls",),
    "nanobind/": ("python/",),
    "ucp/": ("bench/",),
    "adios2": ("integrations/adios2/", "tests/adios2/"),
    "nlohmann/": ("integrations/adios2/",),
}

# Only one file of src may use these, apart from tests: libarrow gets bounded memory (mover::ArrowMemory).
UNBOUNDED = re.compile(r"\bdefault_memory_pool\b|\bCombineChunks(?:ToBatch)?\(\)")
UNBOUNDED_HOME = "src/mover/arrow_memory.cc"

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".inc"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')


def place_of(path: Path) -> tuple[str, set[str]]:
    """The name of a file's folder, and the folders that it may include. `path` is relative to the root."""
    if path.parts[0] == "src":
        folder = path.parts[1]
        return folder, MAY_INCLUDE.get(folder, set()) | {folder}
    return path.parts[0], BESIDE_SRC[path.parts[0]]


def is_test(path: Path) -> bool:
    return path.stem.endswith(("_test", "_fuzz")) or path.parts[:2] == ("src", DOUBLES) or path.parts[0] != "src"


def may_use_doubles(path: Path) -> bool:
    return (
        path.stem.endswith(("_test", "_fuzz")) or path.parts[:2] in MAY_USE_DOUBLES or path.parts[:1] in MAY_USE_DOUBLES
    )


def check_room(path: Path, header: str) -> str | None:
    """The problem if `path` includes `header` of its own folder of src, or None."""
    folder, own, other = path.parts[1], path.parts[2:-1], Path(header).parts[1:-1]
    rooms = tuple(ROOMS.get(folder, ()))
    if not own or not other or own == other or is_test(path):
        return None
    below = rooms[: rooms.index(own[0])] if own[0] in rooms else ()
    if other[0] not in below:
        return (
            f'{folder}/{own[0]} may not include "{header}"; of {folder} it may include {", ".join(below) or "no room"}'
        )
    return None


def check_include(path: Path, quoted: bool, header: str) -> str | None:
    """The problem if `path` includes `header`, or None."""
    for prefix, homes in HOMES.items():
        if header.startswith(prefix) and not path.as_posix().startswith(homes):
            return f"<{header}> belongs to {', '.join(homes)} alone"
    first = header.split("/")[0]
    folder, allowed = place_of(path)
    if first in EVERYTHING and "/" in header:
        if first == DOUBLES and may_use_doubles(path):
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
    """The problem of a line of `path` that makes libarrow allocate, or None."""
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
    """Folders and rooms of src that are not in the tables, and folders of the product that have too many files."""
    problems = []
    for folder in sorted(path for path in (root / "src").rglob("*") if path.is_dir()):
        parts = folder.relative_to(root / "src").parts
        known = parts[0] in MAY_INCLUDE and (
            len(parts) == 1 or parts[0] == DOUBLES or parts[1:] in [(r,) for r in ROOMS.get(parts[0], ())]
        )
        if not known and not parts[-1].endswith("_corpus"):
            problems.append(f"src/{'/'.join(parts)}:1: this folder is not in the tables of tools/layers.py")
    for folder in sorted(path for top in PRODUCT for path in (root / top).rglob("*") if path.is_dir()):
        files = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc"]
        if len(files) > FILES_MAX and not folder.name.endswith("_corpus"):
            problems.append(f"{folder.relative_to(root)}:1: {len(files)} files, more than {FILES_MAX}: give it rooms")
    return problems


def check_linked(root: Path) -> list[str]:
    """Libraries, modules and programs of the product that are linked with test doubles."""
    problems = []
    for lists in sorted(path for top in ("src", *BESIDE_SRC) for path in (root / top).rglob("CMakeLists.txt")):
        path = lists.relative_to(root)
        if may_use_doubles(path):
            continue
        text = OF_TESTS.sub(lambda match: "\n" * match[0].count("\n"), lists.read_text(encoding="utf-8"))
        for match in LINKED_DOUBLE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{line}: only tests and fuzzers may be linked with {match[0]}")
    return problems


FIRST = re.compile(r"Read this first\b.*", re.DOTALL)
NAMED_HEADER = re.compile(r"[\w/]+\.h\b")


def opening_comment(file: Path) -> list[str]:
    """The paragraphs of the comment that begins a file, each as one line."""
    text = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        text.append(line[2:].strip())
    return [" ".join(paragraph.split()) for paragraph in "\n".join(text).split("\n\n")]


def check_first_headers(root: Path) -> list[str]:
    """Folders of src without exactly one header that says it is read first, and next headers that do not exist."""
    problems = []
    for folder in sorted({file.parent for file in (root / "src").rglob("*.h")}):
        where = folder.relative_to(root)
        headers = sorted(folder.glob("*.h"))
        found = [(h, m[0]) for h in headers for p in opening_comment(h) if (m := FIRST.search(p))]
        if len(found) > 1 or (len(headers) > 1 and not found):
            names = ", ".join(header.name for header, _ in found) or "none"
            problems.append(f"{where}:1: one header has to say 'Read this first in {where}, then …'; these do: {names}")
        for header, sentence in found:
            for name in NAMED_HEADER.findall(sentence):
                if not any((base / name).exists() for base in (folder, root / "src", root / "include")):
                    problems.append(f"{where}/{header.name}:1: the header to read next does not exist: {name}")
    return problems


def check_tree(root: Path) -> list[str]:
    """All problems below `root`."""
    problems = check_folders(root) + check_first_headers(root) + check_linked(root)
    for top in ["src", *BESIDE_SRC]:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                problems += check_file(root, file.relative_to(root))
    return problems


def table() -> str:
    """The tables above as Markdown."""
    lines = ["| folder | content | may include |", "|---|---|---|"]
    for folder, holds in HOLDS.items():
        below = [other for other in HOLDS if other in MAY_INCLUDE[folder]]
        if len(below) > len(HOLDS) // 2:
            above = [f"`{other}`" for other in HOLDS if other not in below and other != folder]
            may = "everything but " + ", ".join(above) if above else "everything"
        else:
            may = " ".join(below) or "nothing"
        header = ONE_HEADER.get(folder, "offpath.h" if "offpath" in MAY_INCLUDE[folder] and len(below) < 10 else "")
        lines.append(f"| `{folder}` | {holds} | {may}{f'; `{header}`' if header else ''} |")
        lines += [f"| `{folder}/{room}` | {what} | |" for room, what in ROOMS.get(folder, {}).items()]
    return "\n".join(lines) + "\n"


def check_page(root: Path) -> list[str]:
    """Checks that the page shows these tables."""
    page = root / PAGE
    if not page.exists():
        return []
    shown = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    if shown.strip() != table().strip():
        return [f"{PAGE}:1: its table of folders is not that of tools/layers.py: run tools/layers.py --write"]
    return []


def write_page(root: Path) -> None:
    page = root / PAGE
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + "\n\n" + table() + "\n" + END + rest.partition(END)[2], encoding="utf-8")


def main(arguments: list[str]) -> int:
    own = Path(__file__).resolve().parent.parent
    if arguments == ["--write"]:
        write_page(own)
        return 0
    root = Path(arguments[0]) if arguments else own
    problems = check_tree(root) + check_page(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
