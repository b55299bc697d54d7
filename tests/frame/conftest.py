"""Puts the modules that these tests share where they can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
