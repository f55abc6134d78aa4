"""One hypothesis profile for all tests: a busy machine is no failure, and continuous integration repeats itself."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "asaplab", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("asaplab")
