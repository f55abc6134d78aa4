"""The simulations behind the ledger, each done once and shared by the statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from asaplab import workload
from asaplab.core import Instance, Run, System
from asaplab.lab.interval import mean_ci95
from asaplab.lab.parallel import side_by_side
from asaplab.lab.roofline import roofline_rps, typical_lengths
from asaplab.lab.slo import Goal, poisson_of, slo_rates
from asaplab.observe import FIGURE_15_BINS, PAPER_PARTS, metrics
from asaplab.profiles.named import profile_of
from asaplab.profiles.profile import InstanceCosts, Profile, instance_costs
from asaplab.profiles.shapes import Shape, model_of
from asaplab.scheduler import named
from asaplab.twin import setting_of, simulate
from asaplab.twin.setting import PAPER

_V32 = model_of("deepseek-v3.2")
SMALL_BUDGET = "default-8k"  # Default with at most 8,192 tokens a DP group and step, which the paper leaves open
SLO_SYSTEMS = (
    "asap", "default", "chunked", "asap-no-dual-batch", "asap-no-overlap", "asap-no-super-kernel",
    "asap-p2p", "asap-fcfs", "better-sync", "megascale-infer", SMALL_BUDGET,
)  # fmt: skip
P99_SYSTEMS = ("asap", "chunked")
RATES = (1.0, 4.0, 8.0)
TTFTS = (*((s, rps) for s in ("asap", "default", "chunked") for rps in RATES), ("asap-no-dual-batch", 1.0))
SHORT = FIGURE_15_BINS[0]  # tokens: the first bar of Figure 15
_KERNEL, _QUEUE = PAPER_PARTS["kernel"], PAPER_PARTS["queueing"]


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A number, or whether a law holds; with its interval over seeds and what it rests on."""

    value: float | bool | None
    ci95: tuple[float, float] | None = None
    basis: str = "simulated"
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was simulated; each list has one entry a seed. ``facts`` are by system and rate (requests/s)."""

    slo: dict[str, list[float]]
    slo_p99: dict[str, list[float]]
    facts: dict[tuple[str, float], list[dict[str, Any]]]
    rooflines: dict[str, float]
    profile: Profile

    @cached_property
    def model(self) -> Shape:
        return _V32

    def costs(self, instance: Instance = PAPER) -> InstanceCosts:
        return instance_costs(self.profile, self.model, instance)

    def ttft(self, system: str, rps: float) -> list[float]:
        return [fact["mean_ttft_s"] for fact in self.facts[system, rps]]

    def over_seeds(self, values: list[float], note: str = "") -> Predicted:
        mean, ci95 = mean_ci95(values)
        return Predicted(value=mean, ci95=ci95, note=note)

    def ratio(self, above: list[float], below: list[float], minus: float = 0.0) -> Predicted:
        """Seed by seed, as both saw the same traffic."""
        return self.over_seeds([a / b - minus for a, b in zip(above, below)])


@dataclass(frozen=True, kw_only=True)
class Task:
    """One simulation: an SLO throughput for mean or P99 TTFT, or the facts of a run at ``rps``."""

    kind: Literal["slo", "p99", "ttft"]
    system: System
    profile: Profile
    rps: float = 0.0
    seed: int = 0
    tolerance: float = 0.02  # of an SLO throughput


def evidence(
    *, profile: str | Profile = "cloudmatrix384", seed: int = 0, repeats: int = 3, workers: int | None = None
) -> Evidence:
    """Run everything: SLO throughputs, mean TTFTs at the paper's rates and the decomposition at 4 requests/s."""
    priced = profile_of(profile) if isinstance(profile, str) else profile
    asked: list[tuple[Any, str, float]] = [("slo", system, 0.0) for system in SLO_SYSTEMS]
    asked += [("p99", system, 0.0) for system in P99_SYSTEMS]
    asked += [("ttft", system, rps) for system, rps in TTFTS]
    tasks = [
        Task(kind=kind, system=system_of(system), profile=priced, rps=rps, seed=seed + k)
        for kind, system, rps in asked
        for k in range(repeats)
    ]
    answers = side_by_side(answer, tasks, workers=workers, what="claims")
    found = {key: answers[at * repeats : (at + 1) * repeats] for at, key in enumerate(asked)}
    return Evidence(
        slo={system: found["slo", system, 0.0] for system in SLO_SYSTEMS},
        slo_p99={system: found["p99", system, 0.0] for system in P99_SYSTEMS},
        facts={(system, rps): found["ttft", system, rps] for system, rps in TTFTS},
        rooflines={system: roofline(system_of(system), priced) for system in SLO_SYSTEMS},
        profile=priced,
    )


def system_of(name: str) -> System:
    """A named system, or Default with the small budget."""
    if name != SMALL_BUDGET:
        return named(name)
    default = named("default")
    return replace(default, name=name, batching=replace(default.batching, budget_tokens=8192))


def roofline(system: System, profile: Profile) -> float:
    setting = setting_of(system, profile=profile)
    return roofline_rps(setting.system, setting.model, setting.profile, setting.instance, typical_lengths())[0]


def answer(task: Task) -> Any:
    """A rate (requests/s), or the facts of a run."""
    if task.kind == "ttft":
        traffic = workload.poisson(rps=task.rps, duration_s=300.0, seed=task.seed)
        return facts(simulate(traffic, task.system, profile=task.profile))
    goal = Goal(metric="p99" if task.kind == "p99" else "mean", tolerance=task.tolerance)
    setting = setting_of(task.system, profile=task.profile)
    return slo_rates(setting, goal, [poisson_of(setting, goal, task.seed)], roofline(task.system, task.profile))[0]


def facts(run: Run) -> dict[str, Any]:
    """What the ledger needs of a run: means, and the parts of Figure 15's first bar and of all bars."""
    r = run.requests
    kernel = np.sum([r[part] for part in _KERNEL], axis=0)
    queue = np.sum([r[part] for part in _QUEUE], axis=0)
    short = r["tokens"] <= SHORT
    bar_of = np.searchsorted(FIGURE_15_BINS, r["tokens"])

    def bars(column: np.ndarray) -> list[float]:
        return [
            float(column[bar_of == k].mean()) if np.any(bar_of == k) else float("nan")
            for k in range(len(FIGURE_15_BINS))
        ]

    def mean_short(column: np.ndarray) -> float:
        return float(column[short].mean())

    return {
        "mean_ttft_s": metrics(run)["mean_ttft_s"],
        "short_ttft_s": mean_short(r["ttft_s"]),
        "short_sync_s": mean_short(r["barrier_wait"]),
        "short_queue_s": mean_short(queue),
        "short_other_s": mean_short(r["ttft_s"] - kernel),
        "attention_layer_s": float(r["attention"].mean()) / _V32.L,
        "moe_layer_s": float(r["moe"].mean()) / (_V32.L - _V32.dense),
        "kernel_s": float(kernel.mean()),
        "kernel_bars_s": bars(kernel),
        "sync_share_bars": bars(r["barrier_wait"] / r["ttft_s"]),
        "communication_share": float((r["dispatch"] + r["combine"] + r["tp"]).sum() / kernel.sum()),
        "longest_barrier_s": float(r["barrier_wait"].max()),
    }


Check = Callable[[Evidence], Predicted]
