"""Several prefill instances behind a load balancer, and one for prompts beyond S (Figure 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from asaplab.core import Run, System, Workload
from asaplab.errors import require
from asaplab.twin.run import simulate
from asaplab.twin.setting import Setting, setting_of


def simulate_cluster(
    workload: Workload,
    system: System | str = "asap",
    *,
    instances: int = 2,
    balance: Literal["round_robin", "least_loaded"] = "round_robin",
    sequence_parallel: bool = False,
    **setting: Any,
) -> Run:
    """Run a workload on several equal instances; ``setting`` is what ``simulate`` takes.

    ``least_loaded`` sends a request to the instance with the fewest tokens outstanding by the balancer's estimate:
    tokens drain at the average rate of the workload. With ``sequence_parallel`` prompts beyond S go to an instance
    of their own that spreads one prompt at a time over all its attention devices; without, they count as excluded.
    The run's utilisation is the mean over instances; column ``instance`` says where a request went, -1 for that one.

    Raises:
        InputError: there is no instance, or the balancer is unknown.
    """
    require(instances >= 1, f"instances is {instances}; a cluster needs at least 1")
    require(balance in ("round_robin", "least_loaded"), f"balance is {balance!r}; use 'round_robin' or 'least_loaded'")
    resolved = setting_of(system, **{k: v for k, v in setting.items() if k not in ("spans_s", "prefix_cache_tokens")})
    S = resolved.system.batching.max_tokens
    short = np.flatnonzero(workload.tokens <= S)
    where = np.full(len(workload), -1)
    where[short] = _places(workload, short, instances, balance)
    runs = [(rows, simulate(_part(workload, rows), system, **setting)) for rows in _rows(where, instances) if len(rows)]
    require(bool(runs), f"no prompt of workload {workload.name!r} has at most S = {S} tokens; nothing can be simulated")
    columns = {
        name: np.full(len(workload), np.nan if value.dtype.kind == "f" else -1, value.dtype)
        for name, value in runs[0][1].requests.items()
    }
    for rows, run in runs:
        for name in columns:
            columns[name][rows] = run.requests[name]
    columns |= {"id": np.arange(len(workload)), "arrival_s": workload.arrival_s, "tokens": workload.tokens}
    columns["instance"] = where
    long = np.flatnonzero(workload.tokens > S)
    if sequence_parallel:
        _long_prompts(resolved, workload, long, columns)
    keep = np.arange(len(workload)) if sequence_parallel else short
    first = runs[0][1]
    roles = first.utilization
    return replace(
        first,
        requests={name: value[keep] for name, value in columns.items()},
        utilization={role: float(np.mean([run.utilization[role] for _, run in runs])) for role in roles},
        excluded=workload.excluded + (0 if sequence_parallel else len(long)),
        configuration=dict(first.configuration)
        | {
            "instances": instances,
            "balance": balance,
            "events": sum(run.configuration["events"] for _, run in runs),
            "wall_s": sum(run.configuration["wall_s"] for _, run in runs),
            "extrapolated": list(dict.fromkeys(what for _, run in runs for what in run.configuration["extrapolated"])),
            "sequence_parallel": int(sequence_parallel) * len(long),
        },
    )


def _rows(where: np.ndarray, instances: int) -> list[np.ndarray]:
    return [np.flatnonzero(where == k) for k in range(instances)]


def _part(workload: Workload, rows: np.ndarray) -> Workload:
    hashes = None if workload.hash_ids is None else tuple(workload.hash_ids[i] for i in rows)
    return replace(
        workload,
        arrival_s=workload.arrival_s[rows],
        tokens=workload.tokens[rows],
        hash_ids=hashes,
        token_ids=None,
        excluded=0,
    )


def _places(workload: Workload, rows: np.ndarray, instances: int, balance: str) -> np.ndarray:
    """The instance of each request."""
    if balance == "round_robin" or not len(rows):
        return np.arange(len(rows)) % instances
    arrival_s, tokens = workload.arrival_s[rows], workload.tokens[rows]
    span_s = max(float(arrival_s[-1] - arrival_s[0]), 1e-9)
    rate = float(tokens.sum()) / span_s / instances
    outstanding, last_s, chosen = np.zeros(instances), float(arrival_s[0]), np.zeros(len(rows), np.int64)
    for i, (at, size) in enumerate(zip(arrival_s.tolist(), tokens.tolist())):
        outstanding = np.maximum(outstanding - rate * (at - last_s), 0.0)
        last_s = at
        chosen[i] = int(outstanding.argmin())
        outstanding[chosen[i]] += size
    return chosen


def _long_prompts(setting: Setting, workload: Workload, rows: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    """One prompt after the other: a ring over D groups shares its attention and tokens evenly (assumed)."""
    c, D, model, free_s = setting.costs, setting.instance.D, setting.model, 0.0
    for i in rows:
        tokens, at = float(workload.tokens[i]), float(workload.arrival_s[i])
        part = tokens / D
        once = {
            "attention": model.L * setting.attention_s(part, tokens * tokens / D)
            + model.dense * c.dense_token_s * part,
            "tp": model.L * (c.tp_fixed_s + c.tp_token_s * part),
            "dispatch": (model.L - model.dense) * (c.latency_s + c.dispatch_token_s * part),
            "moe": (model.L - model.dense) * c.stage.moe_s(tokens * model.K / setting.instance.E),
            "combine": (model.L - model.dense) * (c.latency_s + (c.combine_token_s + c.sum_token_s) * part),
            "host": c.host_s,
        }
        start_s = max(at, free_s)
        free_s = start_s + sum(once.values())
        for name in ("attention_queue", "moe_queue", "barrier_wait"):
            columns[name][i] = 0.0
        for name, value in once.items():
            columns[name][i] = value
        columns["batching_wait"][i] = start_s - at
        columns["ttft_s"][i] = free_s - at
