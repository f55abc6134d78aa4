"""A mean and its 95% interval over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean_ci95(values: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """The mean and the Student interval of its position; None with fewer than two values."""
    from scipy.stats import t

    x = np.asarray(values, float)
    mean = float(x.mean())
    if len(x) < 2:
        return mean, None
    half = float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
    return mean, (mean - half, mean + half)
