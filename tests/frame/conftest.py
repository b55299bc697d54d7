"""Settings for the tests of frames with real readers."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share

settings.register_profile("frame", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("frame")
