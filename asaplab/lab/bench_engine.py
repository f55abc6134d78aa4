"""``asaplab bench engine``: what the real engine sustains, and what taking a model apart costs.

Comparisons between systems are paced (design.md, section 4): one clock, one trace, one checkpoint, interleaved
repetitions. Figures on shared cores say so and are never compared across systems.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asaplab.errors import require
from asaplab.lab import bench_shared_cores as shared
from asaplab.lab.bench_factorial import common_rate, factorial, net_cost
from asaplab.lab.bench_paced import MODEL, SHRINK, S, Traffic, instance, pace, slo_of, traffics, ttft_at
from asaplab.lab.bench_predicted import predicted_rates
from asaplab.lab.bench_progress import Partial, Tell, moment
from asaplab.lab.bench_slo import ABLATIONS, SYSTEMS, slo_rates

PARTS = ("shared", "slo", "twin", "factorial", "net_cost")
FIXED_RPS = (4.0, 8.0, 16.0)  # of --quick


def bench(
    quick: bool = False,
    *,
    out: Path | None = None,
    traces: Sequence[Path] | None = None,
    parts: Sequence[str] | None = None,
    repeats: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure the engine on this machine.

    Keys: ``mode``; ``disaggregation_efficiency`` {value, ci95} and ``reference_over_transformers`` {family: ratio} on
    shared cores; ``slo_rps`` {trace: {system: {value, ci95}}} with its ratios and runs in ``slo``, what the ``twin``
    expected of the same, ``factorial`` and ``net_cost`` in paced mode, the latter two on the first trace.
    With ``quick``: one trace, asap and default at three fixed rates (``fixed_rates``), ``slo_rps`` None. With ``out``
    the result is written there after every run. ``parts`` leaves out what it does not name; what the same machine has
    measured of that before, as ``out`` has it, is kept. ``measured`` says of each part when it was measured and how
    many processes then wanted the cores.

    Raises:
        InputError: a trace cannot be read, or ``repeats`` is below 1.
    """
    require(repeats >= 1, f"--repeats is {repeats}; it must be at least 1")
    asked = traffics(traces)
    partial = Partial(out, "engine")
    result: dict[str, Any] = {
        "mode": "paced",
        "cores": len(os.sched_getaffinity(0)),
        "model": MODEL,
        "S": S,
        "length_scale": 1 / SHRINK,
        "repeats": repeats,
        "slo_rps": None,
        "factorial": None,
        "net_cost": None,
        "disaggregation_efficiency": None,
        "reference_over_transformers": None,
        "measured": {},
    }
    if parts:
        result |= partial.before()
    chosen = set(parts or PARTS)
    if "shared" in chosen:
        efficiency = (2, 1, 2) if quick else (16, 4, 8)
        result["disaggregation_efficiency"] = shared.disaggregation_efficiency(*efficiency)
        partial.say("disaggregation efficiency: done")
        over = (1, shared.TINY) if quick else (5, shared.FAMILIES)
        result["reference_over_transformers"] = shared.reference_over_transformers(*over)
        partial.say("reference over transformers: done")
        result["measured"]["shared"] = moment()
        partial.keep(result)
    if quick:
        return result | {"fixed_rates": fixed_rates(asked[0], seed, partial.say)}
    _paced(result, asked, chosen, repeats, seed, partial)
    return result


def _paced(
    result: dict[str, Any], asked: list[Traffic], chosen: set[str], repeats: int, seed: int, partial: Partial
) -> None:
    """The parts that compare systems, into ``result`` as they come."""
    needed = asked if chosen & {"slo", "twin"} else asked[:1]
    known = {} if "slo" in chosen else result.get("slo") or {}
    slo_s = {traffic.name: _kept_slo(known, traffic) or slo_of(traffic) for traffic in needed}
    partial.say(f"SLOs in seconds: {slo_s}; about {minutes(list(slo_s.values()), chosen, repeats):.0f} minutes to go")

    def into(*path: str) -> Tell:
        def tell(text: str, found: dict[str, Any]) -> None:
            partial.say(text)
            if found:
                place = result
                for key in path[:-1]:
                    place[key] = place = place.get(key) or {}
                place[path[-1]] = found
                result["measured"]["/".join(path)] = moment()
                result["slo_rps"] = {name: one["slo_rps"] for name, one in result.get("slo", {}).items()} or None
                partial.keep(result)

        return tell

    first = asked[0]
    if chosen & {"factorial", "net_cost"}:
        rps = common_rate(first, slo_s[first.name], seed)
        partial.say(f"{first.name}: every combination is measured at {rps:.3g} requests/s")
        if "factorial" in chosen:
            factorial(first, slo_s[first.name], rps, repeats, seed, into("factorial"))
        if "net_cost" in chosen:
            net_cost(first, slo_s[first.name], rps, repeats, seed, into("net_cost"))
    for part, rates in (("twin", predicted_rates), ("slo", slo_rates)):
        if part in chosen:
            for traffic in asked:
                systems = SYSTEMS + (ABLATIONS if traffic is first else ())
                rates(traffic, slo_s[traffic.name], systems, repeats, seed, into(part, traffic.name))


def _kept_slo(known: dict[str, Any], traffic: Traffic) -> float | None:
    """The SLO in seconds that the traffic was measured with before, if its clock is still the same."""
    before = known.get(traffic.name, {})
    return before["slo_s"] if before.get("pace") == pace(traffic) else None


def minutes(slos_s: Sequence[float], chosen: set[str], repeats: int) -> float:
    """About how long the paced parts take: what their runs last, a drain, and 6 s to deploy; 20 s for a twin."""
    from asaplab.lab.bench_factorial import RUN
    from asaplab.lab.bench_slo import LONG, SHORT

    took = 0.0
    for k, slo_s in enumerate(slos_s):
        systems = len(SYSTEMS) + (len(ABLATIONS) if k == 0 else 0)
        took += ("slo" in chosen) * systems * (4 * (SHORT + 2) * slo_s + 6 + repeats * ((LONG + 1) * slo_s + 6))
        took += ("twin" in chosen) * systems * 20
    runs = 16 * ("factorial" in chosen) + 2 * ("net_cost" in chosen)
    return (took + repeats * runs * ((RUN + 1) * slos_s[0] + 6)) / 60


def fixed_rates(traffic: Traffic, seed: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Mean TTFT of asap and default at three rates, on the same arrivals."""
    rows = []
    for name in ("default", "asap"):
        with instance(name, traffic) as live:
            for rps in FIXED_RPS:
                rows.append({"system": name, "rps": rps, "mean_ttft_s": ttft_at(live, traffic, rps, 1.5, seed)})
        say(f"{name} at {len(FIXED_RPS)} rates: done")
    return rows
