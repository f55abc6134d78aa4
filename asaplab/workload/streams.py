"""One seed, many independent random streams: each purpose draws from a stream of its own, called by name.

Drawing more lengths therefore never moves the arrivals, and request 7 has the same tokens whoever asked before.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from asaplab.errors import InputError

_WORD = (1 << 64) - 1


def stream(seed: int, name: str, *keys: int) -> np.random.Generator:
    """The random stream of that name (and of the numbers ``keys`` within it) for one seed.

    Raises:
        InputError: the seed is negative.
    """
    if seed < 0:
        raise InputError(f"seed is {seed}; it must not be negative")
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()), *(key & _WORD for key in keys))))
    )
