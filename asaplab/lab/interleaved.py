"""Timing of alternatives side by side, so that a machine's moods reach all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Name = TypeVar("Name")


def median_seconds(
    calls: Mapping[Name, Callable[[], object]], repetitions: int, clock: Callable[[], float] = time.perf_counter
) -> dict[Name, float]:
    """The median time of each call, in seconds: every repetition runs all calls in turn, after one warm-up.

    ``clock`` is wall time unless a caller asks for another, such as ``time.thread_time``.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in calls}
    for repetition in range(repetitions + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if repetition:
                seconds[name].append(clock() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}
