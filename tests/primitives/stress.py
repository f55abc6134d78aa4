"""Eight processes exchange rows in random order and check every one: python -m tests.primitives.stress ROUNDS SLOTS.

Two groups of two ranks keep a batch in every slot and take the slots in random order; four MoE devices take complete
regions in random order. What a batch holds follows from its group, round and rank, so that everyone can check it.
"""

import os
import random
import sys
import traceback

import torch

from asaplab.primitives.combine import MoEPort
from asaplab.primitives.dispatch import AttentionPort
from asaplab.primitives.layout import Dims, attention_bytes, moe_bytes
from asaplab.primitives.plan import Planner
from asaplab.primitives.segment import Aborted, Segment, abort
from tests.primitives.instance import compute, expected, tokens

LAYERS, PATTERNS, TIMEOUT_S = 5, 97, 60.0


class Batches:
    """The batches of one group, made once: a few patterns whose values move on with every round."""

    def __init__(self, d, i):
        generator, sizes, planner = torch.Generator().manual_seed(i), random.Random(i), Planner(d)
        self.patterns = [[tokens(d, n, generator) for n in sizes.choices((0, 1, 3, 8), k=d.T)] for _ in range(PATTERNS)]
        self.active = [0] * PATTERNS
        for k, pattern in enumerate(self.patterns):
            for _, ids in pattern:
                self.active[k] |= planner(ids).needed()

    def rank(self, round, j):
        x, ids = self.patterns[round % PATTERNS][j]
        return x + round, ids, self.active[round % PATTERNS]

    def tokens(self, round):
        return sum(len(x) for x, _ in self.patterns[round % PATTERNS])


def attention(d, i, j, rounds, batches, own, moe):
    port, order = AttentionPort(d, i, j, own, moe), random.Random(i)  # the ranks of a group agree on the order
    flying, sent = {}, 0
    while sent < rounds or flying:
        slot = order.randrange(d.slots)
        if slot in flying:
            ticket, (x, ids), layer = flying.pop(slot)
            results = torch.full((*ids.shape, d.H), 99, dtype=x.dtype)
            headers = port.async_combine_recv(ticket, results, timeout_s=TIMEOUT_S)
            assert torch.equal(results, expected(x, ids, layer)), "a result row is not the one that was asked for"
            assert sum(header.rows for header in headers) == ids.numel()
        if sent < rounds:
            (x, ids, active), layer = batches[i].rank(sent, j), sent % LAYERS
            ticket = port.async_dispatch_send(slot, x, ids, layer=layer, batch=sent, active=active, timeout_s=TIMEOUT_S)
            flying[slot] = ticket, (x, ids), layer
            sent += 1


def expert(d, e, rounds, batches, own, attention):
    port, order = MoEPort(d, e, own, attention), random.Random(e)
    left = {(i, r) for i in range(d.D) for r in range(rounds) if batches[i].active[r % PATTERNS] >> e & 1}
    while left:
        heard = own.bell()
        complete = port.complete()
        if not complete:
            assert own.wait(heard, TIMEOUT_S), f"moe {e} waited {TIMEOUT_S} s"
            continue
        i, slot, _ = order.choice(complete)
        arrived = port.async_dispatch_recv(i, slot, copy=order.random() < 0.5)
        left.remove((i, arrived.batch))  # neither lost nor doubled
        assert arrived.tokens == batches[i].tokens(arrived.batch)
        y_mH = compute(d, e, arrived)
        port.release(arrived)
        port.async_combine_send(arrived, y_mH, stamps=(1, 2, 3), timeout_s=TIMEOUT_S)


def main(rounds: int, slots: int) -> int:
    torch.set_num_threads(1)
    d = Dims(D=2, T=2, E=4, E_total=10, K=3, H=24, S=16, Dsize=4, slots=slots)
    rows = [Segment.create("attention", attention_bytes(d)) for _ in range(d.D * d.T)]
    moe = [Segment.create("moe", moe_bytes(d)) for _ in range(d.E)]
    batches = [Batches(d, i) for i in range(d.D)]
    jobs = [(attention, (d, k // d.T, k % d.T, rounds, batches, rows[k], moe)) for k in range(d.D * d.T)]
    jobs += [(expert, (d, e, rounds, batches, moe[e], rows)) for e in range(d.E)]
    children = {}
    for job, arguments in jobs:
        child = os.fork()
        if child == 0:
            try:
                job(*arguments)
                os._exit(0)
            except Aborted:
                os._exit(3)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children[child] = job.__name__
    failed = []
    while children:
        child, status = os.wait()
        name = children.pop(child)
        if status:
            failed.append(name)
            abort(rows + moe)
    print("failed: " + ", ".join(failed) if failed else f"{rounds} rounds")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
