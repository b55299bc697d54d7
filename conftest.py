"""Tests chosen by a regular expression for their names, as ctest does it: `./dev test --only PATTERN`."""

from __future__ import annotations

import re

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--names", metavar="REGEX", help="only tests whose node id matches")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    pattern = config.getoption("--names")
    if not pattern:
        return
    chosen = [item for item in items if re.search(pattern, item.nodeid)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
