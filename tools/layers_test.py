"""layers.py finds each kind of violation, and finds none in this project."""

from __future__ import annotations

import re
from pathlib import Path

import layers
import pytest


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("src/base/x.cc", '#include "wire/ring.h"', 'base may not include "wire/ring.h"; it may include nothing'),
        ("src/frame/x.cc", '#include "mover/mover.h"', "frame may not include"),
        ("src/frame/x.cc", "#include <mover/mover.h>", "frame may not include"),
        ("src/agent/x.cc", '#include "host/host.h"', "agent may not include"),
        ("src/wire/x.h", "#include <offpath/offpath.h>", 'wire may include "offpath/plugin.h" of include/offpath, not'),
        ("src/plugin/x.h", '#include "offpath/offpath.h"', 'may include "offpath/plugin.h"'),
        ("src/wire/x.h", '#include "slot.h"', 'written without its folder: "wire/slot.h"'),
        ("src/frame/x.cc", "#include <arrow/api.h>", "<arrow/api.h> belongs to"),
        ("src/mover/mover.cc", "#  include <arrow/api.h>", "<arrow/api.h> belongs to"),
        ("src/channel/x.cc", "#include <openssl/hmac.h>", "belongs to src/link/control/openssl_, src/test"),
        ("src/link/control/authentication.cc", "#include <openssl/hmac.h>", "belongs to src/link/control/openssl_"),
        ("src/base/log.cc", "#include <spdlog/spdlog.h>", "belongs to src/agent/ alone"),
        ("src/base/status.cc", "#include <toml++/toml.h>", "belongs to src/base/config alone"),
        ("src/link/local_link.cc", "#include <infiniband/verbs.h>", "belongs to src/link/verbs/ alone"),
        ("examples/01.c", '#include "base/status.h"', "examples may not include"),
        ("apps/md/md.cc", '#include "wire/ring.h"', "apps may not include"),
        ("src/pool/x.cc", "Build(arrow::default_memory_pool());", "default_memory_pool is memory without a bound"),
        ("src/pool/x.cc", "table->CombineChunksToBatch();", "CombineChunksToBatch() is memory without a bound"),
        ("src/extra/x.cc", "", "src/extra:1: this folder is not in the table"),
        ("src/link/extra/x.cc", "", "src/link/extra:1: this folder is not in the table"),
        (
            "src/tcp/segment/x.cc",
            '#include "tcp/stack/stack.h"',
            'tcp/segment may not include "tcp/stack/stack.h"; of tcp it may include no room',
        ),
        ("src/pool/table/x.cc", '#include "pool/query/query.h"', "of pool it may include directory"),
        ("src/link/local/x.cc", '#include "testing/link/fault_link.h"', "link may not include"),
        ("apps/md/x.cc", '#include "testing/tcp/family.h"', 'apps may not include "testing/tcp/family.h"'),
        ("integrations/lammps/x.h", '#include "testing/pool/loopback.h"', "integrations may not include"),
        ("python/bindings/x.cc", '#include "testing/cpu_time.h"', "python may not include"),
        (
            "src/tcp/CMakeLists.txt",
            "offpath_program(offpath-slow-path SOURCES main.cc\n  DEPENDS tcp testing_tcp)",
            "only tests and fuzzers may be linked with testing_tcp",
        ),
        ("apps/md/CMakeLists.txt", "target_link_libraries(md PRIVATE offpath_testing_link)", "offpath_testing_link"),
    ],
)
def test_finds(tmp_path: Path, path: str, line: str, message: str) -> None:
    write(tmp_path, path, f"// first line\n{line}\n")
    problems = layers.check_tree(tmp_path)
    assert len(problems) == 1
    assert message in problems[0]
    if line:
        assert problems[0].startswith(f"{path}:{2 + line.count(chr(10))}: ")
    assert layers.main([str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"a.h": "// A."}, ""),  # a folder with one header
        ({"a.h": "// A. Read this first in src/base, then b.h.", "b.h": "// B."}, ""),
        (
            {"a.h": "// A.\n//\n// Read this first in\n// src/base, then b.h and\n// base/c.h.", "b.h": "", "c.h": ""},
            "",
        ),
        ({"a.h": "// A.", "b.h": "// B."}, "src/base:1: one header has to say 'Read this first in src/base, then …'"),
        ({"a.h": "// Read this first.", "b.h": "// Read this first."}, "these do: a.h, b.h"),
        ({"a.h": "// Read this first, then c.h.", "b.h": ""}, "src/base/a.h:1: the header to read next does not exist"),
        ({"a.h": "int a;  // Read this first.", "b.h": ""}, "these do: none"),  # not the opening comment
    ],
)
def test_each_folder_says_what_to_read_first(tmp_path: Path, headers: dict[str, str], problem: str) -> None:
    for name, text in headers.items():
        write(tmp_path, f"src/base/{name}", text + "\n")
    problems = layers.check_tree(tmp_path)
    assert [problem in found for found in problems] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/channel/x.cc", '#include "link/link.h"'),
        ("src/mover/agent_serialise.cc", "#include <arrow/api.h>"),
        ("src/base/config.cc", "#include <toml++/toml.h>"),
        ("src/base/fd.h", "#include <unistd.h>"),
        ("src/host/host.cc", "#include <offpath/offpath.h>"),
        ("src/agent/agent.cc", '#include "tcp/flow/flow.h"'),
        ("src/pool/query/x.cc", '#include "pool/table/disk.h"'),
        ("src/pool/pool.cc", '#include "pool/query/query.h"'),
        ("src/link/local/x_test.cc", '#include "testing/link/fault_link.h"'),
        ("bench/tcp/x.cc", '#include "testing/tcp/impaired_path.h"'),
        ("apps/md/x_test.cc", '#include "testing/tcp/family.h"'),
        ("src/tcp/CMakeLists.txt", "offpath_test(a_test SOURCES a_test.cc\n  DEPENDS tcp testing_tcp)  # testing_tcp"),
        ("bench/CMakeLists.txt", "offpath_program(bench_tcp SOURCES a.cc DEPENDS testing_tcp)"),
        ("src/testing/CMakeLists.txt", "offpath_library(testing_tcp SOURCES a.cc DEPENDS tcp)"),
        ("tests/sim/x.cc", '#include "host/host.h"'),
        ("src/frame/x.cc", '#include "message_generated.h"'),
        ("bench/x.cc", '#include "measure.h"'),
        ("src/mover/arrow_memory.cc", "arrow::default_memory_pool()->Free();"),
        ("src/pool/query/query_test.cc", "arrow::default_memory_pool();"),
        ("src/pool/x.cc", "table->CombineChunksToBatch(&memory);"),
        ("src/base/x.cc", '// #include "wire/ring.h"'),
    ],
)
def test_allows(tmp_path: Path, path: str, line: str) -> None:
    write(tmp_path, path, line + "\n")
    assert layers.check_tree(tmp_path) == []
    assert layers.main([str(tmp_path)]) == 0


@pytest.mark.parametrize("folder", ["src/base", "python/offpath/bench", "apps/md", "tests/e2e"])
def test_a_folder_of_the_product_has_no_more_files_than_a_reader_looks_through(tmp_path: Path, folder: str) -> None:
    for number in range(layers.FILES_MAX):
        write(tmp_path, f"{folder}/part{number}.txt", "")
    assert layers.check_tree(tmp_path) == []
    write(tmp_path, f"{folder}/one_more.txt", "")
    found = [] if folder == "tests/e2e" else [f"{folder}:1: 46 files, more than 45: give it rooms"]
    assert layers.check_tree(tmp_path) == found


def test_table_has_no_circle() -> None:
    """No folder includes a folder above it."""
    done: set[str] = {"offpath"}
    left = dict(layers.MAY_INCLUDE)
    while left:
        ready = [folder for folder, below in left.items() if below <= done]
        assert ready, f"these folders include each other: {sorted(left)}"
        done.update(ready)
        for folder in ready:
            del left[folder]


def test_a_page_that_shows_another_table_is_found(tmp_path: Path) -> None:
    write(tmp_path, layers.PAGE, f"{layers.BEGIN}\n{layers.END}\n")
    assert "run tools/layers.py --write" in layers.check_page(tmp_path)[0]
    layers.write_page(tmp_path)
    assert layers.check_page(tmp_path) == []


def test_every_folder_is_described() -> None:
    assert set(layers.HOLDS) == set(layers.MAY_INCLUDE)


def test_this_project() -> None:
    assert layers.check_page(Path(layers.__file__).resolve().parent.parent) == []
    assert layers.check_tree(Path(layers.__file__).resolve().parent.parent) == []


def test_what_readers_look_for_is_where_the_page_says() -> None:
    root = Path(layers.__file__).resolve().parent.parent
    page = (root / layers.PAGE).read_text(encoding="utf-8").partition("Places that readers often look for:")[2]
    rows = [line for line in page.partition("Beside `src`")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9
    for row in rows:
        files = re.findall(r"`(src/[^`]+)`", row)
        assert files, row
        texts = [(root / file).read_text(encoding="utf-8") for file in files]
        for name in re.findall(r"\(`(\w+)`", row):
            assert any(name in text for text in texts), row


def test_doubles_are_named_by_their_kind() -> None:
    root = Path(layers.__file__).resolve().parent.parent / "src" / layers.DOUBLES
    texts = [file.read_text(encoding="utf-8") for file in sorted(root.rglob("*")) if file.suffix in {".h", ".cc"}]
    derived = [
        found for text in texts for found in re.findall(r"^class (\w+)[^;{]*: public (?:\w+::)*(\w+)", text, re.M)
    ]
    own = {name for text in texts for name in re.findall(r"^(?:class|struct) (\w+)", text, re.M)}
    doubles = [name for name, interface in derived if interface not in own and interface != "Test"]
    assert len(doubles) >= 10
    words = ("Loopback", "Memory", "Fault", "Impaired", "Fake")
    assert [name for name in doubles if not name.startswith(words)] == [], "docs/internals/hacking.md has the words"
