"""Messages of megabytes, which the native core writes past the caches and in one pass over the sender's rows."""

import threading

import pytest
import torch

from tests.primitives.instance import answer, compute, expected, instance, tokens

N = 2200


@pytest.mark.parametrize("H", [512, 513], ids=["whole cache lines", "ragged rows"])
def test_large_messages_keep_every_row(H):
    with instance(E=2, E_total=5, K=3, H=H, S=N) as ports:
        x, ids = tokens(ports.dims, N, torch.Generator().manual_seed(0))
        port = ports.attention[0]
        ticket = port.async_dispatch_send(0, x, ids, layer=2, batch=0, active=3, timeout_s=5)
        for e in range(2):
            assert answer(ports, e) == 1
        results = torch.full((N, 3, H), 99.0)
        port.async_combine_recv(ticket, results, timeout_s=5)
        assert torch.equal(results, expected(x, ids, 2))


def test_a_target_that_is_not_free_is_served_later_with_the_same_rows():
    with instance(E=3, E_total=6, K=2, H=512, S=N) as ports:
        d, port, generator = ports.dims, ports.attention[0], torch.Generator().manual_seed(1)
        first = torch.zeros(1, 2, dtype=torch.int64) + torch.arange(2)  # experts 0 and 1: device 0 only
        port.async_dispatch_send(0, torch.ones(1, d.H), first, layer=0, batch=0, active=1, timeout_s=5)
        x, ids = tokens(d, N, generator)
        tickets = []
        send = {"layer": 1, "batch": 1, "active": 7, "timeout_s": 20}
        thread = threading.Thread(target=lambda: tickets.append(port.async_dispatch_send(0, x, ids, **send)))
        thread.start()
        arrived = {}
        for e in (1, 2, 0, 0):  # devices 1 and 2 have theirs although device 0 still holds the first batch
            heard = ports.moe[e].own.bell()
            while not (complete := ports.moe[e].complete()):
                assert ports.moe[e].own.wait(heard, 20), f"nothing came to device {e}"
                heard = ports.moe[e].own.bell()
            if e and not arrived.get(0):
                assert thread.is_alive()
            arrived.setdefault(e, []).append(ports.moe[e].async_dispatch_recv(*complete[0][:2], copy=True))
        thread.join(20)
        assert [a.batch for a in arrived[0]] == [0, 1]
        for e in range(3):
            last = arrived[e][-1]
            ports.moe[e].async_combine_send(last, compute(d, e, last), stamps=(1, 2, 3), timeout_s=5)
        results = torch.full((N, 2, d.H), 99.0)
        port.async_combine_recv(tickets[0], results, timeout_s=5)
        assert torch.equal(results, expected(x, ids, 1))
