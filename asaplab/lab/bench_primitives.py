"""``asaplab bench primitives``: one sender to N receivers, against torch's gloo collectives and memcpy (Figure 14).

Every peer moves the same rows: each token once for each of its K experts, gathered from the batch. An alternative's
times are medians over repetitions that take turns, so that the machine's moods reach all alike. *Blocked* is how long
the sender's call takes, *delivered* when the last receiver sees its rows. Receivers are idle (they wait), or busy: they
compute in slices of 2 ms and look for rows, or post their receive, in between.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from asaplab.lab.peers import Cast, Star, occupied_by, receivers
from asaplab.primitives.backend import core

HIDDEN, TOP_K, EXPERTS = 7168, 8, 256
ASYNC = "async"


def bench(quick: bool) -> dict[str, Any]:
    """Rows of all sizes, receiver counts and peers; ``memcpy_ratio`` is our delivery rate over that of one memcpy."""
    torch.set_num_threads(1)
    sizes = (1, 1024, 8192) if quick else (1, 128, 512, 1024, 8192)
    counts = (4,) if quick else (1, 4, 8, 16)
    rows: list[dict[str, Any]] = []
    memcpy_ratio = None
    for count in counts:
        with receivers(count) as star:
            for tokens in sizes:
                long = quick and tokens == 8192
                repetitions = (3 if long else 5) if quick else 9
                moods = [False] if long else [False, True]
                with cast(star, tokens) as ready:
                    for busy in moods:
                        rows += measure(star, ready, busy, repetitions)
                    if tokens == 8192 and count == 4:
                        memcpy_ratio = against_memcpy(star, ready, repetitions)
    return {
        "rows": rows,
        "memcpy_ratio": memcpy_ratio,
        "hidden": HIDDEN,
        "top_k": TOP_K,
        "dtype": "bfloat16",
        "core": core.__name__.rsplit(".", 1)[-1],
        "peers_missing": ["mpi"],
    }


@contextlib.contextmanager
def cast(star: Star, tokens: int) -> Iterator[Cast]:
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.rand(tokens, EXPERTS, generator=generator).argsort(1)[:, :TOP_K]
    ready = star.prepare(torch.randn(tokens, HIDDEN, generator=generator).bfloat16(), ids, EXPERTS)
    try:
        yield ready
    finally:
        star.forget()


def measure(star: Star, ready: Cast, busy: bool, repetitions: int) -> list[dict[str, Any]]:
    """One row a peer; ratios are peer over async."""
    blocked, delivered = defaultdict(list), defaultdict(list)
    for repetition in range(repetitions + 1):
        for peer in star.peers:
            took, seen = star.transfer(ready, peer, busy)
            if repetition:  # the first warms pages and connections
                blocked[peer].append(took)
                delivered[peer].append(seen)
    ours = statistics.median(blocked[ASYNC]), statistics.median(delivered[ASYNC])
    return [
        {
            "peer": peer,
            "tokens": ready.tokens,
            "receivers": star.count,
            "busy": busy,
            "busy_receivers_are": occupied_by(star.count),
            "blocked_us": statistics.median(blocked[peer]) * 1e6,
            "delivered_us": statistics.median(delivered[peer]) * 1e6,
            "blocked_ratio": statistics.median(blocked[peer]) / ours[0],
            "delivered_ratio": statistics.median(delivered[peer]) / ours[1],
            "bytes": ready.bytes,
        }
        for peer in star.peers
    ]


def against_memcpy(star: Star, ready: Cast, repetitions: int) -> float:
    """One thread's copy of the same bytes between warm private buffers, over our time until all flags are set."""
    source = torch.ones(ready.bytes, dtype=torch.uint8)
    target = torch.empty_like(source).fill_(0)
    ratios = []
    for _ in range(repetitions):
        start = time.perf_counter()
        core.move_rows(target.data_ptr(), 0, source.data_ptr(), 0, 1, ready.bytes)
        copied = time.perf_counter() - start
        took, _ = star.transfer(ready, ASYNC, False)  # the call returns when the last flag is set
        ratios.append(copied / took)
    return statistics.median(ratios)
