"""What the twin expects each system to sustain: from service times and a few single prompts, no rate is tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asaplab.core import Workload
from asaplab.lab.bench_paced import Traffic, instance, pace, roofline
from asaplab.lab.bench_progress import Tell
from asaplab.lab.bench_slo import LONG, contenders
from asaplab.lab.paced_twin import calibration_workload, twin_of
from asaplab.lab.slo import Goal, slo_rates
from asaplab.lab.sustained import Interval

SINGLE = 6  # prompts of the calibration, each of the traffic's mean length


def predicted_rates(
    traffic: Traffic, slo_s: float, systems: Sequence[str], repeats: int, seed: int, tell: Tell
) -> dict[str, Any]:
    """Requests per second within the SLO by the twin of each deployed system, on the arrivals of the measurement.

    ``rps`` {system: {value, ci95}}; ``slo_s`` and ``pace`` say which measurement it belongs to.
    """
    goal = Goal(slo_s=slo_s, duration_s=LONG * slo_s)
    single = calibration_workload(SINGLE, round(float(traffic.lengths.mean())))
    clock = pace(traffic)
    expected: dict[str, Any] = {}
    found = {"rps": expected, "slo_s": slo_s, "pace": clock}

    def arrivals(k: int, rps: float) -> Workload:
        return traffic.at(rps, goal.duration_s, seed + k)

    for name, (system, split) in contenders(traffic, systems).items():
        with instance(system, traffic, split) as live:
            live.prefill(single)
            setting = twin_of(live, live.prefill(single))
        traffics = [partial(arrivals, k) for k in range(repeats)]
        rates = slo_rates(setting, goal, traffics, roofline(traffic, split) / clock)
        expected[name] = Interval.of(rates).plain()
        tell(f"{traffic.name}: the twin expects {expected[name]['value']:.3g} requests/s of {name}", found)
    return found
