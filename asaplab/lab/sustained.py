"""The highest rate that keeps an SLO, from few runs, and intervals over repetitions.

Near the SLO a mean TTFT rises steeply with the rate, and close to a power of it. So a run near the crossing tells
where it is: the rate, moved along that power until the TTFT is the SLO. Short runs find the neighbourhood by bisection
(in logarithms, guided by the power); each repetition is then one long run there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asaplab.lab.interval import mean_ci95

STEEP = (2.0, 6.0, 12.0)  # least, assumed until two runs tell, and greatest power of the rate
NEAR = 3.0  # runs whose TTFT is within this factor of the SLO tell the power
FARTHEST = 2.0  # a step from one rate to the next


class Seen(NamedTuple):
    """What one run showed."""

    rps: float
    ttft_s: float


def steepness(runs: Sequence[Seen], slo_s: float) -> float:
    """The power of the rate that the TTFT follows near the SLO: least squares in logarithms, within ``STEEP``."""
    near = [run for run in runs if slo_s / NEAR <= run.ttft_s <= slo_s * NEAR]
    x = np.log([run.rps for run in near])
    if len(near) < 2 or np.ptp(x) < 0.02:
        return STEEP[1]
    y = np.log([run.ttft_s for run in near])
    return float(np.clip(np.polyfit(x, y, 1)[0], STEEP[0], STEEP[2]))


def crossing(run: Seen, slo_s: float, steep: float) -> float:
    """The rate at which the TTFT would have been the SLO, at most ``FARTHEST`` times away."""
    return run.rps * math.exp(np.clip(math.log(slo_s / run.ttft_s) / steep, -math.log(FARTHEST), math.log(FARTHEST)))


def neighbourhood(ttft_s: Callable[[float], float], slo_s: float, *, start: float, most: int = 7) -> list[Seen]:
    """Short runs until one has a TTFT within a third of the SLO, or two rates within 15% lie on both sides of it."""
    runs: list[Seen] = []
    rps = start
    for _ in range(most):
        runs.append(Seen(rps, ttft_s(rps)))
        below = max((run.rps for run in runs if run.ttft_s <= slo_s), default=None)
        above = min((run.rps for run in runs if run.ttft_s > slo_s), default=None)
        last = runs[-1].ttft_s / slo_s
        if 2 / 3 <= last <= 4 / 3 or (below and above and above <= 1.15 * below):
            break
        rps = crossing(runs[-1], slo_s, steepness(runs, slo_s))
        if below and above and not below < rps < above:
            rps = math.sqrt(below * above)
    return runs


def best_guess(runs: Sequence[Seen], slo_s: float) -> float:
    """The crossing as the run nearest to the SLO has it."""
    nearest = min(runs, key=lambda run: abs(math.log(run.ttft_s / slo_s)))
    return crossing(nearest, slo_s, steepness(runs, slo_s))


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% confidence interval (Student's t)."""

    value: float
    ci95: tuple[float, float] | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of repetitions; a single one has no interval."""
        return cls(*mean_ci95(values))

    @classmethod
    def of_ratios(cls, values: Sequence[float]) -> Interval:
        """Likewise of positive ratios, in logarithms: the mean is geometric and no end is below zero."""
        logs = cls.of(np.log(values).tolist())
        return cls(math.exp(logs.value), logs.ci95 and (math.exp(logs.ci95[0]), math.exp(logs.ci95[1])))

    def plain(self) -> dict[str, Any]:
        return {"value": self.value, "ci95": None if self.ci95 is None else list(self.ci95)}
