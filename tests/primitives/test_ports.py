"""The four primitives in one process: every row to its experts and back, backpressure, flags, refusals."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import token_shares
from asaplab.errors import InputError, Stalled
from asaplab.primitives.backend import core
from asaplab.primitives.combine import MoEPort
from asaplab.primitives.dispatch import AttentionPort
from asaplab.primitives.layout import Dims, moe_bytes
from asaplab.primitives.look import rows as look
from asaplab.primitives.segment import Segment
from tests.primitives.instance import answer, compute, expected, instance, tokens


def send(port, x_nH, ids_nK, *, slot=0, layer=3, batch=7, active=None, timeout_s=1.0):
    active = port.needed(ids_nK) if active is None else active
    return port.async_dispatch_send(slot, x_nH, ids_nK, layer=layer, batch=batch, active=active, timeout_s=timeout_s)


@settings(max_examples=60, deadline=None)
@given(
    D=st.integers(1, 2), T=st.integers(1, 3), E=st.integers(1, 4), more=st.integers(0, 5), K=st.integers(1, 4),
    Dsize=st.sampled_from([2, 4, 8]), N=st.lists(st.integers(0, 24), min_size=2, max_size=2), whole=st.booleans(),
    copy=st.booleans(), seed=st.integers(0, 999),
)  # fmt: skip
def test_every_row_reaches_its_experts_and_comes_back(D, T, E, more, K, Dsize, N, whole, copy, seed):
    generator, K = torch.Generator().manual_seed(seed), min(K, E + more)
    copies = K if whole else 1
    dims = {"D": D, "T": T, "E": E, "E_total": E + more, "K": K, "S": 24, "Dsize": Dsize, "copies": copies, "slots": 2}
    with instance(**dims) as ports:
        d = ports.dims
        for round in range(3):
            slot, layer, sent = round % 2, round, []
            for i in range(D):
                batch = [tokens(d, len(share), generator) for share in token_shares(N[i], T)]
                active = 0
                for j, (_, ids) in enumerate(batch):
                    active |= ports.attention[i * T + j].needed(ids)
                for j, (x, ids) in enumerate(batch):
                    port = ports.attention[i * T + j]
                    sent.append((port, x, ids, send(port, x, ids, slot=slot, layer=layer, active=active)))
            for e in range(E):
                answer(ports, e, copy=copy)
                assert ports.moe[e].complete() == []
            for port, x, ids, ticket in sent:
                assert port.combine_ready(ticket)
                results = torch.full((*ids.shape, d.H), 99, dtype=x.dtype)
                headers = port.async_combine_recv(ticket, results, timeout_s=1)
                assert torch.equal(results, expected(x, ids, layer))
                assert sum(h.rows for h in headers) == ids.numel()
                assert {(h.complete_ns, h.start_ns, h.end_ns) for h in headers} <= {(1, 2, 3)}
                assert all(h.sent_ns > 0 for h in headers)
        for segment in ports.segments[: D * T]:
            assert not segment.array(4096, (d.slots * E * 8,), np.uint64).any()


def test_rows_arrive_by_expert_then_rank_then_token():
    with instance(T=2, E=1, E_total=3, K=2, H=4) as ports:
        ids = torch.tensor([[2, 0], [0, 1]]), torch.tensor([[0, 2]])
        for j in range(2):
            n = len(ids[j])
            x = (10 * j + torch.arange(n, dtype=torch.float32))[:, None].expand(n, 4)
            send(ports.attention[j], x, ids[j], active=1)
        (region,) = ports.moe[0].complete()
        arrived = ports.moe[0].async_dispatch_recv(*region[:2], copy=True)
        assert arrived.offsets_E1.tolist() == [0, 3, 4, 6]
        assert arrived.x_mH[:, 0].tolist() == [0, 1, 10, 1, 0, 10]
        assert (arrived.layer, arrived.batch, arrived.tokens) == (3, 7, 3)


def test_a_region_is_complete_only_with_all_ranks_and_its_time_is_the_last_ones():
    with instance(T=2, E=1, E_total=4, K=1) as ports:
        before = core.now_ns()
        send(ports.attention[0], torch.ones(1, 8), torch.tensor([[0]]), active=1)
        assert ports.moe[0].complete() == []
        between = core.now_ns()
        send(ports.attention[1], torch.ones(0, 8), torch.empty(0, 1, dtype=torch.int64), active=1)
        ((i, slot, complete_ns),) = ports.moe[0].complete()
        assert (i, slot) == (0, 0)
        assert before < between <= complete_ns <= core.now_ns()


@pytest.mark.parametrize(("routed", "active"), [((2, 2), 3), ((2, 0), 1), ((0, 2), 2), ((0, 0), 0)])
def test_devices_without_tokens_hear_nothing_and_nobody_waits_for_them(routed, active):
    """An expert device gets no tokens, or only for some experts."""
    with instance(E=2, E_total=4, K=1) as ports:
        ids = torch.tensor([0, 1][: routed[0]] + [2, 3][: routed[1]], dtype=torch.int64)[:, None]
        x = torch.ones(len(ids), 8)
        assert ports.attention[0].needed(ids) == active
        ticket = send(ports.attention[0], x, ids)
        assert [answer(ports, e) for e in range(2)] == [active & 1, active >> 1]
        results = torch.empty(len(ids), 1, 8)
        headers = ports.attention[0].async_combine_recv(ticket, results, timeout_s=1)
        assert [h.rows for h in headers] == [r for r in routed if r]
        assert torch.equal(results, expected(x, ids, 3))


def test_an_empty_rank_still_sends_a_header_to_active_devices():
    with instance(E=2, E_total=4, K=1) as ports:
        ticket = send(ports.attention[0], torch.ones(0, 8), torch.empty(0, 1, dtype=torch.int64), active=2)
        assert [answer(ports, e) for e in range(2)] == [0, 1]
        (header,) = ports.attention[0].async_combine_recv(ticket, torch.empty(0, 1, 8), timeout_s=1)
        assert (header.e, header.rows) == (1, 0)


def test_one_slot_waits_for_its_reader_and_serves_free_targets_first():
    with instance(E=2, E_total=2, K=1) as ports:
        port, x = ports.attention[0], torch.ones(2, 8)
        send(port, x, torch.tensor([[0], [0]]), batch=1)  # device 0 does not take it
        with pytest.raises(Stalled, match=r"attention 0\.0 waited 0\.05 s for moe 0 to take"):
            send(port, x, torch.tensor([[0], [1]]), batch=2, timeout_s=0.05)
        (region,) = ports.moe[1].complete()  # although device 0 is first in order
        assert ports.moe[1].async_dispatch_recv(*region[:2], copy=True).batch == 2


def test_with_a_slot_for_each_batch_in_flight_no_send_waits():
    with instance(slots=2) as ports:
        x, ids = tokens(ports.dims, 4, torch.Generator().manual_seed(0))
        for slot in range(2):
            send(ports.attention[0], x, ids, slot=slot, timeout_s=0.0)
        with pytest.raises(Stalled):
            send(ports.attention[0], x, ids, slot=0, timeout_s=0.0)


def test_rows_in_place_hold_their_region_until_released_and_copies_free_it_at_once():
    with instance(E=1, E_total=1, K=1) as ports:
        port, moe = ports.attention[0], ports.moe[0]
        x, ids = torch.ones(3, 8), torch.zeros(3, 1, dtype=torch.int64)
        send(port, x, ids)
        assert [row.state for row in look(moe)] == ["full"]
        arrived = moe.async_dispatch_recv(0, 0, copy=False)
        assert arrived.in_place
        assert [row.state for row in look(moe)] == ["in use"]
        with pytest.raises(Stalled):
            send(port, x, ids, timeout_s=0.0)
        assert torch.equal(arrived.x_mH, x)
        moe.release(arrived)
        assert [row.state for row in look(moe)] == ["empty"]
        send(port, x * 2, ids, timeout_s=0.0)
        arrived = moe.async_dispatch_recv(0, 0, copy=True)
        assert [row.state for row in look(moe)] == ["empty"]
        send(port, x * 3, ids, timeout_s=0.0)
        assert torch.equal(arrived.x_mH, x * 2)


def test_a_late_reset_does_not_erase_the_next_arrival():
    """A constant marker cannot tell rounds apart; a sequence number can."""
    with instance(E=1, E_total=1, K=1) as ports:
        port, moe = ports.attention[0], ports.moe[0]
        x, ids = torch.ones(1, 8), torch.zeros(1, 1, dtype=torch.int64)
        send(port, x, ids, batch=1)
        first = moe.async_dispatch_recv(0, 0, copy=True)
        send(port, x, ids, batch=2)
        moe._free(first)  # once more, late
        ((i, slot, _),) = moe.complete()
        assert moe.async_dispatch_recv(i, slot, copy=True).batch == 2


def test_results_wait_until_the_last_ones_are_taken():
    with instance(E=1, E_total=1, K=1) as ports:
        port, moe = ports.attention[0], ports.moe[0]
        x, ids = torch.ones(2, 8), torch.zeros(2, 1, dtype=torch.int64)
        tickets, arrivals = [], []
        for batch in range(2):
            tickets.append(send(port, x + batch, ids, batch=batch))
            arrivals.append(moe.async_dispatch_recv(0, 0, copy=True))
        y = [compute(ports.dims, 0, arrived) for arrived in arrivals]
        moe.async_combine_send(arrivals[0], y[0], stamps=(1, 2, 3), timeout_s=1)
        assert not moe.combine_free(arrivals[1])
        with pytest.raises(Stalled, match=r"moe 0 waited 0\.01 s for attention 0\.0"):
            moe.async_combine_send(arrivals[1], y[1], stamps=(1, 2, 3), timeout_s=0.01)
        results = torch.empty(2, 1, 8)
        sender = threading.Thread(
            target=moe.async_combine_send, args=(arrivals[1], y[1]), kwargs={"stamps": (1, 2, 3), "timeout_s": 10}
        )
        sender.start()  # waits without holding the interpreter's lock, until the flag is cleared below
        port.async_combine_recv(tickets[0], results, timeout_s=1)
        assert torch.equal(results, expected(x, ids, 3))
        port.async_combine_recv(tickets[1], results, timeout_s=10)
        sender.join()
        assert torch.equal(results, expected(x + 1, ids, 3))


def test_refusals_and_bounded_waits():
    with instance() as ports:
        port, d = ports.attention[0], ports.dims
        x, ids = tokens(d, 4, torch.Generator().manual_seed(0))
        with pytest.raises(InputError, match="slot is 1; the layout has slots 0 to 0"):
            send(port, x, ids, slot=1)
        with pytest.raises(InputError, match="17 tokens for one rank; S = 16 allows 16"):
            send(port, torch.ones(17, 8), torch.zeros(17, 2, dtype=torch.int64), active=3)
        with pytest.raises(InputError, match="do not fit H = 8, K = 2 and Dsize = 4"):
            send(port, x.double(), ids)
        with pytest.raises(InputError, match="leaves out devices"):
            send(port, x, ids, active=0)
        with pytest.raises(InputError, match="slot 0 of region 0 is not complete"):
            ports.moe[0].async_dispatch_recv(0, 0, copy=True)
        ticket = send(port, x, torch.tensor([[0, 3]] * 4))
        answer(ports, 1)
        with pytest.raises(Stalled, match=r"attention 0\.0 waited 0\.02 s for the results of moe 0$"):
            port.async_combine_recv(ticket, torch.empty(4, 2, 8), timeout_s=0.02)


def test_a_device_of_another_instance_cannot_be_mistaken():
    with instance() as one, instance() as other:
        assert one.segments[0].epoch != other.segments[0].epoch
        assert isinstance(one.attention[0], AttentionPort)
        ticket = send(one.attention[0], *tokens(one.dims, 1, torch.Generator().manual_seed(0)))
        assert ticket.value >> 32 == one.segments[0].epoch


def test_elements_of_a_size_that_no_tensor_has_are_refused():
    d = Dims(D=1, T=1, E=1, E_total=2, K=1, H=4, S=4, Dsize=3)
    segment = Segment.create("moe", moe_bytes(d))
    with pytest.raises(InputError, match="Dsize is 3; activations have 1, 2, 4, 8 bytes an element"):
        MoEPort(d, 0, segment, [segment])
    segment.close()
