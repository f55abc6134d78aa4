"""Packing: the experts' weights of all layers laid out for the kernel that will read them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping

import torch

from asaplab.errors import InputError
from asaplab.superkernel import cpu
from asaplab.superkernel.capability import ASCENDING, BY_NAME_ONLY, cpu_capability, runs_here
from asaplab.superkernel.table import AddressTable

DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def pack(layers: Mapping[int, tuple[torch.Tensor, torch.Tensor]], backend: str = "auto") -> AddressTable:
    """Lay the expert weights of all layers out for the super kernel.

    Args:
        layers: for each layer with experts ``(gate_up_e2IH, down_eHI)``, e local experts, the gate's I rows first,
            then the up projection's. Layers are read one at a time, so a mapping that loads on access never holds
            two layers. Every layer has the same shapes and dtype (float64, float32 or bfloat16).
        backend: "auto" takes the fastest kernel for the dtype and machine; "plain" (one linear per expert, keeps the
            tensors as given) runs everywhere; "triton" is CUDA's (keeps the tensors too); "avx2", "avx512",
            "avx512bf16", "amx" and "wide" (portable) are the CPU's and keep a reordered copy: drop yours.

    Raises:
        InputError: no layers, layers that differ, shapes that do not fit together, or an unknown backend.
    """
    if not layers:
        raise InputError("superkernel.pack got no layers; give at least one layer with experts")
    if min(layers) < 0:
        raise InputError(f"superkernel.pack got layer {min(layers)}; layer ids start at 0")
    chosen = backend
    kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    first: tuple[int, torch.Size, torch.dtype] | None = None
    for layer in layers:
        gate_up_e2IH, down_eHI = layers[layer]
        _check_layer(layer, gate_up_e2IH, down_eHI)
        if first is None:
            first = (layer, gate_up_e2IH.shape, gate_up_e2IH.dtype)
            chosen = _choose(backend, gate_up_e2IH)
        if (gate_up_e2IH.shape, gate_up_e2IH.dtype) != first[1:]:
            raise InputError(
                f"superkernel.pack: layer {layer} is {tuple(gate_up_e2IH.shape)} {gate_up_e2IH.dtype} but layer "
                f"{first[0]} is {tuple(first[1])} {first[2]}; all layers need one shape and dtype"
            )
        if chosen in ("plain", "triton"):
            kept[layer] = (gate_up_e2IH.contiguous(), down_eHI.contiguous())
        else:
            kept[layer] = cpu.pack(chosen, gate_up_e2IH, down_eHI)
        del gate_up_e2IH, down_eHI  # before the next layer is read
    assert first is not None
    _, (experts, _, H), dtype = first
    addresses_Le2 = torch.zeros(max(kept) + 1, experts, 2, dtype=torch.int64)
    for layer, pair in kept.items():
        for side, weight in enumerate(pair):
            step = weight.stride(0) * weight.element_size()
            addresses_Le2[layer, :, side] = weight.data_ptr() + step * torch.arange(experts)
    return AddressTable(
        backend=chosen,
        dtype=dtype,
        experts=experts,
        H=H,
        I=first[1][1] // 2,
        addresses_Le2=addresses_Le2.to(kept[first[0]][0].device),
        weights=kept,
    )


def _choose(backend: str, weight: torch.Tensor) -> str:
    """The kernel for weights like this one."""
    float64, cuda = weight.dtype == torch.float64, weight.is_cuda
    if backend == "auto":
        if float64:
            return "plain"
        if cuda:
            return "triton" if importlib.util.find_spec("triton") else "plain"
        return cpu_capability()
    native = ASCENDING[1:] + BY_NAME_ONLY
    if backend not in ("plain", "triton", *native):
        raise InputError(
            f"superkernel.pack got backend {backend!r}; choose one of auto, plain, triton, {', '.join(native)}"
        )
    if backend in native and (cuda or not runs_here(backend)):
        where = "CUDA tensors" if cuda else "this machine or installation"
        raise InputError(f"superkernel.pack: kernel {backend!r} does not run on {where}; choose 'auto'")
    if backend == "triton" and not importlib.util.find_spec("triton"):
        raise InputError("superkernel.pack: backend 'triton' needs the triton package; install it or choose 'auto'")
    if backend == "triton" and not cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError("superkernel.pack: backend 'triton' needs weights on a CUDA device; choose 'auto'")
    if float64 and backend != "plain":
        raise InputError(f"superkernel.pack got float64 weights and backend {backend!r}; choose 'auto' or 'plain'")
    return backend


def _check_layer(layer: int, gate_up_e2IH: torch.Tensor, down_eHI: torch.Tensor) -> None:
    """Refuse weights of one layer that do not fit together."""
    if gate_up_e2IH.dim() != 3 or down_eHI.dim() != 3:
        raise InputError(
            f"superkernel.pack: layer {layer} has weights of {gate_up_e2IH.dim()} and {down_eHI.dim()} dimensions; "
            "both need 3: (experts, 2 I, H) and (experts, H, I)"
        )
    experts, twice, H = gate_up_e2IH.shape
    if twice % 2 or down_eHI.shape != (experts, H, twice // 2):
        raise InputError(
            f"superkernel.pack: layer {layer} has gate_up {tuple(gate_up_e2IH.shape)} and down "
            f"{tuple(down_eHI.shape)}; they must be (experts, 2 I, H) and (experts, H, I)"
        )
    if gate_up_e2IH.dtype not in DTYPES or down_eHI.dtype != gate_up_e2IH.dtype:
        raise InputError(
            f"superkernel.pack: layer {layer} has dtypes {gate_up_e2IH.dtype} and {down_eHI.dtype}; both must be "
            "one of float64, float32, bfloat16"
        )
