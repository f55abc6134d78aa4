"""The uncut forward pass in one process: the ground truth that the engine is held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asaplab import superkernel
from asaplab.core import token_shares
from asaplab.models.attention_stage import AttentionStage, Routed
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.kv_cache import KVCache
from asaplab.models.numerics import places
from asaplab.models.policy import Policy

_BATCH_TOKENS = 8192  # sequences are packed up to this many tokens; results do not depend on it


@dataclass(frozen=True, kw_only=True, eq=False)
class Prefill:
    """What prefill leaves of a sequence."""

    logits_V: Tensor
    first_token: int
    kv: tuple[KVCache, ...]  # one for each rank; empty unless asked for


class Reference:
    """All layers and all experts in this process. ``T`` ranks are computed one after the other and summed in rank
    order, so that the bits are those of an attention group of T devices.

    Raises:
        InputError: as ``Checkpoint`` does; T does not fit the model's heads.
    """

    def __init__(self, checkpoint: Checkpoint, policy: Policy, T: int = 1) -> None:
        config = checkpoint.config
        self.config, self.policy = config, policy
        self.stages = [
            AttentionStage(config, checkpoint.attention_weights(rank, T, policy), policy, rank, T) for rank in range(T)
        ]
        self._table = superkernel.pack(checkpoint.expert_layers(range(config.E_total), policy))
        self._rows_2mH = torch.empty(2, 0, config.H, dtype=policy.dtype)  # kept: fresh pages cost as much as the copies

    @torch.inference_mode()
    def prefill(self, sequences: Sequence[Tensor], keep_kv: bool = False) -> list[Prefill]:
        """Prefills each sequence of token ids (int64): last position's logits, first token, KV caches if asked for.

        Raises:
            InputError: a sequence is empty, too long, or has ids outside the vocabulary.
        """
        return [result for batch in _packed(sequences) for result in self._batch(batch, keep_kv)]

    def _batch(self, sequences: list[Tensor], keep_kv: bool) -> list[Prefill]:
        caches = [[stage.cache(len(ids)) for ids in sequences] for stage in self.stages]
        contexts = [stage.begin(sequences, own) for stage, own in zip(self.stages, caches)]
        h_NH = self.stages[0].embed(contexts[0])
        for layer in range(self.config.L):
            partials = [
                stage.attention(layer, h_NH, context) for stage, context in zip(self.stages, contexts, strict=True)
            ]
            h_NH = h_NH + sum_in_rank_order(partials)
            h_NH = torch.cat(
                [self._mlp(layer, h_NH[own.start : own.stop]) for own in token_shares(len(h_NH), len(partials))]
            )
        logits_RV = self.stages[0].head(h_NH[contexts[0].last_rows])
        return [
            Prefill(
                logits_V=logits_V,
                first_token=int(logits_V.argmax()),
                kv=tuple(own[i] for own in caches) if keep_kv else (),
            )
            for i, logits_V in enumerate(logits_RV)
        ]

    def _mlp(self, layer: int, h_nH: Tensor) -> Tensor:
        stage = self.stages[0]
        if not self.config.is_moe(layer):
            return stage.dense(layer, h_nH)
        routed = stage.route(layer, h_nH)
        return stage.combine(routed, *self._experts(layer, routed))

    def _experts(self, layer: int, routed: Routed) -> tuple[Tensor, Tensor]:
        """Every (token, k) row through its expert: the result rows, and which of them is whose."""
        n, K = routed.expert_ids_nK.shape
        expert_m = routed.expert_ids_nK.flatten()
        order_m = expert_m.argsort(stable=True)
        offsets_E1 = torch.zeros(self.config.E_total + 1, dtype=torch.int64)
        offsets_E1[1:] = torch.bincount(expert_m, minlength=self.config.E_total).cumsum(0)
        if self._rows_2mH.shape[1] < n * K:
            self._rows_2mH = self._rows_2mH.new_empty(2, n * K, self.config.H)
        x_mH, y_mH = self._rows_2mH[:, : n * K]
        torch.index_select(routed.x_nH, 0, order_m // K, out=x_mH)
        superkernel.grouped_mlp(x_mH, offsets_E1, torch.tensor([layer]), self._table, out=y_mH)
        return y_mH, places(order_m).view(n, K)


def sum_in_rank_order(partials: Sequence[Tensor]) -> Tensor:
    """The sum over ranks that every implementation of the reduce-scatter must reproduce bit for bit."""
    total = partials[0]
    for partial in partials[1:]:
        total = total + partial
    return total


def _packed(sequences: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    tokens = 0
    for ids in sequences:
        if batch and tokens + len(ids) > _BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(ids)
        tokens += len(ids)
    if batch:
        yield batch
