"""The highest rate that keeps an SLO, and intervals over repetitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


def sustained_rate(
    ttft_s: Callable[[float], float], slo_s: float, *, start: float = 4.0, tolerance: float = 0.05
) -> float:
    """The largest rate, in requests a second, at which ``ttft_s(rate)`` stays within the SLO.

    Doubles or halves from ``start`` until the SLO lies between two rates, then bisects to ``tolerance`` of the rate.
    """
    low, high = 0.0, start
    for _ in range(12):
        if ttft_s(high) > slo_s:
            break
        low, high = high, high * 2
    else:
        return low
    if low == 0.0:
        for _ in range(12):
            low = high / 2
            if ttft_s(low) <= slo_s:
                break
            high = low
        else:
            return 0.0
    while high - low > tolerance * high:
        middle = (low + high) / 2
        if ttft_s(middle) <= slo_s:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% confidence interval (Student's t)."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of repetitions; a single one has no interval and gets an infinite one."""
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean, -np.inf, np.inf)
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
        return cls(mean, mean - half, mean + half)

    def plain(self) -> dict[str, Any]:
        ends = [self.low, self.high]
        return {"value": self.value, "ci95": ends if np.isfinite(ends).all() else None}
