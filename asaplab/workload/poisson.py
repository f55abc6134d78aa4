"""Synthetic traffic: Poisson arrivals with a length distribution (section 5.1)."""

from __future__ import annotations

import math

import numpy as np

from asaplab.core import Workload
from asaplab.errors import InputError
from asaplab.workload.exclusion import note
from asaplab.workload.lengths import Lengths, sampler
from asaplab.workload.streams import stream

_MOST_REQUESTS = 50_000_000  # about 1 GB of columns
_MOST_DRAWS_PER_REQUEST = 1_000


def poisson(
    *,
    rps: float,
    duration_s: float | None = None,
    requests: int | None = None,
    lengths: Lengths = "paper",
    seed: int = 0,
    max_tokens: int = 32768,
    strict: bool = False,
) -> Workload:
    """Requests that arrive at ``rps`` a second, for ``duration_s`` seconds or ``requests`` in number.

    Lengths beyond ``max_tokens`` (S) are left out before arrivals are drawn, so ``rps`` is the rate of the requests
    that remain; ``excluded`` counts what was left out. Streams of one seed: the arrivals of two rates are the same
    up to scale, and a longer run begins with the shorter one.

    Raises:
        InputError: a rate, duration or count that is not positive, both or neither of duration and count, lengths
            that all exceed S, or one that does when ``strict``.
    """
    if not (rps > 0 and math.isfinite(rps)):
        raise InputError(f"rps is {rps}; the request rate must be a finite number above 0")
    if (duration_s is None) == (requests is None):
        raise InputError("a Poisson workload needs either duration_s or requests, and not both")
    if max_tokens < 1:
        raise InputError(f"max_tokens is {max_tokens}; it must be at least 1")
    if duration_s is not None:
        if not (duration_s > 0 and math.isfinite(duration_s)):
            raise InputError(f"duration_s is {duration_s}; it must be a finite number above 0")
        _bounded(rps * duration_s)
        arrival_s = _until(duration_s, rps, stream(seed, "arrivals"))
    else:
        assert requests is not None
        if requests < 1:
            raise InputError(f"requests is {requests}; it must be at least 1")
        _bounded(requests)
        arrival_s = np.cumsum(stream(seed, "arrivals").standard_exponential(requests)) / rps
    tokens, excluded = _up_to(max_tokens, len(arrival_s), lengths, stream(seed, "lengths"))
    source = {"kind": "poisson", "rps": rps, "duration_s": duration_s, "max_tokens": max_tokens}
    source |= {"lengths": lengths if isinstance(lengths, str | int) else "given"}
    source |= note("this workload", excluded, max_tokens, strict=strict)
    return Workload(
        arrival_s=arrival_s, tokens=tokens, name=f"poisson-{rps:g}", seed=seed, source=source, excluded=excluded
    )


def _bounded(expected: float) -> None:
    if expected > _MOST_REQUESTS:
        raise InputError(f"the workload would have {expected:.3g} requests; ask for at most {_MOST_REQUESTS:,}")


def _until(duration_s: float, rps: float, rng: np.random.Generator) -> np.ndarray:
    """Arrival times below ``duration_s``: cumulative gaps, drawn in blocks whose size does not show."""
    chunk = int(rps * duration_s * 1.1) + 64
    gaps = rng.standard_exponential(chunk)
    while gaps.sum() / rps < duration_s:
        gaps = np.concatenate([gaps, rng.standard_exponential(chunk)])
    arrival_s = np.cumsum(gaps) / rps
    return arrival_s[arrival_s < duration_s]


def _up_to(most: int, n: int, lengths: Lengths, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """The first n lengths that are at most ``most``, and how many were left out on the way."""
    draw = sampler(lengths, rng)
    kept: list[np.ndarray] = []
    have = excluded = 0
    while have < n:
        block = draw(n - have)
        fits = block <= most
        kept.append(block[fits])
        have += len(kept[-1])
        excluded += len(block) - len(kept[-1])
        if have + excluded > _MOST_DRAWS_PER_REQUEST * max(have, 1):
            raise InputError(f"nearly all prompt lengths exceed S = {most} tokens; raise max_tokens or shorten them")
    return (np.concatenate(kept) if kept else np.empty(0, np.int64)), excluded
