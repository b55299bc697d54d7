"""Files of the build that tests need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skips the test, or the module that is being imported. After the build of ``./dev test``, which builds everything,
    it fails: a file has another name now."""
    if "OFFPATH_BUILT" in os.environ:
        pytest.fail(f"after a build of everything: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def needs_built(*files: Path) -> pytest.MarkDecorator:
    """The mark of tests that need these files; without them ``missing`` decides."""
    absent = [path for path in files if not path.exists()]
    reason = f"{absent[0] if absent else 'nothing'} is not built"
    if absent and "OFFPATH_BUILT" in os.environ:
        missing(reason)
    return pytest.mark.skipif(bool(absent), reason=reason)
