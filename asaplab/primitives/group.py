"""Collectives of one DP group's T ranks over a segment of their own (section 4, tensor parallelism).

Each rank counts the meetings it has come to; a meeting is over when all counts have reached it. One meeting a
collective is enough: whoever is at a later one has finished reading, so an area may be written again once another
meeting has passed since its last use. Sums run over the ranks in order and give every rank the same bits.
"""

from __future__ import annotations

import numpy as np
import torch

from asaplab.core import token_shares
from asaplab.errors import InputError, Stalled
from asaplab.primitives.backend import core, spins
from asaplab.primitives.layout import LINE, PAGE, Dims, aligned, group_bytes
from asaplab.primitives.segment import Aborted, Segment

COUNTS, MASKS, POSTED, AREAS = PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE
MOST_WORDS = 8  # of a published tuple
TAKEN = POSTED + (1 + MOST_WORDS) * LINE  # how many each rank has received
MOST_RANKS = (AREAS - TAKEN) // LINE


class GroupPort:
    """Rank ``rank`` of the group that owns ``segment``.

    Raises:
        InputError: T is beyond what the segment's pages of words hold.
    """

    def __init__(self, segment: Segment, d: Dims, rank: int, *, timeout_s: float = 60.0) -> None:
        if d.T > MOST_RANKS:
            raise InputError(f"T is {d.T}; a DP group has at most {MOST_RANKS} ranks, so choose more groups instead")
        self.segment, self.d, self.rank, self.timeout_s = segment, d, rank, timeout_s
        self._spin = spins(d.D * d.T + d.E)
        self._area_bytes = aligned(d.S * d.H * d.Dsize, PAGE)
        self._meeting = 0
        self._used = {"sum": -1, "gather": -1, "mask": -1}  # the meeting of each area's last use
        self._posted = 0

    @staticmethod
    def size(d: Dims) -> int:
        """Bytes of a group's segment."""
        return group_bytes(d)

    def reduce_scatter(self, partial_NH: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' partial sums, of this rank's tokens only.

        Raises:
            Stalled, Aborted: as all collectives here.
        """
        if self.d.T == 1:
            return partial_NH
        N = len(partial_NH)
        self._reuse("sum")
        self._area(self.rank, N, partial_NH.dtype).copy_(partial_NH)
        self._meet()
        mine = token_shares(N, self.d.T)[self.rank]
        parts = [self._area(j, N, partial_NH.dtype)[mine.start : mine.stop] for j in range(self.d.T)]
        own_nH = parts[0] + parts[1]
        for part in parts[2:]:
            own_nH += part
        return own_nH

    def all_gather(self, own_nH: torch.Tensor, N: int) -> torch.Tensor:
        """All N tokens of the batch from each rank's own."""
        if self.d.T == 1:
            return own_nH
        self._reuse("gather")
        mine, all_NH = token_shares(N, self.d.T)[self.rank], self._area(self.d.T, N, own_nH.dtype)
        all_NH[mine.start : mine.stop] = own_nH
        self._meet()
        return all_NH.clone()

    def or_mask(self, mask: int) -> int:
        """The union of all ranks' bit masks (up to 512 bits)."""
        if self.d.T == 1:
            return mask
        self._reuse("mask")
        masks = self.segment.array(MASKS, (self.d.T, LINE), np.uint8, LINE)
        masks[self.rank] = np.frombuffer(mask.to_bytes(LINE, "little"), np.uint8)
        self._meet()
        return int.from_bytes(np.bitwise_or.reduce(masks, axis=0).tobytes(), "little")

    def publish(self, words: tuple[int, ...]) -> None:
        """Rank 0 tells the others; waits only until they have taken what it last told."""
        if self.d.T == 1:
            return
        if len(words) > MOST_WORDS - 1:
            raise InputError(f"{len(words)} words to publish; a group takes at most {MOST_WORDS - 1}")
        base = self.segment.address
        outcome = self._wait(base + TAKEN + LINE, self.d.T - 1, self._posted)
        if outcome == core.TIMED_OUT:
            late = [j for j in range(1, self.d.T) if core.load(base + TAKEN + LINE * j) < self._posted]
            raise Stalled(f"rank 0 waited {self.timeout_s:g} s for ranks {late} to take what it had published")
        for k, word in enumerate((len(words), *words)):
            core.store(base + POSTED + LINE * (k + 1), word & (1 << 64) - 1)
        self._posted += 1
        core.store(base + POSTED, self._posted)
        self.segment.ring()

    def receive(self, timeout_s: float) -> tuple[int, ...] | None:
        """What rank 0 published next, or None if it has not within the time."""
        base, until = self.segment.address, core.now_ns() + int(timeout_s * 1e9)
        while True:
            heard = self.segment.bell()
            if core.load(base + POSTED) > self._posted:
                break
            left_s = (until - core.now_ns()) * 1e-9
            if left_s <= 0:
                return None
            self.segment.wait(heard, left_s, self._spin)
        n = core.load(base + POSTED + LINE)
        words = tuple(_signed(core.load(base + POSTED + LINE * (k + 2))) for k in range(n))
        self._posted += 1
        core.store(base + TAKEN + LINE * self.rank, self._posted)
        self.segment.ring()
        return words

    # -------------------------------------------------------------- meetings

    def _area(self, k: int, N: int, dtype: torch.dtype) -> torch.Tensor:
        if N * self.d.H * dtype.itemsize > self._area_bytes:
            raise InputError(f"a batch of {N} tokens in {dtype} does not fit the group's segment; S is {self.d.S}")
        return self.segment.tensor(AREAS + k * self._area_bytes, (N, self.d.H), dtype)

    def _reuse(self, area: str) -> None:
        if self._used[area] == self._meeting:  # nobody has shown since that it has finished reading
            self._meet()
        self._used[area] = self._meeting + 1

    def _meet(self) -> None:
        self._meeting += 1
        base = self.segment.address + COUNTS
        core.store(base + LINE * self.rank, self._meeting)
        self.segment.ring()
        if self._wait(base, self.d.T, self._meeting) == core.TIMED_OUT:
            late = [j for j in range(self.d.T) if core.load(base + LINE * j) < self._meeting]
            raise Stalled(f"rank {self.rank} waited {self.timeout_s:g} s for ranks {late} in a collective")

    def _wait(self, base: int, n: int, value: int) -> int:
        s, timeout_ns = self.segment, int(self.timeout_s * 1e9)
        outcome = core.wait_at_least(base, LINE, n, value, s.bell_address, s.abort_address, self._spin, timeout_ns)
        if outcome == core.ABORTED:
            raise Aborted
        return outcome


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
