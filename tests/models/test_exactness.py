"""A request's bits depend on the model, the policy and T alone (design: exactness is the contract)."""

from __future__ import annotations

import itertools
import random
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.models import Checkpoint, Reference, policy
from tests.models.forward import Cut, Forward, whole
from tests.models.test_parity import prompts
from tests.models.variants import FAMILIES

LENGTHS = (5, 33, 64, 17, 290, 1)


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_batches_experts_and_arrival_do_not_matter(written: dict[str, Path], name: str, dtype: str, T: int) -> None:
    checkpoint, sequences = Checkpoint(written[name]), prompts(LENGTHS)
    reference = Reference(checkpoint, policy(dtype), T)
    expected = [reference.prefill([ids])[0].logits_V for ids in sequences]
    assert equal([result.logits_V for result in reference.prefill(sequences)], expected)
    for E in (1, 3, 4):
        forward = Forward(checkpoint, policy(dtype), T, E)
        order = random.Random(E)
        for batches in (
            whole(LENGTHS),
            [[Cut(4, 0, 290), Cut(0, 0, 5)], [Cut(i, 0, LENGTHS[i]) for i in (3, 1, 5, 2)]],
        ):
            assert equal(forward.logits(sequences, batches, order), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_accumulating_on_arrival_breaks_equality(written: dict[str, Path], name: str) -> None:
    forward, sequences = Forward(Checkpoint(written[name]), policy("float32"), 1, 4), prompts(LENGTHS)
    runs = [forward.logits(sequences, whole(LENGTHS), random.Random(seed), on_arrival=True) for seed in range(4)]
    assert not all(equal(run, runs[0]) for run in runs[1:])
    for run in runs[1:]:  # and yet it is a correct sum
        assert all(torch.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(run, runs[0]))


@cache
def _chunking(directory: Path, dtype: str) -> tuple[Forward, list[torch.Tensor], list[torch.Tensor]]:
    forward, sequences = Forward(Checkpoint(directory), policy(dtype), 1, 2), prompts((300, 140))
    return forward, sequences, forward.logits(sequences, whole((300, 140)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [*FAMILIES, "deepseek_v32_wide"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_cut_into_pieces_gives_the_same_bits(written: dict[str, Path], name: str, dtype: str, data) -> None:
    forward, sequences, expected = _chunking(written[name], dtype)
    pieces = []
    for i, ids in enumerate(sequences):
        cuts = data.draw(st.sets(st.integers(1, len(ids) - 1), max_size=4))
        edges = [0, *sorted(cuts), len(ids)]
        pieces.append([Cut(i, a, b) for a, b in itertools.pairwise(edges)])
    batches: list[list[Cut]] = []
    while any(pieces):  # each step takes the next piece of some of the sequences
        ready = [own for own in pieces if own]
        chosen = data.draw(st.lists(st.sampled_from(range(len(ready))), min_size=1, unique=True))
        batches.append([ready[j].pop(0) for j in chosen])
    assert equal(forward.logits(sequences, batches), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rank_without_tokens(written: dict[str, Path], name: str) -> None:
    checkpoint, ids = Checkpoint(written[name]), prompts((1,))
    expected = Reference(checkpoint, policy("float64"), 1).prefill(ids)[0].logits_V
    alone = Forward(checkpoint, policy("float64"), 4, 16).logits(ids, whole((1,)))[0]
    torch.testing.assert_close(alone, expected, rtol=1e-10, atol=1e-10)
