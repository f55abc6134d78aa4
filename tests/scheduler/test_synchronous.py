"""Balanced lock-step batching and chunked prefill under all arrival orders that hypothesis finds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import Batching, Request
from asaplab.scheduler import Arrival, StepDone, named, scheduler_of
from tests.scheduler.drive import drive, requests_of

DEFAULT = named("default")


def cost(tokens, squares):
    return 1e-6 * tokens + 1e-9 * squares


def with_batching(**fields):
    return replace(DEFAULT, batching=Batching(policy="balanced", **fields))


@st.composite
def situations(draw, chunked=(False, True), queue=("fcfs", "shortest_first")):
    chunk = draw(st.sampled_from([7, 40, 100])) if draw(st.sampled_from(chunked)) else None
    system = with_batching(
        budget_tokens=draw(st.sampled_from([50, 100, 300])),
        max_tokens=draw(st.sampled_from([80, 200])),
        chunk_tokens=chunk,
        fill_chunks=chunk is not None and draw(st.booleans()),
        balance=draw(st.sampled_from(["tokens", "cost"])),
        queue=draw(st.sampled_from(queue)),
    )
    count = draw(st.integers(0, 25))
    arrivals = draw(st.lists(st.sampled_from([0.0, 0.01, 0.5, 2.0, 3.7]), min_size=count, max_size=count))
    tokens = draw(st.lists(st.integers(1, 250), min_size=count, max_size=count))
    return system, draw(st.integers(1, 5)), requests_of(arrivals, tokens)


def run(situation):
    system, groups, requests = situation
    return drive(system, groups, requests, lambda group, batch: 0.3 + 1e-3 * batch.tokens, cost)


@given(situations())
@settings(max_examples=300, deadline=None)
def test_every_token_of_every_request_is_handed_out_once_in_order_on_one_group(situation):
    _, _, requests = situation
    pieces = {request.id: [] for request in requests}
    for _, group, batch in run(situation).batches:
        for piece in batch.pieces:
            pieces[piece.request].append((group, piece))
    for request in requests:
        mine = pieces[request.id]
        assert len({group for group, _ in mine}) == 1  # its devices hold the KV cache
        at = 0
        for _, piece in mine:
            assert piece.start == at
            assert piece.tokens >= 1
            at += piece.tokens
            assert piece.last == (at == request.tokens)
        assert at == request.tokens


@given(situations())
@settings(max_examples=200, deadline=None)
def test_no_group_takes_more_than_its_budget_unless_it_is_one_whole_prompt(situation):
    system, groups, _ = situation
    b = system.batching
    limit = min(b.chunk_tokens or b.budget_tokens, b.max_tokens)
    for _, step in run(situation).steps:
        assert len(step.batches) == groups
        assert any(step.batches)
        for batch in filter(None, step.batches):
            assert batch.tokens <= limit or (len(batch.pieces) == 1 and b.chunk_tokens is None)


@given(situations(chunked=(True,)))
@settings(max_examples=100, deadline=None)
def test_a_chunked_prompt_advances_by_one_chunk_a_step_at_most(situation):
    for _, step in run(situation).steps:
        advanced = [piece.request for batch in step.batches if batch for piece in batch.pieces]
        assert len(set(advanced)) == len(advanced)
        assert all(p.tokens <= situation[0].batching.chunk_tokens for b in step.batches if b for p in b.pieces)


@given(situations(queue=("fcfs",)))
@settings(max_examples=200, deadline=None)
def test_prompts_begin_in_the_order_of_arrival(situation):
    begun = [
        sorted(piece.request for batch in step.batches if batch for piece in batch.pieces if piece.start == 0)
        for _, step in run(situation).steps
    ]
    order = [request for step in begun for request in step]
    assert order == sorted(order)


@given(situations())
@settings(max_examples=100, deadline=None)
def test_steps_never_overlap_and_never_idle_with_work_in_hand(situation):
    log, end = run(situation), 0.0
    ends = {piece.request: at for at, _, batch in log.batches for piece in batch.pieces}
    for at, step in log.steps:
        assert at >= end - 1e-12
        waiting = [situation[2][request].arrival_s for request, last in ends.items() if last >= at]
        assert at == pytest.approx(max(end, min(waiting, default=end)))
        end = at + max(0.3 + 1e-3 * batch.tokens for batch in step.batches if batch)


def test_an_idle_rank_only_keeps_the_barriers():
    scheduler = scheduler_of(DEFAULT, 4)
    (step,), deadline = scheduler.on(Arrival(Request(0, 0.0, 100)), 0.0)
    assert [batch is not None for batch in step.batches] == [True, False, False, False]
    assert deadline is None
    assert scheduler.on(Arrival(Request(1, 0.1, 100)), 0.1) == ([], None)
    (second,), _ = scheduler.on(StepDone(0), 1.0)
    assert second.step == 1
    assert sum(batch is not None for batch in second.batches) == 1
    assert scheduler.on(StepDone(1), 2.0) == ([], None)
    assert scheduler.waiting == 0


def test_uneven_lengths_spread_over_the_groups():
    scheduler = scheduler_of(DEFAULT, 2)
    scheduler.on(Arrival(Request(9, 0.0, 1)), 0.0)
    for i, tokens in enumerate([30_000, 1_000, 1_000, 1_000]):
        scheduler.on(Arrival(Request(i, 0.0, tokens)), 0.0)
    (step,), _ = scheduler.on(StepDone(0), 1.0)
    assert sorted([p.request for p in batch.pieces] for batch in step.batches) == [[0], [1, 2, 3]]


def test_balancing_by_cost_puts_a_prompt_where_it_fits():
    """The group of least cost may hold the most tokens: short prompts are cheap."""
    system = with_batching(balance="cost", budget_tokens=8_000)
    scheduler = scheduler_of(system, 2, lambda tokens, squares: float(squares))
    scheduler.on(Arrival(Request(99, 0.0, 1)), 0.0)
    for i, tokens in enumerate([5_000, *[1_000] * 6, 3_000]):
        scheduler.on(Arrival(Request(i, 0.0, tokens)), 0.0)
    (step,), _ = scheduler.on(StepDone(0), 1.0)
    assert [batch.tokens for batch in step.batches] == [8_000, 6_000]


def test_a_full_chunk_is_made_by_splitting():
    requests = requests_of([0.0] * 4, [70, 60, 30, 90])
    for fill, expected in ((True, [70, 100, 80]), (False, [70, 90, 90])):  # the first arrival finds nobody else
        log = drive(with_batching(chunk_tokens=100, fill_chunks=fill), 1, requests, lambda group, batch: 1.0)
        assert [step.batches[0].tokens for _, step in log.steps] == expected


def test_a_cost_is_needed_to_balance_by_it():
    with pytest.raises(ValueError, match="cost function"):
        scheduler_of(with_batching(balance="cost"), 2)


def second_step(system, groups, lengths, cost=None):
    """The requests of each group in the step after the one that the first request has to itself."""
    scheduler = scheduler_of(system, groups, cost)
    for i, tokens in enumerate(lengths):
        scheduler.on(Arrival(Request(i, 0.0, tokens)), 0.0)
    (step,), _ = scheduler.on(StepDone(0), 1.0)
    return [[piece.request for piece in batch.pieces] if batch else [] for batch in step.batches]


def test_a_later_chunk_costs_more_than_its_length():
    """50 tokens behind a prefix of 100 weigh 150^2 - 100^2, more than 60 tokens without one."""
    system = with_batching(chunk_tokens=100, balance="cost")
    assert second_step(system, 2, [150, 60, 30], lambda tokens, squares: float(squares)) == [[0], [1, 2]]


def test_shortest_first_finishes_what_it_began():
    system = with_batching(chunk_tokens=100, queue="shortest_first")
    assert second_step(system, 1, [150, 90, 95]) == [[0]]
