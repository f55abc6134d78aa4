"""Small workloads and what every run must satisfy."""

from __future__ import annotations

import numpy as np

from asaplab.core import TTFT_PARTS, Run, Workload


def workload(lengths: list[int], *, gap_s: float = 0.0, seed: int = 0) -> Workload:
    n = len(lengths)
    return Workload(arrival_s=np.arange(n) * gap_s, tokens=np.array(lengths), name="test", seed=seed)


def check(run: Run, work: Workload) -> None:
    """Everybody has a first token, and the parts of each TTFT sum to it."""
    ttft_s = run.requests["ttft_s"]
    assert (run.requests["first_token"] >= 0).all()
    assert (ttft_s > 0).all()
    parts = np.stack([run.requests[part] for part in TTFT_PARTS])
    assert (parts >= 0).all()
    np.testing.assert_allclose(parts.sum(0), ttft_s, atol=1e-6)
    np.testing.assert_array_equal(run.requests["tokens"], work.tokens)


def logits(run: Run) -> list[np.ndarray]:
    assert run.logits is not None
    return [run.logits[i] for i in range(len(run.logits))]
