"""One look for all figures: transparent ground and mid-grey ink read well on light and dark pages alike.

A colour means the same in every figure: work is cool, waiting is warm.
"""

from __future__ import annotations

from collections.abc import Iterable

import plotly.graph_objects as go

INK = "#7d8590"  # contrast of at least 3.7 to 1 on white and 5 to 1 on near-black
GRID = "rgba(128, 136, 150, 0.22)"
CLEAR = "rgba(0, 0, 0, 0)"
LOG = {"type": "log", "dtick": "D2", "tickformat": "~g"}  # an axis with whole numbers at 1, 2 and 5 of each decade

PART_COLOURS = {
    "attention": "#3b7ddd",
    "tp": "#86b4f2",
    "dispatch": "#8d6fd6",
    "moe": "#16a085",
    "combine": "#b9a2ec",
    "host": "#93a1b5",
    "batching_wait": "#f2c14e",
    "attention_queue": "#f29e4c",
    "moe_queue": "#e97b3c",
    "barrier_wait": "#d9434f",
    "idle": "rgba(128, 136, 150, 0.25)",
}
PART_NAMES = {part: part.replace("_", " ").replace("moe", "MoE").replace("tp", "TP") for part in PART_COLOURS}

SERIES = ("#3b7ddd", "#d9434f", "#f2a33a", "#16a085", "#8d6fd6", "#5bb8d4", "#c76fb0", "#8aa13c")
_SYSTEM_COLOURS = {"asap": SERIES[0], "default": SERIES[1], "chunked": SERIES[2]}


def system_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: the three systems of the paper keep theirs, others take the next free one."""
    colours: dict[str, str] = {}
    names = list(names)
    free = [c for c in SERIES if c not in {_SYSTEM_COLOURS[n] for n in names if n in _SYSTEM_COLOURS}]
    for name in names:
        if name in _SYSTEM_COLOURS:
            colours[name] = _SYSTEM_COLOURS[name]
        else:
            colours[name] = free[len([n for n in colours if n not in _SYSTEM_COLOURS]) % len(free)]
    return colours


def dress(figure: go.Figure, title: str, *, height: int = 460) -> go.Figure:
    """Give a figure the common look; its width follows the page."""
    axis = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID, "ticks": "outside", "tickcolor": GRID}
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0, "xref": "paper", "xanchor": "left", "font": {"size": 18}},
        font={"family": "Inter, Segoe UI, Helvetica, Arial, sans-serif", "size": 14, "color": INK},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        height=height,
        autosize=True,
        margin={"l": 70, "r": 24, "t": 96, "b": 60},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "bgcolor": CLEAR},
        hoverlabel={"font": {"size": 13}},
        modebar={"bgcolor": CLEAR, "color": INK},
    )
    figure.update_xaxes(automargin=True, **axis)
    figure.update_yaxes(automargin=True, **axis)
    return figure


def tokens_label(tokens: float) -> str:
    """512, 1k, 32k."""
    return f"{tokens / 1024:g}k" if tokens >= 1024 else f"{tokens:g}"
