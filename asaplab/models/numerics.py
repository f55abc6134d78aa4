"""The row-wise operations. The result for a row never depends on which other rows are there."""

from __future__ import annotations

import torch
from torch import Tensor

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
