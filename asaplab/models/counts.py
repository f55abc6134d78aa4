"""Counted operations and bytes of a model: what the nominal profile and the memory checks go by."""

from __future__ import annotations

from dataclasses import dataclass

from asaplab.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Operations (a multiply-add is two) of one MoE layer, all ranks together."""

    attention_per_token: float  # projections, router, shared expert
    expert_per_row: float  # one (token, expert) row
    K: int
    E_total: int


def counts(config: ModelConfig) -> Counts:
    """Counted from the shapes of the weights."""
    c = config
    if c.mla is None:
        weights = c.H * c.head_dim * (2 * c.heads + 2 * c.kv_heads)
    else:
        m = c.mla
        query = c.H * c.heads * (m.nope + m.rope)
        if m.q_rank is not None:
            query = c.H * m.q_rank + m.q_rank * c.heads * (m.nope + m.rope)
        key_value = c.H * (m.kv_rank + m.rope) + m.kv_rank * c.heads * (m.nope + m.v)
        weights = query + key_value + c.heads * m.v * c.H
    shared = 3 * c.H * c.shared_I + c.H * c.E_total
    return Counts(
        attention_per_token=2.0 * (weights + shared),
        expert_per_row=6.0 * c.H * c.I,
        K=c.K,
        E_total=c.E_total,
    )


def kv_bytes_per_token(config: ModelConfig, itemsize: int) -> int:
    """Keys and values of all layers and heads, expanded, as they are handed out."""
    return config.L * config.kv_heads * (config.head_dim + config.v_dim) * itemsize
