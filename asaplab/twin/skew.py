"""Expert skew: some experts get more rows than others, and copies of the hot ones even the devices out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf

import numpy as np

from asaplab.core import expert_shares
from asaplab.errors import require


@dataclass(frozen=True, kw_only=True)
class Skew:
    """How rows spread over the experts of a layer, and how many copies of experts the instance holds besides.

    The expert of rank r gets a share of rows that goes with ``r ** -exponent``; which expert has which rank is drawn
    anew for every layer. Exponent 0 is balanced. ``redundant`` copies go by the rule of ``device_shares``.
    """

    exponent: float = 0.0
    redundant: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.exponent < inf, f"skew is {self.exponent}; the exponent must be finite and not negative")
        require(self.redundant >= 0, f"redundant is {self.redundant}; the number of copies must not be negative")

    def shares_LE(self, E_total: int, E: int, L: int) -> np.ndarray:
        """Shares of rows by MoE device for each of L layers, read-only."""
        return _shares(self, E_total, E, L)

    def extra(self, E: int) -> int:
        """Copies that each device has room for; their weights are read like those of any expert."""
        return -(-self.redundant // E)


def device_shares(loads_LN: np.ndarray, E: int, redundant: int = 0) -> np.ndarray:
    """Shares of rows by device, shape (L, E), for the loads of N experts in L layers.

    Experts have their home as everywhere: consecutive ones on each device. The rule for copies, one after another:
    the expert with the most rows a copy gets one more, until ``redundant`` are given. Rows split evenly over the
    copies of an expert. Copies then go, the heaviest first, to the device with the fewest rows that has room (each has
    room for redundant / E, rounded up) and no copy of that expert yet.

    Raises:
        InputError: there are more devices than experts, or more copies than devices can tell apart.
    """
    homes = expert_shares(loads_LN.shape[1], E)
    most = loads_LN.shape[1] * (E - 1)
    require(
        0 <= redundant <= most,
        f"redundant is {redundant}; {E} devices have a use for 0 to {most} copies of {loads_LN.shape[1]} experts",
    )
    home = np.repeat(np.arange(E), [len(experts) for experts in homes])
    return np.stack([_layer(loads / loads.sum(), home, E, redundant) for loads in loads_LN.astype(np.float64)])


def _layer(load_N: np.ndarray, home: np.ndarray, E: int, redundant: int) -> np.ndarray:
    copies = np.ones(len(load_N), np.int64)
    for _ in range(redundant):
        copies[np.where(copies < E, load_N / copies, -1.0).argmax()] += 1
    each = load_N / copies
    rows = np.bincount(home, each, E)
    room = np.full(E, -(-redundant // E))
    for expert in sorted(np.flatnonzero(copies > 1).tolist(), key=lambda n: -each[n]):
        has = np.zeros(E, bool)
        has[home[expert]] = True
        for _ in range(copies[expert] - 1):
            # where only devices with a copy have room, the rows stay beside that copy
            free = (room > 0) & ~has if ((room > 0) & ~has).any() else room > 0
            place = int(np.where(free, rows, inf).argmin())
            rows[place] += each[expert]
            room[place] -= 1
            has[place] = True
    return rows


@cache
def _shares(skew: Skew, E_total: int, E: int, L: int) -> np.ndarray:
    rng = np.random.default_rng(skew.seed)
    weights = np.arange(1, E_total + 1, dtype=np.float64) ** -skew.exponent
    shares = device_shares(np.stack([rng.permutation(weights) for _ in range(L)]), E, skew.redundant)
    shares.flags.writeable = False
    return shares
