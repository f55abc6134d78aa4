"""The fits find what was put in, and the measurements have the shape that the paper builds on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asaplab.errors import InputError
from asaplab.lab import characterize


@given(st.floats(0.1, 10), st.floats(1e-4, 1e-2), st.floats(1e-8, 1e-5))
def test_polynomial_finds_the_coefficients_it_was_made_from(a, b, c):
    x = np.array([128, 512, 2048, 8192, 32768])
    found, miss = characterize.polynomial(x, a + b * x + c * x**2, (0, 1, 2))
    assert miss < 1e-6
    assert found == pytest.approx([a, b, c], rel=1e-3)


@given(st.floats(50, 5000), st.floats(1e-6, 1e-3))
def test_inflection_is_where_floor_and_slope_meet(turn, slope):
    x = np.array([2.0**k for k in range(3, 16)])
    assert characterize.inflection(x, np.maximum(turn * slope, slope * x)) == pytest.approx(turn, rel=0.02)


def test_the_longest_tenth_carries_what_it_carries():
    rows = {row["what"]: row["value"] for row in characterize.imbalance_table(np.array([1] * 9 + [3]))}
    assert rows["share of attention work in the longest tenth"] == pytest.approx(9 / 18)
    assert rows["mean tokens"] == pytest.approx(1.2)


@pytest.mark.slow
def test_one_long_prompt_costs_more_attention_than_many_short_ones_of_the_same_total():
    together, apart = characterize.attention_seconds([[4096], [512] * 8], model="tiny-deepseek-v3", repetitions=3)
    assert together > 1.3 * apart


def test_the_indexer_leaves_a_fixed_number_of_pairs_to_each_further_query():
    seconds, pairs = characterize.indexer_costs([64, 128, 192], model="tiny-deepseek-v32", repetitions=1)
    assert pairs == [64 * 65 // 2, 64 * 65 // 2 + 64 * 64, 64 * 65 // 2 + 128 * 64]
    assert all(s > 0 for s in seconds)
    with pytest.raises(InputError, match="'tiny-deepseek-v3' has no indexer"):
        characterize.indexer_costs([64], model="tiny-deepseek-v3")
