"""The four optimizations of asap in all 16 combinations, and where its time goes against default's, paced."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from asaplab.core import TTFT_PARTS, Run, System
from asaplab.lab.bench_paced import Traffic, balanced, devices, instance, mean_ttft_s, ttft_at
from asaplab.lab.bench_progress import Tell
from asaplab.lab.sustained import Interval, best_guess, neighbourhood
from asaplab.scheduler import named

OPTIMIZATIONS: Mapping[str, Callable[[System], System]] = {  # each taken away
    "length_aware": lambda s: replace(s, batching=replace(s.batching, policy="fcfs")),
    "dual_batch": lambda s: replace(s, pipeline=replace(s.pipeline, in_flight=1)),
    "overlap": lambda s: replace(s, pipeline=replace(s.pipeline, overlap=frozenset())),
    "super_kernel": lambda s: replace(s, pipeline=replace(s.pipeline, layer_oblivious=False)),
}
RUN, SHORT = 10.0, 15.0  # SLOs that a run lasts: of a combination, and while the rate is looked for
BELOW = 0.9  # of the rate at which the system without any optimization meets the SLO
GROUPS = {
    "barriers": ("barrier_wait",),
    "queueing": ("batching_wait", "attention_queue", "moe_queue"),
    "communication": ("tp", "dispatch", "combine"),
    "computing": ("attention", "moe"),
    "scheduling": ("host",),
}


def combination(on: Sequence[str]) -> System:
    """asap with only these of its four optimizations."""
    system = named("asap")
    for name, without in OPTIMIZATIONS.items():
        if name not in on:
            system = without(system)
    return replace(system, name="asap" if len(on) == len(OPTIMIZATIONS) else f"asap[{','.join(sorted(on))}]")


def combinations() -> list[tuple[str, ...]]:
    names = sorted(OPTIMIZATIONS)
    return [on for size in range(len(names) + 1) for on in itertools.combinations(names, size)]


def common_rate(traffic: Traffic, slo_s: float, seed: int, short: float = SHORT) -> float:
    """A rate that asap without any of its optimizations sustains."""
    with instance(combination(()), traffic) as live:
        runs = neighbourhood(lambda rps: ttft_at(live, traffic, rps, short * slo_s, seed), slo_s, start=4.0)
    return BELOW * best_guess(runs, slo_s)


def factorial(
    traffic: Traffic, slo_s: float, rps: float, repeats: int, seed: int, tell: Tell, run: float = RUN
) -> dict[str, Any]:
    """Mean TTFT of each combination at one rate; repetitions are seeds, in each of which all take turns.

    ``effects`` is what an optimization does to the TTFT: the geometric mean over the eight combinations with it, over
    that without, in each repetition; below 1 it helps. ``sustained`` says whether every combination kept the SLO.
    """
    times: dict[tuple[str, ...], list[float]] = defaultdict(list)
    result: dict[str, Any] = {}
    for repeat in range(repeats):
        for on in combinations():
            with instance(combination(on), traffic) as live:
                times[on].append(ttft_at(live, traffic, rps, run * slo_s, seed + repeat))
            rows = [
                {"on": list(on), "mean_ttft_s": float(np.mean(values)), "values": values}
                for on, values in times.items()
            ]
            result = {
                "traffic": traffic.name,
                "devices": devices(named("asap"), balanced(traffic)),
                "rps": rps,
                "run_s": run * slo_s,
                "rows": rows,
                "sustained": bool(len(times) == 16 and all(np.mean(values) <= slo_s for values in times.values())),
                "effects": effects(times) if len(times) == 16 else None,
            }
            tell(f"combination {'+'.join(on) or 'none'}: {times[on][-1]:.3g} s (run {repeat + 1})", result)
    return result


def effects(times: Mapping[tuple[str, ...], Sequence[float]]) -> dict[str, Any]:
    """With over without, for each optimization, as intervals over the repetitions that are complete."""
    complete = min(len(values) for values in times.values())
    logs = {on: np.log(values[:complete]) for on, values in times.items()}
    found = {}
    for name in OPTIMIZATIONS:
        with_it = np.mean([values for on, values in logs.items() if name in on], axis=0)
        without = np.mean([values for on, values in logs.items() if name not in on], axis=0)
        found[name] = Interval.of_ratios(np.exp(with_it - without).tolist()).plain()
    return found


def net_cost(
    traffic: Traffic, slo_s: float, rps: float, repeats: int, seed: int, tell: Tell, run: float = RUN
) -> dict[str, Any]:
    """The mean of each part of the TTFT under default and asap on the same requests, and asap minus default (s).

    ``groups`` sums the parts: what removing barriers saves, against what queueing, communication and scheduling add.
    """
    parts: dict[str, list[dict[str, float]]] = {"default": [], "asap": []}
    result: dict[str, Any] = {}
    for repeat in range(repeats):
        for name, known in parts.items():
            with instance(name, traffic) as live:
                known.append(parts_of(live.prefill(traffic.at(rps, run * slo_s, seed + repeat))))
        measured = {"traffic": traffic.name, "rps": rps, "run_s": run * slo_s}
        result = cost_of(parts) | measured | {"devices": devices(named("asap"), balanced(traffic))}
        tell(f"net cost of asap: run {repeat + 1} of {repeats}", result)
    return result


def parts_of(run: Run) -> dict[str, float]:
    return {part: float(run.requests[part].mean()) for part in TTFT_PARTS} | {"ttft": mean_ttft_s(run)}


def cost_of(parts: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    def more(names: Sequence[str]) -> dict[str, Any]:
        pairs = zip(parts["asap"], parts["default"])
        return Interval.of([sum(a[name] - d[name] for name in names) for a, d in pairs]).plain()

    return {
        "parts": {
            system: {name: float(np.mean([one[name] for one in known])) for name in known[0]}
            for system, known in parts.items()
        },
        "asap_minus_default": {part: more([part]) for part in (*TTFT_PARTS, "ttft")},
        "groups": {group: more(names) for group, names in GROUPS.items()},
    }
