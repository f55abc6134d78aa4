"""Which row goes where: the (token, k) pairs of a batch sorted by expert, and the rows each device needs of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from asaplab.core import expert_shares
from asaplab.errors import InputError
from asaplab.primitives.backend import core
from asaplab.primitives.layout import Dims


class Plan(NamedTuple):
    """Pair p of the sorted order is ``order_p[p] = token * K + k``; device e has the pairs up to ``pair_ends_E[e]``."""

    counts_E: np.ndarray  # int32, pairs of each of the E_total experts
    order_p: np.ndarray  # int32
    index_p: np.ndarray  # int32, which of its device's rows a pair takes
    rows_r: np.ndarray  # int32, the token of each row; device e has the rows up to row_ends_E[e]
    row_ends_E: np.ndarray  # int64
    pair_ends_E: np.ndarray  # int64

    def needed(self) -> int:
        """The E-bit mask of the devices that get rows."""
        has = np.diff(self.pair_ends_E, prepend=0) > 0
        return int(sum(1 << int(e) for e in np.flatnonzero(has)))


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class Planner:
    """Plans batches for a layout.

    Raises:
        InputError: an id names no expert, or an expert is chosen more often than there are tokens: the plan, and the
            regions that are sized for one choice an expert and token, would be written beyond their ends.
    """

    def __init__(self, d: Dims) -> None:
        self.d = d
        shares = expert_shares(d.E_total, d.E)
        self.bounds_E1 = np.array([share.start for share in shares] + [d.E_total], np.int64)

    def __call__(self, ids_nK: torch.Tensor) -> Plan:
        d, (n, K) = self.d, ids_nK.shape
        ids_nK = ids_nK.to(torch.int64).contiguous()
        unsigned = ids_nK.numpy().view(np.uint64)  # negative ids are large ones
        if unsigned.size and unsigned.max() >= d.E_total:
            wrong = int(unsigned.max().view(np.int64))
            raise InputError(f"expert id {wrong} names no expert; ids go from 0 to {d.E_total - 1}")
        counts, ends, last = np.empty(d.E_total, np.int32), np.empty(d.E, np.int64), np.empty(d.E, np.int64)
        order, index = np.empty(n * K, np.int32), np.empty(n * K, np.int32)
        rows = np.empty(n * min(K, d.E), np.int32)
        core.plan(
            ids_nK.data_ptr(), n, K, d.E_total, address(self.bounds_E1), d.E,
            address(counts), address(order), address(index), address(rows), address(ends), address(last),
        )  # fmt: skip
        if counts.max() > n:
            often = int(counts.argmax())
            raise InputError(f"expert {often} is chosen {counts[often]} times by {n} tokens; a token names it once")
        if d.copies > 1:  # the paper's layout: a row for each pair
            rows, ends = order // K, last
            index = np.arange(n * K, dtype=np.int32) - np.repeat(
                np.concatenate(([0], last[:-1])), np.diff(last, prepend=0)
            ).astype(np.int32)
        return Plan(counts, order, index, rows, ends, last)
