"""A profile: a processor and a network in numbers, each with its source, and the costs that follow for an instance.

Compute is operations over an achieved rate, the MoE floor is the time to read a device's expert weights, communication
is a latency and bytes over a link's bandwidth. Every number is a ``Quantity``: where it is from is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from asaplab.core import Instance
from asaplab.errors import require
from asaplab.profiles.costs import Costs
from asaplab.profiles.ranges import Measured
from asaplab.profiles.shapes import Shape

Basis = Literal["published", "public", "derived", "measured", "assumed", "fitted"]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A value with its origin. ``assumed`` and ``fitted`` ones are free: claims list what depends on them."""

    value: float
    basis: Basis
    source: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One processor and network. Rates are per device (a die or GPU), bytes/s and operations/s."""

    name: str
    dense_rate: Quantity  # peak of the precision that attention projections and experts run in
    attention_rate: Quantity  # peak of the precision of scores and values
    hbm: Quantity
    memory: Quantity  # bytes
    link: Quantity  # one direction
    weight_bytes: Quantity  # of one expert or projection weight
    dispatch_bytes: Quantity  # of one activation element on the way out
    combine_bytes: Quantity  # on the way back
    attention_fixed_s: Quantity
    token_efficiency: Quantity  # share of dense_rate that projections achieve
    square_efficiency: Quantity  # share of attention_rate that scores and values achieve
    moe_efficiency: Quantity  # share of dense_rate beyond the floor
    hbm_efficiency: Quantity  # share of hbm while expert weights are read
    latency_s: Quantity  # one-sided put and flag
    handshake_s: Quantity  # of one synchronous send with its receiver
    collective_s: Quantity  # latency of one all-to-all over the instance
    host_s: Quantity  # of a batch: scheduling, embedding, final norm, LM head
    contention: Quantity  # slowdown of attention while communication shares its device
    measured: Measured | None = None  # where the measured ones were measured

    def __post_init__(self) -> None:
        for name in ("token_efficiency", "square_efficiency", "moe_efficiency", "hbm_efficiency"):
            value = getattr(self, name).value
            require(0 < value <= 1, f"profile {self.name!r}: {name} is {value}; nothing beats the peak, use at most 1")

    def quantities(self) -> dict[str, Quantity]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "measured")}

    @property
    def fitted(self) -> bool:
        return any(q.basis == "fitted" for q in self.quantities().values())


@dataclass(frozen=True, kw_only=True)
class InstanceCosts:
    """What one model costs on one instance: per layer and device, seconds and bytes/s."""

    stage: Costs  # attention_s(tokens, sum of squares) and moe_s(rows)
    dense_token_s: float  # more for each token in a dense layer
    tp_fixed_s: float  # reduce-scatter and all-gather of a layer
    tp_token_s: float
    latency_s: float
    dispatch_token_s: float  # a batch's token on one rank's link, already divided by T
    combine_token_s: float
    sum_token_s: float  # weighting and adding a token's K rows
    row_back_s: float  # one row on a MoE device's link
    handshake_s: float
    collective_s: float
    host_s: float
    contention: float


def instance_costs(profile: Profile, model: Shape, instance: Instance) -> InstanceCosts:
    """Costs of a model on an instance; attention splits evenly over the T ranks (assumed), experts over E devices.

    Raises:
        InputError: the model's experts or heads cannot be spread that way.
    """
    T, E = instance.T, instance.E
    require(model.E_total >= E, f"E is {E} but {model.name} has {model.E_total} experts; choose 1 <= E <= that")
    require(model.heads % T == 0, f"T is {T} but {model.name} has {model.heads} heads; choose a T that divides them")
    v: Mapping[str, Any] = {name: q.value for name, q in profile.quantities().items()}
    dense = v["dense_rate"] * v["token_efficiency"]
    largest_share = -(-model.E_total // E)
    stage = Costs(
        attention_fixed_s=v["attention_fixed_s"],
        attention_token_s=model.attention_token / T / dense,
        attention_square_s=model.attention_square / T / (v["attention_rate"] * v["square_efficiency"]),
        moe_floor_s=largest_share * model.expert_weights * v["weight_bytes"] / (v["hbm"] * v["hbm_efficiency"]),
        moe_row_s=model.expert_row / (v["dense_rate"] * v["moe_efficiency"]),
    )
    activation = 2.0  # bytes of a 16-bit element between the ranks of a group
    return InstanceCosts(
        stage=stage,
        dense_token_s=max(0.0, model.dense_token) / T / dense,
        tp_fixed_s=2 * v["latency_s"] if T > 1 else 0.0,
        tp_token_s=2 * model.H * activation * (T - 1) / T / v["link"],
        latency_s=v["latency_s"],
        # the shared expert's copy travels too where the paper counts nine rows a token (section 5.4)
        dispatch_token_s=(model.K + (model.shared_I > 0)) * model.H * v["dispatch_bytes"] / T / v["link"],
        combine_token_s=model.K * model.H * v["combine_bytes"] / T / v["link"],
        sum_token_s=model.K * model.H * v["combine_bytes"] / T / v["hbm"],
        row_back_s=model.H * v["combine_bytes"] / v["link"],
        handshake_s=v["handshake_s"],
        collective_s=v["collective_s"],
        host_s=v["host_s"],
        contention=v["contention"],
    )
