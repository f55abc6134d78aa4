"""The row-wise operations. The result for a row never depends on which other rows are there."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from asaplab.models.policy import Policy
from asaplab.superkernel import Linear, linear, silu


@cache
def native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; elsewhere float32 GEMMs are several times faster."""
    features = torch.backends.cpu.get_cpu_capability()
    if not features.startswith("AVX512"):
        return False
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(check and check())


def rms_norm(x_mH: Tensor, weight_H: Tensor, eps: float, policy: Policy) -> Tensor:
    """Root-mean-square norm over the last dimension: the mean in ``high``, the weight applied in ``dtype``."""
    high = x_mH.to(policy.high)
    high = high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + eps)
    return weight_H * high.to(policy.dtype)


def swiglu(x_mH: Tensor, gate_up_2IH: Linear, down_HI: Linear) -> Tensor:
    """The MLP of a dense layer or a shared expert: ``down(silu(gate x) * up x)``."""
    gate_mI, up_mI = linear(x_mH, gate_up_2IH).chunk(2, dim=-1)
    return linear(silu(gate_mI) * up_mI, down_HI)
