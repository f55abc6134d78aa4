"""The one signature of the super kernel; the table says which kernel runs."""

from __future__ import annotations

import torch

from asaplab.errors import InputError
from asaplab.superkernel import cpu, plain
from asaplab.superkernel.capability import ASCENDING, BY_NAME_ONLY
from asaplab.superkernel.table import AddressTable


def _triton(
    x_mH: torch.Tensor, offsets_E1: torch.Tensor, layer: torch.Tensor, table: AddressTable, out_mH: torch.Tensor
) -> None:
    """Triton is imported with the first call that needs it."""
    from asaplab.superkernel import gpu

    gpu.grouped_mlp(x_mH, offsets_E1, layer, table, out_mH)


KERNELS = {
    "plain": plain.grouped_mlp,
    "triton": _triton,
    **dict.fromkeys(ASCENDING[1:] + BY_NAME_ONLY, cpu.grouped_mlp),
}


def grouped_mlp(
    x_mH: torch.Tensor,
    offsets_E1: torch.Tensor,
    layer: torch.Tensor,
    table: AddressTable,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Each row through its expert: ``down(silu(gate(x)) * up(x))``, unweighted (section 3.4.2).

    A row's result does not depend on which other rows are in the call, bit for bit.

    Args:
        x_mH: rows sorted by local expert; m may be 0.
        offsets_E1: int64 on the CPU (Triton: on x's device); rows ``[offsets[e], offsets[e + 1])`` belong to expert e,
            possibly none.
        layer: int64 tensor of one element beside the offsets, read inside the kernel.
        table: the weights of all layers, from ``pack``.
        out: (m, H) of the table's dtype to write to, also ``x_mH`` itself; new memory if not given.

    Raises:
        InputError: shapes or dtypes do not fit the table, offsets do not cover the rows, or the layer has no experts.
            (Triton reads the last two on the device and cannot raise: see ``superkernel.gpu``.)
    """
    m = x_mH.shape[0]
    if x_mH.dim() != 2 or x_mH.shape[1] != table.H or x_mH.dtype != table.dtype:
        raise InputError(
            f"grouped_mlp: x is {tuple(x_mH.shape)} {x_mH.dtype}; the table needs (m, {table.H}) {table.dtype}"
        )
    if offsets_E1.shape != (table.experts + 1,) or offsets_E1.dtype != torch.int64:
        raise InputError(
            f"grouped_mlp: offsets are {tuple(offsets_E1.shape)} {offsets_E1.dtype}; {table.experts} experts need "
            f"{table.experts + 1} of int64"
        )
    if layer.numel() != 1 or layer.dtype != torch.int64:
        raise InputError(f"grouped_mlp: layer is {tuple(layer.shape)} {layer.dtype}; it must be one int64 element")
    if out is None:
        out = torch.empty_like(x_mH, memory_format=torch.contiguous_format)
    elif out.shape != (m, table.H) or out.dtype != table.dtype:
        raise InputError(f"grouped_mlp: out is {tuple(out.shape)} {out.dtype}; it must be {(m, table.H)} {table.dtype}")
    KERNELS[table.backend](x_mH, offsets_E1, layer, table, out)
    return out
