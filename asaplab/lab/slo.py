"""SLO throughput: the highest request rate whose TTFT stays within the SLO (section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

from asaplab.core import System, Workload
from asaplab.errors import require
from asaplab.lab.interval import mean_ci95
from asaplab.lab.roofline import roofline_rps, typical_lengths
from asaplab.scheduler import named
from asaplab.twin import Setting, Simulation, setting_of

Metric: TypeAlias = Literal["mean", "p99"]
Traffic: TypeAlias = Callable[[float], Workload]  # requests/s -> workload
LEAST_RUN = 60.0  # a run lasts at least that many times the SLO, so that a slow overload shows
_BRACKET = (0.02, 1.6)  # rates looked at, in rooflines
_PATIENCE = 6.0  # SLOs after the last arrival; who holds the goal is done by then as a rule


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a rate must hold: the mean (or 99th percentile) TTFT within ``slo_s`` over ``duration_s`` of arrivals."""

    slo_s: float = 5.0
    duration_s: float = 300.0
    metric: Metric = "mean"
    tolerance: float = 0.01  # of the rate

    def __post_init__(self) -> None:
        require(self.slo_s > 0, f"slo is {self.slo_s} s; it must be above 0")
        least = LEAST_RUN * self.slo_s
        require(
            self.duration_s >= least,
            f"duration is {self.duration_s:g} s; an SLO of {self.slo_s:g} s needs a run of at least {least:g} s",
        )
        require(self.metric in ("mean", "p99"), f"metric is {self.metric!r}; use 'mean' or 'p99'")
        require(0 < self.tolerance < 1, f"tolerance is {self.tolerance}; give a share between 0 and 1")

    def holds(self, setting: Setting, workload: Workload) -> bool:
        """Play the workload until it is done, or until it is clear that it cannot hold the goal."""
        n, arrival_s = len(workload), workload.arrival_s
        if n == 0:
            return True
        for until_s in (float(arrival_s[-1]) + _PATIENCE * self.slo_s, float("inf")):
            simulation = Simulation(setting, workload)
            simulation.play(until_s)
            ttft_s = simulation.ttft_s()
            # who is not done has waited until then at least, so the final figure cannot be smaller than this one
            least_s = np.where(np.isfinite(ttft_s), ttft_s, np.maximum(simulation.now - arrival_s, 0.0))
            figure = float(least_s.mean() if self.metric == "mean" else np.percentile(least_s, 99))
            if figure > self.slo_s or np.isfinite(ttft_s).all():
                break
        return figure <= self.slo_s


def highest_rate(holds: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """Bisection for the highest rate (1/s) that holds, to a share ``tolerance``; 0 if not even ``low`` does."""
    if not holds(low):
        return 0.0
    while high - low > tolerance * low:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def slo_rates(setting: Setting, goal: Goal, traffics: Sequence[Traffic], roofline: float) -> list[float]:
    """The highest rate that holds the goal, for each traffic; later ones are looked for near the first."""
    rates: list[float] = []
    for traffic in traffics:

        @cache
        def holds(rps: float, traffic: Traffic = traffic) -> bool:
            return goal.holds(setting, traffic(rps))

        low, high = _BRACKET[0] * roofline, _BRACKET[1] * roofline
        near, far = (0.9 * rates[0], 1.1 * rates[0]) if rates and rates[0] > 0 else (0.6 * roofline, roofline)
        if not holds(near):
            high = near
        elif holds(far):
            low = far
        else:
            low, high = near, far
        rates.append(highest_rate(holds, low, high, goal.tolerance))
    return rates


def poisson_of(setting: Setting, goal: Goal, seed: int) -> Traffic:
    """Traffic of one seed: the same prompts at every rate, arrivals drawn closer together."""
    from asaplab import workload

    S = setting.system.batching.max_tokens
    return lambda rps: workload.poisson(rps=rps, duration_s=goal.duration_s, seed=seed, max_tokens=S)


def slo(
    system: System | str = "asap",
    *,
    slo_s: float = 5.0,
    duration_s: float = 300.0,
    metric: Metric = "mean",
    repeats: int = 3,
    seed: int = 0,
    tolerance: float = 0.01,
    **setting: Any,
) -> dict[str, Any]:
    """The highest rate of the paper's traffic that keeps the SLO, over ``repeats`` seeds.

    ``setting`` is what ``simulate`` takes: model, profile, attention, experts, instance, costs, shares_LE. The result
    holds ``slo_rps`` (requests/s, mean over seeds), ``ci95`` (None with one seed), ``roofline_rps`` and ``transient``:
    whether the rate lies above the roofline, which only a run of finite length can hide.

    Raises:
        InputError: a value breaks its rule.
    """
    require(repeats >= 1, f"--repeats is {repeats}; it must be at least 1")
    goal = Goal(slo_s=slo_s, duration_s=duration_s, metric=metric, tolerance=tolerance)
    chosen = named(system) if isinstance(system, str) else system
    resolved = setting_of(chosen, **setting)
    lengths = typical_lengths(chosen.batching.max_tokens)
    roofline, parts = roofline_rps(chosen, resolved.model, resolved.profile, resolved.instance, lengths)
    traffics = [poisson_of(resolved, goal, seed + k) for k in range(repeats)]
    rates = slo_rates(resolved, goal, traffics, roofline)
    mean, ci95 = mean_ci95(rates)
    return {
        "slo_rps": mean,
        "ci95": None if ci95 is None else list(ci95),
        "system": chosen.name,
        "transient": mean > roofline,
        "roofline_rps": roofline,
        "device_seconds": parts,
        "rates": rates,
        "slo_s": slo_s,
        "metric": metric,
        "duration_s": duration_s,
        "model": resolved.model.name,
        "profile": resolved.profile.name,
        "fitted": resolved.profile.fitted,
        "instance": {symbol: getattr(resolved.instance, symbol) for symbol in "DTE"},
    }
