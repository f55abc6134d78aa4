"""A forward pass over E simulated MoE devices and any cut of prompts into pieces, written for the tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from asaplab import superkernel
from asaplab.core import expert_shares, token_shares
from asaplab.models import AttentionStage, Checkpoint, Policy, Routed, sum_in_rank_order


class Cut(NamedTuple):
    """The tokens [start, end) of a sequence."""

    sequence: int
    start: int
    end: int


def whole(lengths: Sequence[int]) -> list[list[Cut]]:
    """One batch of whole sequences."""
    return [[Cut(i, 0, n) for i, n in enumerate(lengths)]]


class Forward:
    def __init__(self, checkpoint: Checkpoint, policy: Policy, T: int, E: int) -> None:
        self.config, self.policy, self.T = checkpoint.config, policy, T
        self.stages = [
            AttentionStage(self.config, checkpoint.attention_weights(rank, T, policy), policy, rank, T)
            for rank in range(T)
        ]
        self.shares = expert_shares(self.config.E_total, E)
        self.tables = [superkernel.pack(checkpoint.expert_layers(share, policy)) for share in self.shares]

    @torch.inference_mode()
    def logits(
        self,
        sequences: Sequence[Tensor],
        batches: Sequence[Sequence[Cut]],
        arrival: random.Random | None = None,
        on_arrival: bool = False,
    ) -> list[Tensor]:
        """Last-position logits of each sequence. MoE devices answer in the order that ``arrival`` shuffles;
        ``on_arrival`` adds their results up as they come, instead of giving each (token, k) its slot."""
        caches = [[stage.cache(len(ids)) for ids in sequences] for stage in self.stages]
        logits: dict[int, Tensor] = {}
        for batch in batches:
            ids = [sequences[cut.sequence][cut.start : cut.end] for cut in batch]
            contexts = [
                stage.begin(ids, [own[cut.sequence] for cut in batch])
                for stage, own in zip(self.stages, caches, strict=True)
            ]
            h_NH = self.stages[0].embed(contexts[0])
            for layer in range(self.config.L):
                partials = [stage.attention(layer, h_NH, context) for stage, context in zip(self.stages, contexts)]
                h_NH = h_NH + sum_in_rank_order(partials)
                shares = token_shares(len(h_NH), self.T)
                h_NH = torch.cat(
                    [
                        self._mlp(stage, layer, h_NH[own.start : own.stop], arrival, on_arrival)
                        for stage, own in zip(self.stages, shares, strict=True)
                    ]
                )
            rows = self.stages[0].head(h_NH[contexts[0].last_rows])
            logits |= {cut.sequence: row for cut, row in zip(batch, rows)}
        return [logits[i] for i in range(len(sequences))]

    def _mlp(
        self, stage: AttentionStage, layer: int, h_nH: Tensor, arrival: random.Random | None, on_arrival: bool
    ) -> Tensor:
        if not self.config.is_moe(layer):
            return stage.dense(layer, h_nH)
        routed = stage.route(layer, h_nH)
        answers = [self._device(e, layer, routed) for e in range(len(self.tables))]
        if arrival:
            arrival.shuffle(answers)
        n, K = routed.expert_ids_nK.shape
        if on_arrival:
            sum_nH = torch.zeros_like(h_nH)
            for rows, y_mH in answers:
                sum_nH.index_add_(0, rows // K, y_mH * routed.weights_nK.flatten()[rows, None].to(y_mH.dtype))
            return h_nH + sum_nH + (0 if routed.shared_nH is None else routed.shared_nH)
        results_mH = torch.full((n * K, self.config.H), float("nan"), dtype=self.policy.dtype)
        for rows, y_mH in answers:
            results_mH[rows] = y_mH
        return stage.combine(routed, results_mH, torch.arange(n * K).view(n, K))

    def _device(self, e: int, layer: int, routed: Routed) -> tuple[Tensor, Tensor]:
        """The slots (token * K + k) that MoE device e works on, and its results."""
        share, K = self.shares[e], self.config.K
        local_m = routed.expert_ids_nK.flatten() - share.start
        order_m = local_m.argsort(stable=True)
        rows = order_m[(local_m[order_m] >= 0) & (local_m[order_m] < len(share))]
        offsets = torch.zeros(len(share) + 1, dtype=torch.int64)
        offsets[1:] = torch.bincount(local_m[rows], minlength=len(share)).cumsum(0)
        y_mH = superkernel.grouped_mlp(routed.x_nH[rows // K], offsets, torch.tensor([layer]), self.tables[e])
        return rows, y_mH
