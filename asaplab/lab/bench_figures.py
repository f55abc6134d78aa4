"""Figures of saved benchmarks, as plotly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from asaplab.show.style import SERIES, dress


def communication(rows: Sequence[dict[str, Any]], receivers: int = 4) -> go.Figure:
    """Figure 14 with the peers: how long the sender is blocked over the tokens sent, idle and busy receivers."""
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=("idle receivers", "busy receivers"))
    peers = dict.fromkeys(row["peer"] for row in rows)
    for column, busy in enumerate((False, True), 1):
        for colour, peer in zip(SERIES, peers):
            mine = [row for row in rows if (row["peer"], row["busy"], row["receivers"]) == (peer, busy, receivers)]
            figure.add_scatter(
                x=[row["tokens"] for row in mine],
                y=[row["blocked_us"] / 1e3 for row in mine],
                name=peer,
                legendgroup=peer,
                showlegend=column == 1,
                line_color=colour,
                mode="lines+markers",
                row=1,
                col=column,
            )
    dress(figure, f"How long a dispatch to {receivers} receivers blocks its sender")
    figure.update_xaxes(title="tokens", type="log").update_yaxes(type="log")
    return figure.update_yaxes(title="time (ms)", col=1)


def write(figure: go.Figure, path: Path) -> Path:
    """One HTML file that needs no network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path, include_plotlyjs=True)
    return path
