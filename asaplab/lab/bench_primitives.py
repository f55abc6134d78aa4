"""``asaplab bench primitives``: dispatch from one sender to N receivers and combine back, against gloo, MPI and memcpy.

Every peer moves the same rows between the same processes; a peer's times are medians over repetitions that take turns,
so that the machine's moods reach all alike (Figure 14). *Blocked* is how long the sender's call takes (the slowest
sender's in a combine), *delivered* when the last receiver can see its rows, *private* when it has them in memory of its
own. Receivers are idle (they wait), or busy: they compute in slices of 2 ms and look for rows, or post their receive,
in between.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from asaplab.lab.bench_progress import Partial
from asaplab.lab.bench_rank import DTYPES, LAST, occupied_by
from asaplab.lab.bench_star import NO_MPI, Star, Times, mpiexec, processes
from asaplab.lab.bench_ways import Primitive
from asaplab.primitives.backend import core
from asaplab.primitives.layout import Dims

HIDDEN, TOP_K, EXPERTS = 7168, 8, 256
ASYNC = "async"
BOTH: tuple[Primitive, ...] = ("dispatch", "combine")


class Point(NamedTuple):
    """One size at which all peers take turns."""

    tokens: int
    dtype: str
    primitives: tuple[Primitive, ...]
    busy: tuple[bool, ...]
    repetitions: int
    peers: tuple[str, ...] | None = None  # None: all


def points(quick: bool, receivers: int) -> list[Point]:
    """What is measured with so many receivers; int8 beside bfloat16 with 4 of them."""
    if quick:
        return [
            Point(1, "bfloat16", BOTH, (False, True), 5),
            Point(1024, "bfloat16", BOTH, (False, True), 5),
            Point(1024, "int8", ("dispatch",), (False,), 5),
            Point(8192, "bfloat16", ("dispatch",), (False,), 3, (ASYNC, "gloo send/recv", "memcpy")),
        ]
    both = [
        Point(tokens, dtype, BOTH, (False, True), 5 if tokens == 8192 else 9)
        for dtype in ("bfloat16", "int8")
        for tokens in (1, 128, 512, 1024, 8192)
    ]
    return [point for point in both if point.dtype == "bfloat16" or receivers == 4]


def bench(quick: bool = False, out: Path | None = None) -> dict[str, Any]:
    """Rows of all sizes, receiver counts and peers.

    Keys: ``rows`` (dispatch in bfloat16), ``rows_int8`` (dispatch), ``rows_combine`` (both dtypes), each with ``peer``,
    ``tokens``, ``receivers``, ``busy``, times in microseconds and ratios, which are peer over async;
    ``memcpy_ratio``, the time of one thread's plain copy of the same bytes over ours until the last flag is visible
    (8k tokens, 4 idle receivers, bfloat16). With ``out`` it is written there as it goes.
    """
    partial = Partial(out, "primitives")
    missing = [] if mpiexec() else ["mpi"]
    if missing:
        partial.say(NO_MPI)
    rows: list[dict[str, Any]] = []
    for count in (4,) if quick else (1, 4, 8, 16):
        with receivers(count) as star:
            for point in points(quick, count):
                with cast(star, point.tokens, point.dtype, point.primitives, point.peers) as ready:
                    for primitive in point.primitives:
                        for busy in point.busy:
                            repetitions = point.repetitions if primitive == "dispatch" else -(-point.repetitions // 2)
                            rows += measure(star, ready, busy, repetitions, primitive)
                partial.say(f"{count} receivers, {point.tokens} tokens in {point.dtype}: done")
                partial.keep(result(rows, missing))
    return result(rows, missing) | figure_of(rows, out)


def figure_of(rows: list[dict[str, Any]], out: Path | None) -> dict[str, str]:
    """Where Figure 14 with the peers was written; nothing without a folder."""
    if out is None:
        return {}
    from asaplab.lab.bench_figures import communication, write

    sent = [row for row in rows if (row["primitive"], row["dtype"]) == ("dispatch", "bfloat16")]
    return {"figure": str(write(communication(sent), out / "bench-primitives.html"))}


def result(rows: list[dict[str, Any]], missing: list[str]) -> dict[str, Any]:
    dispatch = [row for row in rows if row["primitive"] == "dispatch"]
    return {
        "rows": [row for row in dispatch if row["dtype"] == "bfloat16"],
        "rows_int8": [row for row in dispatch if row["dtype"] == "int8"],
        "rows_combine": [row for row in rows if row["primitive"] == "combine"],
        "memcpy_ratio": memcpy_ratio(dispatch),
        "hidden": HIDDEN,
        "top_k": TOP_K,
        "dtype": "bfloat16",
        "core": core.__name__.rsplit(".", 1)[-1],
        "peers_missing": missing,
    }


def memcpy_ratio(dispatch: list[dict[str, Any]]) -> float | None:
    """One thread's plain copy over our delivery, with 4 idle receivers; None without 8k tokens."""
    for row in dispatch:
        where = row["peer"], row["tokens"], row["receivers"], row["busy"], row["dtype"]
        if where == ("memcpy", 8192, 4, False, "bfloat16"):
            return float(row["delivered_ratio"])
    return None


receivers = processes


class Cast(NamedTuple):
    """A batch that every process has ready, for these peers."""

    peers: tuple[str, ...]
    tokens: int
    dtype: str
    bytes: int


@contextlib.contextmanager
def cast(
    star: Star,
    tokens: int,
    dtype: str = "bfloat16",
    primitives: tuple[Primitive, ...] = ("dispatch",),
    peers: tuple[str, ...] | None = None,
) -> Iterator[Cast]:
    """Give every process its part of a batch, and take it back afterwards."""
    size = next(size for size, kind in DTYPES.items() if str(kind) == f"torch.{dtype}")
    d = Dims(D=1, T=1, E=star.count, E_total=EXPERTS, K=TOP_K, H=HIDDEN, S=tokens, Dsize=size, copies=TOP_K)
    peers = star.peers if peers is None else peers
    star.prepare(d, primitives, peers)
    try:
        yield Cast(peers, tokens, dtype, tokens * TOP_K * HIDDEN * size)
    finally:
        star.forget()


def measure(
    star: Star, ready: Cast, busy: bool, repetitions: int, primitive: Primitive = "dispatch"
) -> list[dict[str, Any]]:
    """One row a peer; ratios are peer over async."""
    times: dict[str, list[Times]] = defaultdict(list)
    peers = [peer for peer in ready.peers if primitive == "dispatch" or peer not in LAST]
    for repetition in range(repetitions + 1):
        for peer in peers:
            taken = star.transfer(peer, primitive, busy)
            if repetition:  # the first warms pages and connections
                times[peer].append(taken)
    medians = {peer: Times(*map(statistics.median, zip(*taken))) for peer, taken in times.items()}
    ours = medians[ASYNC]
    return [
        {
            "primitive": primitive,
            "peer": peer,
            "tokens": ready.tokens,
            "dtype": ready.dtype,
            "receivers": star.count,
            "busy": busy,
            "busy_receivers_are": occupied_by(star.count),
            "blocked_us": taken.blocked * 1e6,
            "posted_us": taken.posted * 1e6,
            "delivered_us": taken.delivered * 1e6,
            "private_us": taken.private * 1e6,
            "blocked_ratio": taken.blocked / ours.blocked,
            "delivered_ratio": taken.delivered / ours.delivered,
            "private_ratio": taken.private / ours.private,
            "gb_per_s": ready.bytes / taken.delivered / 1e9,
            "bytes": ready.bytes,
        }
        for peer, taken in medians.items()
    ]
