"""Synchronous point-to-point sends behind the same ports, to replace the asynchronous primitives with all else fixed.

A sender first announces itself and then waits until the receiver is ready: a rendezvous, in which a MoE device takes
part only between kernels, when it looks for regions or waits in a send of its own. Receivers are served one after the
other, so each that is busy adds what is left of its kernel.

Results are received as MPI's posted receives are: a rank is ready for them from its dispatch on. Otherwise two devices
that each send a batch to a rank that waits for the other ranks would wait for ever.
"""

from __future__ import annotations

import numpy as np

from asaplab.errors import Stalled
from asaplab.primitives import combine, dispatch
from asaplab.primitives.backend import core
from asaplab.primitives.dispatch import BELL, FLAG, VALUE
from asaplab.primitives.layout import LINE
from asaplab.primitives.plan import address
from asaplab.primitives.segment import Aborted, Segment

WANTED, READY = 8, 16  # words beside the flag in its line: the sender's announcement, and the receiver's


class SyncAttentionPort(dispatch.AttentionPort):
    """Sends block until every device is ready for them and has been served."""

    def _transfer(self, puts: np.ndarray, devices: np.ndarray, timeout_s: float) -> None:
        until = core.now_ns() + int(timeout_s * 1e9)
        for k, e in enumerate(devices.tolist()):
            flag, bell, value = (int(puts[k, column]) for column in (FLAG, BELL, VALUE))
            core.store(flag + WANTED, value)
            core.ring(bell)
            while True:
                heard = self.own.bell()
                if core.load(flag + READY) == value:
                    break
                left_s = (until - core.now_ns()) * 1e-9
                if left_s <= 0:
                    raise Stalled(f"{self.name} waited {timeout_s:g} s for moe {e} to be ready to receive")
                self.own.wait(heard, left_s, self._spin)
            _put(puts[k : k + 1], np.zeros(1, np.uint8), self.own)  # who is ready has an empty row


class SyncMoEPort(combine.MoEPort):
    """Says that it is ready for rows when it looks for regions, and while it waits for a rank to take results."""

    def complete(self) -> list[tuple[int, int, int]]:
        self._welcome()
        return super().complete()

    def _welcome(self) -> None:
        d, n, base = self.d, self._areas.count, self.own.address + self._areas.flags
        words = np.empty((3, n), np.uint64)
        for row, offset in zip(words, (0, WANTED, READY)):
            core.loads(base + offset, LINE, n, address(row))
        flags, wanted, ready = words
        for k in np.flatnonzero((wanted != ready) & (flags == 0)).tolist():
            core.store(base + LINE * k + READY, int(wanted[k]))
            self.attention[k // (d.slots * d.T) * d.T + k % d.T].ring()

    def _transfer(self, puts: np.ndarray, arrived: combine.Arrived, timeout_s: float) -> None:
        until, done = core.now_ns() + int(timeout_s * 1e9), np.zeros(len(puts), np.uint8)
        while True:
            heard = self.own.bell()
            if _put(puts, done, self.own):
                return
            self._welcome()
            left_s = (until - core.now_ns()) * 1e-9
            if left_s <= 0:
                missing = ", ".join(f"attention {arrived.i}.{j}" for j in np.flatnonzero(done == 0))
                raise Stalled(f"{self.name} waited {timeout_s:g} s for {missing} to take earlier results")
            self.own.wait(heard, left_s, self._spin)


def _put(puts: np.ndarray, done: np.ndarray, own: Segment) -> bool:
    """Make the puts whose flags are clear, without waiting; whether all are made now."""
    n = len(puts)
    outcome = core.put_all(address(puts), n, address(done), own.bell_address, own.abort_address, 0, 0)
    if outcome == core.ABORTED:
        raise Aborted
    return bool(outcome != core.TIMED_OUT)
