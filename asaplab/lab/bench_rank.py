"""One process of ``asaplab bench primitives``: ``python -m asaplab.lab.bench_rank FOLDER COUNT [RANK]``.

Without RANK it is a rank of ``mpiexec``. It connects to the socket in FOLDER, joins the gloo group there and does what
the bench tells it, one message at a time; between messages it sleeps, so that it takes no core from who is measured.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from asaplab.lab.bench_ways import (
    TIMEOUT_S,
    Async,
    GlooCollective,
    GlooSends,
    Load,
    Memcpy,
    Pause,
    Primitive,
)
from asaplab.primitives.backend import core
from asaplab.primitives.layout import Dims
from asaplab.primitives.plan import Planner

SLICE_NS = 2_000_000
DTYPES = {1: torch.int8, 2: torch.bfloat16}
WAYS: dict[str, Callable[[Load, Any], Any]] = {
    "async": Async,
    "gloo send/recv": GlooSends,
    "gloo all_to_all_single": GlooCollective,
}
MPI_WAYS = ("MPI Send/Recv", "MPI Isend", "MPI Put")
LAST = {"memcpy": Memcpy}


def ways(mpi: bool) -> dict[str, Callable[[Load, Any], Any]]:
    """All ways by name, in the order of their turns."""
    if not mpi:
        return WAYS | LAST
    from asaplab.lab.bench_mpi import MPIImmediate, MPIPut, MPISends

    return WAYS | dict(zip(MPI_WAYS, (MPISends, MPIImmediate, MPIPut))) | LAST


def expert_ids(tokens: int, d: Dims) -> torch.Tensor:
    """K different experts for each token, the same for everybody who asks."""
    return torch.rand(tokens, d.E_total, generator=torch.Generator().manual_seed(tokens)).argsort(1)[:, : d.K]


def split(ids_nK: torch.Tensor, d: Dims) -> tuple[list[int], list[np.ndarray]]:
    """How many rows each spoke gets, and the token of each."""
    plan = Planner(d)(ids_nK)
    return np.diff(plan.pair_ends_E, prepend=0).tolist(), np.split(plan.order_p // d.K, plan.pair_ends_E[:-1])


def load_of(rank: int, d: Dims, segments: tuple[str, Sequence[str]], primitives: Sequence[Primitive]) -> Load:
    """This rank's part of the batch of d.S tokens."""
    dtype, ids_nK = DTYPES[d.Dsize], expert_ids(d.S, d)
    splits, gather = split(ids_nK, d)
    hub = rank == 0
    x_nH = torch.empty(0, d.H, dtype=dtype)
    if hub:
        values = torch.randint(-100, 100, (d.S, d.H), generator=torch.Generator().manual_seed(d.S), dtype=torch.int8)
        x_nH = values.to(dtype)
    rows = d.S * d.K if hub else splits[rank - 1]
    return Load(
        d=d,
        rank=rank,
        rows_mH=torch.empty(rows, d.H, dtype=dtype).fill_(rank),  # each rank's own, so that a test sees who sent what
        splits=splits,
        x_nH=x_nH,
        ids_nK=ids_nK,
        gather=gather,
        segments=segments,
        primitives=primitives,
    )


def occupied_by(count: int) -> str:
    """How a busy receiver spends its slice: computing if every process has a core, else (as in paced mode) waiting, as
    a device of its own would compute without taking the sender's core."""
    return "computing" if count < len(os.sched_getaffinity(0)) else "waiting"


def busy_slices(how: str, seed: int) -> Pause:
    """Slices of 2 ms back to back; the first is met somewhere in its course."""
    lengths = random.Random(seed)
    met = False

    def pause() -> bool:
        nonlocal met
        length_ns = SLICE_NS if met else int(SLICE_NS * lengths.random())
        met = True
        until = core.now_ns() + length_ns
        if how == "waiting":
            time.sleep(length_ns * 1e-9)
        while core.now_ns() < until:
            pass
        return True

    return pause


def serve(rank: int, pipe: Connection, how: str, comm: Any) -> None:
    """Do what the bench says until it hangs up or says stop."""
    made: dict[str, Any] = {}
    load: Load | None = None
    turns = 0
    while True:
        what, *rest = pipe.recv()
        if what == "stop":
            return
        if what == "prepare":
            *batch, peers = rest
            load = load_of(rank, *batch)
            known = ways(comm is not None)
            made = {name: known[name](load, comm) for name in peers}
            pipe.send("prepared")
        elif what == "forget":
            for way in made.values():
                if hasattr(way, "forget"):
                    way.forget()
            made, load = {}, None
            pipe.send("forgotten")
        elif what == "sum":
            assert load is not None
            pipe.send(load.rows_mH.float().sum(1).tolist())
        else:
            name, primitive, busy = rest
            turns += 1
            made[name].before(primitive)
            pipe.send("ready")
            if (rank == 0) == (primitive == "dispatch"):
                pipe.recv()  # go
                start = core.now_ns()
                posted = made[name].send(primitive)
                pipe.send((start, posted, core.now_ns()))
            else:
                pipe.send(made[name].receive(primitive, busy_slices(how, 1000 * turns + rank) if busy else _idle))


def _idle() -> bool:
    return False


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    comm = None
    if len(sys.argv) > 3:
        rank = int(sys.argv[3])
    else:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        rank = comm.rank
    torch.set_num_threads(1)
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(folder / "line"))
    pipe = Connection(line.detach())
    pipe.send(rank)
    store = f"file://{folder / 'store'}"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=count + 1, timeout=timedelta(seconds=TIMEOUT_S)
    )
    try:
        with torch.inference_mode():
            serve(rank, pipe, occupied_by(count), comm)
    except EOFError:  # the bench is gone
        pass
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
