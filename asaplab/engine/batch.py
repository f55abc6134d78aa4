"""A batch on an attention device: the pieces it holds, the caches they grow and where the batch stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from asaplab.core import Batch, Piece
from asaplab.engine.device import Timeline, now_ns
from asaplab.models.attention_stage import AttentionStage


@dataclass
class Flight:
    """One batch in flight and its state between layers."""

    batch: Batch
    place: int  # among the batches in flight; its rows use slot ``place % slots`` of every region
    context: Any
    h_NH: torch.Tensor  # all tokens, before the next layer
    timeline: Timeline
    layer: int = 0
    ready_ns: int = 0  # when it became ready for its next layer; negative while MoE devices work on it
    routed: Any = None
    exchange: Any = None  # how its rows come back: a ticket, or the future of its communication thread
    sum_squares: int = 0

    def __post_init__(self) -> None:
        self.sum_squares = self.batch.sum_squares

    @property
    def tokens(self) -> int:
        return self.batch.tokens


@dataclass
class KVShelf:
    """The KV caches of prompts on this rank: kept over the chunks of a prompt, and after it when asked for."""

    stage: AttentionStage
    keep: bool = False
    caches: dict[int, Any] = field(default_factory=dict)

    def of(self, piece: Piece, prompt_tokens: int) -> Any:
        if piece.start == 0:
            self.caches[piece.request] = self.stage.cache(prompt_tokens)
        return self.caches[piece.request]

    def leave(self, piece: Piece) -> Any | None:
        """Drop the cache of a finished prompt, and return it if caches are handed out."""
        if not piece.last:
            return None
        cache = self.caches.pop(piece.request)
        return cache if self.keep else None


def board(message: dict[str, Any], place: int, stage: AttentionStage, shelf: KVShelf) -> Flight:
    """A batch's first steps on a device: token ids to hidden states of all its tokens."""
    timeline = Timeline(message["sent_ns"])
    batch = Batch(message["batch"], tuple(Piece(*piece) for piece in message["pieces"]))
    ids = torch.from_numpy(np.frombuffer(message["token_ids"], np.int64).copy())
    tokens = ids.split([piece.tokens for piece in batch.pieces])
    caches = [shelf.of(piece, total) for piece, total in zip(batch.pieces, message["prompt_tokens"])]
    context = stage.begin(list(tokens), caches)
    flight = Flight(batch, place, context, stage.embed(context), timeline)
    flight.ready_ns = now_ns()
    timeline.mark("host", flight.ready_ns)
    return flight


def last_rows(batch: Batch) -> tuple[list[int], list[int]]:
    """Of the prompts that end in this batch: request ids, and the row of each one's last token."""
    requests, rows, end = [], [], 0
    for piece in batch.pieces:
        end += piece.tokens
        if piece.last:
            requests.append(piece.request)
            rows.append(end - 1)
    return requests, rows


def first_tokens(stage: AttentionStage, flight: Flight) -> dict[str, Any]:
    """Final norm and LM head on the last position of every prompt that ends here, as fields of a report."""
    requests, rows = last_rows(flight.batch)
    if not requests:
        return {"requests": [], "first_tokens": [], "logits": b"", "logits_dtype": "float32"}
    logits_RV = stage.head(flight.h_NH[rows])
    if logits_RV.dtype == torch.bfloat16:
        logits_RV = logits_RV.float()
    return {
        "requests": requests,
        "first_tokens": logits_RV.argmax(-1).tolist(),
        "logits": logits_RV.contiguous().numpy().tobytes(),
        "logits_dtype": str(logits_RV.dtype).removeprefix("torch."),
    }
