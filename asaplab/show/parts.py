"""Where the time goes: TTFT in parts by prompt length (Figure 15) and the busy share of each role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from asaplab.core import TTFT_PARTS, Run
from asaplab.observe import FIGURE_15_BINS, decompose
from asaplab.show.style import PART_COLOURS, PART_NAMES, dress, system_colours, tokens_label

# Stacked from the axis up: work first, then the waits, so that the work of two systems is easy to compare.
_STACK = (
    "host",
    "attention",
    "tp",
    "dispatch",
    "moe",
    "combine",
    *(p for p in TTFT_PARTS if "wait" in p or "queue" in p),
)


def ttft_parts(runs: Mapping[str, Run], bins: Sequence[int] = FIGURE_15_BINS) -> go.Figure:
    """Mean TTFT for each range of prompt lengths, stacked by part, one panel a run on a common scale."""
    names = list(runs)
    figure = make_subplots(cols=max(len(names), 1), shared_yaxes=True, subplot_titles=names, horizontal_spacing=0.03)
    shown: set[str] = set()
    for column, run in enumerate(runs.values(), 1):
        table = decompose(run, bins)
        ranges = [_range(low, high) for low, high in zip(table["above"], table["up_to"])]
        for part in _STACK:
            if not table[part].any():
                continue
            figure.add_bar(
                x=ranges,
                y=table[part],
                customdata=np.column_stack([100 * table[part] / table["ttft_s"], table["requests"]]),
                name=PART_NAMES[part],
                legendgroup=part,
                showlegend=part not in shown,
                marker_color=PART_COLOURS[part],
                hovertemplate="%{y:.4f} s, %{customdata[0]:.0f}% of TTFT, %{customdata[1]} requests"
                f"<extra>{PART_NAMES[part]}</extra>",
                row=1,
                col=column,
            )
            shown.add(part)
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_xaxes(title="prompt length (tokens)", type="category", showgrid=False)
    figure.update_yaxes(title="mean TTFT (s)", col=1)
    dress(figure, "Where the time to first token goes", height=500)
    figure.update_layout(margin_t=130, legend_y=1.08)
    return figure


def _range(low: float, high: float) -> str:
    if np.isinf(high):
        return f"> {tokens_label(low)}"
    return f"≤ {tokens_label(high)}"


def utilization(runs: Mapping[str, Run]) -> go.Figure:
    """The share of time that the devices of each role are busy, side by side for each run."""
    figure = go.Figure()
    for name, colour in system_colours(runs).items():
        shares = runs[name].utilization
        figure.add_bar(
            x=list(shares),
            y=[100 * share for share in shares.values()],
            name=name,
            marker_color=colour,
            text=[f"{100 * share:.0f}%" for share in shares.values()],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}: busy %{y:.1f}% of the time<extra>" + name + "</extra>",
        )
    figure.update_layout(barmode="group", bargap=0.35)
    figure.update_xaxes(title="role", showgrid=False)
    figure.update_yaxes(title="busy (%)", range=[0, 100])
    return dress(figure, "Utilization by role", height=400)
