"""Blocked attention, the indexer's choice and rotary tables against plain formulas."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asaplab.models import native_attention
from asaplab.models.config import Indexer
from asaplab.models.indexer import index_mask, stable_top_k
from asaplab.models.kv_cache import BLOCK
from asaplab.models.numerics import places, weighted_sum
from asaplab.models.policy import policy
from asaplab.models.rope import Rope, rotate_halves, rotate_pairs
from asaplab.models.varlen import causal_attention
from asaplab.superkernel.capability import ASCENDING, BY_NAME_ONLY, runs_here

F64 = policy("float64")


def blocks(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("start", "m"), [(0, 1), (0, 130), (100, 60), (256, 128), (127, 2)])
def test_attention_is_the_formula(start: int, m: int, sparse: bool) -> None:
    """In float64, for grouped heads, a prefix of any length, and with a choice of keys."""
    generator = torch.Generator().manual_seed(start + m)
    n = start + m
    q, k, v = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 3, m, 24), (2, blocks(n), 24), (2, blocks(n), 16))
    )
    k[:, n:] = v[:, n:] = 0  # positions not yet written
    allowed = torch.arange(n) <= torch.arange(start, n)[:, None]
    chosen = torch.rand(n, n, generator=generator) < 0.5
    chosen |= torch.eye(n, dtype=torch.bool)
    if sparse:
        allowed = allowed & chosen[start:]

    def select(first: int, last: int, keys: int) -> torch.Tensor:
        picked = F.pad(chosen[first:last], (0, max(0, keys - n)))[:, :keys]
        return torch.zeros(last - first, keys, dtype=torch.float64).masked_fill_(~picked, float("-inf"))

    scores = torch.einsum("hgmd,hnd->hgmn", q, k[:, :n]) * 0.3
    expected = torch.einsum("hgmn,hnv->hgmv", scores.masked_fill(~allowed, float("-inf")).softmax(-1), v[:, :n])
    given_ = torch.empty(2, 3, m, 16, dtype=torch.float64)
    causal_attention(q, k, v, given_, start, 0.3, F64, select if sparse else None)
    torch.testing.assert_close(given_, expected, rtol=1e-12, atol=1e-12)


def random_heads(m: int, start: int, group: int, d: int, dv: int, dtype: str) -> tuple[torch.Tensor, ...]:
    """q_hgmd and whole blocks of k_hnd and v_hnv, as views with strides of their own."""
    generator = torch.Generator().manual_seed(m)
    n = start + m
    q = torch.randn(m, 2, group, d, generator=generator).to(policy(dtype).dtype).permute(1, 2, 0, 3)
    kv = torch.randn(blocks(n), 2, d + dv, generator=generator).to(policy(dtype).dtype).transpose(0, 1)
    return q, kv[..., :d], kv[..., d:]


KERNELS = [name for name in ASCENDING + BY_NAME_ONLY if runs_here(name)]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every kernel that this machine can run; "plain" is the one in torch operations."""
    if request.param != "plain" and not native_attention.serves(torch.float32):
        pytest.skip("asaplab was installed without a compiler")
    monkeypatch.setenv("ASAPLAB_KERNEL", request.param)
    return str(request.param)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("m", "start", "group", "d", "dv"),
    [(300, 0, 1, 192, 128), (1, 0, 1, 16, 16), (77, 90, 3, 17, 9), (50, 600, 2, 64, 40)],
)
def test_kernels_are_close_to_the_formula(
    kernel: str, m: int, start: int, group: int, d: int, dv: int, dtype: str
) -> None:
    q, k, v = random_heads(m, start, group, d, dv, dtype)
    out = torch.empty(2, group, m, dv, dtype=q.dtype)
    causal_attention(q, k, v, out, start, d**-0.5, policy(dtype))
    n = start + m
    scores = torch.einsum("hgmd,hnd->hgmn", q.double(), k[:, :n].double()) * d**-0.5
    later = torch.arange(n) > torch.arange(start, n)[:, None]
    expected = torch.einsum("hgmn,hnv->hgmv", scores.masked_fill(later, float("-inf")).softmax(-1), v[:, :n].double())
    assert float((out.double() - expected).abs().max()) < {"float32": 3e-6, "bfloat16": 3e-2}[dtype]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, 299), max_size=5))
def test_a_query_has_the_same_bits_in_any_cut(kernel: str, dtype: str, cuts: set[int]) -> None:
    q, k, v = random_heads(300, 0, 2, 24, 16, dtype)
    whole = torch.empty(2, 2, 300, 16, dtype=q.dtype)
    pieces = torch.empty_like(whole)
    causal_attention(q, k, v, whole, 0, 0.2, policy(dtype))
    for a, b in pairwise([0, *sorted(cuts), 300]):
        filled = [x[:, : blocks(b)].clone() for x in (k, v)]
        for x in filled:
            x[:, b:] = 0  # the later positions are not yet written
        causal_attention(q[:, :, a:b], *filled, pieces[:, :, a:b], a, 0.2, policy(dtype))
    assert torch.equal(pieces, whole)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bits_stay_where_later_scores_rise_over_many_blocks(kernel: str, dtype: str) -> None:
    """Cuts beside and at the borders of every kernel's blocks; a row's scale moves within and between them."""
    n = 1100
    q, k, v = random_heads(n, 0, 1, 64, 32, dtype)
    k = k * torch.linspace(0, 60, k.shape[1])[None, :, None].to(k.dtype)
    whole = torch.empty(2, 1, n, 32, dtype=q.dtype)
    causal_attention(q, k, v, whole, 0, 1.0, policy(dtype))
    assert whole.isfinite().all()
    for cuts in ([1, 255, 256], [512, 513, 1024], [31, 700, 1090]):
        pieces = torch.empty_like(whole)
        for a, b in pairwise([0, *cuts, n]):
            causal_attention(q[:, :, a:b], k, v, pieces[:, :, a:b], a, 1.0, policy(dtype))
        assert torch.equal(pieces, whole)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_scores_do_not_overflow(kernel: str, dtype: str) -> None:
    q, k, v = random_heads(140, 0, 1, 16, 16, dtype)
    out = torch.empty(2, 1, 140, 16, dtype=q.dtype)
    causal_attention(q, k, v, out, 0, 1e4, policy(dtype))
    scores = torch.einsum("hgmd,hnd->hgmn", q.double(), k[:, :140].double())
    scores = scores.masked_fill(torch.ones(140, 140, dtype=torch.bool).triu(1), float("-inf"))
    nearest = v.gather(1, scores.argmax(-1)[:, 0, :, None].expand(-1, -1, 16))
    assert float((out[:, 0] - nearest).abs().amax(-1).median()) < 1e-5


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0]), min_size=7, max_size=7), min_size=1),
    k=st.integers(1, 7),
)
def test_the_choice_is_stable(rows: list[list[float]], k: int) -> None:
    chosen = stable_top_k(torch.tensor(rows), k)
    for row, mask in zip(rows, chosen):
        expected = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
        assert mask.nonzero().flatten().tolist() == sorted(expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_index_masks_do_not_depend_on_the_cut(dtype: str) -> None:
    generator = torch.Generator().manual_seed(1)
    sizes = Indexer(heads=4, dim=32, top_k=40)
    q, k, weight = (
        torch.randn(shape, generator=generator).to(policy(dtype).dtype) for shape in ((4, 128, 32), (256, 32), (4, 128))
    )
    whole = index_mask(q, weight.float(), k, 128, sizes, policy(dtype))
    assert (whole == 0).sum(-1).tolist() == [40] * 128
    for first, last in ((0, 1), (5, 60), (60, 128)):
        part = index_mask(q[:, first:last], weight[:, first:last].float(), k, 128 + first, sizes, policy(dtype))
        assert torch.equal(part, whole[first:last])


def test_few_keys_are_all_kept() -> None:
    sizes = Indexer(heads=1, dim=8, top_k=40)
    mask = index_mask(torch.randn(1, 40, 8), torch.randn(1, 40), torch.randn(128, 8), 0, sizes, policy("float32"))
    assert not mask.any()


@settings(max_examples=30, deadline=None)
@given(start=st.integers(0, 5000), shift=st.integers(0, 200), yarn=st.booleans())
def test_rotation_knows_only_distances(start: int, shift: int, yarn: bool) -> None:
    """The product of a rotated query and key depends on how far apart they are; the two layouts agree."""
    rope = Rope(dim=16, theta=1e4, kind="yarn" if yarn else "default", factor=8.0 if yarn else 1.0, mscale=1.0)
    generator = torch.Generator().manual_seed(start)
    q, k = (torch.randn(1, 1, 16, generator=generator, dtype=torch.float64) for _ in range(2))

    def product(position: int) -> torch.Tensor:
        tables = [rope.tables(p, p + 1, F64) for p in (position, position + 7)]
        return (rotate_halves(q, *tables[0]) * rotate_halves(k, *tables[1])).sum()

    torch.testing.assert_close(product(start), product(start + shift), rtol=1e-9, atol=1e-9)
    paired = torch.stack(q.chunk(2, dim=-1), dim=-1).flatten(-2)
    tables = rope.tables(start, start + 1, F64)
    assert torch.equal(rotate_pairs(paired, *tables), rotate_halves(q, *tables))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_rotary_tables_do_not_depend_on_the_cut(dtype: str) -> None:
    rope = Rope(dim=10, theta=1e6)
    whole = rope.tables(0, 333, policy(dtype))
    for first, last in ((0, 1), (7, 40), (40, 333)):
        for part, full in zip(rope.tables(first, last, policy(dtype)), whole):
            assert torch.equal(part, full[first:last])


def test_scores_that_rise_along_the_sequence_stay_exact(kernel: str) -> None:
    """Keys grow with their position, so that later scores lie far above those that a row began with."""
    q, k, v = random_heads(1300, 0, 2, 64, 32, "bfloat16")
    k = k * torch.linspace(0, 60, k.shape[1])[None, :, None].to(k.dtype)
    given = torch.empty(*q.shape[:3], 32, dtype=q.dtype)
    causal_attention(q, k, v, given, 0, 1.0, policy("bfloat16"))
    n = q.shape[2]
    later = torch.ones(n, n).triu(1).bool()
    scores = torch.einsum("hgmd,hnd->hgmn", q.double(), k[:, :n].double()).masked_fill(later, float("-inf"))
    expected = torch.einsum("hgmn,hnv->hgmv", torch.softmax(scores, -1), v[:, :n].double())
    assert float((given.double() - expected).abs().max() / expected.abs().max()) < 2e-2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("H", [64, 77, 5])
def test_weighted_sum_is_the_sum_whatever_the_rows_order(kernel: str, dtype: str, H: int) -> None:
    generator, of = torch.Generator().manual_seed(H), policy(dtype)
    n, K = 37, 3
    rows = torch.randn(n * K, H, generator=generator, dtype=torch.float64).to(of.dtype)
    weights = torch.rand(n, K, generator=generator, dtype=torch.float64).to(of.high)
    order = torch.randperm(n * K, generator=generator)
    found = weighted_sum(rows, torch.arange(n * K).view(n, K), weights, of)
    assert found.dtype == of.dtype
    expected = (rows.double().view(n, K, H) * weights.double()[..., None]).sum(1)
    torch.testing.assert_close(
        found.double(), expected, rtol=torch.finfo(of.dtype).eps, atol=1e-2 if dtype == "bfloat16" else 1e-6
    )
    assert torch.equal(weighted_sum(rows[order], places(order).view(n, K), weights, of), found)
    assert torch.equal(weighted_sum(rows, torch.arange(n * K).view(n, K)[5:9], weights[5:9], of), found[5:9])
    assert weighted_sum(rows, torch.empty(0, K, dtype=torch.int64), weights[:0], of).shape == (0, H)
