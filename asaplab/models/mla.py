"""Multi-head latent attention (DeepSeek-V3, Kimi-K2), one rank's heads. The cache keeps latents, not heads.

DeepSeek-V3.2 adds an indexer that narrows what each query reads; every rank computes the same choice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from asaplab.models.config import ModelConfig
from asaplab.models.context import Context, Part
from asaplab.models.indexer import IndexQueries, index_mask, index_queries
from asaplab.models.kv_cache import BLOCK
from asaplab.models.numerics import rms_norm
from asaplab.models.policy import Policy
from asaplab.models.rope import rotate_halves, rotate_pairs
from asaplab.models.varlen import Select, causal_attention
from asaplab.models.weights import MlaWeights
from asaplab.superkernel import linear

_INNER_EPS = 1e-6  # of the norms inside attention, whatever config.json says


def mla_attention(
    layer: int, weights: MlaWeights, x_NH: Tensor, context: Context, config: ModelConfig, policy: Policy
) -> Tensor:
    """This rank's part of the attention output, before the sum over ranks: ``partial_NH``."""
    mla, N = config.mla, x_NH.shape[0]
    assert mla is not None
    rotate = rotate_pairs if mla.interleaved else rotate_halves
    low_NA = linear(x_NH, weights.down_AH)
    q_NA, latent_NR, key_Nd = low_NA.split([low_NA.shape[1] - mla.kv_rank - mla.rope, mla.kv_rank, mla.rope], dim=1)
    latent_NR = rms_norm(latent_NR, weights.kv_norm_R, _INNER_EPS, policy)
    key_Nd = rotate(key_Nd[:, None], context.cos_Nd, context.sin_Nd)[:, 0]
    query_NR = q_NA
    if weights.q_up_AR is not None and weights.q_norm_R is not None:
        query_NR = rms_norm(q_NA, weights.q_norm_R, _INNER_EPS, policy)
        q_NA = linear(query_NR, weights.q_up_AR)
    index = None
    if weights.indexer is not None and config.indexer is not None:
        index = index_queries(weights.indexer, x_NH, query_NR, mla.rope, context, config.indexer, policy)
    q_Nhd = q_NA.reshape(N, -1, config.head_dim)
    turned_Nhd = rotate(q_Nhd[..., mla.nope :], context.cos_Nd, context.sin_Nd)
    q_hNd = torch.cat([q_Nhd[..., : mla.nope], turned_Nhd], dim=-1).transpose(0, 1)
    out_Nhv = torch.empty(N, q_hNd.shape[0], mla.v, dtype=policy.dtype)
    for part in context.parts:
        new = [latent_NR[part.rows], key_Nd[part.rows]]
        if index is not None:
            new.append(index.k_Nd[part.rows])
        kept = part.cache.append(layer, part.start, new)
        end = -(-(part.start + part.last - part.first) // BLOCK) * BLOCK
        k_hnd, v_hnv = expand(weights, kept[0][:end], kept[1][:end], config)
        q_h1md, out_h1mv = q_hNd[:, None, part.rows], out_Nhv[part.rows].transpose(0, 1)[:, None]
        free, scale = _unrestricted(part, config), config.softmax_scale
        if free:
            some_h1md, out = q_h1md[:, :, :free], out_h1mv[:, :, :free]
            causal_attention(some_h1md, k_hnd, v_hnv, out, part.start, scale, policy)
        if index is not None and free < q_h1md.shape[2]:
            select = _selection(index, part, kept[2], config, policy)
            some_h1md, out = q_h1md[:, :, free:], out_h1mv[:, :, free:]
            causal_attention(some_h1md, k_hnd, v_hnv, out, part.start + free, scale, policy, select)
    return linear(out_Nhv.view(N, -1), weights.o_HA)


def _unrestricted(part: Part, config: ModelConfig) -> int:
    """How many of a piece's first queries lie in blocks that see no more keys than the indexer would choose."""
    m = part.last - part.first
    if config.indexer is None:
        return m
    return min(m, max(0, config.indexer.top_k // BLOCK * BLOCK - part.start))


def _selection(index: IndexQueries, part: Part, key_sd: Tensor, config: ModelConfig, policy: Policy) -> Select:
    """The mask of some of a piece's queries, by their positions in the sequence."""
    sizes = config.indexer
    assert sizes is not None

    def select(first: int, last: int, n: int) -> Tensor:
        rows = slice(part.first + first - part.start, part.first + last - part.start)
        return index_mask(index.q_hNd[:, rows], index.weight_hN[:, rows], key_sd[:n], first, sizes, policy)

    return select


def expand(weights: MlaWeights, latent_nR: Tensor, key_nd: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """K_hnd and V_hnv of this rank's heads from the latents and the rotary key that all heads share."""
    mla, n = config.mla, latent_nR.shape[0]
    assert mla is not None
    up_hnA = linear(latent_nR, weights.kv_up_AR).view(n, -1, mla.nope + mla.v).transpose(0, 1)
    heads = up_hnA.shape[0]
    k_hnd = torch.empty(heads, n, config.head_dim, dtype=latent_nR.dtype)
    k_hnd[..., : mla.nope] = up_hnA[..., : mla.nope]
    k_hnd[..., mla.nope :] = key_nd
    return k_hnd, up_hnA[..., mla.nope :]


def mla_shapes(config: ModelConfig) -> tuple[tuple[int, ...], ...]:
    """Shapes of the latent, the rotary key and the indexer's key, if any, for one position in the cache."""
    mla = config.mla
    assert mla is not None
    shapes: tuple[tuple[int, ...], ...] = ((1, mla.kv_rank), (1, mla.rope))
    return (*shapes, (1, config.indexer.dim)) if config.indexer else shapes
