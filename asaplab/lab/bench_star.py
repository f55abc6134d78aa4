"""The processes of ``asaplab bench primitives``: a hub and N spokes, told what to do from here.

They are started by ``mpiexec`` where mpi4py is installed, so that every way moves rows between the same processes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from asaplab.errors import Stalled
from asaplab.lab.bench_rank import LAST, MPI_WAYS, WAYS, expert_ids, split
from asaplab.lab.bench_ways import TIMEOUT_S, Primitive
from asaplab.primitives.layout import Dims, attention_areas, moe_areas
from asaplab.primitives.segment import Segment

NO_MPI = "MPI is not measured: install asaplab[mpi], which brings mpi4py and mpiexec"


class Times(NamedTuple):
    """Of one transfer, in seconds."""

    blocked: float  # the slowest sender's call
    posted: float  # until it had handed everything over; less than blocked only where sends are posted
    delivered: float  # from the first sender's start until the last receiver could see its rows
    private: float  # ... until it had them in private memory


def mpiexec() -> str | None:
    """The launcher beside this interpreter (the mpich wheel's), or any on the path; None without mpi4py."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    beside = str(Path(sys.executable).parent)
    return shutil.which("mpiexec", path=os.pathsep.join((beside, os.environ.get("PATH", ""))))


class Star:
    """A hub and ``count`` spokes; ``peers`` are the ways they know."""

    def __init__(self, count: int, pipes: Sequence[Connection], mpi: bool) -> None:
        self.count, self.pipes = count, pipes
        self.peers = (*WAYS, *(MPI_WAYS if mpi else ()), *LAST)
        self._segments: list[Segment] = []

    def prepare(self, d: Dims, primitives: Sequence[Primitive], peers: Sequence[str]) -> None:
        """Make all buffers for a batch of d.S tokens."""
        # as large as this batch needs: the layout is for the worst one, in which a spoke gets every row, and nobody
        # writes results unless rows are combined
        row_bytes, results = d.H * d.Dsize, d.S * d.K if "combine" in primitives else 0
        hub = Segment.create("bench-hub", attention_areas(d).payload + results * row_bytes)
        splits, _ = split(expert_ids(d.S, d), d)
        spokes = [
            Segment.create(f"bench-spoke-{e}", moe_areas(d).payload + n * row_bytes) for e, n in enumerate(splits)
        ]
        self._segments = [hub, *spokes]
        self._tell("prepare", d, (hub.path, [segment.path for segment in spokes]), tuple(primitives), tuple(peers))
        self._hear()

    def forget(self) -> None:
        self._tell("forget")
        self._hear()
        for segment in self._segments:
            segment.close()
        self._segments = []

    def transfer(self, peer: str, primitive: Primitive, busy: bool) -> Times:
        """Move the batch once."""
        self._tell("transfer", peer, primitive, busy)
        self._hear()  # receivers look for rows, or are in the middle of a slice
        senders = self.pipes[:1] if primitive == "dispatch" else self.pipes[1:]
        for pipe in senders:
            pipe.send("go")
        answers = self._hear()
        sent, seen = (answers[:1], answers[1:]) if primitive == "dispatch" else (answers[1:], answers[:1])
        start, end = min(a[0] for a in sent), max(a[2] for a in sent)
        visible, private = (max(a[k] for a in seen) or end for k in (0, 1))  # nobody sees a plain copy
        return Times(
            blocked=max(a[2] - a[0] for a in sent) * 1e-9,
            posted=max(a[1] - a[0] for a in sent) * 1e-9,
            delivered=(visible - start) * 1e-9,
            private=(private - start) * 1e-9,
        )

    def row_sums(self) -> list[list[float]]:
        """Of the rows that each process holds, the hub first: what a transfer left there."""
        self._tell("sum")
        return self._hear()

    def stop(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(("stop",))

    def _tell(self, *message: Any) -> None:
        for pipe in self.pipes:
            pipe.send(message)

    def _hear(self) -> list[Any]:
        answers = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(TIMEOUT_S):
                raise Stalled(f"the bench waited {TIMEOUT_S:g} s for rank {rank}")
            answers.append(pipe.recv())
        return answers


@contextlib.contextmanager
def processes(count: int) -> Iterator[Star]:
    """Start a hub and ``count`` spokes, and end them afterwards."""
    launcher = mpiexec()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as line:
        line.bind(f"{folder}/line")
        line.listen(count + 1)
        line.settimeout(TIMEOUT_S)
        rank = [sys.executable, "-m", "asaplab.lab.bench_rank", folder, str(count)]
        if launcher is None:
            commands = [[*rank, str(r)] for r in range(count + 1)]
        else:
            commands = [[launcher, "-launcher", "fork", "-bind-to", "none", "-n", str(count + 1), *rank]]
        quiet = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "env": os.environ | {"OMP_NUM_THREADS": "1"},
        }
        started: list[subprocess.Popen[bytes]] = []
        pipes: dict[int, Connection] = {}
        try:
            for command in commands:
                started.append(subprocess.Popen(command, **quiet))  # type: ignore[call-overload]
            while len(pipes) <= count:
                pipe = Connection(line.accept()[0].detach())
                pipes[pipe.recv()] = pipe
            star = Star(count, [pipes[r] for r in range(count + 1)], launcher is not None)
            yield star
            star.stop()
        finally:
            for pipe in pipes.values():
                pipe.close()
            for process in started:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.terminate()
                    process.wait(10)
