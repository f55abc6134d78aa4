"""The KV cache of one sequence on one attention rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from asaplab.errors import InputError

BLOCK = 128  # attention works in blocks of this many positions, counted from the sequence's start


class KVCache:
    """What each layer keeps of a sequence: ``parts`` tensors whose second-to-last dimension is the position.

    Grouped-query attention keeps K_hsd and V_hsd; latent attention keeps its latent_sR and rotary key_sd (and
    DeepSeek-V3.2 the indexer's key_sd). Capacity is whole blocks, and positions not yet written are zero.
    """

    def __init__(
        self,
        *,
        tokens: int,
        layers: int,
        shapes: Sequence[tuple[int, ...]],
        dtype: torch.dtype,
        expand: Callable[[int, tuple[Tensor, ...]], tuple[Tensor, Tensor]],
    ) -> None:
        """``shapes`` are those of a layer's parts for one position: (h, 1, d) or (1, d)."""
        self.capacity = -(-tokens // BLOCK) * BLOCK
        self.length = 0  # positions that all layers have seen
        self._expand = expand
        self._parts = [
            tuple(torch.zeros(*shape[:-2], self.capacity, shape[-1], dtype=dtype) for shape in shapes)
            for _ in range(layers)
        ]

    def append(self, layer: int, start: int, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Writes a layer's new positions from ``start`` on and returns the whole parts.

        Raises:
            InputError: the positions go beyond the cache's capacity.
        """
        end = start + values[0].shape[-2]
        if end > self.capacity:
            raise InputError(f"KV cache: {end} tokens do not fit its {self.capacity}; make it for the whole prompt")
        for part, value in zip(self._parts[layer], values):
            part[..., start:end, :] = value
        if layer == len(self._parts) - 1:
            self.length = end
        return self._parts[layer]

    def expanded(self, layer: int) -> tuple[Tensor, Tensor]:
        """K_hsd and V_hsd of this rank's heads, latents expanded."""
        key_hsd, value_hsd = self._expand(layer, self._parts[layer])
        return key_hsd[:, : self.length], value_hsd[:, : self.length]

    @property
    def nbytes(self) -> int:
        return sum(part.numel() * part.element_size() for parts in self._parts for part in parts)
