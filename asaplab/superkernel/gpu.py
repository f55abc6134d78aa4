"""The CUDA kernel in Triton: persistent grouped GEMM that reads layer id, offsets and weight addresses on the device.

Two launches a call, each with one program a multiprocessor, whatever the layer and the rows: nothing is decided on
the host, so a captured CUDA graph serves all layers and all batches of up to m rows. Tile sizes are fixed, so a row's
bits do not depend on its neighbours. Under TRITON_INTERPRET=1 the same text runs on CPU tensors.
"""

from __future__ import annotations

import math
import os

import torch
import triton
import triton.language as tl

from asaplab.superkernel.table import AddressTable

ROWS, COLUMNS, DEPTH = 64, 64, 64  # of a tile; the gate-up launch holds two such accumulators
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}


@triton.jit
def _tile_sums(
    x_at, row, rows_end, x_stride, w_at, column, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Rows of x times columns of a weight (N, K), summed over K in float32; if GATED, also of the weight after it."""
    first = tl.zeros((BM, BN), dtype=tl.float32)
    second = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x_mask = (row[:, None] < rows_end) & (k[None, :] < K)
        w_mask = (column[None, :] < N) & (k[:, None] < K)
        x = tl.load(x_at + row[:, None] * x_stride + k[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_at + column[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            x = x.to(tl.float32)
            w = w.to(tl.float32)
        first = tl.dot(x, w, first, input_precision="ieee")
        if GATED:
            w = tl.load(w_at + N * K + column[None, :] * K + k[:, None], mask=w_mask, other=0.0)
            if WIDEN:
                w = w.to(tl.float32)
            second = tl.dot(x, w, second, input_precision="ieee")
    return first, second


@triton.jit
def grouped_linear(
    x_at, x_stride, offsets_at, layer_at, addresses_at, out_at, out_stride,
    LAYERS: tl.constexpr, EXPERTS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """Tiles of all experts in turn, dealt out to the programs: silu(gate) * up if GATED, else down."""
    layer = tl.load(layer_at)
    known = (layer >= 0) & (layer < LAYERS)
    across = tl.cdiv(N, BN)
    tile = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)
    for e in range(EXPERTS):
        start = tl.load(offsets_at + e)
        end = tl.load(offsets_at + e + 1)
        down = tl.cdiv(end - start, BM)
        # a layer without experts has address 0 and is left alone: the device cannot raise
        address = tl.load(addresses_at + (layer * EXPERTS + e) * 2 + (0 if GATED else 1), mask=known, other=0)
        w_at = tl.multiple_of(address.to(tl.pointer_type(TYPE)), ALIGNED)
        mine = before + tl.where(address != 0, down * across, 0)
        while tile < mine:
            row = start + ((tile - before) % down) * BM + tl.arange(0, BM)  # rows first: they share the weights
            column = ((tile - before) // down) * BN + tl.arange(0, BN)
            total, up = _tile_sums(x_at, row, end, x_stride, w_at, column, N, K, GATED, BM, BN, BK, WIDEN)
            if GATED:
                gate = total.to(TYPE).to(tl.float32)  # the roundings of F.silu(gate) * up
                silu = (gate / (1.0 + tl.exp(-gate))).to(TYPE).to(tl.float32)
                total = silu * up.to(TYPE).to(tl.float32)
            tl.store(
                out_at + row[:, None] * out_stride + column[None, :],
                total.to(TYPE),
                mask=(row[:, None] < end) & (column[None, :] < N),
            )
            tile += tl.num_programs(0)
        before = mine


def grouped_mlp(
    x_mH: torch.Tensor, offsets_E1: torch.Tensor, layer: torch.Tensor, table: AddressTable, out_mH: torch.Tensor
) -> None:
    """See ``superkernel.grouped_mlp``; all tensors are on x's device, and offsets and layer are trusted.

    Rows from ``offsets[-1]`` on are left alone, so that a captured graph can serve fewer rows than it was captured for.
    """
    x_mH = x_mH if x_mH.stride(1) == 1 else x_mH.contiguous()
    target_mH = out_mH if out_mH.stride(1) == 1 else torch.empty_like(x_mH)
    act_mI = x_mH.new_empty(len(x_mH), table.I)
    programs = (
        torch.cuda.get_device_properties(x_mH.device).multi_processor_count if x_mH.is_cuda else 4
    )  # the interpreter's programs run one after the other
    shared = {
        "LAYERS": table.addresses_Le2.shape[0],
        "EXPERTS": table.experts,
        "TYPE": TYPES[table.dtype],
        # bytes that divide every expert's address: a table's addresses tell the compiler nothing by themselves
        "ALIGNED": math.gcd(16, table.H * table.I * table.dtype.itemsize),
        "BM": ROWS,
        "BN": COLUMNS,
        "BK": DEPTH,
        "WIDEN": INTERPRETED,
    }
    for source, target, N, K, gated in (
        (x_mH, act_mI, table.I, table.H, True),
        (act_mI, target_mH, table.H, table.I, False),
    ):
        grouped_linear[(programs,)](
            source, source.stride(0), offsets_E1, layer, table.addresses_Le2, target, target.stride(0),
            N=N, K=K, GATED=gated, **shared,
        )  # fmt: skip
    if target_mH is not out_mH:
        out_mH.copy_(target_mH)
