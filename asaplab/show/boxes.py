"""The mailboxes of MoE devices as a picture: a box for each row of each region, full or empty (Figure 7)."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from asaplab.primitives.look import Row
from asaplab.show.style import GRID, PART_COLOURS, dress

FILL = {"empty": GRID, "full": PART_COLOURS["dispatch"], "in use": PART_COLOURS["moe"]}


def mailboxes(rows: Sequence[Row], title: str = "Mailboxes") -> go.Figure:
    """One column a MoE device, one line a row of a region; the text says whose rows lie there and the flag's number."""
    devices = list(dict.fromkeys(row.device for row in rows))
    lines = list(dict.fromkeys(_line(row) for row in rows))
    figure = go.Figure()
    for row in rows:
        x, y = devices.index(row.device), lines.index(_line(row))
        figure.add_shape(
            type="rect", x0=x - 0.46, x1=x + 0.46, y0=y - 0.4, y1=y + 0.4, fillcolor=FILL[row.state], line={"width": 0}
        )
        says = "empty" if row.state == "empty" else f"batch {row.batch}, layer {row.layer}, {row.rows} rows"
        flag = f"flag {row.sequence}" if row.sequence else "flag clear"
        colour = None if row.state == "empty" else "white"
        figure.add_annotation(x=x, y=y, text=f"{says}<br>{flag}", showarrow=False, font={"color": colour, "size": 12})
    dress(figure, title, height=150 + 52 * len(lines))
    figure.update_xaxes(range=[-0.6, len(devices) - 0.4], tickvals=list(range(len(devices))), ticktext=devices)
    figure.update_yaxes(range=[len(lines) - 0.4, -0.6], tickvals=list(range(len(lines))), ticktext=lines)
    figure.update_xaxes(showgrid=False, zeroline=False, ticks="")
    figure.update_yaxes(showgrid=False, zeroline=False, ticks="")
    return figure


def _line(row: Row) -> str:
    return f"region {row.region} slot {row.slot} row {row.rank}"
