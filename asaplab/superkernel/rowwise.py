"""Operations in which a row's bits never depend on the rows beside it: linear layers, sigmoid and SiLU.

The GEMM libraries under torch choose their code path, and with it the order of a sum, by the row count and the
processor. So float32 and bfloat16 take the native kernels; where these cannot serve, every call of torch's linear has
``ROWS`` rows, whatever there is to do, which fixes the path. torch's sigmoid and silu take the last elements of a
tensor one by one, in another function than the others; its exp does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from asaplab.superkernel.capability import cpu_capability, native

ROWS = 32
PART = 1024  # columns of one native call: its results stay in the second-level cache
_WIDEN_ELEMENTS = 1 << 22  # widened copies of bfloat16 weights are made in parts of this size (16 MiB)


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """A weight of N rows and K columns, laid out for the kernel that multiplies with it (``pack_linear``)."""

    kernel: str
    shape: tuple[int, int]
    dtype: torch.dtype
    parts: tuple[torch.Tensor, ...]  # packed parts of PART rows each; the weight itself for the plain kernel


def pack_linear(weight_NK: torch.Tensor) -> Linear:
    """Lay one weight out for the fastest kernel of its dtype here. The copy is as large as the weight: drop yours."""
    N, K = weight_NK.shape
    kernel = cpu_capability() if weight_NK.dtype in (torch.float32, torch.bfloat16) else "plain"
    if weight_NK.is_cuda or kernel == "plain":
        parts = [weight_NK.contiguous()]
    else:
        parts = [_packed(kernel, part) for part in weight_NK.contiguous().split(PART)]
    return Linear(kernel=kernel, shape=(N, K), dtype=weight_NK.dtype, parts=tuple(parts))


def _packed(kernel: str, weight_nK: torch.Tensor) -> torch.Tensor:
    assert native is not None
    kind = (kernel, weight_nK.dtype == torch.bfloat16, *weight_nK.shape)
    packed = torch.empty(native.packed_elements(*kind)[1], dtype=weight_nK.dtype)
    native.prefer_huge_pages(packed.data_ptr(), packed.numel() * packed.element_size())
    native.pack_linear(*kind, weight_nK.data_ptr(), packed.data_ptr())
    return packed


def linear(x_mK: torch.Tensor, weight: Linear) -> torch.Tensor:
    """``x_mK @ weight.T``, as ``F.linear``; m may be 0. Threads: as many as torch uses, one where the work is small."""
    m, (N, K) = x_mK.shape[0], weight.shape
    assert (x_mK.shape[1], x_mK.dtype) == (K, weight.dtype), f"{tuple(x_mK.shape)} {x_mK.dtype} meets {weight.shape}"
    y_mN = torch.empty(m, N, dtype=x_mK.dtype)
    if weight.kernel == "plain":
        _plain(x_mK.contiguous(), weight.parts[0], y_mN)
        return y_mN
    assert native is not None
    if x_mK.stride(1) != 1:
        x_mK = x_mK.contiguous()
    bfloat16, element, threads = x_mK.dtype == torch.bfloat16, x_mK.element_size(), torch.get_num_threads()
    for part, packed in enumerate(weight.parts):
        n = min(PART, N - part * PART)
        native.linear(
            *(weight.kernel, bfloat16, n, K, x_mK.data_ptr(), x_mK.stride(0), m),
            *(packed.data_ptr(), y_mN.data_ptr() + part * PART * element, N, threads),
        )
    return y_mN


def _plain(x_mK: torch.Tensor, weight_NK: torch.Tensor, y_mN: torch.Tensor) -> None:
    widen = x_mK.dtype == torch.bfloat16
    work = torch.float32 if widen else x_mK.dtype
    step = max(1, _WIDEN_ELEMENTS // weight_NK.shape[1]) if widen else len(weight_NK)
    for n in range(0, len(weight_NK), step):
        part_nK = weight_NK[n : n + step].to(work)
        for first in range(0, len(x_mK), ROWS):
            y_mN[first : first + ROWS, n : n + step] = fixed_rows(x_mK[first : first + ROWS].to(work), part_nK)


def fixed_rows(x_mK: torch.Tensor, weight_NK: torch.Tensor) -> torch.Tensor:
    """torch's linear of at most ROWS rows, computed as ROWS rows."""
    m = len(x_mK)
    return F.linear(F.pad(x_mK, (0, 0, 0, ROWS - m)) if m < ROWS else x_mK, weight_NK)[:m]


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """``torch.sigmoid``."""
    return torch.exp(-x).add_(1).reciprocal_()


def silu(x: torch.Tensor) -> torch.Tensor:
    """``F.silu``: bfloat16 is computed in float32 and rounded once."""
    high = x.float() if x.dtype == torch.bfloat16 else x
    return (high / torch.exp(-high).add_(1)).to(x.dtype)
