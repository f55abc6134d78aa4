"""The plain kernel: one torch linear per expert. The reference for the others, and what serves without a compiler."""

from __future__ import annotations

from itertools import pairwise

import torch

from asaplab.errors import InputError
from asaplab.superkernel.rowwise import ROWS, fixed_rows, silu
from asaplab.superkernel.table import AddressTable


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
        for first in range(a, b, ROWS):
            x_nH = x_mH[first : min(b, first + ROWS)]
            gate_nI, up_nI = fixed_rows(x_nH, gate_up_e2IH[e]).chunk(2, dim=-1)
            out_mH[first : first + len(x_nH)] = fixed_rows(silu(gate_nI) * up_nI, down_eHI[e])
