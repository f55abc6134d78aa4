"""DeepSeek-V3.2's lightning indexer: each query chooses the ``top_k`` earlier positions that attention may read.

Scores are taken a block of queries at a time, so memory grows with the sequence's length, not with its square.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from asaplab.models.config import Indexer
from asaplab.models.context import Context
from asaplab.models.kv_cache import BLOCK
from asaplab.models.policy import Policy
from asaplab.models.rope import rotate_halves
from asaplab.models.weights import IndexerWeights
from asaplab.superkernel import linear

_EPS = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class IndexQueries:
    """What the indexer scores with: queries, the key of each new position, and a weight for each head."""

    q_hNd: Tensor
    k_Nd: Tensor
    weight_hN: Tensor


def index_queries(
    weights: IndexerWeights,
    x_NH: Tensor,
    latent_NR: Tensor,
    rope: int,
    context: Context,
    sizes: Indexer,
    policy: Policy,
) -> IndexQueries:
    """Projections of the normed hidden state and of the query latent; the first ``rope`` dimensions are rotated."""
    q_Nhd = linear(latent_NR, weights.q_AR).view(len(x_NH), sizes.heads, sizes.dim)
    k_Nd = F.layer_norm(linear(x_NH, weights.k_dH), (sizes.dim,), weights.k_norm_d, weights.k_bias_d, _EPS)
    q_Nhd, k_N1d = (
        torch.cat([rotate_halves(x[..., :rope], context.cos_Nd, context.sin_Nd), x[..., rope:]], dim=-1)
        for x in (q_Nhd, k_Nd[:, None])
    )
    weight_Nh = linear(x_NH.to(policy.high), weights.head_hH) * sizes.heads**-0.5
    return IndexQueries(q_hNd=q_Nhd.transpose(0, 1), k_Nd=k_N1d[:, 0], weight_hN=weight_Nh.t())


def index_mask(q_hmd: Tensor, weight_hm: Tensor, k_nd: Tensor, position: int, sizes: Indexer, policy: Policy) -> Tensor:
    """The additive mask_mn of queries at ``position``..: 0 at the chosen keys, -inf elsewhere.

    A query's score for a key is ``sum_h weight_h relu(q_h . k / sqrt(d))``; of equal scores the earlier key wins. The
    queries are scored in their own places of whole blocks of BLOCK positions, so that a query's bits do not depend on
    how a block of the prompt was cut.
    """
    m, n = q_hmd.shape[1], k_nd.shape[0]
    if position + m <= sizes.top_k:  # no query sees more keys than it may choose
        return torch.zeros(m, n, dtype=policy.high)
    rows = slice(position % BLOCK, position % BLOCK + m)
    q_hbd = F.pad(q_hmd, (0, 0, rows.start, -rows.stop % BLOCK)).to(policy.high)
    key_dn = k_nd.to(policy.high).t()
    score_mn = torch.zeros(m, n, dtype=policy.high)
    for q_bd, weight_m in zip(q_hbd, weight_hm):  # head after head: one block of scores at a time
        score_mn += (q_bd @ key_dn)[rows].mul_(sizes.dim**-0.5).relu_().mul_(weight_m[:, None])
    later_mn = torch.arange(n) > torch.arange(position, position + m)[:, None]
    score_mn.masked_fill_(later_mn, float("-inf"))
    return torch.zeros_like(score_mn).masked_fill_(~stable_top_k(score_mn, min(sizes.top_k, n)), float("-inf"))


def stable_top_k(score_mn: Tensor, k: int) -> Tensor:
    """Which k entries of each row are largest; among equal ones the first."""
    least_m1 = score_mn.topk(k, dim=-1).values[:, -1:]
    larger_mn, equal_mn = score_mn > least_m1, score_mn == least_m1
    wanted_m1 = k - larger_mn.sum(-1, keepdim=True)
    return larger_mn | (equal_mn & (equal_mn.cumsum(-1) <= wanted_m1))
