"""Grouped-query attention with normed queries and keys (Qwen3-MoE), one rank's heads."""

from __future__ import annotations

import torch
from torch import Tensor

from asaplab.models.config import ModelConfig
from asaplab.models.context import Context
from asaplab.models.numerics import rms_norm
from asaplab.models.policy import Policy
from asaplab.models.rope import rotate_halves
from asaplab.models.varlen import causal_attention
from asaplab.models.weights import GqaWeights
from asaplab.superkernel import linear


def gqa_attention(
    layer: int, weights: GqaWeights, x_NH: Tensor, context: Context, config: ModelConfig, policy: Policy
) -> Tensor:
    """This rank's part of the attention output, before the sum over ranks: ``partial_NH``."""
    d, N = config.head_dim, x_NH.shape[0]
    heads = weights.o_HA.shape[1] // d
    kv_heads = (weights.qkv_AH.shape[0] // d - heads) // 2
    qkv_Nhd = linear(x_NH, weights.qkv_AH).view(N, -1, d)
    q_Nhd, k_Nhd, v_Nhd = qkv_Nhd.split([heads, kv_heads, kv_heads], dim=1)
    q_Nhd = rotate_halves(rms_norm(q_Nhd, weights.q_norm_d, config.eps, policy), context.cos_Nd, context.sin_Nd)
    k_Nhd = rotate_halves(rms_norm(k_Nhd, weights.k_norm_d, config.eps, policy), context.cos_Nd, context.sin_Nd)
    q_hgNd = q_Nhd.view(N, kv_heads, -1, d).permute(1, 2, 0, 3)
    out_Nhd = torch.empty(N, heads, d, dtype=policy.dtype)
    out_hgNd = out_Nhd.view(N, kv_heads, -1, d).permute(1, 2, 0, 3)
    for part in context.parts:
        new = (k_Nhd[part.rows].transpose(0, 1), v_Nhd[part.rows].transpose(0, 1))
        k_hnd, v_hnd = part.cache.append(layer, part.start, new)
        q_hgmd, out_hgmd = q_hgNd[:, :, part.rows], out_hgNd[:, :, part.rows]
        causal_attention(q_hgmd, k_hnd, v_hnd, out_hgmd, part.start, config.softmax_scale, policy)
    return linear(out_Nhd.view(N, -1), weights.o_HA)


def gqa_shapes(config: ModelConfig, weights: GqaWeights) -> tuple[tuple[int, ...], ...]:
    """Shapes of K and V for one position in the cache."""
    d = config.head_dim
    kv_heads = (weights.qkv_AH.shape[0] - weights.o_HA.shape[1]) // d // 2
    return (kv_heads, 1, d), (kv_heads, 1, d)
