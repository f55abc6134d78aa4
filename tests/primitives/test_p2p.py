"""The synchronous reference: the same values, a sender that waits for its receivers, two batches without deadlock."""

import threading
import time

import pytest
import torch

from asaplab.errors import Stalled
from asaplab.primitives.p2p import SyncAttentionPort, SyncMoEPort
from tests.primitives.instance import answer, expected, instance, tokens

SYNC = (SyncAttentionPort, SyncMoEPort)


def test_a_sender_waits_for_a_receiver_that_does_not_look():
    with instance(SYNC, E=1, E_total=2) as ports:
        x, ids = tokens(ports.dims, 3, torch.Generator().manual_seed(0))
        with pytest.raises(Stalled, match=r"attention 0\.0 waited 0\.02 s for moe 0 to be ready to receive"):
            ports.attention[0].async_dispatch_send(0, x, ids, layer=0, batch=0, active=1, timeout_s=0.02)


@pytest.mark.parametrize("T", [1, 2])
def test_two_batches_in_flight_get_the_same_values_without_deadlock(T):
    rounds = 20
    with instance(SYNC, D=2, T=T, E=2, slots=2) as ports:
        d, errors, stop = ports.dims, [], threading.Event()

        def attention(port, seed):
            generator = torch.Generator().manual_seed(seed)
            flying = {}
            for step in range(rounds + 2):
                slot = step % 2
                if slot in flying:
                    ticket, x, ids, layer = flying.pop(slot)
                    results = torch.empty(*ids.shape, d.H)
                    port.async_combine_recv(ticket, results, timeout_s=60)
                    assert torch.equal(results, expected(x, ids, layer))
                if step < rounds:
                    x, ids = tokens(d, 5, generator)
                    args = {"layer": step, "batch": step, "active": 3, "timeout_s": 60}
                    flying[slot] = port.async_dispatch_send(slot, x, ids, **args), x, ids, step

        def expert(e):
            while not stop.is_set():
                heard = ports.moe[e].own.bell()
                if not answer(ports, e):
                    ports.moe[e].own.wait(heard, 0.01)

        def guarded(work, *args):
            try:
                work(*args)
            except BaseException as error:
                errors.append(error)

        experts = [threading.Thread(target=guarded, args=(expert, e)) for e in range(2)]
        ranks = [threading.Thread(target=guarded, args=(attention, p, k)) for k, p in enumerate(ports.attention)]
        for thread in experts + ranks:
            thread.start()
        for thread in ranks:
            thread.join(100)
        stop.set()
        for thread in experts:
            thread.join(10)
        assert errors == []


def test_busy_receivers_block_the_sender_one_after_the_other():
    """Linear in the receivers: each has a residue of busy time left."""
    with instance(SYNC, E=2, E_total=4, K=2) as ports:
        x = torch.ones(2, 8)
        ids = torch.tensor([[0, 2], [1, 3]])
        looks = []

        def look(e, delay_s):
            until = time.monotonic() + 20
            while time.monotonic() < until:
                time.sleep(delay_s)
                ports.moe[e].complete()
                looks.append(e)
                if looks.count(e) == 2:
                    return

        threads = [threading.Thread(target=look, args=(e, 0.05)) for e in range(2)]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        ports.attention[0].async_dispatch_send(0, x, ids, layer=0, batch=0, active=3, timeout_s=20)
        assert time.monotonic() - start >= 0.05
        for thread in threads:
            thread.join()
