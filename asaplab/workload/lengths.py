"""Prompt lengths: the paper's production distribution (section 2.3, Figure 5) and lengths that a user brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from asaplab.errors import InputError

Lengths: TypeAlias = Literal["paper"] | int | ArrayLike

# Section 2.3 prints the least (31), the mean (about 5,000) and the greatest length (about 100,000). A lognormal with
# these parameters, truncated to that range, meets all three; its shape is assumed, as the paper prints no others.
PAPER_MU, PAPER_SIGMA = 8.0037, 1.0209
PAPER_LEAST, PAPER_MOST = 31, 100_000


def sampler(lengths: Lengths, rng: np.random.Generator) -> Callable[[int], np.ndarray]:
    """A function that draws the next n lengths (tokens, int64).

    ``"paper"`` is the distribution of section 2.3, an int gives every prompt that length, an array is drawn from
    with replacement, as section 5.1 samples its trace.

    Raises:
        InputError: a length is below 1 or the array is empty or not of whole numbers.
    """
    if isinstance(lengths, str):
        if lengths != "paper":
            raise InputError(f"lengths is {lengths!r}; give 'paper', a number of tokens, or an array of lengths")
        return lambda n: _paper(n, rng)
    pool = np.atleast_1d(np.asarray(lengths))
    if pool.ndim != 1 or pool.size == 0 or pool.dtype.kind not in "iu":
        raise InputError("lengths must be one whole number of tokens or a non-empty list of them")
    if int(pool.min()) < 1:
        raise InputError(f"lengths holds {int(pool.min())}; every prompt needs at least 1 token")
    pool = pool.astype(np.int64)
    return lambda n: pool[rng.integers(0, len(pool), n)]


def _paper(n: int, rng: np.random.Generator) -> np.ndarray:
    """Truncated by redrawing, so that the n-th length does not depend on how many are asked for at once."""
    kept: list[np.ndarray] = []
    missing = n
    while missing > 0:
        drawn = np.rint(rng.lognormal(PAPER_MU, PAPER_SIGMA, missing)).astype(np.int64)
        drawn = drawn[(drawn >= PAPER_LEAST) & (drawn <= PAPER_MOST)]
        kept.append(drawn)
        missing -= len(drawn)
    return np.concatenate(kept) if kept else np.empty(0, np.int64)
