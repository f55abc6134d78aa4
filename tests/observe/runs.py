"""A small, made-up run whose figures are known: two groups, two MoE devices, four requests, one not completed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asaplab.core import TTFT_PARTS, Instance, Run, System
from asaplab.observe import SpanLog, concat
from asaplab.scheduler import named


def known_run(system: System | None = None, **changes) -> Run:
    parts = {part: np.full(4, 0.0) for part in TTFT_PARTS}
    parts["attention"] = np.array([0.1, 0.2, 0.4, np.nan])
    parts["moe"] = np.array([0.1, 0.1, 0.2, np.nan])
    parts["batching_wait"] = np.array([0.05, 0.1, 0.0, np.nan])
    ttft_s = parts["attention"] + parts["moe"] + parts["batching_wait"]
    logs = [SpanLog("attention 0.0"), SpanLog("attention 1.0"), SpanLog("moe 0"), SpanLog("moe 1", "send")]
    logs[0].append("attention", 0, 0, 0.0, 0.3, 600)
    logs[1].append("attention", 1, 0, 0.1, 0.2, 100)
    logs[2].append("moe", 0, 0, 0.3, 0.4, 500)
    logs[3].append("combine", 0, 0, 0.4, 0.5, 500)
    run = Run(
        system=system or named("asap"),
        instance=Instance(D=2, T=1, E=2),
        mode="simulated",
        requests={
            "id": np.arange(4),
            "arrival_s": np.array([0.0, 0.1, 0.2, 0.3]),
            "tokens": np.array([100, 500, 1024, 40000]),
            "batch": np.array([0, 0, 1, -1]),
            "ttft_s": ttft_s,
            "first_token": np.array([3, 1, 2, -1]),
            **parts,
        },
        spans=concat(logs),
        utilization={"attention": 0.5, "moe": 0.25},
        excluded=3,
        configuration={"seed": np.int64(4), "overlap": frozenset({"moe"}), "shape": (2, 1, 2)},
        provenance={"sha256": "00"},
    )
    return replace(run, **changes)
