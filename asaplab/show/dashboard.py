"""The /asap page of the Dask dashboard: a scheduler preload, named in ``distributed.scheduler.preload``.

It keeps the last seconds of the devices' telemetry, whose messages are dict(device, role, busy, depth, spans), and
inserts a page with dask's own navigation bar, plus the same panes one by one for JupyterLab's Dask extension.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

TELEMETRY = "asap-telemetry"
NOTEBOOKS = "asap-notebooks"
WINDOW_S = 5.0


class Recent:
    """The last seconds of what devices said. Times are the senders' monotonic clock, shared by one machine."""

    def __init__(self, *, window_s: float = WINDOW_S, most_spans: int = 40_000) -> None:
        self.window_s = window_s
        self.latest: dict[str, Mapping[str, Any]] = {}  # device -> its last message
        self.heard_s: dict[str, float] = {}  # device -> when that was, this process's monotonic clock
        self.spans: deque[tuple[Any, ...]] = deque(
            maxlen=most_spans
        )  # (device, stream, kind, batch, layer, start, end, tokens)
        self.requests: deque[tuple[float, float, int]] = deque(maxlen=10_000)  # (end_s, ttft_s, tokens)
        self.cells: dict[str, tuple[int, int]] = {}  # notebook -> (done, total) code cells

    def hear(self, worker: str = "", **message: Any) -> None:
        """One telemetry message of a device."""
        device = message["device"]
        self.latest[device] = message
        self.heard_s[device] = time.monotonic()
        self.spans.extend((device, *span) for span in message.get("spans", ()))

    def finished(self, end_s: float, ttft_s: float, tokens: int) -> None:
        """A request has its first token."""
        self.requests.append((end_s, ttft_s, tokens))

    def devices(self) -> list[str]:
        """Devices heard of within the window, attention first; silent ones are gone."""
        from asaplab.observe.spans import natural

        now = time.monotonic()
        alive = [device for device, heard in self.heard_s.items() if now - heard < 2 * self.window_s]
        return sorted(alive, key=lambda device: natural((device, "")))

    def window(self) -> tuple[float, list[tuple[Any, ...]]]:
        """The newest end of a span, and the spans that reach into the window before it."""
        if not self.spans:
            return 0.0, []
        newest = max(span[6] for span in list(self.spans)[-2000:])
        return newest, [span for span in self.spans if span[6] > newest - self.window_s]

    def figures(self) -> dict[str, str]:
        """The numbers above the panes, ready to print."""
        busy: dict[str, list[float]] = {}
        for device in self.devices():
            message = self.latest[device]
            busy.setdefault(message["role"], []).append(float(message["busy"]))
        newest, spans = self.window()
        groups: dict[str, float] = {}
        for device, _, kind, _, _, start, end, _ in spans:
            if kind == "attention":
                group = device.split()[-1].split(".")[0]
                groups[group] = groups.get(group, 0.0) + end - start
        batches = {span[3] for span in spans if span[6] > newest - 0.5}
        out = {f"{role} busy": f"{100 * np.mean(shares):.0f}%" for role, shares in busy.items()}
        if len(groups) > 1:
            load = list(groups.values())
            out["DP imbalance"] = f"{100 * (max(load) - np.mean(load)) / max(load):.0f}%"
        out["batches in flight"] = str(len(batches))
        if self.requests:
            now = self.requests[-1][0]
            last = [(ttft, tokens) for end, ttft, tokens in self.requests if end > now - 10 * self.window_s]
            p50, p99 = np.percentile([ttft for ttft, _ in last], [50, 99])
            out |= {"TTFT p50": f"{p50:.2f} s", "TTFT p99": f"{p99:.2f} s"}
            extent_s = min(10 * self.window_s, max(1.0, now - self.requests[0][0]))
            out["tokens/s"] = f"{sum(tokens for _, tokens in last) / extent_s:,.0f}"
        return out


def dask_setup(scheduler: Any) -> None:
    """Preload hook: take in telemetry beside whoever else listens, and add the page."""
    recent = scheduler.asap_recent = Recent()
    before = scheduler.stream_handlers.get(TELEMETRY)

    def hear(**message: Any) -> None:
        recent.hear(**message)
        if before is not None:
            before(**message)

    scheduler.stream_handlers[TELEMETRY] = hear
    if inbox := getattr(scheduler, "asap_inbox", None):  # of a deployed instance
        inbox.finished.append(recent.finished)
    scheduler.add_plugin(_cells(recent), name="asap-cells", idempotent=True)
    _name_in_navigation(scheduler)


def _name_in_navigation(scheduler: Any) -> None:
    try:
        from distributed.dashboard.scheduler import template_variables
    except ImportError:
        return
    pages = template_variables(scheduler)["pages"]  # a memoized list: the navigation bar of every page
    if "asap" not in pages:
        pages.insert(0, "asap")


def _cells(recent: Recent) -> Any:
    from distributed import SchedulerPlugin

    class Cells(SchedulerPlugin):
        """Progress of a batch of notebooks, cell by cell."""

        def log_event(self, topic: str, message: Any) -> None:
            if topic == NOTEBOOKS:
                name, done, total = message
                recent.cells[name] = (done, total)

    return Cells()


def _page(name: str) -> Any:
    def serve(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
        from asaplab.show.dashboard_page import serve_page

        serve_page(name, scheduler.asap_recent, extra, doc)

    return serve


def add_pages() -> None:
    """Insert /asap and the single panes into dask's list of pages; a scheduler reads it while it is constructed."""
    try:
        from distributed.dashboard.scheduler import applications
    except ImportError:  # without bokeh there is no dashboard to extend
        return
    applications["/asap"] = _page("all")
    for name in ("utilization", "queues", "pipeline"):
        applications[f"/individual-asap-{name}"] = _page(name)


add_pages()  # on import: when dask_setup runs, the dashboard stands already
