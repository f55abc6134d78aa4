"""What one simulation needs beside the workload, resolved from names and checked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asaplab.core import Instance, System
from asaplab.errors import InputError, require
from asaplab.profiles.named import profile_of
from asaplab.profiles.profile import InstanceCosts, Profile, instance_costs
from asaplab.profiles.shapes import Shape, model_of
from asaplab.scheduler import systems
from asaplab.twin import layout as at
from asaplab.twin.skew import Skew

PAPER = Instance(D=4, T=4, E=16)  # section 5.1
_SENDS = {"async": 0, "p2p": 1, "all_to_all": 2}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A system on an instance with its costs."""

    system: System
    model: Shape
    profile: Profile
    instance: Instance
    costs: InstanceCosts
    shares_LE: np.ndarray  # share of the rows of a layer that go to each MoE device; one row serves all layers

    def cost_array(self) -> np.ndarray:
        """The numbers in the order in which the kernels look for them."""
        s, c, f = self.system, self.costs, self.system.pipeline
        cost = np.zeros(at.COSTS)
        micro = f.in_flight
        cost[at.LAYERS], cost[at.DENSE], cost[at.PLACES] = self.model.L, self.model.dense, micro
        cost[at.IN_FLIGHT_FIFO] = s.transport.order == "fifo"
        cost[at.SLOTS] = s.transport.slots
        cost[at.SYNCHRONOUS_SENDS] = _SENDS[s.transport.primitives]
        cost[at.OVERLAP_ATTENTION], cost[at.OVERLAP_MOE] = "attention" in f.overlap, "moe" in f.overlap
        cost[at.DENSE_TOKEN_S] = c.dense_token_s
        cost[at.TP_FIXED_S], cost[at.TP_TOKEN_S] = c.tp_fixed_s, c.tp_token_s
        cost[at.LATENCY_S], cost[at.DISPATCH_TOKEN_S] = c.latency_s, c.dispatch_token_s
        cost[at.COMBINE_TOKEN_S], cost[at.SUM_TOKEN_S] = c.combine_token_s, c.sum_token_s
        cost[at.ROW_BACK_S], cost[at.HANDSHAKE_S] = c.row_back_s, c.handshake_s
        cost[at.COLLECTIVE_S], cost[at.HOST_S] = c.collective_s, c.host_s
        cost[at.LAUNCH_S] = 0.0 if f.layer_oblivious or f.barrier else f.dispatch_s
        cost[at.MOE_FLOOR_S], cost[at.MOE_ROW_S] = c.stage.moe_floor_s, c.stage.moe_row_s
        cost[at.ROWS_TOKEN], cost[at.RANKS] = self.model.K, self.instance.T
        cost[at.SERIAL_NETWORK] = s.placement.kind == "disaggregated"
        return cost

    def attention_s(self, tokens: float, sum_squares: float) -> float:
        """One layer's attention stage; slower where communication shares the device."""
        slow = self.costs.contention if "attention" in self.system.pipeline.overlap else 1.0
        return slow * self.costs.stage.attention_s(tokens, sum_squares)


def setting_of(
    system: System | str = "asap",
    *,
    model: Shape | str = "deepseek-v3.2",
    profile: Profile | str = "cloudmatrix384",
    instance: Instance | None = None,
    attention: tuple[int, int] | None = None,
    experts: int | None = None,
    shares_LE: np.ndarray | None = None,
    skew: Skew | None = None,
    costs: InstanceCosts | None = None,
) -> Setting:
    """Resolve names. Without an instance it is the paper's: 4x4 + 16, or the same 32 devices as 8x4 when colocated.

    ``instance`` is taken as it is; ``attention`` (D, T) and ``experts`` (E) count devices, as in the engine: a
    colocated system spreads both stages over all D*T + E, in groups of T.
    ``skew`` makes shares of rows from a power law over experts and copies of the hot ones; ``shares_LE`` gives them.

    Raises:
        InputError: a name is unknown, or the instance does not fit model or system.
    """
    chosen = systems.named(system) if isinstance(system, str) else system
    shaped = model_of(model) if isinstance(model, str) else model
    priced = profile_of(profile) if isinstance(profile, str) else profile
    if instance is None:
        D, T = attention or (PAPER.D, PAPER.T)
        asked = Instance(D=D, T=T, E=PAPER.E if experts is None else experts)
        instance, notes = systems.place(chosen, asked)
        n = asked.devices
        require(not notes, f"{n} devices cannot be cut into groups of T = {T}; choose a T that divides their number")
    costs = costs or instance_costs(priced, shaped, instance)
    if skew is not None:
        require(shares_LE is None, "skew and shares_LE both say how rows spread over MoE devices; give one of them")
        shares_LE = skew.shares_LE(shaped.E_total, instance.E, shaped.L)
        own = -(-shaped.E_total // instance.E)
        floor_s = costs.stage.moe_floor_s * (own + skew.extra(instance.E)) / own
        costs = replace(costs, stage=replace(costs.stage, moe_floor_s=floor_s))
    if shares_LE is None:
        shares_LE = np.full((1, instance.E), 1.0 / instance.E)
    if shares_LE.ndim != 2 or shares_LE.shape[1] != instance.E:
        raise InputError(f"shares has shape {shares_LE.shape}; give rows of E = {instance.E} shares that sum to 1")
    return Setting(
        system=chosen,
        model=shaped,
        profile=priced,
        instance=instance,
        costs=costs,
        shares_LE=np.ascontiguousarray(shares_LE, np.float64),
    )


def with_system(setting: Setting, system: System) -> Setting:
    """The same instance and costs under another system."""
    return replace(setting, system=system)


def power_law_shares(E: int, exponent: float, seed: int = 0, layers: int = 61) -> np.ndarray:
    """Shares of rows by MoE device for every layer: rank ** -exponent in random order; exponent 0 is balanced."""
    rng = np.random.default_rng(seed)
    weights = np.arange(1, E + 1, dtype=np.float64) ** -exponent
    rows: list[Any] = [rng.permutation(weights) for _ in range(layers)]
    return np.stack(rows) / weights.sum()
