"""The attention side of a model cut at the attention/expert boundary (section 3.1): all but the routed experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from asaplab.errors import InputError
from asaplab.models.config import ModelConfig
from asaplab.models.context import Context, Part
from asaplab.models.gqa import gqa_attention, gqa_shapes
from asaplab.models.kv_cache import KVCache
from asaplab.models.mla import expand, mla_attention, mla_shapes
from asaplab.models.numerics import rms_norm, swiglu, weighted_sum
from asaplab.models.policy import Policy
from asaplab.models.router import ROUTERS
from asaplab.models.weights import AttentionWeights, GqaWeights, MlpWeights, RouterWeights
from asaplab.superkernel import linear


@dataclass(frozen=True, kw_only=True, eq=False)
class Routed:
    """A rank's tokens at the boundary: the residual, what goes to the experts, where to, and the shared expert."""

    h_nH: Tensor
    x_nH: Tensor
    expert_ids_nK: Tensor  # int64
    weights_nK: Tensor
    shared_nH: Tensor | None


class AttentionStage:
    """One rank of an attention DP group. ``T`` ranks run the same batch, each with its heads.

    A layer is ``attention`` (then the sum over ranks, in rank order, and the residual: the caller's) followed by
    ``route`` .. ``combine``, or by ``dense``, on the rank's own tokens.
    """

    def __init__(self, config: ModelConfig, weights: AttentionWeights, policy: Policy, rank: int, T: int) -> None:
        self.config, self.weights, self.policy, self.rank, self.T = config, weights, policy, rank, T

    def cache(self, tokens: int) -> KVCache:
        """An empty KV cache for a prompt of ``tokens`` tokens."""
        first = self.weights.layers[0].attention
        shapes = gqa_shapes(self.config, first) if isinstance(first, GqaWeights) else mla_shapes(self.config)
        return KVCache(
            tokens=tokens, layers=self.config.L, shapes=shapes, dtype=self.policy.dtype, expand=self._expanded
        )

    def _expanded(self, layer: int, parts: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        attention = self.weights.layers[layer].attention
        if isinstance(attention, GqaWeights):
            return parts[0], parts[1]
        return expand(attention, parts[0], parts[1], self.config)

    def begin(self, token_ids: list[Tensor], caches: list[KVCache]) -> Context:
        """Packs pieces. A piece starts at its cache's length, so later pieces of a prompt continue it.

        Raises:
            InputError: a piece has no tokens or ids outside the vocabulary, or goes beyond the model's positions.
        """
        if not token_ids or len(token_ids) != len(caches):
            raise InputError(f"batch: {len(token_ids)} pieces with {len(caches)} KV caches; give one cache a piece")
        parts, tables, first = [], [], 0
        for ids, cache in zip(token_ids, caches):
            end = cache.length + len(ids)
            self._check_piece(ids, end)
            parts.append(Part(first=first, last=first + len(ids), start=cache.length, cache=cache))
            tables.append(self.config.rope.tables(cache.length, end, self.policy))
            first += len(ids)
        return Context(
            tokens_N=torch.cat(token_ids),
            cos_Nd=torch.cat([cos for cos, _ in tables]),
            sin_Nd=torch.cat([sin for _, sin in tables]),
            parts=tuple(parts),
        )

    def _check_piece(self, ids: Tensor, end: int) -> None:
        if len(ids) == 0:
            raise InputError("batch: a piece has no tokens; every piece needs at least 1")
        if int(ids.min()) < 0 or int(ids.max()) >= self.config.vocab:
            raise InputError(f"batch: token ids must lie in [0, {self.config.vocab}); tokenize for this model")
        if end > self.config.positions:
            raise InputError(f"batch: {end} tokens exceed the model's {self.config.positions}; shorten the prompt")

    def embed(self, context: Context) -> Tensor:
        """``h_NH`` of the whole batch, the same on every rank."""
        return F.embedding(context.tokens_N, self.weights.embedding_VH)

    def attention(self, layer: int, h_NH: Tensor, context: Context) -> Tensor:
        """Input norm, this rank's heads and its part of the output projection: ``partial_NH``. Fills the caches."""
        weights = self.weights.layers[layer]
        x_NH = rms_norm(h_NH, weights.input_norm_H, self.config.eps, self.policy)
        if isinstance(weights.attention, GqaWeights):
            return gqa_attention(layer, weights.attention, x_NH, context, self.config, self.policy)
        return mla_attention(layer, weights.attention, x_NH, context, self.config, self.policy)

    def route(self, layer: int, h_nH: Tensor) -> Routed:
        """Post-attention norm, router and shared expert on the rank's own tokens (possibly none)."""
        weights = self.weights.layers[layer]
        assert isinstance(weights.mlp, RouterWeights), f"layer {layer} is dense"
        x_nH = rms_norm(h_nH, weights.post_norm_H, self.config.eps, self.policy)
        expert_ids_nK, weights_nK = ROUTERS[self.config.family](x_nH, weights.mlp, self.config, self.policy)
        shared = weights.mlp.shared
        shared_nH = None if shared is None else swiglu(x_nH, shared.gate_up_2IH, shared.down_HI)
        return Routed(h_nH=h_nH, x_nH=x_nH, expert_ids_nK=expert_ids_nK, weights_nK=weights_nK, shared_nH=shared_nH)

    def dense(self, layer: int, h_nH: Tensor) -> Tensor:
        """A dense layer's MLP with norm and residual, on the rank's own tokens."""
        weights = self.weights.layers[layer]
        assert isinstance(weights.mlp, MlpWeights), f"layer {layer} has experts"
        x_nH = rms_norm(h_nH, weights.post_norm_H, self.config.eps, self.policy)
        return h_nH + swiglu(x_nH, weights.mlp.gate_up_2IH, weights.mlp.down_HI)

    def combine(self, routed: Routed, rows_mH: Tensor, at_nK: Tensor) -> Tensor:
        """The experts' results, weighted and summed over k in order, plus shared expert and residual.

        The result of (token, k) is row ``at_nK[token, k]`` and the sum runs over k, so it does not matter who answers
        first.
        """
        out_nH = weighted_sum(rows_mH, at_nK, routed.weights_nK, self.policy)
        if routed.shared_nH is not None:
            out_nH = out_nH + routed.shared_nH
        return routed.h_nH + out_nH

    def head(self, h_RH: Tensor) -> Tensor:
        """Final norm and LM head: ``logits_RV``."""
        x_RH = rms_norm(h_RH, self.weights.norm_H, self.config.eps, self.policy)
        return linear(x_RH, self.weights.head_VH)
