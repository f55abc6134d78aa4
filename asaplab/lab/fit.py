"""How close any setting of cloudmatrix384's free assumptions comes to the paper's results, by a search.

    python -m asaplab.lab.fit [FILE]      a few minutes; writes FILE, or the one behind ``cloudmatrix384-fitted``

Two studies. The *fit* moves the profile's free assumptions only. *Feasibility* also moves what the paper leaves open
about the systems (Default's batch budget, how long asap waits for company) and asks which published numbers any
single setting meets. No value beats a link, the HBM or a peak, and the anchors hold at every setting.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from asaplab.core import System
from asaplab.lab.claims import MOVES, deviation
from asaplab.lab.claims_checks import CHECKS
from asaplab.lab.claims_rows import CLAIMS, Claim
from asaplab.lab.claims_runs import TTFTS, Evidence, Predicted, Task, answer, roofline, system_of
from asaplab.lab.parallel import side_by_side
from asaplab.profiles.cloudmatrix import cloudmatrix384, square_efficiency
from asaplab.profiles.fitted import NAME, fitted

Values = Mapping[str, float]  # of the free assumptions
Figures = Mapping[str, float]  # predicted, by the id of the statement

# lowest and highest value. Efficiencies end at the peak; contention is left out, as no published system overlaps
# communication with attention, and so is the handshake, which follows from an anchor
ASSUMPTIONS: Mapping[str, tuple[float, float]] = {
    "token_efficiency": (0.2, 1.0),
    "hbm_efficiency": (0.5, 1.0),
    "attention_fixed_s": (1e-6, 1e-3),
    "latency_s": (1e-6, 1e-4),
    "collective_s": (1e-5, 2e-3),
    "host_s": (1e-4, 2e-2),
}
OPEN: Mapping[str, tuple[float, float]] = {"longest_wait_s": (1e-3, 0.2), "budget_tokens": (4096.0, 32768.0)}
_SLO = ("asap", "default", "chunked")
# the statements about these runs; the ablations of section 5.5 are not fitted: they check what comes out
FIGURES = (
    "dispatch-512", "ttft-rps1-asap", "ttft-rps1-default", "ttft-rps1-chunked", "ttft-rps4-vs-default",
    "ttft-rps4-vs-chunked", "ttft-rps8-vs-chunked", "slo-asap", "slo-default", "slo-chunked", "short-sync-share",
    "short-queue-share", "short-nonkernel-cut", "dual-batch-low-load-cost", "comm-share",
)  # fmt: skip
_CLAIM: Mapping[str, Claim] = {claim.id: claim for claim in CLAIMS}
_FIRST, _ROUNDS, _EACH, _GUESSES = 48, 4, 16, 4096
Found = list[tuple[dict[str, float], dict[str, float]]]  # settings and their figures


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a setting should bring close: the worst or the mean-square deviation of some figures."""

    figures: tuple[str, ...]
    worst: bool = False

    def of(self, off_sF: np.ndarray) -> np.ndarray:
        """For deviations of s settings by figure, in the order of FIGURES."""
        mine = off_sF[:, [FIGURES.index(name) for name in self.figures]]
        found: np.ndarray = np.abs(mine).max(axis=1) if self.worst else np.square(mine).mean(axis=1)
        return found


def physical(values: Values) -> bool:
    """Whether Figure 4's ratio holds without scores that beat the bf16 peak."""
    return square_efficiency(values["token_efficiency"], values["attention_fixed_s"]) <= 1.0


def predict(values: Values, *, seed: int = 0) -> dict[str, float]:
    """The figures at one setting, drawn from the same simulations and by the same checks as the ledger."""
    profile = fitted({name: values[name] for name in ASSUMPTIONS})

    def system(name: str) -> System:
        chosen = system_of(name)
        batching = chosen.batching
        if name == "default" and "budget_tokens" in values:
            batching = replace(batching, budget_tokens=int(values["budget_tokens"]))
        if name.startswith("asap") and "longest_wait_s" in values:
            batching = replace(batching, longest_wait_s=values["longest_wait_s"])
        return replace(chosen, batching=batching)

    def task(kind: Any, name: str, rps: float = 0.0) -> Any:
        return answer(Task(kind=kind, system=system(name), profile=profile, rps=rps, seed=seed, tolerance=0.04))

    found = Evidence(
        slo={name: [task("slo", name)] for name in _SLO},
        slo_p99={},
        facts={(name, rps): [task("ttft", name, rps)] for name, rps in TTFTS},
        rooflines={name: roofline(system(name), profile) for name in _SLO},
        profile=profile,
    )
    return {name: float(CHECKS[name](found).value or 0.0) for name in FIGURES}


def deviations(predicted: Figures) -> dict[str, float]:
    """As the ledger says them: shares in points, the others relative to the published number."""
    return {name: deviation(_CLAIM[name], Predicted(value=value)) or 0.0 for name, value in predicted.items()}


def search(
    box: Mapping[str, tuple[float, float]],
    goals: Sequence[Goal],
    *,
    rounds: int = _ROUNDS,
    first: int = _FIRST,
    known: Found | None = None,
    workers: int | None = None,
) -> Found:
    """Simulated settings of the box with their figures: spread evenly first, then where goals may be met better.

    Each round interpolates the figures between the settings simulated so far and simulates what looks best for the
    goals that are furthest from met. Whatever is concluded rests on simulated settings only.
    """
    from scipy.interpolate import RBFInterpolator
    from scipy.stats import qmc

    draw, noise = qmc.Sobol(len(box), seed=1), np.random.default_rng(1)
    spread = draw.random(max(2 * first, 128))
    spread = spread[[physical(_values(box, u)) for u in spread]][:first]
    assumed = _assumed(box)
    started = [assumed | values for values, _ in known] if known else [assumed]
    points = np.vstack([[[_place(box[name], at[name]) for name in box] for at in started], spread])
    figures = [row for _, row in known] if known else _simulated(box, points[:1], workers)
    figures += _simulated(box, spread, workers)
    for _ in range(rounds):
        table = np.array([list(row.values()) for row in figures])
        loss = _losses(goals, table)
        best = points[loss.argmin(axis=0)]
        near = best[noise.integers(len(best), size=_GUESSES)] + noise.normal(0, 0.08, (_GUESSES, len(box)))
        guesses = np.clip(np.vstack([near, draw.random(_GUESSES)]), 0.0, 1.0)
        guesses = guesses[[physical(_values(box, u)) for u in guesses]]
        promise = _losses(goals, RBFInterpolator(points, table, kernel="cubic", smoothing=1e-4)(guesses))
        enough = np.where([goal.worst for goal in goals], MOVES, 0.0)  # to be met is enough for a worst deviation
        gain = np.maximum(loss.min(axis=0), enough) - np.maximum(promise.min(axis=0), enough)
        ranked = np.argsort(promise, axis=0)[[0, 10, 40]][:, np.argsort(-gain)]
        chosen = list(dict.fromkeys(ranked.ravel().tolist()))[:_EACH]
        fresh = guesses[chosen]
        figures += _simulated(box, fresh, workers)
        points = np.vstack([points, fresh])
    return [(_values(box, u), row) for u, row in zip(points, figures)]


def fit(*, rounds: int = _ROUNDS, first: int = _FIRST, workers: int | None = None) -> dict[str, Any]:
    """Both studies as plain values: what the profile ``cloudmatrix384-fitted`` and the ledger's page read."""
    goals = [Goal(figures=tuple(n for n in FIGURES if n != left)) for left in (None, *FIGURES)]
    simulated = search(ASSUMPTIONS, goals, rounds=rounds, first=first, workers=workers)
    off = _off(np.array([list(row.values()) for _, row in simulated]))
    chosen = [int(goal.of(off).argmin()) for goal in goals]
    (values, predicted), at = simulated[chosen[0]], off[chosen[0]]
    left_out = np.array([off[k, i] for i, k in enumerate(chosen[1:])])
    return {
        "made_by": "python -m asaplab.lab.fit",
        "settings": len(simulated),
        "parameters": len(ASSUMPTIONS),
        "bounds": {name: list(ends) for name, ends in ASSUMPTIONS.items()},
        "values": values,
        "objective": "mean square of the deviations; one seed of traffic",
        "rms": _rms(at),
        "rms_assumed": _rms(off[0]),
        "rms_left_out": _rms(left_out),
        "figures": {
            name: {"predicted": predicted[name], "deviation": float(at[i]), "left_out": float(left_out[i])}
            for i, name in enumerate(FIGURES)
        },
        "feasibility": feasibility(simulated, rounds=rounds, first=first, workers=workers),
    }


def feasibility(
    known: Found | None = None, *, rounds: int = _ROUNDS, first: int = _FIRST, workers: int | None = None
) -> dict[str, Any]:
    """How close figures come at any simulated setting, alone, by two and by three, and how many hold at one.

    ``apart`` are the smallest sets: no figure of a set is out of reach alone, no two of three are.
    """
    sets = [Goal(figures=some, worst=True) for size in (1, 2, 3) for some in combinations(FIGURES, size)]
    goals = [*sets, Goal(figures=FIGURES)]
    found = search({**ASSUMPTIONS, **OPEN}, goals, rounds=rounds, first=first, known=known, workers=workers)
    off = _off(np.array([list(row.values()) for _, row in found]))
    closest = {goal.figures: float(goal.of(off).min()) for goal in sets}
    missed: list[tuple[str, ...]] = []
    for some, value in closest.items():
        if value > MOVES and not any(set(smaller) <= set(some) for smaller in missed):
            missed.append(some)
    met = np.abs(off) <= MOVES
    most = int(met.sum(axis=1).argmax())
    return {
        "settings": len(found),
        "bounds": {name: list(ends) for name, ends in OPEN.items()},
        "within": MOVES,
        "closest": {name: closest[(name,)] for name in FIGURES},
        "never": [some[0] for some in missed if len(some) == 1],
        "apart": [{"figures": list(some), "closest": closest[some]} for some in missed if len(some) > 1],
        "most": {
            "values": found[most][0],
            "met": [name for name, held in zip(FIGURES, met[most]) if held],
        },
    }


def _rms(off: np.ndarray) -> float:
    return float(np.sqrt(np.square(off).mean()))


def _off(table_sF: np.ndarray) -> np.ndarray:
    return np.array([list(deviations(dict(zip(FIGURES, row))).values()) for row in table_sF.tolist()])


def _losses(goals: Sequence[Goal], table_sF: np.ndarray) -> np.ndarray:
    """By setting and goal."""
    off = _off(table_sF)
    return np.stack([goal.of(off) for goal in goals], axis=1)


def _simulated(
    box: Mapping[str, tuple[float, float]], points: np.ndarray, workers: int | None
) -> list[dict[str, float]]:
    return side_by_side(predict, [_values(box, u) for u in points], workers=workers, what="settings")


def _values(box: Mapping[str, tuple[float, float]], u: np.ndarray) -> dict[str, float]:
    """A point of the unit cube as values; every range is logarithmic."""
    return {name: float(low * (high / low) ** at) for (name, (low, high)), at in zip(box.items(), u)}


def _place(ends: tuple[float, float], value: float) -> float:
    low, high = ends
    return float(np.log(value / low) / np.log(high / low))


def _assumed(box: Iterable[str]) -> dict[str, float]:
    """What cloudmatrix384 and the named systems assume."""
    quantities = cloudmatrix384().quantities()
    wait, budget = system_of("asap").batching.longest_wait_s, float(system_of("default").batching.budget_tokens)
    own = {name: quantity.value for name, quantity in quantities.items()}
    return {name: (own | {"longest_wait_s": wait, "budget_tokens": budget})[name] for name in box}


if __name__ == "__main__":
    place = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "profiles" / f"{NAME}.json"
    place.write_text(json.dumps(fit(), indent=1) + "\n")
    print(place)
