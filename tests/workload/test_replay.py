import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import Workload
from asaplab.workload import poisson, replay


@given(
    arrivals=st.lists(st.floats(0, 100), max_size=40).map(sorted),
    steps=st.lists(st.floats(0, 20), max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_each_request_is_due_once_at_its_own_time(arrivals, steps):
    w = Workload(arrival_s=np.array(arrivals), tokens=np.ones(len(arrivals), int))
    r, now, seen = replay(w), 0.0, []
    for step in [*steps, 1000.0]:
        now += step
        next_s = r.next_s
        due = r.due(now)
        assert bool(due) == (next_s is not None and next_s <= now)
        assert all(request.arrival_s <= now for request in due)
        seen += due
    assert [request.id for request in seen] == list(range(len(arrivals)))
    assert [request.arrival_s for request in seen] == arrivals
    assert r.next_s is None


def test_a_late_caller_does_not_shift_later_requests():
    """Sleeping for each gap drifts below the asked rate; absolute times do not, however long each hand-over takes."""
    w = poisson(rps=100, requests=1000, lengths=1)
    r, now, late = replay(w), 0.0, []
    while r.next_s is not None:
        now = max(now, r.next_s) + 0.004  # the caller is busy after each hand-over, 40% of a mean gap
        late += [now - request.arrival_s for request in r.due(now)]
    assert np.mean(late[-100:]) < 0.01
    assert now < w.arrival_s[-1] + 0.01


def test_asking_with_an_earlier_time_gives_nothing_twice():
    w = Workload(arrival_s=np.array([0.0, 1.0]), tokens=np.array([1, 1]))
    r = replay(w)
    assert len(r.due(1.0)) == 2
    assert r.due(0.5) == []
