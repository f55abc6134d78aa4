"""``asaplab bench twin``: logical events and simulated seconds a second, and what compiling the event kernel gains."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

from asaplab import workload
from asaplab.lab.interleaved import median_seconds
from asaplab.twin import simulate

SYSTEMS = ("asap", "default", "chunked")
RPS, DURATION_S, SEED = 20.0, 300.0, 0  # more than any of the systems sustains: queues are long, batches full
PLAIN_DURATION_S = 4.0  # for plain Python, which takes some hundred times as long
_PLAIN = (
    "from asaplab.lab.bench_twin import events_per_s; "
    f"print(events_per_s(duration_s={PLAIN_DURATION_S}, repetitions=1))"
)


def bench(quick: bool = False) -> dict[str, Any]:
    """Measure the twin on this machine: 32 devices, 61 layers, the paper's traffic, one thread.

    Keys: ``rows`` {system, requests, events, seconds, events_per_s, simulated_over_wall}; ``compiled_over_python``, the
    events a second of the compiled kernel over those of the same functions in plain Python; ``slo_seconds``, the time
    of ``asaplab slo`` for all three systems with three seeds (None with ``quick``).
    """
    traffic = workload.poisson(rps=RPS, duration_s=DURATION_S, seed=SEED, max_tokens=32768)
    calls = {name: partial(simulate, traffic, name) for name in SYSTEMS}
    seconds = median_seconds(calls, 3 if quick else 11)
    rows = []
    for name, took_s in seconds.items():
        run = calls[name]()
        events = run.configuration["events"]
        end_s = float((run.requests["arrival_s"] + run.requests["ttft_s"]).max())
        rows.append(
            {
                "system": name,
                "requests": len(traffic),
                "events": events,
                "seconds": took_s,
                "events_per_s": events / took_s,
                "simulated_over_wall": end_s / took_s,
            }
        )
    plain = subprocess.run(
        [sys.executable, "-c", _PLAIN],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    compiled = events_per_s(duration_s=PLAIN_DURATION_S, repetitions=5)
    return {
        "rows": rows,
        "compiled_over_python": compiled / float(plain.stdout),
        "slo_seconds": None if quick else _slo_seconds(),
    }


def events_per_s(duration_s: float, repetitions: int) -> float:
    """Logical events a second of asap at the benchmark's rate."""
    traffic = workload.poisson(rps=RPS, duration_s=duration_s, seed=SEED, max_tokens=32768)
    took_s = median_seconds({"asap": partial(simulate, traffic)}, repetitions)["asap"]
    return float(simulate(traffic).configuration["events"]) / took_s


def _slo_seconds() -> float:
    from asaplab.lab.slo import slo

    start = time.perf_counter()
    for name in SYSTEMS:
        slo(name)
    return time.perf_counter() - start
