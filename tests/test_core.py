"""The nouns: what they hold, what they refuse, and in which words."""

import dataclasses
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asaplab.core import (
    TTFT_PARTS,
    Batch,
    Batching,
    Instance,
    Piece,
    Pipeline,
    Placement,
    Request,
    System,
    Transport,
    Workload,
    expert_shares,
    token_shares,
)
from asaplab.errors import AsapError, DeviceLost, InputError, Stalled
from asaplab.scheduler import NAMED, named

LOCKSTEP = {"batching": Batching(policy="balanced"), "pipeline": Pipeline(barrier=True, in_flight=1)}


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Batching(threshold_tokens=0), "batching.threshold_tokens is 0"),
        (lambda: Batching(max_tokens=0), "batching.max_tokens is 0"),
        (lambda: Batching(solo_tokens=-3), "batching.solo_tokens is -3"),
        (lambda: Batching(budget_tokens=0), "batching.budget_tokens is 0"),
        (lambda: Batching(longest_wait_s=-0.1), "batching.longest_wait_s is -0.1"),
        (lambda: Batching(longest_wait_s=float("inf")), "it must be finite"),
        (lambda: Batching(longest_wait_s=float("nan")), "it must be finite"),
        (lambda: Batching(policy="lifo"), "batching.policy is 'lifo'; choose 'length_aware' or "),
        (lambda: Batching(balance="luck"), "batching.balance is 'luck'"),
        (lambda: Batching(queue="lifo"), "batching.queue is 'lifo'"),
        (lambda: Placement(kind="cloud"), "placement.kind is 'cloud'; choose 'colocated' or 'disaggregated'"),
        (lambda: Placement(shared_expert="both"), "placement.shared_expert is 'both'"),
        (lambda: Pipeline(refill="never"), "pipeline.refill is 'never'"),
        (lambda: Transport(primitives="pigeon"), "transport.primitives is 'pigeon'"),
        (lambda: Transport(order="lifo"), "transport.order is 'lifo'"),
        (lambda: Batching(policy="balanced", chunk_tokens=0), "batching.chunk_tokens is 0"),
        (lambda: Batching(chunk_tokens=8192), "batching.chunk_tokens needs policy 'balanced'"),
        (lambda: Batching(fill_chunks=True), "batching.fill_chunks needs chunk_tokens"),
        (lambda: Pipeline(in_flight=0), "pipeline.in_flight is 0"),
        (lambda: Pipeline(overlap=frozenset({"host"})), "pipeline.overlap names"),
        (lambda: Pipeline(dispatch_s=-1e-6), "pipeline.dispatch_s is -1e-06"),
        (lambda: Transport(slots=0), "transport.slots is 0"),
        (lambda: Instance(D=0, T=1, E=1), "D is 0"),
        (lambda: Instance(D=1, T=0, E=1), "T is 0"),
        (lambda: Instance(D=1, T=1, E=-1), "E is -1"),
        (
            lambda: System(name="x", placement=Placement(kind="colocated")),
            "colocated stages need pipeline.barrier=True",
        ),
        (lambda: System(name="x", placement=Placement(kind="colocated"), **LOCKSTEP), "exchange rows by all_to_all"),
        (
            lambda: System(
                name="x",
                placement=Placement(kind="colocated"),
                transport=Transport(primitives="all_to_all"),
                batching=Batching(policy="balanced"),
                pipeline=Pipeline(barrier=True, in_flight=2, overlap=frozenset()),
            ),
            "hold 1 batch a DP group, not 2",
        ),
        (
            lambda: System(
                name="x",
                placement=Placement(kind="colocated"),
                transport=Transport(primitives="all_to_all"),
                **LOCKSTEP,
            ),
            "nothing to overlap",
        ),
        (lambda: System(name="x", transport=Transport(primitives="all_to_all")), "needs pipeline.barrier=True"),
        (lambda: System(name="x", transport=Transport(slots=1)), "deadlock unless transport.order='fifo'"),
        (lambda: System(name="x", pipeline=Pipeline(barrier=True)), "needs policy 'balanced'"),
        (lambda: System(name="x", batching=Batching(policy="balanced")), "needs pipeline.barrier=True"),
        (
            lambda: Workload(arrival_s=np.zeros(2), tokens=np.array([1])),
            "2 arrivals but 1 lengths",
        ),
        (lambda: Workload(arrival_s=np.zeros(1), tokens=np.array([0])), "a prompt has 0 tokens"),
        (lambda: Workload(arrival_s=np.array([1.0, 0.0]), tokens=np.array([1, 1])), "finite and in order"),
        (lambda: Workload(arrival_s=np.zeros(2), tokens=np.ones(2, int), hash_ids=((1,),)), "1 rows of hash_ids for 2"),
        (
            lambda: Workload(arrival_s=np.zeros(1), tokens=np.ones(1, int), token_ids=(np.ones(2, int),)),
            "make them agree",
        ),
        (lambda: Workload(arrival_s=np.array([np.nan]), tokens=np.array([1])), "finite and in order"),
    ],
)
def test_what_is_illegal_is_refused_by_name_in_one_sentence(build, says):
    with pytest.raises(InputError) as error:
        build()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_fewer_slots_than_batches_are_legal_in_fifo_order():
    system = System(name="x", pipeline=Pipeline(in_flight=3), transport=Transport(slots=1, order="fifo"))
    assert replace(system, transport=Transport(slots=3)).transport.order == "ready"
    with pytest.raises(InputError, match=r"2 slot\(s\) for 3 batches in flight"):
        replace(system, transport=Transport(slots=2))


@pytest.mark.parametrize("name", sorted(NAMED))
def test_named_systems_are_values(name):
    system = named(name)
    assert system.name == name
    assert system == named(name)
    assert hash(system) == hash(named(name))
    with pytest.raises(dataclasses.FrozenInstanceError):
        system.name = "other"


def test_the_papers_system_overlaps_on_moe_devices_only_with_two_batches_in_flight():
    asap = named("asap")
    assert asap.pipeline.overlap == {"moe"}
    assert asap.pipeline.in_flight == 2
    assert asap.batching.threshold_tokens == 2048
    assert asap.batching.solo_tokens == 16 * 1024
    assert asap.batching.max_tokens == 32 * 1024
    assert not asap.pipeline.barrier


def test_an_unknown_system_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"there is no system 'warp'; the named systems are asap, "):
        named("warp")


def test_devices_of_an_instance_claim_device_count():
    assert Instance(D=4, T=4, E=16).devices == 32


def test_a_batch_pays_for_the_growth_of_each_squared_length():
    pieces = (Piece(0, 0, 30, True), Piece(1, 100, 20, False))
    batch = Batch(7, pieces)
    assert batch.tokens == 50
    assert batch.sum_squares == 30**2 + 120**2 - 100**2


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20))
def test_chunks_of_a_prompt_pay_together_what_the_prompt_pays(sizes):
    starts = np.cumsum([0, *sizes])
    chunks = [Batch(i, (Piece(0, int(starts[i]), n, False),)) for i, n in enumerate(sizes)]
    assert sum(chunk.sum_squares for chunk in chunks) == sum(sizes) ** 2


def test_a_workload_is_its_requests_in_order():
    w = Workload(arrival_s=np.array([0.0, 0.5]), tokens=np.array([3, 4]))
    assert list(w) == [Request(0, 0.0, 3), Request(1, 0.5, 4)]
    assert len(w) == 2
    assert len(Workload(arrival_s=np.empty(0), tokens=np.empty(0, int))) == 0


@given(E_total=st.integers(1, 400), data=st.data())
def test_expert_shares_cover_all_experts_and_differ_by_one_at_most(E_total, data):
    E = data.draw(st.integers(1, E_total))
    shares = expert_shares(E_total, E)
    assert [e for share in shares for e in share] == list(range(E_total))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("E", [0, 9])
def test_more_devices_than_experts_are_refused(E):
    with pytest.raises(InputError, match=f"E is {E} but the model has 8 experts; choose 1 <= E <= 8"):
        expert_shares(8, E)


@given(st.integers(0, 1000), st.integers(1, 16))
def test_token_shares_cover_all_tokens_and_differ_by_one_at_most(n, T):
    shares = token_shares(n, T)
    assert len(shares) == T
    assert [t for share in shares for t in share] == list(range(n))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_parts_of_a_ttft_are_named_once():
    assert len(set(TTFT_PARTS)) == len(TTFT_PARTS) == 10


def test_errors_are_of_one_family_and_of_the_usual_kinds():
    kinds = SimpleNamespace(InputError=ValueError, DeviceLost=RuntimeError, Stalled=TimeoutError)
    for error in (InputError, DeviceLost, Stalled):
        assert issubclass(error, AsapError)
        assert issubclass(error, getattr(kinds, error.__name__))
