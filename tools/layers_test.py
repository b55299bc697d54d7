"""layers.py finds each kind of violation, and finds none in this project."""

from __future__ import annotations

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
    ],
)
def test_finds(tmp_path: Path, path: str, line: str, message: str) -> None:
    write(tmp_path, path, f"// first line\n{line}\n")
    problems = layers.check_tree(tmp_path)
    assert len(problems) == 1
    assert message in problems[0]
    if line:
        assert problems[0].startswith(f"{path}:2: ")
    assert layers.main([str(tmp_path)]) == 1


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
