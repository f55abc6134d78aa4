"""Collectives of a DP group and the barrier: values, order of sums, reuse of areas, bounded waits."""

import random
import threading
import time

import pytest
import torch

from asaplab.core import token_shares
from asaplab.errors import InputError, Stalled
from asaplab.primitives.barrier import Barrier
from asaplab.primitives.group import AREAS, MOST_RANKS, TAKEN, GroupPort
from asaplab.primitives.layout import LINE, Dims
from asaplab.primitives.segment import Aborted, Segment, abort


def dims(T, Dsize=4):
    return Dims(D=1, T=T, E=2, E_total=4, K=2, H=6, S=40, Dsize=Dsize)


def in_parallel(works):
    """Run them on threads; what each returned, or the first error."""
    results, errors = [None] * len(works), []

    def run(k):
        try:
            results[k] = works[k]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    if errors:
        raise errors[0]
    return results


def group(T, timeout_s=30.0, Dsize=4):
    d = dims(T, Dsize)
    segment = Segment.create("group", GroupPort.size(d))
    return [GroupPort(segment, d, rank, timeout_s=timeout_s) for rank in range(T)]


@pytest.mark.parametrize("T", [1, 2, 3, 4])
def test_collectives_in_random_order_many_times(T):
    ports, rounds = group(T), 60

    def rank(port):
        order, generator = random.Random(5), torch.Generator().manual_seed(7)  # the same on all ranks
        for _ in range(rounds):
            what, N = order.choice(["sum", "gather", "mask", "publish"]), order.randrange(41)
            parts = torch.randn(T, N, 6, generator=generator)
            mine = token_shares(N, T)[port.rank]
            if what == "sum":
                total = parts[0]
                for part in parts[1:]:
                    total = total + part  # over the ranks in order: the same bits
                assert torch.equal(port.reduce_scatter(parts[port.rank].clone()), total[mine.start : mine.stop])
            elif what == "gather":
                own = parts[0, mine.start : mine.stop].clone()
                assert torch.equal(port.all_gather(own, N), parts[0])
            elif what == "mask":
                masks = [order.getrandbits(300) for _ in range(T)]
                union = 0
                for mask in masks:
                    union |= mask
                assert port.or_mask(masks[port.rank]) == union
            elif port.rank == 0:
                port.publish((N, -1))
            else:
                assert port.receive(30) == (N, -1)

    in_parallel([lambda port=port: rank(port) for port in ports])


def test_a_rank_that_does_not_come_is_named():
    ports = group(3, timeout_s=0.05)
    with pytest.raises(Stalled, match=r"rank 1 waited 0\.05 s for ranks \[0, 2\]"):
        ports[1].or_mask(1)


def test_publishing_waits_for_takers_and_receiving_is_bounded():
    ports = group(2, timeout_s=0.05)
    assert ports[1].receive(0.01) is None
    ports[0].publish((1,))
    with pytest.raises(Stalled, match=r"rank 0 waited 0\.05 s for ranks \[1\]"):
        ports[0].publish((2,))
    assert ports[1].receive(0) == (1,)
    ports[0].publish((3,))
    assert ports[1].receive(0) == (3,)
    with pytest.raises(InputError, match="at most 7"):
        ports[0].publish(tuple(range(8)))


def test_a_batch_beyond_s_is_refused():
    with pytest.raises(InputError, match="does not fit the group's segment; S is 40"):
        group(2)[0].reduce_scatter(torch.zeros(2000, 6))


def test_an_aborted_collective_ends():
    ports = group(2)
    threading.Timer(0.1, abort, [[ports[0].segment]]).start()
    with pytest.raises(Aborted):
        ports[0].or_mask(1)


def test_nobody_leaves_a_barrier_before_the_last_has_come():
    segment = Segment.create("barrier", Barrier.size(3))
    barriers, came = [Barrier(segment, 3, k) for k in range(3)], [0, 0, 0]

    def party(k):
        for round in range(1, 30):
            time.sleep(random.random() * 1e-3)
            came[k] = round
            assert barriers[k].wait(30) >= 0
            assert min(came) >= round

    in_parallel([lambda k=k: party(k) for k in range(3)])


def test_a_barrier_names_who_is_missing():
    segment = Segment.create("barrier", Barrier.size(3))
    with pytest.raises(Stalled, match=r"party 1 of a barrier waited 0\.05 s for \[0, 2\]"):
        Barrier(segment, 3, 1).wait(0.05)


def test_more_ranks_than_the_pages_hold_are_refused_and_the_most_do_not_meet_the_areas():
    assert MOST_RANKS == 55
    assert TAKEN + LINE * (MOST_RANKS - 1) + 8 <= AREAS
    d = dims(MOST_RANKS + 1)
    segment = Segment.create("group", GroupPort.size(d))
    with pytest.raises(InputError, match="T is 56; a DP group has at most 55 ranks"):
        GroupPort(segment, d, 0)
    last = GroupPort(segment, dims(MOST_RANKS), MOST_RANKS - 1)
    assert last.receive(0.0) is None
    segment.close()
