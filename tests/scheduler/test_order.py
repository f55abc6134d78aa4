"""The order rules inside a device against their statement, by brute force."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from asaplab.scheduler import next_batch, next_region

INF = float("inf")
TIMES = st.one_of(st.just(-1.0), st.just(INF), st.integers(0, 5).map(float))


@given(st.lists(TIMES, min_size=1, max_size=5), st.integers(0, 4))
def test_ready_order_takes_the_one_that_has_been_ready_longest(ready_since, last):
    last %= len(ready_since)
    chosen = next_batch(ready_since, last, False)
    ready = [t for t in ready_since if 0 <= t < INF]
    if not ready:
        assert chosen == -1
    else:
        assert ready_since[chosen] == min(ready)


@given(st.lists(TIMES, min_size=1, max_size=5), st.integers(0, 4))
def test_fifo_waits_for_the_next_occupied_place(ready_since, last):
    places = len(ready_since)
    last %= places
    occupied = [b for b in [(last + 1 + k) % places for k in range(places)] if ready_since[b] != INF]
    expected = occupied[0] if occupied and ready_since[occupied[0]] >= 0 else -1
    assert next_batch(ready_since, last, True) == expected


def test_two_batches_that_are_always_ready_alternate_in_either_order():
    for fifo in (False, True):
        last, seen = 1, []
        for _ in range(6):
            last = next_batch([0.0, 0.0], last, fifo)
            seen.append(last)
        assert seen == [0, 1, 0, 1, 0, 1]


def test_the_oldest_complete_region_comes_first():
    for complete_since in product((-1.0, 0.0, 1.0, 2.0), repeat=4):
        complete = [t for t in complete_since if t >= 0]
        chosen = next_region(list(complete_since))
        assert chosen == (complete_since.index(min(complete)) if complete else -1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), min_size=1, max_size=60))
def test_no_region_is_starved(arrivals):
    """A region waits for at most the regions that were complete when it became so."""
    complete_since, ahead = [-1.0] * 4, [0] * 4
    for now, (region, _) in enumerate(arrivals):
        if complete_since[region] < 0:
            complete_since[region] = float(now)
            ahead[region] = sum(t >= 0 for t in complete_since) - 1
        if now % 2:  # the device serves one region for two that arrive
            chosen = next_region(complete_since)
            assert ahead[chosen] == 0
            complete_since[chosen] = -1.0
            ahead = [max(0, n - 1) if complete_since[i] >= 0 else 0 for i, n in enumerate(ahead)]
