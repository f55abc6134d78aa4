"""MPI's ways to move a batch, for ``asaplab bench primitives``: Send/Recv, Isend/Irecv and one-sided Put with flush.

Buffers are bytes, since MPI knows no bfloat16. Ranks come from ``mpiexec``; nothing here starts MPI.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch

from asaplab.errors import Stalled
from asaplab.lab.bench_ways import TIMEOUT_S, Load, Pause, Primitive, Seen, Untimed
from asaplab.primitives.backend import core
from asaplab.primitives.layout import LINE

POLL_S = 20e-6  # between looks at a flag of a window, which has no bell


def flat(rows: torch.Tensor) -> np.ndarray:
    """The bytes of contiguous rows, not copied."""
    return rows.view(torch.uint8).reshape(-1).numpy()


class MPISends(Untimed):
    """Send and Recv, one spoke after the other."""

    def __init__(self, load: Load, comm: Any) -> None:
        self.load, self.comm = load, comm

    def send(self, primitive: Primitive) -> int:
        if primitive == "dispatch":
            for r, part in enumerate(self.load.gathered()):
                self.comm.Send(flat(part), r + 1)
        else:
            self.comm.Send(flat(self.load.rows_mH), 0)
        return core.now_ns()

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        pause()
        if primitive == "dispatch":
            self.comm.Recv(flat(self.load.rows_mH), 0)
        else:
            for r, part in enumerate(self.load.parts):
                self.comm.Recv(flat(part), r + 1)
        return (core.now_ns(),) * 2


class MPIImmediate(Untimed):
    """All sends posted at once, then waited for: until then the sender must leave its rows alone."""

    def __init__(self, load: Load, comm: Any) -> None:
        self.load, self.comm = load, comm

    def send(self, primitive: Primitive) -> int:
        if primitive == "dispatch":
            targets = [(part, r + 1) for r, part in enumerate(self.load.gathered())]
        else:
            targets = [(self.load.rows_mH, 0)]
        requests = [self.comm.Isend(flat(part), rank) for part, rank in targets]
        posted = core.now_ns()
        for request in requests:
            request.Wait()
        return posted

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        pause()
        if primitive == "dispatch":
            sources = [(self.load.rows_mH, 0)]
        else:
            sources = [(part, r + 1) for r, part in enumerate(self.load.parts)]
        for request in [self.comm.Irecv(flat(part), rank) for part, rank in sources]:
            request.Wait()
        return (core.now_ns(),) * 2


class MPIPut(Untimed):
    """Put into the receivers' windows and flush, then a flag likewise: the nearest relative of the async primitives.

    A window holds a flag for each rank, a cache line each, then rows.
    """

    def __init__(self, load: Load, comm: Any) -> None:
        from mpi4py import MPI

        self.load, self.ranks = load, comm.size
        rows = len(load.rows_mH) if not load.hub or "combine" in load.primitives else 0
        self.row_bytes = load.d.H * load.d.Dsize
        self.window = MPI.Win.Allocate(LINE * self.ranks + rows * self.row_bytes, 1, comm=comm)
        window: Any = self.window.tomemory()
        memory = np.frombuffer(window, np.uint8)
        self.flags = memory[: LINE * self.ranks].view(np.uint64)
        self.flags[:] = 0
        self.memory = torch.from_numpy(memory[LINE * self.ranks :]).view(load.rows_mH.dtype).view(rows, load.d.H)
        self.memory.zero_()
        self.one = np.ones(1, np.uint64)
        comm.Barrier()
        self.window.Lock_all(MPI.MODE_NOCHECK)

    def forget(self) -> None:
        self.memory, self.flags = torch.empty(0), np.empty(0, np.uint64)
        self.window.Unlock_all()
        self.window.Free()

    def send(self, primitive: Primitive) -> int:
        rows_at = LINE * self.ranks
        if primitive == "dispatch":
            targets = [(part, r + 1, rows_at) for r, part in enumerate(self.load.gathered())]
        else:
            before = sum(self.load.splits[: self.load.rank - 1])
            targets = [(self.load.rows_mH, 0, rows_at + before * self.row_bytes)]
        for part, rank, at in targets:
            self.window.Put(flat(part), rank, target=at)
        for _, rank, _ in targets:
            self.window.Flush(rank)
            self.window.Put(self.one.view(np.uint8), rank, target=LINE * self.load.rank)
        self.window.Flush_all()
        return core.now_ns()

    def receive(self, primitive: Primitive, pause: Pause) -> Seen:
        senders = [0] if primitive == "dispatch" else list(range(1, self.ranks))
        words = [rank * LINE // 8 for rank in senders]
        crowded = self.ranks > len(os.sched_getaffinity(0))
        until = core.now_ns() + int(TIMEOUT_S * 1e9)
        pause()
        while True:
            self.window.Sync()
            if self.flags[words].all():
                break
            if core.now_ns() > until:
                raise Stalled(f"a receiver of the bench waited {TIMEOUT_S:g} s for rows put into its window")
            if not pause() and crowded:
                time.sleep(POLL_S)
        seen = core.now_ns()
        self.flags[words] = 0
        self.load.rows_mH.copy_(self.memory)
        return seen, core.now_ns()
