"""Everything that can happen in the flag protocol, for D, T, E, slots and batches in flight up to 2."""

from itertools import product

import pytest

from asaplab.core import Pipeline, System, Transport
from asaplab.errors import InputError
from tests.primitives.protocol import Protocol, Violation, explore, start, steps

SMALL = [(D, T, E) for D, T, E in product((1, 2), repeat=3) if D * E < 4]


@pytest.mark.parametrize("sparse", [False, True], ids=["all devices", "one device in turn"])
@pytest.mark.parametrize("copy", [True, False], ids=["copied", "in place"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(("D", "T", "E"), SMALL)
def test_a_slot_for_each_batch_never_deadlocks(D, T, E, batches, copy, sparse):
    rounds = 2 if D == 1 else 1
    p = Protocol(D, T, E, slots=batches, batches=batches, rounds=rounds, copy=copy, sparse=sparse)
    states, stuck = explore(p)
    assert stuck is None
    assert states > 10


@pytest.mark.slow
@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("queue", [1, 3])
@pytest.mark.parametrize("copy", [True, False], ids=["copied", "in place"])
def test_a_slot_for_each_batch_never_deadlocks_with_two_of_everything(T, queue, copy):
    rounds = 2 if T == queue == 1 else 1
    assert explore(Protocol(2, T, 2, slots=2, batches=2, rounds=rounds, queue=queue, copy=copy))[1] is None


def test_one_slot_in_any_order_deadlocks_and_is_refused():
    _, stuck = explore(Protocol(2, 1, 2, slots=1, batches=2, rounds=1))
    assert stuck is not None
    with pytest.raises(
        InputError, match=r"1 slot\(s\) for 2 batches in flight deadlock unless transport\.order='fifo'"
    ):
        System(name="x", pipeline=Pipeline(in_flight=2), transport=Transport(slots=1, order="ready"))


@pytest.mark.parametrize("queue", [1, 2, 3])
def test_one_slot_in_rotation_deadlocks_when_devices_send_strictly_in_order(queue):
    """Each device's oldest results wait for a group that is itself waiting to send to the other device."""
    assert explore(Protocol(2, 1, 2, slots=1, batches=2, order="fifo", queue=queue))[1] is not None


@pytest.mark.parametrize("sparse", [False, True], ids=["all devices", "one device in turn"])
@pytest.mark.parametrize("T", [1, 2])
def test_one_slot_in_rotation_is_safe_when_devices_send_what_is_free_first(T, sparse):
    """The queue holds all other groups' regions and one more: a group's own next batch then always finds a place."""
    p = Protocol(2, T, 2, slots=1, batches=2, order="fifo", queue=3, first_free=True, sparse=sparse)
    assert explore(p)[1] is None


@pytest.mark.parametrize("order", ["fifo", "ready"])
def test_what_commutes_may_be_taken_at_once(order):
    """The explorer's shortcut agrees with the exploration of every interleaving."""
    for D, T, E in ((1, 1, 1), (1, 2, 1), (1, 1, 2)):
        p = Protocol(D, T, E, slots=1, batches=2, rounds=1, order=order)
        some, stuck = explore(p)
        every, stuck_too = explore(p, everything=True)
        assert some <= every
        assert (stuck is None) == (stuck_too is None)


def test_the_explorer_notices_a_region_that_is_filled_by_different_batches():
    p = Protocol(1, 2, 1, slots=1, batches=2)
    s = start(p)._replace(regions=frozenset({(0, 0, 0, 0, 0, 0), (0, 0, 0, 1, 1, 0)}))
    with pytest.raises(Violation, match="different batches"):
        list(steps(p, s))
