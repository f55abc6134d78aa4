"""The row-wise operations. The result for a row never depends on which other rows are there.

BLAS kernels choose their tail code by the row count, which changes the last bits of a row. With row counts padded to
a multiple of ``ROWS`` every row takes the same path, so a request's numbers do not depend on its batch (one thread).
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from asaplab.models.policy import Policy

ROWS = 8
_WIDEN_ELEMENTS = 1 << 22  # widened copies of bfloat16 weights are made in parts of this size (16 MiB)


@cache
def native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; elsewhere float32 GEMMs are several times faster."""
    features = torch.backends.cpu.get_cpu_capability()
    if not features.startswith("AVX512"):
        return False
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(check and check())


def linear(x_mA: Tensor, w_BA: Tensor) -> Tensor:
    """``x_mA @ w_BA.T`` with row counts padded to a multiple of 8; m may be 0."""
    m = x_mA.shape[0]
    if m == 0:
        return x_mA.new_empty(0, w_BA.shape[0])
    if m % ROWS:
        x_mA = F.pad(x_mA, (0, 0, 0, -m % ROWS))
    if x_mA.dtype == torch.bfloat16 and not native_bfloat16():
        return _widened(x_mA, w_BA)[:m]
    return F.linear(x_mA, w_BA)[:m]


def _widened(x_mA: Tensor, w_BA: Tensor) -> Tensor:
    """A bfloat16 GEMM through float32: same inputs, float32 sums, one rounding at the end."""
    x_mA = x_mA.float()
    step = max(1, _WIDEN_ELEMENTS // w_BA.shape[1])
    if step >= w_BA.shape[0]:
        return F.linear(x_mA, w_BA.float()).bfloat16()
    y_mB = torch.empty(x_mA.shape[0], w_BA.shape[0], dtype=torch.bfloat16)
    for b in range(0, w_BA.shape[0], step):
        y_mB[:, b : b + step] = F.linear(x_mA, w_BA[b : b + step].float())
    return y_mB


def rms_norm(x_mH: Tensor, weight_H: Tensor, eps: float, policy: Policy) -> Tensor:
    """Root-mean-square norm over the last dimension: the mean in ``high``, the weight applied in ``dtype``."""
    high = x_mH.to(policy.high)
    high = high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + eps)
    return weight_H * high.to(policy.dtype)


def swiglu(x_mH: Tensor, gate_up_2IH: Tensor, down_HI: Tensor) -> Tensor:
    """The MLP of a dense layer or a shared expert: ``down(silu(gate x) * up x)``."""
    gate_mI, up_mI = linear(x_mH, gate_up_2IH).chunk(2, dim=-1)
    return linear(F.silu(gate_mI) * up_mI, down_HI)
