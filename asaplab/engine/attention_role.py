"""The attention side of a device, shared by attention devices and colocated ones: one layer's steps on a batch."""

from __future__ import annotations

from typing import Any

import torch

from asaplab.core import token_shares
from asaplab.engine.batch import Flight, KVShelf, first_tokens
from asaplab.engine.device import Device, now_ns
from asaplab.models.attention_stage import AttentionStage
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.numerics import places
from asaplab.models.policy import policy
from asaplab.primitives.group import GroupPort
from asaplab.primitives.segment import Segment


class AttentionRole(Device):
    """Rank ``rank`` of DP group ``group``: norm, attention, router, shared expert, dense layers, residuals, head."""

    def load(self) -> None:
        s = self.spec
        self.checkpoint, self.numbers = Checkpoint(s.model), policy(s.dtype)
        self.config = self.checkpoint.config
        weights = self.checkpoint.attention_weights(s.rank, s.instance.T, self.numbers)
        self.stage = AttentionStage(self.config, weights, self.numbers, s.rank, s.instance.T)
        self.shelf = KVShelf(self.stage)
        self.group = GroupPort(Segment.open(s.segments.group[s.group]), s.dims, s.rank, timeout_s=s.timeout_s)

    def attend(self, flight: Flight) -> None:
        """Attention and the rest of the stage for the flight's layer; leaves the rank's own tokens routed or done."""
        stage, line, layer = self.stage, flight.timeline, flight.layer
        start = now_ns()
        partial_NH = stage.attention(layer, flight.h_NH, flight.context)
        between = now_ns()
        line.mark("attention", between)
        self.waiting_for = f"the other ranks of group {self.spec.group}"
        mine = token_shares(flight.tokens, self.spec.instance.T)[self.spec.rank]
        h_nH = flight.h_NH[mine.start : mine.stop] + self.group.reduce_scatter(partial_NH)
        scattered = now_ns()
        line.mark("tp", scattered)
        if self.config.is_moe(layer):
            flight.routed = stage.route(layer, h_nH)
        else:
            h_nH = stage.dense(layer, h_nH)
        # time in the collective does not count as computing
        spent_s = (between - start + now_ns() - scattered) * 1e-9
        self.pacer.attention(flight.tokens, flight.sum_squares, spent_s)
        end = now_ns()
        line.mark("attention", end)
        self.record("attention", flight.batch.id, layer, start, end, flight.tokens)
        if not self.config.is_moe(layer):
            self.next_layer(flight, h_nH)

    def add_results(self, flight: Flight, rows_pH: torch.Tensor, slot_p: torch.Tensor) -> None:
        """Combine: the weighted sum over the K results of each token, then on to the next layer.

        ``slot_p`` says of which (token, k) each row is the result.
        """
        start = now_ns()
        h_nH = self.stage.combine(flight.routed, rows_pH, places(slot_p).view(flight.routed.expert_ids_nK.shape))
        end = now_ns()
        flight.timeline.mark("combine", end)
        self.record("combine", flight.batch.id, flight.layer, start, end, flight.tokens, "receive")
        self.next_layer(flight, h_nH)

    def next_layer(self, flight: Flight, h_nH: torch.Tensor) -> None:
        """All-gather: every rank has all tokens again."""
        flight.h_NH = self.group.all_gather(h_nH, flight.tokens)
        flight.layer += 1
        flight.routed = flight.exchange = None
        flight.ready_ns = now_ns()
        flight.timeline.mark("tp", flight.ready_ns)

    def finish(self, flight: Flight) -> None:
        """First tokens, where TTFT ends; then let go of the caches, or hand them out."""
        if self.spec.rank == 0:
            answer = first_tokens(self.stage, flight)
            end = now_ns()
            flight.timeline.mark("host", end)
            self.report(
                event="done",
                batch=flight.batch.id,
                group=self.spec.group,
                finished_ns=end,
                parts_ns=flight.timeline.parts_ns,
                **answer,
            )
        for piece in flight.batch.pieces:
            cache = self.shelf.leave(piece)
            if cache is not None:
                layers = pack_kv(cache, self.config.L)
                self.report(event="kv", request=piece.request, rank=self.spec.rank, layers=layers)


def pack_kv(cache: Any, layers: int) -> list[tuple[bytes, tuple, bytes, tuple, str]]:
    """A cache as plain bytes for the way to the parent: keys and values of each layer, expanded to heads."""
    packed = []
    for layer in range(layers):
        K_hsd, V_hsd = (t.contiguous() for t in cache.expanded(layer))
        name = str(K_hsd.dtype).removeprefix("torch.")
        raw = [t.view(torch.uint8).numpy().tobytes() for t in (K_hsd, V_hsd)]
        packed.append((raw[0], tuple(K_hsd.shape), raw[1], tuple(V_hsd.shape), name))
    return packed
