"""TTFT against prompt length and against the request rate (Figures 12 and 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from asaplab.core import Run
from asaplab.errors import InputError
from asaplab.observe import decompose
from asaplab.show.style import INK, dress, system_colours, tokens_label

_MANY = 2_000


def ttft_by_length(runs: Mapping[str, Run]) -> go.Figure:
    """TTFT of every completed request over its prompt length, and the mean of each length range, for each run."""
    figure = go.Figure()
    colours = system_colours(runs)
    longest = 1
    for name, run in runs.items():
        r = run.requests
        done = np.isfinite(r["ttft_s"])
        if not done.any():
            continue
        longest = max(longest, int(r["tokens"][done].max()))
        # WebGL draws many points fast, but a page can hold only a few WebGL figures
        scatter = figure.add_scattergl if done.sum() > _MANY else figure.add_scatter
        scatter(
            x=r["tokens"][done],
            y=r["ttft_s"][done],
            customdata=r["id"][done],
            mode="markers",
            name=name,
            legendgroup=name,
            showlegend=False,
            marker={"color": colours[name], "size": 5, "opacity": 0.35},
            hovertemplate="request %{customdata}: %{x:,} tokens, %{y:.3f} s<extra>" + name + "</extra>",
        )
        means = decompose(run, [2**k for k in range(4, 20)])
        figure.add_scatter(
            x=np.sqrt(means["up_to"] * np.maximum(means["above"], means["up_to"] / 2)),
            y=means["ttft_s"],
            customdata=means["requests"],
            mode="lines+markers",
            name=name,
            legendgroup=name,
            line={"color": colours[name], "width": 3},
            marker={"size": 8},
            hovertemplate="mean of %{customdata} requests: %{y:.3f} s<extra>" + name + "</extra>",
        )
    ticks = [2**k for k in range(4, 20) if 2**k <= 2 * longest]
    figure.update_xaxes(
        title="prompt length (tokens)", type="log", tickvals=ticks, ticktext=[*map(tokens_label, ticks)]
    )
    figure.update_yaxes(title="TTFT (s)", rangemode="tozero")
    return dress(figure, "Time to first token by prompt length")


def ttft_over_rps(table: Iterable[Mapping[str, Any]], slo_s: float | None = None) -> go.Figure:
    """Mean TTFT over the request rate, one line a system.

    ``table`` has a row for each point: ``system``, ``rps``, ``mean_ttft_s`` and, where known, the ends ``low_s`` and
    ``high_s`` of its interval. ``slo_s`` draws the SLO.

    Raises:
        InputError: a row lacks one of the three columns.
    """
    rows = list(table)
    for row in rows:
        if missing := {"system", "rps", "mean_ttft_s"} - row.keys():
            raise InputError(f"a row of the table has no {sorted(missing)[0]!r}; it needs system, rps and mean_ttft_s")
    figure = go.Figure()
    names = list(dict.fromkeys(row["system"] for row in rows))
    for name, colour in system_colours(names).items():
        points = sorted((row for row in rows if row["system"] == name), key=lambda row: row["rps"])
        x, y = [row["rps"] for row in points], [row["mean_ttft_s"] for row in points]
        bars = None
        if all("low_s" in row and "high_s" in row for row in points):
            above = [row["high_s"] - row["mean_ttft_s"] for row in points]
            below = [row["mean_ttft_s"] - row["low_s"] for row in points]
            bars = {"type": "data", "array": above, "arrayminus": below, "thickness": 1.5, "width": 4}
        figure.add_scatter(
            x=x,
            y=y,
            error_y=bars,
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": 3},
            marker={"size": 8},
            hovertemplate="%{x:g} requests/s: %{y:.3f} s<extra>" + name + "</extra>",
        )
    if slo_s is not None:
        figure.add_hline(
            y=slo_s,
            line={"color": INK, "dash": "dash"},
            annotation={"text": f"SLO {slo_s:g} s", "font": {"color": INK}},
        )
        figure.update_yaxes(range=[0, 2 * slo_s])
    figure.update_xaxes(title="request rate (1/s)", rangemode="tozero")
    figure.update_yaxes(title="mean TTFT (s)", rangemode="tozero")
    return dress(figure, "Mean time to first token by request rate")
