"""Every kernel of this machine against a float64 oracle, and its independence of neighbours."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab import superkernel
from asaplab.errors import InputError
from tests.superkernel.cases import COMBINATIONS, EXPERTS, LAYERS, TOLERANCE, H, offsets_of, oracle, rows, weights

every_kernel = pytest.mark.parametrize(("kernel", "dtype"), COMBINATIONS, ids=str)
ONE_ROW = [1] + [0] * (EXPERTS - 1)


def close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Largest difference over largest value within the dtype's tolerance."""
    if not len(got):
        return got.shape == expected.shape
    return float((got.double() - expected).abs().max() / expected.abs().max()) <= TOLERANCE[got.dtype]


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=EXPERTS, max_size=EXPERTS),
    layer=st.sampled_from(LAYERS),
    combination=st.sampled_from(COMBINATIONS),
)
def test_any_counts_equal_the_oracle(counts: list[int], layer: int, combination: tuple[str, torch.dtype]) -> None:
    kernel, dtype = combination
    pairs, x, offsets = weights(dtype), rows(sum(counts), dtype), offsets_of(counts)
    got = superkernel.grouped_mlp(x, offsets, torch.tensor([layer]), superkernel.pack(pairs, backend=kernel))
    assert got.dtype == dtype
    assert got.shape == x.shape
    assert close(got, oracle(x, offsets.tolist(), pairs[layer]))


@every_kernel
# one and several blocks of the sum, whole and ragged panels, even and odd sums
@pytest.mark.parametrize(("hidden", "inner"), [(2048, 768), (300, 520), (257, 37), (1, 1), (15, 255)])
def test_any_sizes_equal_the_oracle(kernel: str, dtype: torch.dtype, hidden: int, inner: int) -> None:
    pairs, counts = weights(dtype, hidden=hidden, inner=inner, layers=(0,)), [13, 0, 2, 1]
    x, offsets = rows(sum(counts), dtype, hidden), offsets_of(counts)
    got = superkernel.grouped_mlp(x, offsets, torch.tensor([0]), superkernel.pack(pairs, backend=kernel))
    assert close(got, oracle(x, offsets.tolist(), pairs[0]))


@every_kernel
@pytest.mark.parametrize(("hidden", "inner"), [(H, 32), (600, 300)])
def test_a_row_does_not_depend_on_its_neighbours(kernel: str, dtype: torch.dtype, hidden: int, inner: int) -> None:
    table = superkernel.pack(weights(dtype, hidden=hidden, inner=inner, layers=(0,)), backend=kernel)
    counts, layer = [37, 0, 230, 9], torch.tensor([0])
    x, offsets = rows(sum(counts), dtype, hidden), offsets_of(counts)
    full = superkernel.grouped_mlp(x, offsets, layer, table)
    for take in (1, 2, 5, 8, 13, 96, 97):
        kept = [min(take, n) for n in counts]
        chosen = torch.cat([torch.arange(end - n, end) for end, n in zip(offsets[1:].tolist(), kept)])
        assert torch.equal(superkernel.grouped_mlp(x[chosen], offsets_of(kept), layer, table), full[chosen])


@every_kernel
def test_many_rows_in_many_blocks_equal_single_ones(kernel: str, dtype: torch.dtype) -> None:
    """More rows than a block holds, sums in several blocks of k, results in several groups of columns."""
    table = superkernel.pack(weights(dtype, hidden=1100, inner=300, layers=(0,)), backend=kernel)
    counts, layer = [320, 321, 0, 650], torch.tensor([0])
    x, offsets = rows(sum(counts), dtype, 1100), offsets_of(counts)
    full = superkernel.grouped_mlp(x, offsets, layer, table)
    chosen = torch.tensor([0, 255, 256, 319, 320, 480, 640, 641, 1290])
    kept = [int(((chosen >= a) & (chosen < b)).sum()) for a, b in pairwise(offsets.tolist())]
    assert torch.equal(superkernel.grouped_mlp(x[chosen], offsets_of(kept), layer, table), full[chosen])


# torch's own linear, the plain kernel's, may split its sums by threads
@pytest.mark.parametrize(("kernel", "dtype"), [c for c in COMBINATIONS if c[0] != "plain"], ids=str)
def test_threads_do_not_change_bits(kernel: str, dtype: torch.dtype) -> None:
    table = superkernel.pack(weights(dtype, hidden=600, inner=300, layers=(0,)), backend=kernel)
    counts = [150, 3, 0, 99]
    x, offsets, layer = rows(sum(counts), dtype, 600), offsets_of(counts), torch.tensor([0])
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(superkernel.grouped_mlp(x, offsets, layer, table))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("kernel", [kernel for kernel, dtype in COMBINATIONS if dtype == torch.bfloat16])
def test_bfloat16_rounds_where_a_bfloat16_model_rounds(kernel: str) -> None:
    """Sums in float32, then gate, up, silu and product rounded one by one, as F.silu(F.linear) * F.linear does."""
    pairs, counts = weights(torch.bfloat16), [40, 20, 0, 4]
    x, offsets = rows(sum(counts), torch.bfloat16), offsets_of(counts)
    got = superkernel.grouped_mlp(x, offsets, torch.tensor([1]), superkernel.pack(pairs, backend=kernel))
    expected = []
    for e in range(EXPERTS):
        gate_up, down = (w[e].double() for w in pairs[1])
        gate, up = F.linear(x[offsets[e] : offsets[e + 1]].double(), gate_up).bfloat16().chunk(2, dim=-1)
        expected.append(F.linear((F.silu(gate) * up).double(), down).bfloat16())
    # float32 sums round otherwise than float64's only next to a tie
    assert (got == torch.cat(expected)).double().mean() > 0.98


@every_kernel
def test_silu_holds_far_from_zero(kernel: str, dtype: torch.dtype) -> None:
    gates = torch.tensor([-1e4, -200.0, -90.0, -20.0, -1.0, 0.0, 1.0, 20.0, 90.0, 200.0, 1e4], dtype=dtype)
    gate_up, down = torch.ones(1, 2, 1, dtype=dtype), torch.ones(1, 1, 1, dtype=dtype)
    gate_up[0, 1] = 0.5
    table = superkernel.pack({0: (gate_up, down)}, backend=kernel)
    got = superkernel.grouped_mlp(gates[:, None], torch.tensor([0, len(gates)]), torch.tensor([0]), table)[:, 0]
    g = gates.double()
    torch.testing.assert_close(got.double(), g / (1 + torch.exp(-g)) * g / 2, rtol=TOLERANCE[dtype], atol=1e-30)


@every_kernel
def test_not_a_number_is_not_hidden(kernel: str, dtype: torch.dtype) -> None:
    x = rows(3, dtype)
    x[1, 7] = float("nan")
    table = superkernel.pack(weights(dtype), backend=kernel)
    got = superkernel.grouped_mlp(x, offsets_of([1, 1, 0, 1]), torch.tensor([1]), table)
    assert got.isnan().all(dim=1).tolist() == [False, True, False]
    assert got[[0, 2]].isfinite().all()


@every_kernel
@pytest.mark.parametrize("counts", [[2, 0, 5, 1], [300, 17, 0, 100]])
def test_results_may_take_the_place_of_the_rows(kernel: str, dtype: torch.dtype, counts: list[int]) -> None:
    table = superkernel.pack(weights(dtype), backend=kernel)
    x, layer = rows(sum(counts), dtype), torch.tensor([5])
    expected = superkernel.grouped_mlp(x, offsets_of(counts), layer, table)
    assert superkernel.grouped_mlp(x, offsets_of(counts), layer, table, out=x) is x
    assert torch.equal(x, expected)


@every_kernel
def test_rows_may_lie_apart(kernel: str, dtype: torch.dtype) -> None:
    """Rows read from and written to a wider buffer, as regions of a segment are; nothing beside them is touched."""
    table = superkernel.pack(weights(dtype), backend=kernel)
    counts, layer = [2, 0, 5, 1], torch.tensor([5])
    x = rows(8, dtype)
    expected = superkernel.grouped_mlp(x, offsets_of(counts), layer, table)
    wide, out = torch.zeros(8, H + 7, dtype=dtype), torch.full((8, H + 3), 7.0, dtype=dtype)
    wide[:, 4 : 4 + H] = x
    assert torch.equal(
        superkernel.grouped_mlp(wide[:, 4 : 4 + H], offsets_of(counts), layer, table, out[:, 1 : 1 + H]), expected
    )
    assert torch.equal(out[:, 1 : 1 + H], expected)
    assert out[:, 0].eq(7.0).all()
    assert out[:, 1 + H :].eq(7.0).all()
    turned = x.t().contiguous().t()  # columns apart instead
    target = torch.empty_like(turned)
    assert torch.equal(superkernel.grouped_mlp(turned, offsets_of(counts), layer, table, target), expected)


@every_kernel
def test_a_layer_without_experts_is_refused(kernel: str, dtype: torch.dtype) -> None:
    table = superkernel.pack(weights(dtype), backend=kernel)
    for layer in (0, 3, 6, -1, 1 << 40):
        with pytest.raises(InputError, match=f"layer {layer} has no experts"):
            superkernel.grouped_mlp(rows(1, dtype), offsets_of(ONE_ROW), torch.tensor([layer]), table)


@every_kernel
@pytest.mark.parametrize("offsets", [[0, 1, 1, 1, 2], [1, 1, 1, 1, 3], [0, 2, 1, 3, 3], [0, 4, 4, 4, 3]], ids=str)
def test_offsets_that_do_not_split_the_rows_are_refused(kernel: str, dtype: torch.dtype, offsets: list[int]) -> None:
    table = superkernel.pack(weights(dtype), backend=kernel)
    with pytest.raises(InputError, match="do not split 3 rows"):
        superkernel.grouped_mlp(rows(3, dtype), torch.tensor(offsets), torch.tensor([1]), table)


def test_shapes_and_dtypes_that_do_not_fit_are_refused() -> None:
    table = superkernel.pack(weights(torch.float32))
    x, offsets, layer = rows(1, torch.float32), offsets_of(ONE_ROW), torch.tensor([1])
    for wrong, match in (
        ((x[:, 1:], offsets, layer), "x is"),
        ((x[0], offsets, layer), "x is"),
        ((x.double(), offsets, layer), "x is"),
        ((x, offsets[1:], layer), "offsets are"),
        ((x, offsets.int(), layer), "offsets are"),
        ((x, offsets, layer.int()), "layer is"),
        ((x, offsets, torch.tensor([1, 2])), "layer is"),
    ):
        with pytest.raises(InputError, match=match):
            superkernel.grouped_mlp(*wrong, table)
    with pytest.raises(InputError, match="out is"):
        superkernel.grouped_mlp(x, offsets, layer, table, torch.empty(2, H))
