"""One sender and N receiver processes that move the same rows in different ways, for ``asaplab bench primitives``."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from asaplab.errors import Stalled
from asaplab.primitives.backend import core
from asaplab.primitives.combine import MoEPort
from asaplab.primitives.dispatch import AttentionPort
from asaplab.primitives.layout import Dims, attention_bytes, moe_bytes
from asaplab.primitives.segment import Segment

TIMEOUT_S = 120.0
SLICE_NS = 2_000_000
PEERS = ("async", "gloo send/recv", "gloo all_to_all_single")


class Cast(NamedTuple):
    """A batch that is ready to be sent: to the segments, and from buffers of the peers."""

    tokens: int
    bytes: int
    x_nH: torch.Tensor
    ids_nK: torch.Tensor
    port: AttentionPort
    gather: list[torch.Tensor]  # by receiver: the token of each of its rows
    outgoing: torch.Tensor  # rows of all receivers one after the other
    splits: list[int]


class Star:
    """The sender's side: rank 0 of the gloo group; receiver r is rank r + 1."""

    peers = PEERS

    def __init__(self, count: int, pipes: list[Any]) -> None:
        self.count, self.pipes = count, pipes
        self._segments: list[Segment] = []

    def tell(self, *message: Any) -> None:
        for pipe in self.pipes:
            pipe.send(message)

    def hear(self) -> list[Any]:
        answers = []
        for r, pipe in enumerate(self.pipes):
            if not pipe.poll(TIMEOUT_S):
                raise Stalled(f"the bench waited {TIMEOUT_S:g} s for receiver {r}")
            answers.append(pipe.recv())
        return answers

    def prepare(self, x_nH: torch.Tensor, ids_nK: torch.Tensor, experts: int) -> Cast:
        """Make segments for this batch and tell the receivers."""
        (n, H), K = x_nH.shape, ids_nK.shape[1]
        d = Dims(D=1, T=1, E=self.count, E_total=experts, K=K, H=H, S=n, Dsize=x_nH.element_size(), copies=K)
        own = Segment.create("bench-attention", attention_bytes(d))
        moe = [Segment.create(f"bench-moe-{e}", moe_bytes(d)) for e in range(self.count)]
        self._segments = [own, *moe]
        port = AttentionPort(d, 0, 0, own, moe)
        plan = port._plan(ids_nK)
        ends = [0, *plan.pair_ends_E.tolist()]
        splits = [b - a for a, b in pairwise(ends)]
        gather = [t.long() for t in torch.from_numpy(plan.order_p // K).split(splits)]
        self.tell("prepare", d, own.path, [segment.path for segment in moe], splits)
        self.hear()
        outgoing = torch.zeros(n * K, H, dtype=x_nH.dtype)
        return Cast(n, n * K * H * d.Dsize, x_nH, ids_nK, port, gather, outgoing, splits)

    def forget(self) -> None:
        self.tell("forget")
        self.hear()
        for segment in self._segments:
            segment.close()
        self._segments = []

    def transfer(self, cast: Cast, peer: str, busy: bool) -> tuple[float, float]:
        """Send the batch once: seconds until the sender's call returned, and until the last receiver had its rows."""
        self.tell(peer, busy)
        self.hear()  # all are about to look, or in the middle of a slice
        start = core.now_ns()
        if peer == "async":
            cast.port.async_dispatch_send(
                0, cast.x_nH, cast.ids_nK, layer=0, batch=0, active=(1 << self.count) - 1, timeout_s=TIMEOUT_S
            )
        else:
            parts = cast.outgoing.split(cast.splits)
            for part, tokens in zip(parts, cast.gather):
                torch.index_select(cast.x_nH, 0, tokens, out=part)
            if peer == "gloo send/recv":
                for r, part in enumerate(parts):
                    dist.send(part, r + 1)
            else:
                dist.all_to_all_single(
                    cast.outgoing[:0].clone(), cast.outgoing, [0] * (self.count + 1), [0, *cast.splits]
                )
        took = core.now_ns() - start
        return took * 1e-9, (max(self.hear()) - start) * 1e-9


@contextlib.contextmanager
def receivers(count: int) -> Iterator[Star]:
    """Start receivers, join them in a gloo group, and end them afterwards."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["asaplab.lab.peers"])
    pipes, processes = [], []
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        try:
            for r in range(count):
                mine, theirs = context.Pipe()
                process = context.Process(target=receive, args=(r, count, theirs, store), daemon=True)
                process.start()
                pipes.append(mine)
                processes.append(process)
            _join(0, count, store)
            yield Star(count, pipes)
        finally:
            for pipe in pipes:
                with contextlib.suppress(OSError):
                    pipe.send(("stop",))
            if dist.is_initialized():
                dist.destroy_process_group()
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
                    process.join()


def _join(rank: int, count: int, store: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count + 1, timeout=timedelta(seconds=TIMEOUT_S)
    )


def receive(r: int, count: int, pipe: Any, store: str) -> None:
    """A receiver's life: do what the sender tells, answer with the time the rows were there."""
    torch.set_num_threads(1)
    _join(r + 1, count, store)
    port: Any = None
    incoming = nothing = torch.empty(0)
    how = occupied_by(count)
    while True:
        what, *rest = pipe.recv()
        if what == "stop":
            dist.destroy_process_group()
            return
        if what == "prepare":
            d, attention, moe, splits = rest
            port = MoEPort(d, r, Segment.open(moe[r]), [Segment.open(attention)])
            incoming = torch.zeros(splits[r], d.H, dtype=port.dtype)
            nothing = incoming[:0].clone()
            pipe.send("ready")
        elif what == "forget":
            port, incoming, nothing = None, torch.empty(0), torch.empty(0)
            pipe.send("forgotten")
        else:
            (busy,) = rest
            pipe.send("looking")
            if busy:
                _slice(how)
            if what == "async":
                _await(port, how if busy else None)
            elif what == "gloo send/recv":
                dist.recv(incoming, 0)
            else:
                others = [0] * count
                dist.all_to_all_single(incoming, nothing, [len(incoming), *others], [0] * (count + 1))
            seen = core.now_ns()
            if what == "async":
                port.release(port.async_dispatch_recv(0, 0, copy=False))
            pipe.send(seen)


def occupied_by(count: int) -> str:
    """How a busy receiver spends its slice: computing if every process has a core, else (as in paced mode) waiting, as
    a device of its own would compute without taking the sender's core."""
    return "computing" if count < len(os.sched_getaffinity(0)) else "waiting"


def _slice(how: str) -> None:
    until = core.now_ns() + SLICE_NS
    if how == "waiting":
        time.sleep(SLICE_NS * 1e-9)
    while core.now_ns() < until:
        pass


def _await(port: MoEPort, how: str | None) -> None:
    until = core.now_ns() + int(TIMEOUT_S * 1e9)
    while core.now_ns() < until:
        heard = port.own.bell()
        if port.complete():
            return
        if how:
            _slice(how)
        else:
            port.own.wait(heard, 1.0)
    raise Stalled(f"a receiver of the bench waited {TIMEOUT_S:g} s for rows")
