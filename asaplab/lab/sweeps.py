"""Many runs of the twin for one recipe, as rows for tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from asaplab.core import Run, System, Workload
from asaplab.lab.commands_engine import parse_attention
from asaplab.lab.interval import mean_ci95
from asaplab.lab.recipes import Recipe
from asaplab.lab.workloads import traffic
from asaplab.observe import metrics
from asaplab.scheduler import named
from asaplab.twin import simulate

TOLERANCE = 0.02  # of an SLO throughput
HOPELESS = 20.0  # times the SLO: past it a higher rate only tells how long the traffic lasted


def setting(recipe: Recipe) -> dict[str, Any]:
    """What a simulation needs beside workload and system; an instance that is not given is the paper's."""
    return {
        "model": recipe["model"],
        "profile": recipe["profile"],
        "attention": parse_attention(recipe["attention"]) if recipe["attention"] else None,
        "experts": recipe["experts"] or None,
    }


def traffic_of(recipe: Recipe, rps: float, seed: int = 0) -> Workload:
    """The recipe's trace scaled to a rate, or Poisson arrivals with the paper's lengths (requests/s)."""
    trace = recipe.settings.get("trace", "")
    if not trace:
        return traffic(rps=rps, duration_s=recipe["duration_s"], seed=recipe.seed + seed)
    natural = traffic(trace=trace, spread=True, seed=recipe.seed + seed)
    own = len(natural) / max(float(natural.arrival_s[-1]), 1e-9)
    faster = dataclasses.replace(natural, arrival_s=natural.arrival_s * own / rps)
    within = int(np.searchsorted(faster.arrival_s, recipe["duration_s"]))
    return _first(faster, max(within, 1))


def _first(workload: Workload, n: int) -> Workload:
    hashes = None if workload.hash_ids is None else workload.hash_ids[:n]
    return dataclasses.replace(workload, arrival_s=workload.arrival_s[:n], tokens=workload.tokens[:n], hash_ids=hashes)


def run_of(recipe: Recipe, system: System | str, rps: float, seed: int = 0, **more: Any) -> Run:
    """One run of the twin at a rate (requests/s)."""
    return simulate(traffic_of(recipe, rps, seed), system, **setting(recipe), **more)


def sweep_rows(recipe: Recipe, systems: Sequence[System | str], rates: Sequence[float]) -> list[dict[str, Any]]:
    """Mean TTFT of each system at each rate, over the recipe's seeds; stops a system that is far beyond its knee."""
    rows = []
    for system in (_resolved(system) for system in systems):
        for rps in rates:
            means = [metrics(run_of(recipe, system, rps, seed))["mean_ttft_s"] for seed in range(recipe["repeats"])]
            mean, ends = mean_ci95(means)
            row = {"system": system.name, "rps": rps, "mean_ttft_s": mean}
            rows.append(row | ({"low_s": ends[0], "high_s": ends[1]} if ends else {}))
            if mean > HOPELESS * recipe["slo_s"]:
                break
    return rows


def slo_rows(recipe: Recipe, systems: Sequence[System | str]) -> list[dict[str, Any]]:
    """The highest rate that keeps the SLO, for each system, with its interval over seeds.

    Runs last at least 60 times the SLO whatever the recipe's duration, so that a slow overload shows.
    """
    from asaplab.lab.slo import LEAST_RUN, Goal, slo

    slo_s, repeats = recipe["slo_s"], recipe["repeats"]
    duration_s = max(recipe["duration_s"], LEAST_RUN * slo_s)
    rows = []
    for system in (_resolved(system) for system in systems):
        if recipe.settings.get("trace"):
            rate, ci95 = _slo_of_trace(recipe, system, Goal(slo_s=slo_s, duration_s=duration_s, tolerance=TOLERANCE))
        else:
            found = slo(
                system,
                slo_s=slo_s,
                duration_s=duration_s,
                repeats=repeats,
                seed=recipe.seed,
                tolerance=TOLERANCE,
                **setting(recipe),
            )
            rate, ci95 = found["slo_rps"], found["ci95"]
        rows.append({"system": system.name, "slo_rps": rate, "ci95": ci95})
    return rows


def _slo_of_trace(recipe: Recipe, system: System, goal: Any) -> tuple[float, Any]:
    """A trace replayed faster and faster; it ends when the trace does, if that is before the goal's duration."""
    from asaplab.lab.roofline import roofline_rps
    from asaplab.lab.slo import slo_rates
    from asaplab.twin import setting_of

    resolved = setting_of(system, **setting(recipe))
    natural = traffic(trace=recipe["trace"], spread=True, seed=recipe.seed)
    roofline, _ = roofline_rps(system, resolved.model, resolved.profile, resolved.instance, natural)
    traffics = [lambda rps, seed=seed: traffic_of(recipe, rps, seed) for seed in range(recipe["repeats"])]
    return mean_ci95(slo_rates(resolved, goal, traffics, roofline))


def synchronous_primitives(system: System) -> System:
    """The system with point-to-point sends that wait for their receivers, and nothing else changed (section 5.4)."""
    transport = dataclasses.replace(system.transport, primitives="p2p")
    return dataclasses.replace(system, name=f"{system.name}, synchronous sends", transport=transport)


def combinations(base: System) -> Iterator[tuple[dict[str, bool], System]]:
    """All 16 combinations of the four optimizations: length-aware batching, dual batch, overlap, super kernel.

    Without length-aware batching a batch closes with its first request.
    """
    names = ("length-aware batching", "dual batch", "overlap", "super kernel")
    for on in product((False, True), repeat=4):
        batching = base.batching if on[0] else dataclasses.replace(base.batching, threshold_tokens=1)
        pipeline = dataclasses.replace(
            base.pipeline,
            in_flight=base.pipeline.in_flight if on[1] else 1,
            overlap=base.pipeline.overlap if on[2] else frozenset(),
            layer_oblivious=on[3],
        )
        label = ", ".join(name for name, yes in zip(names, on) if yes) or "none"
        yield dict(zip(names, on)), dataclasses.replace(base, name=label, batching=batching, pipeline=pipeline)


def grid_of_optimizations(recipe: Recipe) -> list[dict[str, Any]]:
    """Mean TTFT of the 16 combinations without asynchronous primitives, at the recipe's middle rate."""
    rps = recipe["rps"][len(recipe["rps"]) // 2]
    rows = []
    for on, system in combinations(synchronous_primitives(named("asap"))):
        mean = metrics(run_of(recipe, system, rps))["mean_ttft_s"]
        rows.append({name: "yes" if yes else "" for name, yes in on.items()} | {"rps": rps, "mean_ttft_s": mean})
    return rows


def net_cost(recipe: Recipe, base: System, other: System) -> tuple[list[dict[str, Any]], float]:
    """How each part of the mean TTFT changes from one system to the other, and what is saved in all (s).

    Taken at the recipe's middle rate on the same requests.
    """
    rps = recipe["rps"][len(recipe["rps"]) // 2]
    parts = [metrics(run_of(recipe, system, rps))["ttft_parts"] for system in (base, other)]
    rows = [
        {"part": part, base.name: before, other.name: parts[1][part], "saved (s)": before - parts[1][part]}
        for part, before in parts[0].items()
    ]
    return rows, sum(row["saved (s)"] for row in rows)


def _resolved(system: System | str) -> System:
    return named(system) if isinstance(system, str) else system
