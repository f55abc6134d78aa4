"""The pipeline of a run as bars on a time axis: what each device did when (Figures 1 and 8)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import plotly.graph_objects as go

from asaplab.core import Run
from asaplab.observe.spans import natural, spans_of
from asaplab.show.style import INK, PART_COLOURS, PART_NAMES, SERIES, dress
from asaplab.show.window import busy_window


def gantt(
    run: Run, window: tuple[float, float] | None = None, *, colour: Literal["part", "batch"] = "part"
) -> go.Figure:
    """Spans of the run between two times (s): a row for each device and stream, coloured by TTFT part or by batch.

    Without a window, the run's busiest moment (``busy_window``).
    """
    spans = spans_of(run)
    if window is None:
        window = busy_window(run)
    inside = (spans["end_s"] > window[0]) & (spans["start_s"] < window[1])
    spans = {name: column[inside] for name, column in spans.items()}
    rows = _rows(spans)
    what = spans["kind"] if colour == "part" else spans["batch"]
    figure = go.Figure()
    for value in _in_legend_order(what):
        chosen = what == value
        name, fill = (PART_NAMES[value], PART_COLOURS[value]) if colour == "part" else _batch(int(value))
        duration_ms = (spans["end_s"] - spans["start_s"])[chosen] * 1e3
        figure.add_bar(
            y=[rows[key] for key in zip(spans["device"][chosen].tolist(), spans["stream"][chosen].tolist())],
            x=duration_ms,
            base=(spans["start_s"][chosen] - window[0]) * 1e3,
            orientation="h",
            name=name,
            marker={"color": fill, "line": {"width": 0.5, "color": "rgba(255, 255, 255, 0.5)"}},
            text=[
                f"{batch}" if batch >= 0 and ms > 0.02e3 * (window[1] - window[0]) else ""
                for batch, ms in zip(spans["batch"][chosen], duration_ms)
            ],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": "white", "size": 11},
            customdata=np.column_stack(
                [spans[key][chosen].astype(object) for key in ("batch", "layer", "tokens", "kind")]
            ),
            hovertemplate="%{customdata[3]}, batch %{customdata[0]}, layer %{customdata[1]}, %{customdata[2]:,} tokens,"
            " %{x:.3f} ms<extra>%{y}</extra>",
        )
    figure.update_layout(barmode="overlay", bargap=0.18)
    figure.update_xaxes(title=f"time (ms after {window[0]:.3f} s)", range=[0, (window[1] - window[0]) * 1e3])
    figure.update_yaxes(categoryorder="array", categoryarray=list(rows.values())[::-1], showgrid=False)
    dress(figure, f"Pipeline of {run.system.name} ({run.mode})", height=170 + 30 * max(len(rows), 3))
    if not rows:
        figure.add_annotation(
            text="no spans were recorded in this window",
            showarrow=False,
            font={"color": INK},
            xref="paper",
            yref="paper",
        )
    return figure


def _rows(spans: dict[str, np.ndarray]) -> dict[tuple[str, str], str]:
    """The label of each (device, stream), devices by number; the compute stream needs no name."""
    tracks = sorted(set(zip(spans["device"].tolist(), spans["stream"].tolist())), key=natural)
    return {track: track[0] if track[1] == "compute" else " · ".join(track) for track in tracks}


def _in_legend_order(values: np.ndarray) -> list:
    present = set(values.tolist())
    if values.dtype.kind == "U":
        return [part for part in PART_COLOURS if part in present]
    return sorted(present)


def _batch(batch: int) -> tuple[str, str]:
    if batch < 0:
        return "no batch", PART_COLOURS["idle"]
    return f"batch {batch}", SERIES[batch % len(SERIES)]
