"""Ways to move a batch between one hub and N spokes, each at its best, for ``asaplab bench primitives``.

*Dispatch* goes from the hub to all spokes (1 to N), *combine* from the spokes back (N to 1). Every way moves the same
rows: each token once for each of its K experts. A sender starts with rows that are not gathered yet (dispatch) or lie
in the order of its receiver (combine). A receiver says when it could see the last row and when all lay in private
memory; both are the same moment where a way receives into private memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.distributed as dist

from asaplab.errors import Stalled
from asaplab.primitives.backend import core
from asaplab.primitives.combine import Arrived, MoEPort
from asaplab.primitives.dispatch import AttentionPort, Ticket
from asaplab.primitives.layout import Dims
from asaplab.primitives.plan import address
from asaplab.primitives.segment import Segment

TIMEOUT_S = 120.0

Primitive = Literal["dispatch", "combine"]
Seen = tuple[int, int]  # CLOCK_MONOTONIC in ns: rows visible, rows in private memory
Pause = Callable[[], bool]  # spends a slice where the receiver is busy; False at once where it is idle


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one rank holds of a batch: rank 0 is the hub, rank r + 1 the spoke r."""

    d: Dims
    rank: int
    rows_mH: torch.Tensor  # private and warm; the hub's are those of all spokes, one after the other
    splits: Sequence[int]  # rows of each spoke
    x_nH: torch.Tensor  # the hub's tokens; no rows elsewhere
    ids_nK: torch.Tensor
    gather: Sequence[np.ndarray]  # int32, by spoke: the token of each of its rows
    segments: tuple[str, Sequence[str]]  # paths: the hub's, the spokes'
    primitives: Sequence[Primitive]

    @property
    def hub(self) -> bool:
        return self.rank == 0

    @property
    def parts(self) -> Sequence[torch.Tensor]:
        return self.rows_mH.split(list(self.splits))

    def gathered(self) -> Sequence[torch.Tensor]:
        """The hub's rows by spoke, each token once for each expert."""
        row_bytes = self.d.H * self.d.Dsize
        for part, tokens in zip(self.parts, self.gather):  # faster than index_select, by a third on AVX2
            core.move_rows(part.data_ptr(), 0, self.x_nH.data_ptr(), address(tokens), len(tokens), row_bytes)
        return self.parts


class Way(Protocol):
    """One way, as one rank sees it."""

    def before(self, primitive: Primitive) -> None:
        """Whatever must have happened before the clock starts."""

    def send(self, primitive: Primitive) -> int:
        """Returns when the sender may go on; gives the time at which everything was handed over at the latest."""

    def receive(self, primitive: Primitive, pause: Pause) -> Seen: ...


class Untimed:
    """A way that needs nothing before the clock starts."""

    def before(self, primitive: Primitive) -> None:
        pass


class Async:
    """The primitives of this package, in the paper's layout of K rows a token."""

    def __init__(self, load: Load, comm: Any) -> None:
        self.load, d = load, load.d
        hub, spokes = load.segments
        self.attention: AttentionPort | None = None
        self.moe: MoEPort | None = None
        if load.hub:
            self.attention = AttentionPort(d, 0, 0, Segment.open(hub), [Segment.open(path) for path in spokes])
        else:
            e = load.rank - 1
            self.moe = MoEPort(d, e, Segment.open(spokes[e]), [Segment.open(hub)])
        self.ticket: Ticket | None = None
        self.arrived: Arrived | None = None

    def before(self, primitive: Primitive) -> None:
        """Results go back to a batch that has been dispatched."""
        if primitive == "combine":
            if self.attention is not None:
                self.send("dispatch")
            elif self.moe is not None:
                until_true(self.moe.own, lambda: bool(self.moe and self.moe.complete()), lambda: False)
                self.arrived = self.moe.async_dispatch_recv(0, 0, copy=False)

    def send(self, primitive: Primitive) -> int:
        if self.attention is not None:
            everyone = (1 << self.load.d.E) - 1
            self.ticket = self.attention.async_dispatch_send(
                0, self.load.x_nH, self.load.ids_nK, layer=0, batch=0, active=everyone, timeout_s=TIMEOUT_S
            )
        elif self.moe is not None and self.arrived is not None:
            self.moe.async_combine_send(self.arrived, self.load.rows_mH, stamps=(0, 0, 0), timeout_s=TIMEOUT_S)
            self.moe.release(self.arrived)
        return core.now_ns()

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        if self.moe is not None:
            port = self.moe
            until_true(port.own, lambda: bool(port.complete()), pause)
            seen = core.now_ns()
            arrived = port.async_dispatch_recv(0, 0, copy=False)
            self.load.rows_mH.copy_(arrived.x_mH)
            private = core.now_ns()
            port.release(arrived)
            return seen, private
        assert self.attention is not None
        assert self.ticket is not None
        hub, ticket = self.attention, self.ticket
        until_true(hub.own, lambda: hub.combine_ready(ticket), pause)
        seen = core.now_ns()
        hub.async_combine_recv(ticket, self.load.rows_mH.view(-1, self.load.d.K, self.load.d.H), TIMEOUT_S)
        return seen, core.now_ns()


class GlooSends(Untimed):
    """torch.distributed over gloo: a send and a receive for each spoke."""

    def __init__(self, load: Load, comm: Any) -> None:
        self.load = load

    def send(self, primitive: Primitive) -> int:
        if primitive == "dispatch":
            for r, part in enumerate(self.load.gathered()):
                dist.send(part, r + 1)
        else:
            dist.send(self.load.rows_mH, 0)
        return core.now_ns()

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        pause()
        if primitive == "dispatch":
            dist.recv(self.load.rows_mH, 0)
        else:
            for r, part in enumerate(self.load.parts):
                dist.recv(part, r + 1)
        return (core.now_ns(),) * 2


class GlooCollective(Untimed):
    """torch.distributed over gloo: all_to_all_single, in which only the hub, or only the spokes, have rows to send."""

    def __init__(self, load: Load, comm: Any) -> None:
        self.load = load
        self.nothing, self.zeros = load.rows_mH[:0].clone(), [0] * (load.d.E + 1)
        self.mine = [0, *load.splits] if load.hub else [len(load.rows_mH), *self.zeros[1:]]

    def send(self, primitive: Primitive) -> int:
        if primitive == "dispatch":
            self.load.gathered()
        dist.all_to_all_single(self.nothing, self.load.rows_mH, self.zeros, self.mine)
        return core.now_ns()

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        pause()
        dist.all_to_all_single(self.load.rows_mH, self.nothing, self.mine, self.zeros)
        return (core.now_ns(),) * 2


class Memcpy(Untimed):
    """A plain copy of the bytes of a dispatch by one thread, between private and warm buffers; nobody receives."""

    def __init__(self, load: Load, comm: Any) -> None:
        self.rows_mH = load.rows_mH
        self.target_mH = torch.empty_like(load.rows_mH).fill_(0) if load.hub else load.rows_mH

    def send(self, primitive: Primitive) -> int:
        ctypes.memmove(self.target_mH.data_ptr(), self.rows_mH.data_ptr(), self.rows_mH.nbytes)
        return core.now_ns()

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        return 0, 0


def until_true(own: Segment, done: Callable[[], bool], pause: Pause) -> None:
    """Look again after each slice of a busy receiver, or whenever an idle one's bell rings."""
    until = core.now_ns() + int(TIMEOUT_S * 1e9)
    pause()
    while core.now_ns() < until:
        heard = own.bell()
        if done():
            return
        if not pause():
            own.wait(heard, 1.0)
    raise Stalled(f"a receiver of the bench waited {TIMEOUT_S:g} s for rows")
