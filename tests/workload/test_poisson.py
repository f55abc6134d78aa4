import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.errors import InputError
from asaplab.workload import poisson, stream


def test_the_papers_lengths_have_its_least_mean_and_greatest():
    """Claims trace-min 31, trace-mean about 5,000, trace-max about 100,000; below 32k the mean is 4,614."""
    tokens = poisson(rps=1, requests=200_000, max_tokens=100_000).tokens
    assert tokens.min() >= 31
    assert tokens.max() <= 100_000
    assert tokens.mean() == pytest.approx(5_000, rel=0.015)
    below = poisson(rps=1, requests=200_000).tokens
    assert below.max() <= 32768
    assert below.mean() == pytest.approx(4_614, rel=0.015)
    assert (below.astype(float) ** 2).mean() / below.mean() ** 2 == pytest.approx(2.1, abs=0.05)


def test_arrivals_are_poisson():
    """Counts per second have mean and variance ``rps``; gaps are exponential (Kolmogorov-Smirnov by hand)."""
    rps, seconds = 20, 2_000
    arrival_s = poisson(rps=rps, duration_s=seconds).arrival_s
    counts = np.bincount(arrival_s.astype(int), minlength=seconds)
    assert counts.mean() == pytest.approx(rps, rel=0.02)
    assert counts.var() == pytest.approx(rps, rel=0.12)
    gaps = np.sort(np.diff(arrival_s))
    expected = 1 - np.exp(-rps * gaps)
    assert np.abs(expected - np.arange(1, len(gaps) + 1) / len(gaps)).max() < 1.95 / np.sqrt(len(gaps))


@given(rps=st.floats(0.5, 50), duration_s=st.floats(0.1, 20), seed=st.integers(0, 2**63))
@settings(max_examples=50, deadline=None)
def test_arrivals_lie_within_the_duration_and_the_same_seed_gives_the_same(rps, duration_s, seed):
    w = poisson(rps=rps, duration_s=duration_s, seed=seed)
    again = poisson(rps=rps, duration_s=duration_s, seed=seed)
    assert np.array_equal(w.arrival_s, again.arrival_s)
    assert np.array_equal(w.tokens, again.tokens)
    if len(w):
        assert w.arrival_s[0] >= 0
        assert w.arrival_s[-1] < duration_s
    longer = poisson(rps=rps, duration_s=2 * duration_s, seed=seed)
    assert np.array_equal(longer.arrival_s[: len(w)], w.arrival_s)
    assert np.array_equal(longer.tokens[: len(w)], w.tokens)


def test_the_same_seed_at_another_rate_is_the_same_pattern():
    slow, fast = poisson(rps=2, requests=50, seed=3), poisson(rps=8, requests=50, seed=3)
    np.testing.assert_allclose(slow.arrival_s, 4 * fast.arrival_s)
    assert np.array_equal(slow.tokens, fast.tokens)


def test_other_lengths_leave_the_arrivals_alone_and_seeds_differ():
    a, b = poisson(rps=2, requests=50, lengths=7), poisson(rps=2, requests=50)
    assert np.array_equal(a.arrival_s, b.arrival_s)
    assert set(a.tokens.tolist()) == {7}
    assert not np.array_equal(b.arrival_s, poisson(rps=2, requests=50, seed=1).arrival_s)


def test_streams_are_told_apart_by_name_and_key():
    draws = {
        key: stream(5, *key).integers(0, 2**60) for key in [("a",), ("b",), ("a", 0), ("a", 1), ("a", 0, 1), ("a", -1)]
    }
    assert len(set(draws.values())) == len(draws)
    assert stream(5, "a", 1).integers(0, 2**60) == draws["a", 1]


def test_given_lengths_are_drawn_from_and_those_beyond_s_left_out_and_counted():
    w = poisson(rps=1, requests=1000, lengths=[10, 20, 500], max_tokens=100)
    assert set(w.tokens.tolist()) == {10, 20}
    assert len(w) == 1000
    assert w.excluded == pytest.approx(500, abs=80)
    assert f"{w.excluded} prompts" in w.source["excluded_note"]
    with pytest.raises(InputError, match=r"longer than S = 100 tokens; raise S, or drop strict"):
        poisson(rps=1, requests=1000, lengths=[10, 20, 500], max_tokens=100, strict=True)


def test_nothing_left_out_leaves_no_note():
    w = poisson(rps=1, requests=10, lengths=5, strict=True)
    assert w.excluded == 0
    assert "excluded_note" not in w.source


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rps": 0, "duration_s": 1}, "rps is 0; the request rate must be a finite number above 0"),
        ({"rps": -1, "duration_s": 1}, "rps is -1"),
        ({"rps": float("nan"), "duration_s": 1}, "rps is nan"),
        ({"rps": float("inf"), "duration_s": 1}, "rps is inf"),
        ({"rps": 1}, "either duration_s or requests"),
        ({"rps": 1, "duration_s": 1, "requests": 1}, "either duration_s or requests"),
        ({"rps": 1, "duration_s": 0}, "duration_s is 0"),
        ({"rps": 1, "requests": 0}, "requests is 0"),
        ({"rps": 1, "requests": 1, "lengths": 0}, "at least 1 token"),
        ({"rps": 1, "requests": 1, "lengths": []}, "non-empty"),
        ({"rps": 1, "requests": 1, "lengths": [1.5]}, "whole number"),
        ({"rps": 1, "requests": 1, "lengths": "zipf"}, "'paper'"),
        ({"rps": 1, "requests": 1, "lengths": 9, "max_tokens": 8}, "nearly all prompt lengths exceed S = 8"),
        ({"rps": 1, "requests": 1, "max_tokens": 0}, "max_tokens is 0"),
        ({"rps": 1e9, "duration_s": 1e9}, "at most 50,000,000"),
        ({"rps": 1, "requests": 1, "seed": -1}, "seed is -1"),
    ],
)
def test_bad_input_is_one_clear_sentence(options, says):
    with pytest.raises(InputError, match=r"^[^\n]*$") as error:
        poisson(**options)
    assert says in str(error.value)
