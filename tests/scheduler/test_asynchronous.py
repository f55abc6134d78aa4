"""Length-aware batching and interleaving under all arrival and finish orders that hypothesis finds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import Batching, Pipeline, Request, System, Transport
from asaplab.scheduler import Arrival, Deadline, Finished, named, scheduler_of
from tests.scheduler.drive import drive, requests_of

ASAP = named("asap")
SLOT = replace(ASAP, name="asap-slot", pipeline=replace(ASAP.pipeline, refill="slot"))


@st.composite
def situations(draw, queue=("fcfs", "shortest_first")):
    """A system, a number of groups, requests, and a service time for each (group, batch)."""
    in_flight = draw(st.integers(1, 3))
    batching = Batching(
        policy=draw(st.sampled_from(["length_aware", "length_aware", "fcfs"])),
        threshold_tokens=draw(st.sampled_from([1, 50, 100, 1000])),
        longest_wait_s=draw(st.sampled_from([0.0, 0.05, 1.0])),
        max_tokens=draw(st.sampled_from([100, 200])),
        solo_tokens=draw(st.sampled_from([60, 100, 300])),
        queue=draw(st.sampled_from(queue)),
    )
    pipeline = Pipeline(in_flight=in_flight, refill=draw(st.sampled_from(["pair", "slot"])))
    system = System(name="any", batching=batching, pipeline=pipeline, transport=Transport(slots=in_flight))
    count = draw(st.integers(0, 30))
    arrivals = draw(st.lists(st.sampled_from([0.0, 0.01, 0.5, 0.51, 2.0, 3.7]), min_size=count, max_size=count))
    tokens = draw(st.lists(st.integers(1, 250), min_size=count, max_size=count))
    times = draw(st.lists(st.sampled_from([0.0, 0.01, 0.3, 5.0]), min_size=7, max_size=7))
    service = lambda group, batch: times[(3 * group + batch.id) % len(times)]  # noqa: E731
    return system, draw(st.integers(1, 4)), requests_of(arrivals, tokens), service


@given(situations())
@settings(max_examples=300, deadline=None)
def test_every_request_is_handed_out_exactly_once_and_whole(situation):
    system, groups, requests, service = situation
    log = drive(system, groups, requests, service)
    pieces = [piece for _, _, batch in log.batches for piece in batch.pieces]
    assert sorted((p.request, p.start, p.tokens, p.last) for p in pieces) == [
        (r.id, 0, r.tokens, True) for r in requests
    ]
    ids = [batch.id for _, _, batch in log.batches]
    assert len(set(ids)) == len(ids)


@given(situations())
@settings(max_examples=200, deadline=None)
def test_no_limit_is_exceeded(situation):
    system, groups, requests, service = situation
    for _, start, held in drive(system, groups, requests, service).starts:
        assert 1 <= len(start.batches) + len(held) <= system.pipeline.in_flight
        for batch in start.batches:
            assert batch.tokens <= system.batching.max_tokens or len(batch.pieces) == 1
            if system.batching.policy == "fcfs":
                assert len(batch.pieces) == 1


@given(situations())
@settings(max_examples=200, deadline=None)
def test_a_long_prompt_has_its_group_to_itself(situation):
    system, groups, requests, service = situation
    long = system.batching.solo_tokens
    for _, start, held in drive(system, groups, requests, service).starts:
        if any(piece.tokens > long for batch in (*start.batches, *held) for piece in batch.pieces):
            assert len(start.batches) == 1
            assert len(start.batches[0].pieces) == 1
            assert not held


@given(situations(queue=("fcfs",)))
@settings(max_examples=200, deadline=None)
def test_first_come_first_served(situation):
    system, groups, requests, service = situation
    order = [
        piece.request for _, _, batch in drive(system, groups, requests, service).batches for piece in batch.pieces
    ]
    assert order == sorted(order)


@given(situations())
@settings(max_examples=200, deadline=None)
def test_nobody_waits_while_a_group_is_idle_and_the_longest_wait_is_over(situation):
    """Work conservation: a request that waits longer than ``longest_wait_s`` found every group occupied meanwhile."""
    system, groups, requests, service = situation
    log = drive(system, groups, requests, service)
    busy = [[] for _ in range(groups)]
    for at, group, batch in log.batches:
        busy[group].append((at, at + service(group, batch)))
    for request, at in log.started_at.items():
        since = requests[request].arrival_s + system.batching.longest_wait_s
        if at <= since:
            continue
        for group in range(groups):
            assert _covered(busy[group], since, at), f"group {group} idled while request {request} waited"


def _covered(intervals, start, end):
    for a, b in sorted(intervals):
        if a > start:
            break
        start = max(start, b)
    return start >= end


@given(situations())
@settings(max_examples=100, deadline=None)
def test_the_scheduler_is_woken_no_more_than_needed(situation):
    system, groups, requests, service = situation
    log = drive(system, groups, requests, service)
    assert log.deadlines <= len(requests)


@pytest.mark.parametrize("system", [ASAP, SLOT], ids=lambda s: s.name)
def test_one_single_request_on_an_idle_instance_starts_by_its_longest_wait(system):
    scheduler = scheduler_of(system, 2)
    decisions, deadline = scheduler.on(Arrival(Request(0, 1.0, 100)), 1.0)
    assert decisions == []
    assert deadline == 1.0 + system.batching.longest_wait_s
    (start,), deadline = scheduler.on(Deadline(), deadline)
    assert [piece.request for piece in start.batches[0].pieces] == [0]
    assert deadline is None
    assert scheduler.waiting == 0


def test_a_pair_starts_as_soon_as_it_is_complete():
    scheduler = scheduler_of(ASAP, 1)
    assert scheduler.on(Arrival(Request(0, 0.0, 3000)), 0.0)[0] == []
    (start,), _ = scheduler.on(Arrival(Request(1, 0.01, 3000)), 0.01)
    assert [batch.tokens for batch in start.batches] == [3000, 3000]


def test_a_slot_is_refilled_at_once_but_a_pair_only_when_both_are_done():
    for system, refilled in ((ASAP, 0), (SLOT, 1)):
        scheduler = scheduler_of(system, 1)
        for i in range(4):
            scheduler.on(Arrival(Request(i, 0.0, 4000)), 0.0)
        assert scheduler.waiting == 2
        decisions, _ = scheduler.on(Finished(0, 0), 1.0)
        assert len(decisions) == refilled
        decisions, _ = scheduler.on(Finished(0, 1), 2.0)
        assert len(decisions) == 1
        assert scheduler.waiting == 0


def test_uneven_lengths_are_not_cut_at_request_boundaries():
    """[30k, 1k, 1k, 1k]: the long one alone on one group, the short ones together on the other, at once or when due."""
    log = drive(ASAP, 2, requests_of([0.0] * 4, [30_000, 1_000, 1_000, 1_000]), lambda group, batch: 1.0)
    groups = {group: [p.request for b in batches for p in b.pieces] for group, batches in _by_group(log).items()}
    assert sorted(groups.values()) == [[0], [1, 2, 3]]
    assert max(at for at, _, _ in log.batches) <= ASAP.batching.longest_wait_s


def _by_group(log):
    groups = {}
    for _, group, batch in log.batches:
        groups.setdefault(group, []).append(batch)
    return groups


def test_an_idle_group_takes_a_long_prompt_although_a_half_full_one_was_free_first():
    scheduler = scheduler_of(SLOT, 2)
    (a,), _ = scheduler.on(Arrival(Request(0, 0.0, 4000)), 0.0)
    (b,), _ = scheduler.on(Arrival(Request(1, 0.0, 4000)), 0.0)
    assert {a.group, b.group} == {0, 1}
    scheduler.on(Finished(b.group, b.batches[0].id), 0.5)
    (solo,), _ = scheduler.on(Arrival(Request(2, 1.0, 20_000)), 1.0)
    assert solo.group == b.group


def test_an_idle_group_is_preferred_to_a_half_full_one():
    scheduler = scheduler_of(SLOT, 2)
    scheduler.on(Arrival(Request(0, 0.0, 4000)), 0.0)
    (b,), _ = scheduler.on(Arrival(Request(1, 0.0, 4000)), 0.0)
    scheduler.on(Finished(b.group, b.batches[0].id), 0.5)
    (c,), _ = scheduler.on(Arrival(Request(2, 1.0, 4000)), 1.0)
    assert c.group == b.group


def test_a_long_prompt_without_an_idle_group_asks_for_no_deadline():
    scheduler = scheduler_of(SLOT, 1)
    (first,), _ = scheduler.on(Arrival(Request(0, 0.0, 4000)), 0.0)
    decisions, deadline = scheduler.on(Arrival(Request(1, 0.0, 20_000)), 0.0)
    assert (decisions, deadline) == ([], None)
    (solo,), _ = scheduler.on(Finished(0, first.batches[0].id), 9.0)
    assert solo.batches[0].tokens == 20_000


def test_nobody_waits_for_company_that_can_not_come():
    """Behind a batch stands a long prompt, which shares its group with nobody: the batch starts at once."""
    scheduler = scheduler_of(ASAP, 2)
    assert scheduler.on(Arrival(Request(0, 0.0, 4000)), 0.0)[0] == []
    decisions, _ = scheduler.on(Arrival(Request(1, 0.01, 20_000)), 0.01)
    assert [[batch.tokens for batch in start.batches] for start in decisions] == [[4000], [20_000]]


def test_shortest_first_puts_short_batches_ahead_and_keeps_ties_in_order():
    system = replace(ASAP, batching=replace(ASAP.batching, queue="shortest_first"))
    log = drive(system, 1, requests_of([0.0] * 6, [3000, 3000, 9000, 5000, 4000, 4000]), lambda group, batch: 1.0)
    assert [batch.pieces[0].request for _, _, batch in log.batches] == [0, 1, 4, 5, 3, 2]
