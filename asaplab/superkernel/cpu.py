"""The native CPU kernels: packing and calls by address, without the interpreter's lock.

In bfloat16 they round where ``F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)`` rounds: gate, up, silu,
the product and the result, each to nearest even; sums are float32. What differs from torch: the order of the sums
(blocks of 256 along the summed dimension, one multiply-add after the other within a block), and e^x, a polynomial good
to about 1e-7; so a value next to a tie may round the other way. AVX2 has no bfloat16 arithmetic: weights are widened
to float32 in registers.
"""

from __future__ import annotations

import torch

from asaplab.errors import InputError
from asaplab.superkernel.capability import native
from asaplab.superkernel.table import AddressTable

NO_SUCH_LAYER, BAD_OFFSETS = 1, 2


def pack(kernel: str, gate_up_e2IH: torch.Tensor, down_eHI: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer's weights in the kernel's order: (e, packed gate-up elements), (e, packed down elements).

    Both are as large as the weights, up to a padding of I and H to whole panels of 16 or 32 columns.
    """
    assert native is not None
    experts, _, H = gate_up_e2IH.shape
    kind = (kernel, gate_up_e2IH.dtype == torch.bfloat16, H, down_eHI.shape[2])
    gate_up_elements, down_elements = native.packed_elements(*kind)
    packed_gate_up = torch.empty(experts, gate_up_elements, dtype=gate_up_e2IH.dtype)
    packed_down = torch.empty(experts, down_elements, dtype=down_eHI.dtype)
    for packed in (packed_gate_up, packed_down):
        native.prefer_huge_pages(packed.data_ptr(), packed.numel() * packed.element_size())
    for e in range(experts):
        gate_up_2IH, down_HI = gate_up_e2IH[e].contiguous(), down_eHI[e].contiguous()
        native.pack(
            *kind, gate_up_2IH.data_ptr(), down_HI.data_ptr(), packed_gate_up[e].data_ptr(), packed_down[e].data_ptr()
        )
    return packed_gate_up, packed_down


def grouped_mlp(
    x_mH: torch.Tensor, offsets_E1: torch.Tensor, layer: torch.Tensor, table: AddressTable, out_mH: torch.Tensor
) -> None:
    """See ``superkernel.grouped_mlp``. Threads: as many as torch uses, one where the work is small."""
    assert native is not None
    if x_mH.stride(1) != 1:
        x_mH = x_mH.contiguous()
    target_mH = out_mH if out_mH.stride(1) == 1 else torch.empty_like(x_mH)
    addresses_Le2 = table.addresses_Le2
    answer = native.grouped_mlp(
        table.backend,
        table.dtype == torch.bfloat16,
        table.H,
        table.I,
        x_mH.data_ptr(),
        x_mH.stride(0),
        x_mH.shape[0],
        offsets_E1.data_ptr(),
        layer.data_ptr(),
        addresses_Le2.data_ptr(),
        addresses_Le2.shape[0],
        table.experts,
        target_mH.data_ptr(),
        target_mH.stride(0),
        torch.get_num_threads(),
    )
    if answer == NO_SUCH_LAYER:
        raise InputError(f"grouped_mlp: layer {int(layer)} has no experts in the table; it holds {table.layers}")
    if answer == BAD_OFFSETS:
        raise InputError(
            f"grouped_mlp: offsets {offsets_E1.tolist()} do not split {len(x_mH)} rows; they must rise from 0 to it"
        )
    if target_mH is not out_mH:
        out_mH.copy_(target_mH)
