"""Order rules inside a device: pure functions that devices call and the twin compiles (numba nopython subset)."""

from __future__ import annotations


def next_batch(ready_since: list[float], last: int, fifo: bool) -> int:
    """Which of a DP group's places the attention devices work on next; -1 if they must wait.

    ``ready_since[b]`` is when place b became ready for its next layer, negative while it is not. ``ready``
    order takes the one that has been ready longest; ``fifo`` keeps strict alternation after ``last``: it waits for
    the next occupied place even if another is ready. An empty place holds ``inf`` and is skipped.
    """
    places = len(ready_since)
    if fifo:
        for step in range(1, places + 1):
            b = (last + step) % places
            if ready_since[b] != float("inf"):
                return b if ready_since[b] >= 0.0 else -1
        return -1
    best = -1
    for step in range(1, places + 1):
        b = (last + step) % places
        if 0.0 <= ready_since[b] < float("inf") and (best < 0 or ready_since[b] < ready_since[best]):
            best = b
    return best


def next_region(complete_since: list[float]) -> int:
    """The oldest complete region, so that none is starved; -1 if none is complete (negative entries)."""
    best = -1
    for i in range(len(complete_since)):
        if complete_since[i] >= 0.0 and (best < 0 or complete_since[i] < complete_since[best]):
            best = i
    return best
