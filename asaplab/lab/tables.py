"""Rows of the tables that notebooks show, made from runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asaplab.core import Run
from asaplab.observe import metrics


def summary(runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """One row a run: what was served, how fast, and how busy each role was."""
    rows = []
    for name, run in runs.items():
        m = metrics(run)
        rows.append(
            {
                "system": name,
                "D": run.instance.D,
                "T": run.instance.T,
                "E": run.instance.E,
                "completed": f"{m['completed']} of {m['requests']}",
                "mean TTFT (s)": m["mean_ttft_s"],
                "p50 (s)": m["p50_ttft_s"],
                "p99 (s)": m["p99_ttft_s"],
                "tokens/s": m["tokens_per_s"],
                "busy": ", ".join(f"{role} {100 * share:.0f}%" for role, share in m["utilization"].items()),
                "mode": m["mode"],
            }
        )
    return rows
