"""The plain kernel: one torch linear per expert. The reference for the others, and what serves without a compiler."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

from asaplab.errors import InputError
from asaplab.superkernel.table import AddressTable

# The GEMM libraries under torch choose their code path by the row count. From 8 rows on, in multiples of 8, a row's
# sum is taken in the same order whatever the count, so padded calls give each row the same bits.
ROWS = 8


def grouped_mlp(
    x_mH: torch.Tensor, offsets_E1: torch.Tensor, layer: torch.Tensor, table: AddressTable, out_mH: torch.Tensor
) -> None:
    """See ``superkernel.grouped_mlp``."""
    offsets = offsets_E1.tolist()
    if offsets[0] != 0 or offsets[-1] != len(x_mH) or any(a > b for a, b in pairwise(offsets)):
        raise InputError(f"grouped_mlp: offsets {offsets} do not split {len(x_mH)} rows; they must rise from 0 to it")
    weights = table.weights.get(int(layer))
    if weights is None:
        raise InputError(f"grouped_mlp: layer {int(layer)} has no experts in the table; it holds {table.layers}")
    gate_up_e2IH, down_eHI = weights
    for e in range(table.experts):
        a, b = offsets[e], offsets[e + 1]
        if a == b:
            continue
        x_nH = x_mH[a:b]
        padding = -(b - a) % ROWS
        if padding:
            x_nH = F.pad(x_nH, (0, 0, 0, padding))
        gate_nI, up_nI = F.linear(x_nH, gate_up_e2IH[e]).chunk(2, dim=-1)
        out_mH[a:b] = F.linear(F.silu(gate_nI) * up_nI, down_eHI[e])[: b - a]
