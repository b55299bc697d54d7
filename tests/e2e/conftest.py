"""Settings for the end-to-end tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share
