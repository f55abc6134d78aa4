"""The numbers of a run: TTFT, throughput, completion, utilisation and imbalance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from asaplab.core import TTFT_PARTS, Run
from asaplab.observe.spans import spans_of


def metrics(run: Run) -> dict[str, Any]:
    """The summary of a run as plain values; times in seconds, None where no request completed.

    A request is complete when it has a finite TTFT. ``tokens_per_s`` and ``requests_per_s`` count completed requests
    over the time from the first arrival to the last first token.
    """
    ttft_s, arrival_s = run.requests["ttft_s"], run.requests["arrival_s"]
    done = np.isfinite(ttft_s)
    completed, times = int(done.sum()), ttft_s[done]
    duration_s = float((arrival_s[done] + times).max() - arrival_s.min()) if completed else 0.0
    rate = 1 / duration_s if duration_s > 0 else 0.0
    p50, p90, p99 = (float(p) for p in np.percentile(times, [50, 90, 99])) if completed else (None, None, None)
    return {
        "system": run.system.name,
        "mode": run.mode,
        "requests": len(ttft_s),
        "completed": completed,
        "excluded": int(run.excluded),
        "mean_ttft_s": float(times.mean()) if completed else None,
        "p50_ttft_s": p50,
        "p90_ttft_s": p90,
        "p99_ttft_s": p99,
        "tokens_per_s": float(run.requests["tokens"][done].sum()) * rate,
        "requests_per_s": completed * rate,
        "duration_s": duration_s,
        "utilization": {role: float(share) for role, share in run.utilization.items()},
        "ttft_parts": {
            part: float(run.requests[part][done].mean()) for part in TTFT_PARTS if completed and part in run.requests
        },
        "dp_imbalance": dp_imbalance(run),
        "moe_imbalance": moe_imbalance(run),
    }


def imbalance(load: ArrayLike) -> float:
    """(max - mean) / max over the last axis: 0 when all are equal, towards 1 when one carries everything.

    Rows of a 2-D array (steps, batches) are averaged; rows without any load do not count.
    """
    rows = np.atleast_2d(np.asarray(load, np.float64))
    most = rows.max(axis=1, initial=0.0)
    busy = most > 0
    over = np.maximum(most - rows.mean(axis=1), 0.0)  # the mean of equal numbers may round above them
    return float((over[busy] / most[busy]).mean()) if busy.any() else 0.0


def loads(run: Run, kind: str) -> dict[str, float]:
    """Seconds that each device spent on one kind of work, as far as spans were recorded."""
    spans = spans_of(run)
    of_kind = spans["kind"] == kind
    devices, index = np.unique(spans["device"][of_kind], return_inverse=True)
    seconds = np.bincount(index, (spans["end_s"] - spans["start_s"])[of_kind], minlength=len(devices))
    return {str(device): float(s) for device, s in zip(devices, seconds)}


def dp_imbalance(load: Run | ArrayLike) -> float | None:
    """How unevenly attention work falls on the D groups (section 2.3): of a run, or of given loads.

    For a run it is taken from the attention spans of each group's rank 0; None without spans.
    """
    if not isinstance(load, Run):
        return imbalance(load)
    seconds = loads(load, "attention")
    groups = np.zeros(load.instance.D)
    for device, busy_s in seconds.items():
        group, _, rank = device.split(" ", 1)[1].partition(".")
        if rank in ("", "0"):
            groups[int(group)] += busy_s
    return imbalance(groups) if seconds else None


def moe_imbalance(load: Run | ArrayLike) -> float | None:
    """How unevenly expert work falls on the E devices: of a run (None without spans), or of given loads."""
    if not isinstance(load, Run):
        return imbalance(load)
    seconds = list(loads(load, "moe").values())
    return imbalance([*seconds, *[0.0] * (load.instance.E - len(seconds))]) if seconds else None
