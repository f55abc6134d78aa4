"""The bokeh panes of the /asap page: busy share and queue depth of each device, the last seconds of the pipeline."""

from __future__ import annotations

import time
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, DataRange1d, FactorRange, HoverTool, Range, Range1d
from bokeh.models.widgets import Div
from bokeh.plotting import figure
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from asaplab.show.dashboard import Recent
from asaplab.show.style import PART_COLOURS

PERIOD_MS = 250
MOST_BARS = 4000
ROLES = {"attention": PART_COLOURS["attention"], "moe": PART_COLOURS["moe"], "colocated": PART_COLOURS["dispatch"]}
OTHER = PART_COLOURS["host"]


class Panes(DashboardComponent):
    """All panes with one update; ``shown`` are those that a page lays out."""

    def __init__(self, recent: Recent) -> None:
        self.recent, self.known = recent, list(recent.devices())
        self.devices = ColumnDataSource({"device": [], "busy": [], "depth": [], "color": []})
        self.bars = ColumnDataSource(
            {name: [] for name in ("device", "left", "right", "color", "what", "ms", "tokens")}
        )
        self.factors = FactorRange(factors=list(self.known))
        self.rows = FactorRange(factors=self.known[::-1])
        self.numbers = Div(text="", sizing_mode="stretch_width")
        self.utilization = self._columns("busy share of each device", "busy", Range1d(start=0, end=1))
        self.queues = self._columns("waiting at each device (batches or regions)", "depth", DataRange1d(start=0))
        self.pipeline = self._timeline()

    def _columns(self, title: str, value: str, y_range: Range) -> Any:
        shown = figure(
            title=title,
            x_range=self.factors,
            height=240,
            tools="",
            toolbar_location=None,
            sizing_mode="stretch_width",
            name=f"asap-{value}",
            y_range=y_range,
        )
        shown.vbar(x="device", top=value, width=0.8, color="color", source=self.devices)
        shown.xaxis.major_label_orientation = 0.8
        shown.add_tools(HoverTool(tooltips=f"@device: @{value}{{0.00}}"))
        return shown

    def _timeline(self) -> Any:
        shown = figure(
            title=f"pipeline, last {self.recent.window_s:.0f} s",
            x_range=Range1d(start=-self.recent.window_s, end=0),
            y_range=self.rows,
            height=420,
            tools="xpan,xwheel_zoom,reset",
            output_backend="webgl",
            sizing_mode="stretch_width",
            name="asap-pipeline",
        )
        shown.hbar(y="device", left="left", right="right", height=0.8, color="color", line_color=None, source=self.bars)
        shown.xaxis.axis_label = "seconds before the newest span"
        shown.add_tools(HoverTool(tooltips="@device @what, @tokens tokens, @ms{0.00} ms"))
        return shown

    @without_property_validation
    def update(self) -> None:
        """Refill every pane; a page calls it four times a second."""
        devices = self.recent.devices()
        if devices != self.known:
            self.known = devices
            self.factors.factors = devices
            self.rows.factors = devices[::-1]
        latest = [self.recent.latest[device] for device in devices]
        self.devices.data = {
            "device": devices,
            "busy": [float(message["busy"]) for message in latest],
            "depth": [int(message["depth"]) for message in latest],
            "color": [ROLES.get(message["role"], OTHER) for message in latest],
        }
        newest, spans = self.recent.window()
        shown = [span for span in spans if span[2] != "idle"][-MOST_BARS:]
        self.bars.data = {
            "device": [span[0] for span in shown],
            "left": [span[5] - newest for span in shown],
            "right": [span[6] - newest for span in shown],
            "color": [PART_COLOURS.get(span[2], OTHER) for span in shown],
            "what": [f"{span[2]}, batch {span[3]}, layer {span[4]}" for span in shown],
            "ms": [1e3 * (span[6] - span[5]) for span in shown],
            "tokens": [span[7] for span in shown],
        }
        self.numbers.text = self._text()

    def _text(self) -> str:
        numbers = "".join(
            f'<span style="margin-right:2.5em"><b style="font-size:1.5em">{value}</b> {name}</span>'
            for name, value in self.recent.figures().items()
        )
        cells = "".join(
            f'<div>{name} <progress value="{done}" max="{total}"></progress> {done} of {total} cells</div>'
            for name, (done, total) in self.recent.cells.items()
        )
        if not self.known and not cells:
            return "No device has reported yet: deploy an instance or start a batch."
        silent = [d for d, heard in self.recent.heard_s.items() if 1.0 < time.monotonic() - heard < 10.0]
        return numbers + cells + (f"<div>silent: {', '.join(silent)}</div>" if silent else "")


def serve_page(name: str, recent: Recent, extra: dict[str, Any], doc: Any) -> None:
    """Fill a document with one pane ("utilization", "queues", "pipeline") or with "all" of them."""
    panes = Panes(recent)
    if name == "all":
        columns = row(panes.utilization, panes.queues, sizing_mode="stretch_width")
        doc.add_root(column(panes.numbers, columns, panes.pipeline, sizing_mode="stretch_width"))
    else:
        doc.add_root(getattr(panes, name))
    panes.update()
    add_periodic_callback(doc, panes, PERIOD_MS)
    doc.title = "asaplab"
    doc.theme = BOKEH_THEME
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
