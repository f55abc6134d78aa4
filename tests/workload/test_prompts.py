import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import Workload
from asaplab.errors import InputError
from asaplab.workload import block_bounds, poisson, prompt


def blocks(tokens, hashes, block, seed=0):
    return Workload(
        arrival_s=np.zeros(len(tokens)), tokens=np.array(tokens), hash_ids=tuple(hashes), block_tokens=block, seed=seed
    )


def test_prompts_have_their_length_and_vocabulary_and_do_not_depend_on_order():
    w = poisson(rps=1, requests=20, lengths=[1, 40, 300], seed=2)
    forward = [prompt(w, i, 64) for i in range(20)]
    backward = [prompt(w, i, 64) for i in reversed(range(20))][::-1]
    for i, (a, b) in enumerate(zip(forward, backward)):
        assert a.dtype == np.int64
        assert len(a) == w.tokens[i]
        assert a.min() >= 0
        assert a.max() < 64
        assert np.array_equal(a, b)
    assert not np.array_equal(forward[0][:1000], prompt(poisson(rps=1, requests=20, seed=3), 0, 64)[:1000])


def test_ids_are_spread_over_the_vocabulary():
    ids = prompt(poisson(rps=1, requests=1, lengths=200_000, max_tokens=10**6), 0, 50)
    counts = np.bincount(ids, minlength=50)
    assert counts.min() > 3_500
    assert counts.max() < 4_500


@given(
    scale=st.sampled_from([1.0, 0.5, 0.05, 0.001, 1.7]),
    common=st.integers(0, 6),
    own=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 100),
)
@settings(max_examples=80, deadline=None)
def test_equal_prefixes_of_blocks_are_equal_prefixes_of_tokens(scale, common, own, seed):
    """And what follows differs: the first own block of each has ids of its own."""
    hashes = [(*range(common), *range(100 * (k + 1), 100 * (k + 1) + own[k])) for k in (0, 1)]
    w = blocks([max(1, round(512 * len(h) * scale)) for h in hashes], hashes, 512 * scale, seed)
    a, b = prompt(w, 0, 2**40), prompt(w, 1, 2**40)
    until = min(round(512 * scale * common), len(a), len(b))
    assert np.array_equal(a[:until], b[:until])
    if until < min(len(a), len(b)) and scale >= 0.05:
        assert a[until] != b[until]


@given(block=st.floats(0.01, 600), count=st.integers(0, 200))
def test_bounds_of_blocks_never_decrease_and_cover_the_scaled_length(block, count):
    w = blocks([1], [()], block)
    bounds = block_bounds(w, count)
    assert len(bounds) == count + 1
    assert (np.diff(bounds) >= 0).all()
    assert bounds[-1] == round(block * count)


def test_a_block_holds_the_same_ids_wherever_it_stands():
    w = blocks([32, 32], [(5, 9), (9, 5)], 16)
    a, b = prompt(w, 0, 1000), prompt(w, 1, 1000)
    assert np.array_equal(a[:16], b[16:])
    assert np.array_equal(a[16:], b[:16])


def test_given_ids_are_used_and_checked():
    w = Workload(arrival_s=np.zeros(1), tokens=np.array([3]), token_ids=(np.array([7, 8, 9], np.int32),))
    assert prompt(w, 0, 10).tolist() == [7, 8, 9]
    with pytest.raises(InputError, match="request 0 has a token id outside the model's vocabulary of 9"):
        prompt(w, 0, 9)


@pytest.mark.parametrize(
    ("i", "vocab", "says"), [(3, 5, "no request 3"), (-1, 5, "no request -1"), (0, 0, "vocab is 0")]
)
def test_bad_questions(i, vocab, says):
    with pytest.raises(InputError, match=says):
        prompt(poisson(rps=1, requests=3, lengths=4), i, vocab)
