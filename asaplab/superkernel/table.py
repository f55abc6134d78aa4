"""The address table: where the experts' weights of every layer are, as the chosen kernel reads them (section 3.4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, eq=False)
class AddressTable:
    """Addresses of the experts' weights for all layers, and the weights themselves so that they stay alive.

    ``addresses_Le2[l, e]`` holds the addresses of expert e's gate-up and down weights in layer l, 0 where
    layer l has no experts (dense layers).
    """

    backend: str
    dtype: torch.dtype
    experts: int
    H: int
    I: int  # noqa: E741  (the paper's symbol for the expert's intermediate size)
    addresses_Le2: torch.Tensor
    weights: Mapping[int, tuple[torch.Tensor, torch.Tensor]]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have experts, ascending."""
        return tuple(sorted(self.weights))

    @property
    def nbytes(self) -> int:
        """Bytes of weights held."""
        return sum(w.numel() * w.element_size() for pair in self.weights.values() for w in pair)
