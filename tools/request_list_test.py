"""The list of requests in docs/internals/hacking.md is generated from the table, and another one is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import request_list
from request_list import KINDS, PAGE, ROOT, TABLE


def copy(root: Path) -> None:
    for path in (KINDS, PAGE, TABLE):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, root / path)


def test_the_page_lists_the_requests_of_the_table() -> None:
    assert request_list.check_page(ROOT) == []
    assert "| 10 | `probe` | channel | anyone | an entry |" in request_list.table(ROOT)
    assert "| 15 | `release` | pool, or `release_by_number` | anyone | 256 |" in request_list.table(ROOT)
    assert "| 39 | `pool_cancel` | query, resources, then pool | anyone | 256 |" in request_list.table(ROOT)


def test_a_request_that_the_page_lacks_is_found(tmp_path: Path) -> None:
    copy(tmp_path)
    table = (tmp_path / TABLE).read_text()
    (tmp_path / TABLE).write_text(
        table.replace("ServiceId::channel, Who::anyone", "ServiceId::channel, Who::member", 1)
    )
    assert "run tools/request_list.py --write" in request_list.check_page(tmp_path)[0]
    request_list.write_page(tmp_path)
    assert request_list.check_page(tmp_path) == []


def test_a_kind_without_a_row_is_found(tmp_path: Path) -> None:
    copy(tmp_path)
    kinds = (tmp_path / KINDS).read_text()
    (tmp_path / KINDS).write_text(
        kinds.replace("  gauges_close = 41,\n", "  gauges_close = 41,\n  gauges_known = 42,\n")
    )
    assert "for the" in request_list.check_page(tmp_path)[0]
