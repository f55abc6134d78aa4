"""``cloudmatrix384``: one Ascend 910C die, from the paper's anchors and public hardware data only.

Nothing here was chosen by looking at an end-to-end result. What the sources leave open is marked assumed; the ledger
prints how much each assumption moves the headline.
"""

from __future__ import annotations

from asaplab.profiles.profile import Basis, Profile, Quantity
from asaplab.profiles.shapes import MODELS

INFLECTION_TOKENS = 2048  # section 2.2.2
DISPARITY = 4.2  # section 2.2.1: one prompt of 32k over 32 of 1k
_V32 = MODELS["deepseek-v3.2"]
_INT8, _BF16, _HBM = 752e12, 376e12, 1.6e12  # one die
_T = 4  # of the characterization


def _q(value: float, basis: Basis, source: str) -> Quantity:
    return Quantity(value=value, basis=basis, source=source)


def square_over_token(fixed_s: float, token_s: float) -> float:
    """The quadratic coefficient for which Figure 4's ratio holds, given constant and linear ones."""
    total, short = 32768.0, 32 * 1024.0**2
    linear = fixed_s + token_s * total
    return (DISPARITY - 1) * linear / (total**2 - DISPARITY * short)


def square_efficiency(token_efficiency: float, fixed_s: float) -> float:
    """The share of the bf16 peak that Figure 4's ratio asks of scores and values; above 1 no device can do it."""
    token_s = _V32.attention_token / _T / (_INT8 * token_efficiency)
    return _V32.attention_square / _T / square_over_token(fixed_s, token_s) / _BF16


def cloudmatrix384(
    *,
    token_efficiency: float = 0.5,
    hbm_efficiency: float = 0.9,
    attention_fixed_s: float = 1e-4,
    latency_s: float = 10e-6,
    collective_s: float = 50e-6,
    host_s: float = 2e-3,
) -> Profile:
    """The profile, for given values of its free assumptions.

    The anchors hold whatever the values are, unless Figure 4's ratio would need more than the bf16 peak: then scores
    run at the peak and the ratio is larger.
    """
    # at the inflection, computing the rows takes as long as reading all weights: both scale with experts a device
    rows_an_expert = INFLECTION_TOKENS * _V32.K / _V32.E_total
    moe_rate = rows_an_expert * _V32.expert_row * _HBM * hbm_efficiency / _V32.expert_weights
    link, handshake_bytes = 4e11, 512 * 7168 * 9
    square = square_efficiency(token_efficiency, attention_fixed_s)
    return Profile(
        name="cloudmatrix384",
        dense_rate=_q(_INT8, "public", "910C die, int8 peak (CloudMatrix384 report)"),
        attention_rate=_q(_BF16, "public", "910C die, bf16 peak"),
        hbm=_q(_HBM, "public", "910C die, 1.6 TB/s"),
        memory=_q(64e9, "public", "910C die, 64 GB"),
        link=_q(link, "published", "section 4.1: 400 GB/s a link"),
        weight_bytes=_q(1.0, "derived", "routed experts need 8 bits to fit E = 16"),
        dispatch_bytes=_q(1.0, "published", "section 5.4: 63 MB for 1k tokens = 1024 * 7168 * 9 bytes"),
        combine_bytes=_q(2.0, "published", "Table 1: Dsize = 2"),
        attention_fixed_s=_q(attention_fixed_s, "assumed", "Figure 3a has a constant; its size is not printed"),
        token_efficiency=_q(token_efficiency, "assumed", "half of the int8 peak for projections"),
        square_efficiency=_q(min(1.0, square), "derived", "Figure 4: 4.2 times at 32k tokens"),
        moe_efficiency=_q(moe_rate / _INT8, "derived", "Figure 3b: inflection at 2,048 tokens over all devices"),
        hbm_efficiency=_q(hbm_efficiency, "assumed", "share of HBM bandwidth while weights are read"),
        latency_s=_q(latency_s, "assumed", "one-sided put and flag over the link"),
        handshake_s=_q(
            (5e-4 - handshake_bytes / link) / 16,
            "derived",
            "section 5.4: EaaS at least 0.5 ms for 512 tokens, 16 peers",
        ),
        collective_s=_q(collective_s, "assumed", "latency of an all-to-all; synchronous communication is not printed"),
        host_s=_q(host_s, "assumed", "scheduling, embedding, LM head of a batch"),
        contention=_q(1.1, "assumed", "attention while communication shares its device (section 4.3 avoids it)"),
    )
