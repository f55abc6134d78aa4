"""2,000 rounds a device in random order over eight processes, every payload checked; both cores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from asaplab.primitives import backend

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("core", ["native", "numpy"])
def test_rows_in_random_order(core, slots):
    if core == "native" and backend._native() is None:
        pytest.skip("the native core was not built here")
    done = subprocess.run(
        [sys.executable, "-m", "tests.primitives.stress", "2000", str(slots)],
        cwd=ROOT,
        env=os.environ | {backend.VARIABLE: core},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2000 rounds"), done.stdout + done.stderr
