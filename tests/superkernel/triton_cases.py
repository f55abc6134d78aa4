"""Run under TRITON_INTERPRET=1 by test_triton: the Triton kernel against a float64 oracle, on the CPU."""

from __future__ import annotations

import pytest
import torch

from asaplab import superkernel
from tests.superkernel.cases import EXPERTS, LAYERS, H, offsets_of, oracle, weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("counts", [[5, 0, 37, 8], [0, 0, 0, 0], [70, 0, 1, 0]], ids=str)
def test_every_layer_equals_the_oracle(dtype: torch.dtype, counts: list[int]) -> None:
    pairs = weights(dtype)
    table = superkernel.pack(pairs, backend="triton")
    assert table.nbytes == sum(w.numel() * w.element_size() for pair in pairs.values() for w in pair)
    x = torch.randn(sum(counts), H, generator=torch.Generator().manual_seed(1)).to(dtype)
    offsets, layer = offsets_of(counts), torch.zeros(1, dtype=torch.int64)
    for chosen in reversed(LAYERS):
        layer.fill_(chosen)
        got = superkernel.grouped_mlp(x, offsets, layer, table)
        expected = oracle(x, offsets.tolist(), pairs[chosen])
        if len(x):
            tolerance = 2e-6 if dtype == torch.float32 else 2e-2
            assert (got.double() - expected).abs().max() <= tolerance * expected.abs().max()


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    table = superkernel.pack(weights(torch.float32), backend="triton")
    x = torch.randn(78, H)
    full = superkernel.grouped_mlp(x, offsets_of([70, 0, 8, 0]), torch.tensor([2]), table)
    few = superkernel.grouped_mlp(x[68:73], offsets_of([2, 0, 3, 0]), torch.tensor([2]), table)
    assert torch.equal(few, full[68:73])


def test_a_dense_layer_is_left_alone() -> None:
    table = superkernel.pack(weights(torch.float32), backend="triton")
    out = torch.full((1, H), 7.0)
    superkernel.grouped_mlp(torch.ones(1, H), offsets_of([1] + [0] * (EXPERTS - 1)), torch.tensor([0]), table, out)
    assert out.eq(7.0).all()
