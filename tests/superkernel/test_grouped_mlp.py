"""The super kernel against a float64 oracle, and its independence of neighbours."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab import superkernel
from asaplab.errors import InputError
from tests.superkernel.cases import EXPERTS, LAYERS, TOLERANCE, H, offsets_of, oracle, weights


@pytest.fixture(params=TOLERANCE, ids=str)
def table(request: pytest.FixtureRequest) -> superkernel.AddressTable:
    return superkernel.pack(weights(request.param))


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(0, 20), min_size=EXPERTS, max_size=EXPERTS),
    layer=st.sampled_from(LAYERS),
    dtype=st.sampled_from(list(TOLERANCE)),
)
def test_any_counts_equal_the_oracle(counts: list[int], layer: int, dtype: torch.dtype) -> None:
    pairs = weights(dtype)
    x = torch.randn(sum(counts), H, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    offsets = offsets_of(counts)
    got = superkernel.grouped_mlp(x, offsets, torch.tensor([layer]), superkernel.pack(pairs))
    expected = oracle(x, offsets.tolist(), pairs[layer])
    assert got.dtype == dtype
    assert got.shape == x.shape
    if len(x):
        assert (got.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()


def test_a_row_does_not_depend_on_its_neighbours(table: superkernel.AddressTable) -> None:
    counts = [37, 0, 130, 9]
    offsets = offsets_of(counts)
    x = torch.randn(sum(counts), H, dtype=torch.float64).to(table.dtype)
    layer = torch.tensor([2])
    full = superkernel.grouped_mlp(x, offsets, layer, table)
    for take in (1, 2, 5, 8, 13, 64):
        kept = [min(take, n) for n in counts]
        rows = torch.cat([torch.arange(b - k, b) for b, k in zip(offsets[1:].tolist(), kept)])
        assert torch.equal(superkernel.grouped_mlp(x[rows], offsets_of(kept), layer, table), full[rows])


def test_out_is_written_in_place(table: superkernel.AddressTable) -> None:
    x = torch.ones(3, H, dtype=table.dtype)
    out = torch.full_like(x, float("nan"))
    assert superkernel.grouped_mlp(x, offsets_of([1, 0, 2, 0]), torch.tensor([1]), table, out) is out
    assert out.isfinite().all()


def test_a_layer_without_experts_is_refused(table: superkernel.AddressTable) -> None:
    for layer in (0, 3, 6, -1):
        with pytest.raises(InputError, match=f"layer {layer} "):
            superkernel.grouped_mlp(
                torch.ones(1, H, dtype=table.dtype), offsets_of([1, 0, 0, 0]), torch.tensor([layer]), table
            )


@pytest.mark.parametrize("offsets", [[0, 1, 1, 1, 2], [1, 1, 1, 1, 3], [0, 2, 1, 3, 3]])
def test_offsets_that_do_not_split_the_rows_are_refused(table: superkernel.AddressTable, offsets: list[int]) -> None:
    with pytest.raises(InputError, match="offsets"):
        superkernel.grouped_mlp(torch.ones(3, H, dtype=table.dtype), torch.tensor(offsets), torch.tensor([1]), table)
