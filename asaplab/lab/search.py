"""Design-space search: the D, T, E with the highest SLO throughput under a number of devices and their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asaplab.core import Instance, System, expert_shares
from asaplab.errors import InputError, require
from asaplab.lab.parallel import side_by_side
from asaplab.lab.roofline import roofline_rps, typical_lengths
from asaplab.lab.slo import Goal, Metric, poisson_of, slo, slo_rates
from asaplab.profiles.named import profile_of
from asaplab.profiles.profile import Profile
from asaplab.profiles.shapes import Shape, model_of
from asaplab.scheduler import named
from asaplab.twin import setting_of, simulate
from asaplab.twin.setting import PAPER

MOST_T = 8  # section 2.1: TP is generally limited to 8
ASSUMPTIONS = (
    "attention and its weights divide evenly over the T ranks",
    "the two collectives of a layer move 2 (T-1)/T of a batch's activations over one link, plus two latencies",
    "a MoE device's regions hold the worst case of Table 2: all K rows of S tokens from every DP group, in every slot",
    "KV caches of all batches in flight stay on every rank of their group (MLA's latent is not divided)",
    "4 GB of every device are left for activations and the runtime",
)
RESERVE_BYTES = 4e9


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that the fullest device of each role needs."""

    attention: float
    moe: float


def memory_of(system: System, model: Shape, profile: Profile, instance: Instance) -> Memory:
    """Weights, buffers (Table 2, with the profile's element sizes) and KV cache of one device."""
    f, t, S = system.pipeline, system.transport, system.batching.max_tokens
    D, T, E = instance.D, instance.T, instance.E
    weight = profile.weight_bytes.value
    experts = len(expert_shares(model.E_total, E)[0])
    moe = (model.L - model.dense) * experts * model.expert_weights * weight
    moe += D * model.H * model.K * S * profile.dispatch_bytes.value * t.slots
    attention = model.role_weights / T * weight
    attention += model.H * model.K * S * profile.combine_bytes.value / T * f.in_flight
    attention += model.kv_elements_per_token * 2.0 * S * f.in_flight
    return Memory(attention=attention + RESERVE_BYTES, moe=moe + RESERVE_BYTES)


def candidates(devices: int, system: System, model: Shape, profile: Profile) -> list[Instance]:
    """Every instance with exactly that many devices that fits into their memory."""
    fitting = []
    for T in range(1, MOST_T + 1):
        if model.heads % T:
            continue
        for D in range(1, (devices - 1) // T + 1):
            if not 1 <= devices - D * T <= model.E_total:
                continue
            instance = Instance(D=D, T=T, E=devices - D * T)
            need = memory_of(system, model, profile, instance)
            if max(need.attention, need.moe) <= profile.memory.value:
                fitting.append(instance)
    return fitting


def _rate(item: tuple[System, str, str, Instance, Goal, int, float]) -> float:
    system, model, profile, instance, goal, seed, roofline = item
    setting = setting_of(system, model=model, profile=profile, instance=instance)
    return slo_rates(setting, goal, [poisson_of(setting, goal, seed)], roofline)[0]


def search(
    *,
    devices: int = 32,
    system: System | str = "asap",
    model: str = "deepseek-v3.2",
    profile: str = "cloudmatrix384",
    slo_s: float = 5.0,
    duration_s: float = 300.0,
    metric: Metric = "mean",
    seed: int = 0,
    repeats: int = 3,
    finalists: int = 10,
    workers: int | None = None,
) -> dict[str, Any]:
    """The best instance of a disaggregated system with that many devices.

    Rooflines rank all instances that fit; the ``finalists`` best and the paper's (where it fits) are simulated on the
    traffic of one seed, and the winner again on ``repeats`` seeds. ``distance`` says what keeps the winner from its
    roofline: the idle share of each role and the mean waiting of a request (s) at its SLO throughput.

    Raises:
        InputError: no instance fits, or the system has no separate roles.
    """
    chosen = named(system) if isinstance(system, str) else system
    require(devices >= 2, f"--devices is {devices}; an instance needs at least 2")
    require(
        chosen.placement.kind == "disaggregated",
        f"system {chosen.name!r} is colocated; search places the roles of disaggregated systems, such as asap",
    )
    shape, priced = model_of(model), profile_of(profile)
    goal = Goal(slo_s=slo_s, duration_s=duration_s, metric=metric, tolerance=0.02)
    lengths = typical_lengths(chosen.batching.max_tokens)
    fitting = candidates(devices, chosen, shape, priced)
    if not fitting:
        raise InputError(
            f"no instance of {devices} devices holds {model} in {priced.memory.value / 1e9:.0f} GB each; "
            "give more devices or choose a smaller model"
        )
    rooflines = {i: roofline_rps(chosen, shape, priced, i, lengths)[0] for i in fitting}
    ranked = sorted(fitting, key=rooflines.__getitem__, reverse=True)
    played = ranked[:finalists]
    if devices == PAPER.devices and PAPER in fitting and PAPER not in played:
        played.append(PAPER)
    items = [(chosen, model, profile, i, goal, seed, rooflines[i]) for i in played]
    rates = dict(zip(played, side_by_side(_rate, items, workers=workers, what="instances")))
    winner = max(played, key=rates.__getitem__)
    final = slo(
        chosen,
        slo_s=slo_s,
        duration_s=duration_s,
        metric=metric,
        repeats=repeats,
        seed=seed,
        model=model,
        profile=profile,
        instance=winner,
    )
    table = [
        {"D": i.D, "T": i.T, "E": i.E, "slo_rps": rates[i], "roofline_rps": rooflines[i]}
        for i in sorted(played, key=rates.__getitem__, reverse=True)
    ]
    return {
        "best": {"D": winner.D, "T": winner.T, "E": winner.E, "slo_rps": final["slo_rps"]},
        "roofline_rps": final["roofline_rps"],
        "ci95": final["ci95"],
        "distance": _distance(chosen, model, profile, winner, goal, seed, final),
        "candidates": table,
        "fitting": len(fitting),
        "devices": devices,
        "system": chosen.name,
        "model": model,
        "profile": profile,
        "fitted": priced.fitted,
        "assumptions": list(ASSUMPTIONS),
    }


def _distance(
    system: System, model: str, profile: str, instance: Instance, goal: Goal, seed: int, final: dict[str, Any]
) -> dict[str, Any]:
    from asaplab.observe import metrics

    if final["slo_rps"] <= 0:
        return {"share": 1.0, "idle": {}, "waiting_s": {}}
    setting = setting_of(system, model=model, profile=profile, instance=instance)
    traffic = poisson_of(setting, goal, seed)(final["slo_rps"])
    seen = metrics(simulate(traffic, system, model=model, profile=profile, instance=instance))
    waits = ("batching_wait", "attention_queue", "moe_queue", "barrier_wait")
    return {
        "share": 1.0 - final["slo_rps"] / final["roofline_rps"],
        "idle": {role: 1.0 - busy for role, busy in seen["utilization"].items()},
        "waiting_s": {part: seen["ttft_parts"][part] for part in waits},
    }
