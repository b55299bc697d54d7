"""Settings for the tests of frames with real readers."""

from hypothesis import HealthCheck, settings

settings.register_profile("frame", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("frame")
