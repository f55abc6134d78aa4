"""Small expert weights, and the float64 oracle that works one row at a time."""

from __future__ import annotations

import torch

from asaplab.superkernel.capability import ASCENDING, BY_NAME_ONLY, runs_here

H, I, EXPERTS = 64, 32, 4  # noqa: E741
LAYERS = (1, 2, 5)  # layers 0, 3 and 4 are dense
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2e-2}
KERNELS = tuple(kernel for kernel in ASCENDING + BY_NAME_ONLY if runs_here(kernel))
# every kernel that runs on this machine, with every dtype it has
COMBINATIONS = [
    (kernel, dtype) for kernel in KERNELS for dtype in TOLERANCE if kernel == "plain" or dtype != torch.float64
]

Layers = dict[int, tuple[torch.Tensor, torch.Tensor]]


def weights(dtype: torch.dtype, *, hidden: int = H, inner: int = I, layers: tuple[int, ...] = LAYERS) -> Layers:
    random = torch.Generator().manual_seed(0)

    def of(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=random, dtype=torch.float64) / shape[-1] ** 0.5).to(dtype)

    return {layer: (of(EXPERTS, 2 * inner, hidden), of(EXPERTS, hidden, inner)) for layer in layers}


def rows(m: int, dtype: torch.dtype, hidden: int = H) -> torch.Tensor:
    return torch.randn(m, hidden, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def offsets_of(counts: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])


def oracle(x_mH: torch.Tensor, offsets: list[int], pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    gate_up, down = pair[0].double(), pair[1].double()
    inner = down.shape[2]
    out = torch.zeros(x_mH.shape, dtype=torch.float64)
    for e in range(EXPERTS):
        for i in range(offsets[e], offsets[e + 1]):
            row = x_mH[i].double()
            gate, up = gate_up[e, :inner] @ row, gate_up[e, inner:] @ row
            out[i] = down[e] @ (gate / (1 + torch.exp(-gate)) * up)
    return out
