"""The barrier of the synchronous systems: everybody waits for the last (Figure 1a)."""

from __future__ import annotations

from asaplab.errors import Stalled
from asaplab.primitives.backend import core, spins
from asaplab.primitives.layout import LINE, PAGE
from asaplab.primitives.segment import Aborted, Segment


class Barrier:
    """Party ``index`` of ``parties``; a party counts its rounds in a word of its own."""

    def __init__(self, segment: Segment, parties: int, index: int) -> None:
        self.segment, self.parties, self.index = segment, parties, index
        self._round = 0
        self._spin = spins(parties)

    @staticmethod
    def size(parties: int) -> int:
        return PAGE + parties * LINE

    def wait(self, timeout_s: float) -> float:
        """Come, and wait until all have come; returns the seconds waited.

        Raises:
            Stalled: somebody has not come in time; the message says who.
            Aborted: the instance is being torn down.
        """
        s, start = self.segment, core.now_ns()
        self._round += 1
        base = s.address + PAGE
        core.store(base + LINE * self.index, self._round)
        s.ring()
        outcome = core.wait_at_least(
            base, LINE, self.parties, self._round, s.bell_address, s.abort_address, self._spin, int(timeout_s * 1e9)
        )
        if outcome == core.ABORTED:
            raise Aborted
        if outcome == core.TIMED_OUT:
            missing = [k for k in range(self.parties) if core.load(base + LINE * k) < self._round]
            raise Stalled(f"party {self.index} of a barrier waited {timeout_s:g} s for {missing}")
        return (core.now_ns() - start) * 1e-9
