"""Native kernels without the interpreter's lock: attention, blocks of queries and keys with an online softmax; combine.

Sums are float32. On a CPU with bfloat16 arithmetic the softmax shares are rounded to bfloat16 before they meet the
values; elsewhere bfloat16 is widened in registers and only the result is rounded.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from asaplab.superkernel import cpu_capability

_ABI = 2  # of the native module this package was written for


def _load() -> ModuleType | None:
    """The native module, or None where asaplab was installed without a compiler."""
    try:
        from asaplab.models import _attention
    except ImportError:
        return None
    if _attention.ABI != _ABI:
        raise ImportError(
            f"the native attention has ABI {_attention.ABI} but the package needs {_ABI}; install asaplab again"
        )
    return _attention


_native = _load()


def serves(dtype: torch.dtype) -> bool:
    """Whether the native kernel runs here, for this dtype: float32 or bfloat16, unless ASAPLAB_KERNEL says plain."""
    return _native is not None and dtype in (torch.float32, torch.bfloat16) and cpu_capability() != "plain"


def attend(q_hgmd: Tensor, k_hnd: Tensor, v_hnv: Tensor, out_hgmv: Tensor, start: int, scale: float) -> None:
    """As ``varlen.causal_attention``. Any strides, as long as rows are contiguous; reads the keys up to the last query.

    Threads: as many as torch uses, a KV head each.
    """
    assert _native is not None
    heads, group, m, d = q_hgmd.shape
    q_hgmd, k_hnd, v_hnv = (x if x.stride(-1) == 1 else x.contiguous() for x in (q_hgmd, k_hnd, v_hnv))
    assert k_hnd.shape[1] >= start + m, "a query has no key of its own"
    assert v_hnv.shape[1] >= start + m, "a query has no value of its own"
    assert out_hgmv.stride(-1) == 1, "the result's rows must be contiguous"
    _native.attend(
        cpu_capability(),
        q_hgmd.dtype == torch.bfloat16,
        *(heads, group, m, start, d, v_hnv.shape[-1], scale),
        *(q_hgmd.data_ptr(), *q_hgmd.stride()[:3]),
        *(k_hnd.data_ptr(), *k_hnd.stride()[:2]),
        *(v_hnv.data_ptr(), *v_hnv.stride()[:2]),
        *(out_hgmv.data_ptr(), *out_hgmv.stride()[:3]),
        torch.get_num_threads(),
    )


def weighted_sum(rows_mH: Tensor, at_nK: Tensor, weights_nK: Tensor) -> Tensor:
    """``(rows_mH[at_nK] * weights_nK[..., None]).sum(1)``: float32 sums in order of k, in the rows' dtype.

    Reads the rows where they are. Threads: as many as torch uses, one where the work is small.
    """
    assert _native is not None
    n, K = at_nK.shape
    rows_mH, at_nK, weights_nK = rows_mH.contiguous(), at_nK.contiguous(), weights_nK.contiguous()
    assert (at_nK.dtype, weights_nK.dtype) == (torch.int64, torch.float32)
    out_nH = rows_mH.new_empty(n, rows_mH.shape[1])
    _native.weighted_sum(
        cpu_capability(),
        rows_mH.dtype == torch.bfloat16,
        *(n, K, rows_mH.shape[1]),
        *(rows_mH.data_ptr(), at_nK.data_ptr(), weights_nK.data_ptr(), out_nH.data_ptr()),
        torch.get_num_threads(),
    )
    return out_nH
