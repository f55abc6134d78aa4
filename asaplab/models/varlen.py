"""Causal attention of one sequence in blocks of queries: the cost is that of the sequence's own squared length.

A query at position p reads the keys of all blocks up to its own, masked beyond p. So its arithmetic is fixed by p and
the keys alone: however a prompt is cut into pieces and whatever else is in the batch, the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from asaplab.models import native_attention
from asaplab.models.kv_cache import BLOCK
from asaplab.models.policy import Policy

_SCORES = 1 << 23  # most scores held at once: heads are taken in groups of this many elements

# the additive mask of the queries at positions [first, last) over the first n keys, beyond causality
Select = Callable[[int, int, int], Tensor]


@cache
def _triangle(dtype: torch.dtype) -> Tensor:
    return torch.full((BLOCK, BLOCK), float("-inf"), dtype=dtype).triu(1)


def causal_attention(
    q_hgmd: Tensor,
    k_hnd: Tensor,
    v_hnv: Tensor,
    out_hgmv: Tensor,
    start: int,
    scale: float,
    policy: Policy,
    select: Select | None = None,
) -> None:
    """Attention of m queries at positions ``start``.. over n cached keys (whole blocks), written to ``out_hgmv``.

    h KV heads with g query heads each. ``select`` narrows what a query sees (sparse attention).
    """
    if select is None and native_attention.serves(policy.dtype):
        native_attention.attend(q_hgmd, k_hnd, v_hnv, out_hgmv, start, scale)
    else:
        blocked_attention(q_hgmd, k_hnd, v_hnv, out_hgmv, start, scale, policy, select)


def blocked_attention(
    q_hgmd: Tensor,
    k_hnd: Tensor,
    v_hnv: Tensor,
    out_hgmv: Tensor,
    start: int,
    scale: float,
    policy: Policy,
    select: Select | None = None,
) -> None:
    """``causal_attention`` in torch operations: for float64, sparse attention, and without the native kernel."""
    heads, group, m, _ = q_hgmd.shape
    k_hnd, v_hnv = k_hnd.to(policy.high), v_hnv.to(policy.high)
    for block in range(start // BLOCK * BLOCK, start + m, BLOCK):
        first, last, n = max(block, start), min(block + BLOCK, start + m), block + BLOCK
        rows = slice(first - start, last - start)
        mask_mn = _mask(first, last, block, policy, select)
        step = max(1, _SCORES // (group * BLOCK * n))
        for h in range(0, heads, step):
            part = slice(h, h + step)
            q_part = q_hgmd[part, :, rows].to(policy.high)
            out_hgmv[part, :, rows] = _block(q_part, k_hnd[part, :n], v_hnv[part, :n], mask_mn, first - block, scale)


def _mask(first: int, last: int, block: int, policy: Policy, select: Select | None) -> Tensor:
    """Causality within the queries' own block; with a selection, the mask over all keys."""
    triangle_mb = _triangle(policy.high)[first - block : last - block]
    if select is None:
        return triangle_mb
    mask_mn = select(first, last, block + BLOCK)
    mask_mn[:, block:] += triangle_mb
    return mask_mn


def _block(q_hgmd: Tensor, k_hnd: Tensor, v_hnv: Tensor, mask_mn: Tensor, before: int, scale: float) -> Tensor:
    """Queries that follow ``before`` others of their block: each is computed in its own place in a whole block.

    So the products have one shape and one order of sums, however the prompt was cut.
    """
    heads, group, m, d = q_hgmd.shape
    rows = slice(before, before + m)
    q_hgbd = F.pad(q_hgmd, (0, 0, before, BLOCK - rows.stop))
    scores = torch.bmm(q_hgbd.reshape(heads, group * BLOCK, d), k_hnd.transpose(1, 2)).mul_(scale)
    scores_hgbn = scores.view(heads, group, BLOCK, -1)
    scores_hgbn[:, :, rows, -mask_mn.shape[1] :] += mask_mn
    share = torch.softmax(scores, dim=-1)
    return torch.bmm(share, v_hnv).view(heads, group, BLOCK, -1)[:, :, rows]
