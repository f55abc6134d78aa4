"""Which part of a run to look at: a pipeline has thousands of bars, a picture has room for hundreds."""

from __future__ import annotations

import numpy as np

from asaplab.core import Run
from asaplab.observe.spans import spans_of


def busy_window(run: Run, bars: int = 400) -> tuple[float, float]:
    """The shortest time in which that many pieces of work begin and that lies in the run's busiest moment (s).

    A run with fewer spans is shown whole, one without spans as its first second.
    """
    spans = spans_of(run)
    work = spans["kind"] != "idle"
    if not work.any():
        return 0.0, 1.0
    starts, last = np.sort(spans["start_s"][work]), float(spans["end_s"][work].max())
    if len(starts) <= bars:
        return float(starts[0]), last
    widths = starts[bars:] - starts[:-bars]
    densest = int(np.argmin(widths))
    return float(starts[densest]), float(starts[densest + bars])
