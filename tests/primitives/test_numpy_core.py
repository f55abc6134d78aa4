"""The numpy reference passes what the native core passes, and plans the same."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.primitives import backend, reference
from asaplab.primitives.plan import address

ROOT = Path(__file__).parents[2]


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 30), K=st.integers(1, 5), E=st.integers(1, 4), more=st.integers(0, 8), seed=st.integers(0, 999))
def test_both_cores_plan_alike(n, K, E, more, seed):
    native = backend._native()
    if native is None:
        pytest.skip("the native core was not built here")
    E_total, generator = max(E + more, K), np.random.default_rng(seed)
    ids = np.argsort(generator.random((n, E_total)), axis=1)[:, :K].astype(np.int64)
    bounds = np.array([E_total * e // E for e in range(E + 1)], np.int64)
    plans = []
    for core in (native, reference):
        sizes = [(E_total, np.int32), (n * K, np.int32), (n * K, np.int32), (n * min(K, E), np.int32)]
        out = [np.full(size, -1, dtype) for size, dtype in [*sizes, (E, np.int64), (E, np.int64)]]
        core.plan(address(np.ascontiguousarray(ids)), n, K, E_total, address(bounds), E, *map(address, out))
        out[3] = out[3][: out[4][-1]]
        plans.append(out)
    for mine, theirs in zip(*plans):
        assert np.array_equal(mine, theirs)


@pytest.mark.slow
def test_the_ports_and_collectives_over_numpy():
    tests = [f"tests/primitives/test_{name}.py" for name in ("ports", "group", "segment", "p2p")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=os.environ | {backend.VARIABLE: "numpy"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
