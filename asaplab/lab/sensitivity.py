"""How much each free assumption of a profile moves the paper's headline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from asaplab.lab.parallel import side_by_side
from asaplab.lab.roofline import roofline_rps, typical_lengths
from asaplab.lab.slo import Goal, poisson_of, slo_rates
from asaplab.profiles.named import profile_of
from asaplab.profiles.profile import Profile, Quantity
from asaplab.scheduler import named
from asaplab.twin import setting_of

STEP = 0.25  # each assumption is lowered and raised by this share
_EFFICIENCIES = ("token_efficiency", "square_efficiency", "moe_efficiency", "hbm_efficiency")


def free(profile: Profile) -> list[str]:
    """What the sources leave open, and the rows' rate, which rests on how "about 2k tokens" is read."""
    names = [name for name, quantity in profile.quantities().items() if quantity.basis == "assumed"]
    return [*names, "moe_efficiency"] if "moe_efficiency" not in names else names


def varied(profile: Profile, name: str, factor: float) -> Profile:
    """The profile with one quantity multiplied by the factor; an efficiency stays at most 1."""
    quantity: Quantity = getattr(profile, name)
    value = quantity.value * factor
    if name in _EFFICIENCIES:
        value = min(1.0, value)
    if name == "contention":
        value = 1.0 + (quantity.value - 1.0) * factor
    return replace(profile, **{name: replace(quantity, value=value, basis="assumed")})  # type: ignore[arg-type]


def sensitivity(
    *,
    profile: str = "cloudmatrix384",
    systems: tuple[str, ...] = ("asap", "default", "chunked"),
    seed: int = 0,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """SLO throughput (requests/s) of the systems with each assumption at its value, lowered and raised by ``STEP``."""
    base = profile_of(profile)
    cases = [("as listed", 1.0)] + [(name, factor) for name in free(base) for factor in (1 - STEP, 1 + STEP)]
    items = [
        (base if factor == 1.0 else varied(base, name, factor), s, seed) for name, factor in cases for s in systems
    ]
    rates = side_by_side(_rate, items, workers=workers, what="assumptions")
    rows = []
    for at, (name, factor) in enumerate(cases):
        mine = rates[at * len(systems) : (at + 1) * len(systems)]
        rows.append({"assumption": name, "factor": factor} | dict(zip(systems, mine)))
    return rows


def _rate(item: tuple[Profile, str, int]) -> float:
    profile, system, seed = item
    setting, goal = setting_of(named(system), profile=profile), Goal(tolerance=0.02)
    roofline, _ = roofline_rps(setting.system, setting.model, profile, setting.instance, typical_lengths())
    return slo_rates(setting, goal, [poisson_of(setting, goal, seed)], roofline)[0]
