"""The small built-in profile of paced mode: a nominal device with the paper's shape and the model's proportions.

How attention and experts weigh against each other is counted from the model (operations at ``RATE``). The shape over
lengths and tokens is the paper's: the quadratic term of attention equals the linear one at ``EQUAL_TOKENS`` tokens, and
the MoE floor ends at ``INFLECTION_TOKENS`` tokens in a batch. Paced mode stretches all times by one factor, so only
their ratios matter.
"""

from __future__ import annotations

from typing import Protocol

from asaplab.profiles.costs import Costs

RATE = 1e12  # operations per second (assumed; cancels in every comparison)
INFLECTION_TOKENS = 2048  # published: section 2.2.2
EQUAL_TOKENS = 8900  # derived: 1 x 32k costs 4.2 times 32 x 1k (section 2.2.1) if there is no constant
FIXED_SHARE = 0.1  # attention's constant term, as a share of the linear cost of INFLECTION_TOKENS tokens (assumed)


class Counted(Protocol):
    """What a model must tell about one of its MoE layers: operations, all ranks together."""

    @property
    def attention_per_token(self) -> float: ...

    @property
    def expert_per_row(self) -> float: ...

    @property
    def K(self) -> int: ...

    @property
    def E_total(self) -> int: ...


def nominal_costs(model: Counted, T: int, experts: int, shrink: int = 1) -> Costs:
    """Costs of one layer on one device, with attention split over T ranks and ``experts`` experts on the device.

    ``shrink`` divides the token counts at which the paper's shapes bend, for prompts that are so much shorter.
    """
    token_s = model.attention_per_token / T / RATE
    row_s = model.expert_per_row / RATE
    inflection = INFLECTION_TOKENS / shrink
    rows_at_inflection = inflection * model.K * experts / model.E_total
    return Costs(
        attention_fixed_s=FIXED_SHARE * inflection * token_s,
        attention_token_s=token_s,
        attention_square_s=token_s / (EQUAL_TOKENS / shrink),
        moe_floor_s=row_s * rows_at_inflection,
        moe_row_s=row_s,
    )
