"""What all tests share: one hypothesis profile, and one batch of the notebooks, which takes minutes and runs once."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# a busy machine is no failure, and continuous integration repeats itself
settings.register_profile(
    "asaplab", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("asaplab")
# a shell that runs tests in the background has Ctrl-C ignored, and so would every process that a test interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(out, only=()):
    from asaplab.lab import campaign

    return campaign.execute(campaign.plan(scale="smoke", only=only, out=out, changes={"seed": 1}))


@pytest.fixture(scope="session")
def batch_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("batch")


@pytest.fixture(scope="session")
def small_batch(batch_folder):
    """Outcomes of two quick notebooks; the whole batch keeps them."""
    return _run(batch_folder, ["06", "14"])


@pytest.fixture(scope="session")
def batch(batch_folder):
    """Outcomes of every notebook at smoke scale, as ``asaplab reproduce --scale smoke`` runs them."""
    return _run(batch_folder)
