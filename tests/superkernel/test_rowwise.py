"""Row-wise operations: against float64, and independent of the rows beside a row, in every kernel of this machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from asaplab.superkernel import linear, pack_linear, sigmoid, silu
from asaplab.superkernel.capability import VARIABLE
from tests.superkernel.cases import COMBINATIONS, TOLERANCE, rows

every_kernel = pytest.mark.parametrize(("kernel", "dtype"), COMBINATIONS, ids=str)


def weight(N: int, K: int, dtype: torch.dtype) -> torch.Tensor:
    random = torch.Generator().manual_seed(2)
    return (torch.randn(N, K, generator=random, dtype=torch.float64) / K**0.5).to(dtype)


@every_kernel
# one and several parts, one and several blocks of the sum, ragged panels, odd sums
@pytest.mark.parametrize(("N", "K"), [(96, 64), (2500, 300), (1024, 1037), (33, 7), (1, 1)])
def test_equals_the_oracle(kernel: str, dtype: torch.dtype, N: int, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, kernel)
    w, x = weight(N, K, dtype), rows(37, dtype, K)
    got, expected = linear(x, pack_linear(w)), x.double() @ w.double().t()
    assert got.dtype == dtype
    assert float((got.double() - expected).abs().max() / expected.abs().max()) <= TOLERANCE[dtype]


@every_kernel
@pytest.mark.parametrize(("N", "K"), [(600, 300), (77, 1000)])
def test_a_row_does_not_depend_on_its_neighbours(
    kernel: str, dtype: torch.dtype, N: int, K: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, kernel)
    packed, x = pack_linear(weight(N, K, dtype)), rows(300, dtype, K)
    full = linear(x, packed)
    for first, m in ((0, 1), (299, 1), (7, 5), (31, 33), (100, 128), (3, 250)):
        assert torch.equal(linear(x[first : first + m], packed), full[first : first + m])


@every_kernel
def test_strided_rows_and_none_at_all(kernel: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, kernel)
    packed, x = pack_linear(weight(40, 48, dtype)), rows(10, dtype, 96)
    assert torch.equal(linear(x[:, 48:], packed), linear(x[:, 48:].contiguous(), packed))
    assert torch.equal(linear(x.t()[:48].t(), packed), linear(x[:, :48], packed))
    assert linear(x[:0, :48], packed).shape == (0, 40)


def test_a_packed_weight_is_about_as_large_as_the_weight() -> None:
    w = weight(2048, 512, torch.float32)
    assert sum(part.nbytes for part in pack_linear(w).parts) == w.numel() * 4


def test_a_wrong_dtype_is_refused() -> None:
    with pytest.raises(AssertionError, match="meets"):
        linear(rows(3, torch.float32, 64), pack_linear(weight(8, 64, torch.float64)))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("ours", "torchs"), [(sigmoid, torch.sigmoid), (silu, F.silu)])
def test_elementwise_functions_are_torchs_and_the_same_everywhere(
    ours: Callable[[torch.Tensor], torch.Tensor], torchs: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    x = torch.cat([rows(40, dtype, 23) * 4, torch.tensor([[-200.0, 200.0, 0.0] + [1.0] * 20], dtype=dtype)])
    full = ours(x)
    torch.testing.assert_close(full, torchs(x), rtol=TOLERANCE[dtype], atol=0)
    for first, m in ((0, 1), (3, 2), (11, 7), (40, 1)):
        assert torch.equal(ours(x[first : first + m].clone()), full[first : first + m])
        assert torch.equal(ours(x[:, 5:18]), full[:, 5:18])
