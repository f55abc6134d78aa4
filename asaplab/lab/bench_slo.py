"""SLO throughput of systems on real processes, paced: short runs find the rate, long ones measure it in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from asaplab.core import Instance, System
from asaplab.engine import Deployment
from asaplab.lab.bench_paced import EVEN, Traffic, balanced, devices, instance, pace, ttft_at
from asaplab.lab.bench_progress import Tell
from asaplab.lab.sustained import Interval, Seen, best_guess, crossing, neighbourhood, steepness
from asaplab.scheduler import named

SYSTEMS = ("default", "chunked", "asap")
EVEN_SPLIT = "asap-even-split"
ABLATIONS = ("asap-p2p", "asap-refill-slot", EVEN_SPLIT)  # on the first traffic only
LONG, SHORT = 60.0, 15.0  # SLOs that a run lasts
TRIES = 4  # of a long run to come near the SLO
START_RPS = 8.0
RATIOS = (("asap", "default"), ("asap", "chunked"), *(("asap", name) for name in ABLATIONS))
Contenders = Mapping[str, tuple[System, Instance]]


def contenders(traffic: Traffic, names: Sequence[str]) -> Contenders:
    """Each system and the devices it gets: ``balanced`` for the lengths, but for the ablation of that."""
    even = {EVEN_SPLIT: (named("asap"), EVEN)}
    return {name: even.get(name) or (named(name), balanced(traffic)) for name in names}


def slo_rates(
    traffic: Traffic,
    slo_s: float,
    systems: Sequence[str],
    repeats: int,
    seed: int,
    tell: Tell,
    *,
    long: float = LONG,
    short: float = SHORT,
) -> dict[str, Any]:
    """Requests per second within the SLO, for each system; ``tell`` hears after every run what is known so far.

    Repetition k of every system replays the arrivals of seed + k, scaled to its rate; ratios are of repetitions.
    """
    field = contenders(traffic, systems)
    seen: dict[str, list[Seen]] = {}
    found: dict[str, list[float]] = {name: [] for name in systems}
    guess = START_RPS
    for name in systems:
        system, split = field[name]
        with instance(system, traffic, split) as live:
            seen[name] = neighbourhood(partial(_ttft_s, live, traffic, short * slo_s, seed), slo_s, start=guess)
        guess = best_guess(seen[name], slo_s)
        tell(f"{traffic.name}: {name} near {guess:.3g} requests/s", {})
    for repeat in range(repeats):
        for name in systems:
            system, split = field[name]
            with instance(system, traffic, split) as live:
                run = _near_slo(seen[name], slo_s, partial(_ttft_s, live, traffic, long * slo_s, seed + repeat))
            found[name].append(crossing(run, slo_s, steepness(seen[name], slo_s)))
            text = f"{traffic.name}: {name} {found[name][-1]:.3g} requests/s (run {repeat + 1} of {repeats})"
            tell(text, _result(traffic, field, slo_s, seen, found, long))
    return _result(traffic, field, slo_s, seen, found, long)


def _near_slo(seen: list[Seen], slo_s: float, ttft_s: Callable[[float], float]) -> Seen:
    """A long run whose TTFT is within a factor of two of the SLO; from farther away a crossing would be a guess."""
    rps = best_guess(seen, slo_s)
    for _ in range(TRIES):
        seen.append(Seen(rps, ttft_s(rps)))
        if slo_s / 2 <= seen[-1].ttft_s <= slo_s * 2:
            break
        rps = crossing(seen[-1], slo_s, steepness(seen, slo_s))
    return seen[-1]


def _ttft_s(live: Deployment, traffic: Traffic, duration_s: float, seed: int, rps: float) -> float:
    return ttft_at(live, traffic, rps, duration_s, seed)


def _result(
    traffic: Traffic,
    field: Contenders,
    slo_s: float,
    seen: dict[str, list[Seen]],
    found: dict[str, list[float]],
    long: float,
) -> dict[str, Any]:
    return {
        "slo_s": slo_s,
        "pace": pace(traffic),
        "run_s": long * slo_s,
        "mean_tokens": float(traffic.lengths.mean()),
        "excluded": traffic.excluded,
        "slo_rps": {
            name: Interval.of(rates).plain()
            | {"steepness": steepness(seen[name], slo_s), "devices": devices(*field[name])}
            for name, rates in found.items()
            if rates
        },
        "ratios": {f"{a}/{b}": ratio(found[a], found[b]) for a, b in RATIOS if found.get(a) and found.get(b)},
        "runs": {name: [run._asdict() for run in runs] for name, runs in seen.items()},
    }


def ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """Of repetitions with the same arrivals."""
    return Interval.of_ratios([a / b for a, b in zip(over, under)]).plain()
