"""Ports of a whole instance in one process, and the values that its experts compute."""

from contextlib import contextmanager
from typing import NamedTuple

import torch

from asaplab.core import expert_shares
from asaplab.primitives.combine import MoEPort
from asaplab.primitives.dispatch import AttentionPort
from asaplab.primitives.layout import Dims, attention_bytes, moe_bytes
from asaplab.primitives.segment import Segment


class Ports(NamedTuple):
    dims: Dims
    attention: list[AttentionPort]  # number i * T + j
    moe: list[MoEPort]
    segments: list[Segment]


@contextmanager
def instance(sides=(AttentionPort, MoEPort), **dims):
    d = Dims(**{"D": 1, "T": 1, "E": 2, "E_total": 4, "K": 2, "H": 8, "S": 16, "Dsize": 4} | dims)
    attention = [Segment.create(f"attention-{k}", attention_bytes(d)) for k in range(d.D * d.T)]
    moe = [Segment.create(f"moe-{e}", moe_bytes(d)) for e in range(d.E)]
    try:
        yield Ports(
            d,
            [sides[0](d, k // d.T, k % d.T, own, moe) for k, own in enumerate(attention)],
            [sides[1](d, e, own, attention) for e, own in enumerate(moe)],
            attention + moe,
        )
    finally:
        for segment in attention + moe:
            segment.close()


def experts_of(d: Dims, e: int) -> range:
    return expert_shares(d.E_total, d.E)[e]


def compute(d: Dims, e: int, arrived) -> torch.Tensor:
    """Expert g multiplies by g + 1 and adds the layer: exact in every dtype here for small values."""
    share, y_mH = experts_of(d, e), torch.empty_like(arrived.x_mH)
    for g, expert in enumerate(share):
        at = slice(int(arrived.offsets_E1[g]), int(arrived.offsets_E1[g + 1]))
        y_mH[at] = arrived.x_mH[at] * (expert + 1) + arrived.layer
    return y_mH


def expected(x_nH, ids_nK, layer) -> torch.Tensor:
    return x_nH[:, None] * (ids_nK[..., None] + 1).to(x_nH.dtype) + layer


def tokens(d: Dims, n: int, generator: torch.Generator):
    """n rows of small whole numbers, and K different experts for each."""
    dtype = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[d.Dsize]
    x_nH = torch.randint(-3, 4, (n, d.H), generator=generator).to(dtype)
    ids_nK = torch.rand(n, d.E_total, generator=generator).argsort(1)[:, : d.K]
    return x_nH, ids_nK


def answer(ports: Ports, e: int, *, copy: bool = True) -> int:
    """Device e takes every complete region and sends the rows back; how many regions there were."""
    port = ports.moe[e]
    complete = port.complete()
    for i, slot, _ in complete:
        arrived = port.async_dispatch_recv(i, slot, copy=copy)
        y_mH = compute(ports.dims, e, arrived)
        port.release(arrived)
        port.async_combine_send(arrived, y_mH, stamps=(1, 2, 3), timeout_s=5)
    return len(complete)
