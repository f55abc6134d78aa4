"""The row-wise operations. The result for a row never depends on which other rows are there."""

from __future__ import annotations

import torch
from torch import Tensor

from asaplab.models import native_attention
from asaplab.models.policy import Policy
from asaplab.superkernel import Linear, linear, silu


def rms_norm(x_mH: Tensor, weight_H: Tensor, eps: float, policy: Policy) -> Tensor:
    """Root-mean-square norm over the last dimension: the mean in ``high``, the weight applied in ``dtype``."""
    high = x_mH.to(policy.high)
    high = high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + eps)
    return weight_H * high.to(policy.dtype)


def swiglu(x_mH: Tensor, gate_up_2IH: Linear, down_HI: Linear) -> Tensor:
    """The MLP of a dense layer or a shared expert: ``down(silu(gate x) * up x)``."""
    gate_mI, up_mI = linear(x_mH, gate_up_2IH).chunk(2, dim=-1)
    return linear(silu(gate_mI) * up_mI, down_HI)


def weighted_sum(rows_mH: Tensor, at_nK: Tensor, weights_nK: Tensor, policy: Policy) -> Tensor:
    """What K experts say of each token: row ``at_nK[n, k]`` is expert k's result; summed in order of k in ``high``."""
    weights_nK = weights_nK.to(policy.high)
    if native_attention.serves(policy.dtype):
        return native_attention.weighted_sum(rows_mH, at_nK, weights_nK)
    sum_nH = rows_mH[at_nK[:, 0]].to(policy.high) * weights_nK[:, :1]
    for k in range(1, at_nK.shape[1]):
        sum_nH += rows_mH[at_nK[:, k]].to(policy.high) * weights_nK[:, k : k + 1]
    return sum_nH.to(policy.dtype)


def places(order_m: Tensor) -> Tensor:
    """Where each item went: the inverse of a permutation."""
    at_m = torch.empty_like(order_m)
    at_m[order_m] = torch.arange(len(order_m))
    return at_m
