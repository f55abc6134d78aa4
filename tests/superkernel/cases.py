"""Small expert weights, and the float64 oracle that works one row at a time."""

from __future__ import annotations

import torch

H, I, EXPERTS = 64, 32, 4  # noqa: E741
LAYERS = (1, 2, 5)  # layers 0, 3 and 4 are dense
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2e-2}


def weights(dtype: torch.dtype) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(0)
    return {
        layer: (
            (torch.randn(EXPERTS, 2 * I, H, generator=random, dtype=torch.float64) / H**0.5).to(dtype),
            (torch.randn(EXPERTS, H, I, generator=random, dtype=torch.float64) / I**0.5).to(dtype),
        )
        for layer in LAYERS
    }


def oracle(x_mH: torch.Tensor, offsets: list[int], pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    gate_up, down = pair[0].double(), pair[1].double()
    rows = []
    for e in range(EXPERTS):
        for row in x_mH[offsets[e] : offsets[e + 1]].double():
            gate, up = gate_up[e, :I] @ row, gate_up[e, I:] @ row
            rows.append(down[e] @ (gate / (1 + torch.exp(-gate)) * up))
    return torch.stack(rows) if rows else x_mH.double()


def offsets_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
