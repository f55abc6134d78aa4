"""``simulate``: a workload on the twin, as a Run."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from asaplab.core import TTFT_PARTS, Instance, Run, Span, System, Workload
from asaplab.observe.provenance import provenance
from asaplab.profiles.profile import InstanceCosts, Profile
from asaplab.profiles.shapes import Shape
from asaplab.twin import layout
from asaplab.twin.extrapolated import extrapolated
from asaplab.twin.prefix import cached_tokens
from asaplab.twin.setting import setting_of
from asaplab.twin.simulation import Simulation
from asaplab.twin.skew import Skew

_MOST_LINES = 4_000_000  # of the event log: 256 MB


def simulate(
    workload: Workload,
    system: System | str = "asap",
    *,
    model: Shape | str = "deepseek-v3.2",
    profile: Profile | str = "cloudmatrix384",
    instance: Instance | None = None,
    attention: tuple[int, int] | None = None,
    experts: int | None = None,
    shares_LE: np.ndarray | None = None,
    skew: Skew | None = None,
    costs: InstanceCosts | None = None,
    spans_s: tuple[float, float] | None = None,
    prefix_cache_tokens: float | None = None,
) -> Run:
    """Run a workload on the twin.

    The instance is given whole, or as ``attention`` (D, T) and ``experts`` (E); without, it is the paper's.
    ``shares_LE`` are the shares of rows that MoE devices get (balanced without), or ``skew`` makes them from a power
    law and copies of hot experts. Spans are kept for the window ``spans_s`` (start, end in seconds).
    With ``prefix_cache_tokens`` the instance holds a prefix cache of that many tokens, fed by the workload's hash_ids.

    Raises:
        InputError: a name is unknown, the instance does not fit model or system, or a cache lacks hash_ids.
        Stalled: the system can make no progress.
    """
    began = time.perf_counter()
    setting = setting_of(
        system,
        model=model,
        profile=profile,
        instance=instance,
        attention=attention,
        experts=experts,
        shares_LE=shares_LE,
        skew=skew,
        costs=costs,
    )
    lines = _MOST_LINES if spans_s is not None else 0
    cached = None if prefix_cache_tokens is None else cached_tokens(workload, prefix_cache_tokens)
    simulation = Simulation(setting, workload, log_lines=lines, cached=cached)
    simulation.play()
    wall_s = time.perf_counter() - began
    requests = simulation.requests()
    return Run(
        system=setting.system,
        instance=setting.instance,
        mode="simulated",
        requests=requests,
        spans=_spans(simulation, spans_s),
        utilization=simulation.utilization(),
        excluded=workload.excluded,
        configuration={
            "model": setting.model.name,
            "profile": setting.profile.name,
            "fitted": setting.profile.fitted,
            "extrapolated": extrapolated(setting, requests),
            "events": int(simulation.count[layout.EVENTS]),
            "wall_s": wall_s,
            "workload": workload.name,
            "cached_tokens": 0 if cached is None else int(cached.sum()),
        },
        provenance=_machine() | {"workload": workload.name, "seed": workload.seed, "source": dict(workload.source)},
    )


@cache
def _machine() -> dict[str, Any]:
    """What does not change within a process; asking git and the processor takes longer than a simulation."""
    return provenance()


def _spans(simulation: Simulation, window_s: tuple[float, float] | None) -> dict[str, np.ndarray]:
    """The log as the columns of Span.

    Ranks of a group share their times: rank 0 stands for an attention group. Colocated ranks differ in their MoE work,
    so each of them has its group's spans too.
    """
    log = simulation.log[: int(simulation.count[layout.LOGGED])]
    if window_s is not None:
        log = log[(log[:, layout.END_S] > window_s[0]) & (log[:, layout.START_S] < window_s[1])]
    colocated = simulation.setting.system.placement.kind == "colocated"
    T, role = simulation.setting.instance.T, "colocated" if colocated else "attention"
    times = np.where(colocated & (log[:, layout.DEVICE] < 0), T, 1)
    first = np.cumsum(times) - times
    log, rank = np.repeat(log, times, axis=0), np.arange(times.sum()) - np.repeat(first, times)
    group, device = log[:, layout.GROUP].astype(int), log[:, layout.DEVICE].astype(int)
    kinds = np.array(TTFT_PARTS)[log[:, layout.KIND].astype(int)] if len(log) else np.array([], str)
    names = [
        f"{role} {g}.{j}" if e < 0 else f"colocated {e // T}.{e % T}" if colocated else f"moe {e}"
        for g, e, j in zip(group, device, rank)
    ]
    sending = kinds == "dispatch"
    columns = {
        "device": np.array(names, str),
        "stream": np.where(sending, "send", "compute").astype(str),
        "kind": kinds,
        "batch": log[:, layout.LOG_BATCH].astype(np.int64),
        "layer": log[:, layout.LOG_LAYER].astype(np.int64),
        "start_s": log[:, layout.START_S],
        "end_s": log[:, layout.END_S],
        "tokens": log[:, layout.LOG_TOKENS].astype(np.int64),
    }
    return {name: columns[name] for name in Span._fields}
