"""What devices tell the parent, and the handlers on the Dask scheduler that take it in.

Two streams leave a device: ``asap-report`` (ready, failed, a batch is done) and ``asap-telemetry`` (busy share, queue
depth, spans; ten times a second). This module is a scheduler preload: the handlers are there before any device speaks.
"""

from __future__ import annotations

import queue
import time
from typing import Any

TELEMETRY, REPORT, CONTROL = "asap-telemetry", "asap-report", "asap-control"


class Inbox:
    """Reports of all devices, in order of arrival, for the thread that drives the instance."""

    def __init__(self) -> None:
        self.reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.latest: dict[str, dict[str, Any]] = {}  # device -> last telemetry
        self.listeners: list[Any] = []  # called with every telemetry message, on the scheduler's thread
        self.finished: list[Any] = []  # called with (when_s, ttft_s, tokens) of every first token

    def report(self, worker: str = "", **message: Any) -> None:
        self.reports.put(message)

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """The next report, or None after the timeout."""
        try:
            return self.reports.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return None

    def telemetry(self, worker: str = "", **message: Any) -> None:
        message["heard_s"] = time.monotonic()
        self.latest[message["device"]] = message
        for listener in self.listeners:
            listener(message)


def dask_setup(scheduler: Any) -> None:
    """Preload hook of the Dask scheduler."""
    inbox = scheduler.asap_inbox = Inbox()
    scheduler.stream_handlers[REPORT] = inbox.report
    scheduler.stream_handlers[TELEMETRY] = inbox.telemetry
