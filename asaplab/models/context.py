"""A batch on its way through the layers: packed tokens and where each piece lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from asaplab.models.kv_cache import KVCache


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One piece in the packed batch: rows ``[first, last)`` hold the sequence's positions from ``start`` on."""

    first: int
    last: int
    start: int
    cache: KVCache

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last)


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """The packed batch: N tokens, their rotary tables and their pieces."""

    tokens_N: Tensor
    cos_Nd: Tensor
    sin_Nd: Tensor
    parts: tuple[Part, ...]

    @property
    def last_rows(self) -> Tensor:
        """The row of each piece's last token."""
        return torch.tensor([part.last - 1 for part in self.parts])
