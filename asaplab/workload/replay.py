"""Open-loop replay: requests become due at absolute times, however late the caller asks, so no delay adds up."""

from __future__ import annotations

import numpy as np

from asaplab.core import Request, Workload


class Replay:
    """A cursor over a workload's arrivals. Holds no clock: the caller says how many seconds have passed."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._next = 0

    @property
    def next_s(self) -> float | None:
        """When the next request is due, in seconds after the start; None when all have been handed out."""
        return float(self._workload.arrival_s[self._next]) if self._next < len(self._workload) else None

    def due(self, now_s: float) -> list[Request]:
        """The requests that have become due since the last call, with the arrival times that they were due at."""
        w, first = self._workload, self._next
        end = int(np.searchsorted(w.arrival_s, now_s, side="right"))
        self._next = max(first, end)
        return [Request(i, float(w.arrival_s[i]), int(w.tokens[i])) for i in range(first, self._next)]


def replay(workload: Workload) -> Replay:
    """A fresh replay of the workload from its start."""
    return Replay(workload)
