"""Settings for the end-to-end tests."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="offpath-open-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
