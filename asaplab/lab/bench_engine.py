"""``asaplab bench engine``: what the real engine sustains, and what taking a model apart costs.

Comparisons between systems are paced (design.md, section 4): one clock, one trace, one checkpoint, interleaved
repetitions. Figures on shared cores say so and are never compared across systems.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asaplab import workload
from asaplab.core import TTFT_PARTS, System, Workload
from asaplab.engine import Deployment, deploy
from asaplab.lab.sustained import Interval, sustained_rate
from asaplab.scheduler import named

MODEL = "tiny-deepseek-v3"
ATTENTION, EXPERTS = (2, 1), 2
S = 2048
SLO_FACTOR = 10.0  # the SLO is this many times default's unloaded mean TTFT
RUN_OVER_SLO = 60.0  # a run lasts at least this many SLOs
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Prompt lengths of a trace, replayed as Poisson arrivals at any rate."""

    name: str
    lengths: np.ndarray

    def at(self, rps: float, duration_s: float, seed: int) -> Workload:
        return workload.poisson(rps=rps, duration_s=duration_s, lengths=self.lengths, seed=seed, max_tokens=S)


def bench(quick: bool = False) -> dict[str, Any]:
    """Measure the engine on this machine.

    Keys: ``mode``; ``disaggregation_efficiency`` {value, ci95} and ``reference_over_transformers`` {family: ratio} on
    shared cores; ``slo_rps`` {trace: {system: {value, ci95}}}, ``factorial`` and ``net_cost`` in paced mode. With
    ``quick``: one trace, asap and default at three fixed rates (``fixed_rates``), and ``slo_rps`` is None.
    """
    from asaplab.lab import bench_shared_cores as shared

    traffic = paper_traffic()
    slo_s = SLO_FACTOR * unloaded_ttft_s(named("default"), traffic)
    result: dict[str, Any] = {
        "mode": "paced",
        "cores": len(os.sched_getaffinity(0)),
        "model": MODEL,
        "slo_s": slo_s,
        "slo_rps": None,
        "factorial": None,
        "net_cost": None,
        "disaggregation_efficiency": shared.disaggregation_efficiency(*((2, 1) if quick else (8, 6))),
        "reference_over_transformers": shared.reference_over_transformers(repetitions=1 if quick else 5),
    }
    if quick:
        return result | {"fixed_rates": fixed_rates(traffic)}
    result["slo_rps"] = {traffic.name: slo_of_systems(traffic, slo_s)}
    return result | factorial_and_cost(traffic, slo_s)


def paper_traffic() -> Traffic:
    """The paper's length distribution, a tenth as long, so that small models on few cores keep its shape."""
    drawn = workload.poisson(rps=1.0, requests=4000, seed=SEED)
    return Traffic(name="paper/10", lengths=np.maximum(1, np.rint(drawn.tokens / 10)).astype(np.int64))


def instance(system: System) -> Any:
    return deploy(MODEL, attention=ATTENTION, experts=EXPERTS, system=system, mode="paced", max_batch_tokens=S)


def mean_ttft_s(live: Deployment, work: Workload) -> float:
    return float(live.prefill(work).requests["ttft_s"].mean())


def unloaded_ttft_s(system: System, traffic: Traffic, requests: int = 20) -> float:
    """Mean TTFT when every request finds the instance idle."""
    with instance(system) as live:
        times = []
        for i in range(requests):
            one = Workload(arrival_s=np.zeros(1), tokens=traffic.lengths[i : i + 1].clip(max=S), name="alone", seed=i)
            times.append(mean_ttft_s(live, one))
    return float(np.mean(times))


def fixed_rates(traffic: Traffic) -> list[dict[str, Any]]:
    """Mean TTFT of asap and default at three rates, on the same arrivals."""
    rows = []
    for name in ("default", "asap"):
        with instance(named(name)) as live:
            for rps in (2.0, 4.0, 8.0):
                ttft_s = mean_ttft_s(live, traffic.at(rps, 4.0, SEED))
                rows.append({"system": name, "rps": rps, "mean_ttft_s": ttft_s})
    return rows


def slo_of_systems(traffic: Traffic, slo_s: float, repeats: int = 3) -> dict[str, Any]:
    """SLO throughput of the named systems: bisection, repeated on other seeds, with a 95% interval."""
    names = [name for name in ("default", "chunked", "asap-p2p", "asap") if _known(name)]
    found: dict[str, list[float]] = {name: [] for name in names}
    for seed, name in itertools.product(range(repeats), names):
        with instance(named(name)) as live:
            found[name].append(_sustained(live, traffic, slo_s, RUN_OVER_SLO * slo_s, seed))
    return {name: Interval.of(rates).plain() for name, rates in found.items()}


def _sustained(live: Deployment, traffic: Traffic, slo_s: float, duration_s: float, seed: int) -> float:
    return sustained_rate(lambda rps: mean_ttft_s(live, traffic.at(rps, duration_s, seed)), slo_s)


def _known(name: str) -> bool:
    from asaplab.scheduler import NAMED

    return name in NAMED


# ------------------------------------------------------------------ the four optimizations, in every combination

OPTIMIZATIONS: Mapping[str, Any] = {
    "length_aware": lambda s: replace(s, batching=replace(s.batching, policy="fcfs")),
    "dual_batch": lambda s: replace(s, pipeline=replace(s.pipeline, in_flight=1)),
    "overlap": lambda s: replace(s, pipeline=replace(s.pipeline, overlap=frozenset())),
    "super_kernel": lambda s: replace(s, pipeline=replace(s.pipeline, layer_oblivious=False)),
}


def combination(on: frozenset[str]) -> System:
    """asap with only these of its four optimizations."""
    system = named("asap")
    for name, without in OPTIMIZATIONS.items():
        if name not in on:
            system = without(system)
    return replace(system, name="asap" if len(on) == 4 else "asap[" + ",".join(sorted(on)) + "]")


def factorial_and_cost(traffic: Traffic, slo_s: float) -> dict[str, Any]:
    """Mean TTFT of all 16 combinations at one rate that all sustain, and where asap's time goes against default's."""
    everything = frozenset(OPTIMIZATIONS)
    weakest = combination(frozenset())
    duration_s = RUN_OVER_SLO * slo_s / 4
    with instance(weakest) as live:
        rps = _sustained(live, traffic, slo_s, duration_s, SEED) * 0.8
    rows = []
    for size in range(len(everything) + 1):
        for on in itertools.combinations(sorted(everything), size):
            with instance(combination(frozenset(on))) as live:
                values = [mean_ttft_s(live, traffic.at(rps, duration_s, seed)) for seed in range(2)]
            rows.append({"on": list(on), "mean_ttft_s": float(np.mean(values)), "values": values})
    parts = {}
    for name in ("default", "asap"):
        with instance(named(name)) as live:
            run = live.prefill(traffic.at(rps, duration_s, SEED))
        parts[name] = {part: float(run.requests[part].mean()) for part in TTFT_PARTS}
    cost = {part: parts["asap"][part] - parts["default"][part] for part in parts["asap"]}
    return {
        "factorial": {"rps": rps, "rows": rows},
        "net_cost": {"rps": rps, "parts": parts, "asap_minus_default": cost},
    }
