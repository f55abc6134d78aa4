"""Rotary position embedding: frequencies (plain and yarn) and the two layouts that the models use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from asaplab.errors import InputError
from asaplab.models.policy import Policy

_TABLE_ROWS = 64  # rows of a table are padded, so that vectorised cos and sin treat every position alike


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary parameters of a model: ``dim`` rotated dimensions a head, in the words of config.json."""

    dim: int
    theta: float
    kind: str = "default"  # "default" or "yarn"
    factor: float = 1.0
    original_positions: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True

    @property
    def softmax_factor(self) -> float:
        """What yarn multiplies the softmax scale of multi-head latent attention by."""
        if self.kind == "default" or not self.mscale_all_dim:
            return 1.0
        return _mscale(self.factor, self.mscale_all_dim) ** 2

    def tables(self, start: int, end: int, policy: Policy) -> tuple[Tensor, Tensor]:
        """cos and sin of the positions ``[start, end)``, each (end - start) x dim/2 in the policy's dtype."""
        inverse_d, factor = self._frequencies()
        rows = -(-(end - start) // _TABLE_ROWS) * _TABLE_ROWS
        angle_nd = torch.arange(start, start + rows).to(policy.high)[:, None] * inverse_d.to(policy.high)
        cos_nd, sin_nd = angle_nd.cos() * factor, angle_nd.sin() * factor
        return cos_nd[: end - start].to(policy.dtype), sin_nd[: end - start].to(policy.dtype)

    def _frequencies(self) -> tuple[Tensor, float]:
        # float32 whatever the policy: this is how the checkpoints' own code defines the frequencies
        spread_d = self.theta ** (torch.arange(0, self.dim, 2, dtype=torch.float32) / self.dim)
        if self.kind == "default":
            return 1.0 / spread_d, 1.0
        low, high = (self._dimension_turning(turns) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        width = high - low if high != low else 0.001
        keep_d = 1 - ((torch.arange(self.dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
        inverse_d = (1.0 / (self.factor * spread_d)) * (1 - keep_d) + (1.0 / spread_d) * keep_d
        if self.attention_factor is not None:
            return inverse_d, self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return inverse_d, _mscale(self.factor, self.mscale) / _mscale(self.factor, self.mscale_all_dim)
        return inverse_d, _mscale(self.factor, 1.0)

    def _dimension_turning(self, turns: float) -> float:
        """The dimension whose wave turns ``turns`` times within the original positions."""
        return self.dim * math.log(self.original_positions / (turns * 2 * math.pi)) / (2 * math.log(self.theta))


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def rope_from(config: dict[str, Any], dim: int, default_theta: float) -> Rope:
    """Reads ``rope_parameters``, or the older ``rope_theta`` with ``rope_scaling``.

    Raises:
        InputError: the rope type is neither default nor yarn.
    """
    given = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in ("default", "yarn"):
        raise InputError(f"config.json: rope type {kind!r} is not supported; use a model with 'default' or 'yarn'")
    optional = {
        key: given[key]
        for key in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate")
        if given.get(key) is not None
    }
    return Rope(
        dim=dim,
        kind=kind,
        theta=float(given.get("rope_theta") or config.get("rope_theta") or default_theta),
        original_positions=int(
            given.get("original_max_position_embeddings") or config.get("max_position_embeddings") or 4096
        ),
        **optional,
    )


def rotate_halves(x_mhd: Tensor, cos_md: Tensor, sin_md: Tensor) -> Tensor:
    """Rotates the pairs (i, i + dim/2) of the last dimension, for every head."""
    a, b = x_mhd.chunk(2, dim=-1)
    return _rotate(a, b, cos_md, sin_md)


def rotate_pairs(x_mhd: Tensor, cos_md: Tensor, sin_md: Tensor) -> Tensor:
    """Rotates the pairs (2i, 2i + 1); the result is laid out in halves, which leaves dot products as they are."""
    return _rotate(x_mhd[..., 0::2], x_mhd[..., 1::2], cos_md, sin_md)


def _rotate(a: Tensor, b: Tensor, cos_md: Tensor, sin_md: Tensor) -> Tensor:
    cos, sin = cos_md[:, None], sin_md[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
