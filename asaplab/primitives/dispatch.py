"""The attention device's side: rows out to the MoE devices, results back into (token, k) slots (section 3.2).

``async_dispatch_send`` writes rows straight into the receivers' memory and never asks whether they are busy. It waits
only while a flag of its own is still set there: the rows of an earlier batch in that slot are not yet taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from asaplab.errors import InputError, Stalled
from asaplab.primitives.backend import core, spins
from asaplab.primitives.layout import HEADER_WORDS, LINE, Dims, attention_areas, moe_areas
from asaplab.primitives.plan import Planner, address
from asaplab.primitives.segment import Aborted, Segment

# columns of a put (native/core.hpp)
FLAG, BELL, VALUE, HEADER, WORDS, META_TO, META_FROM, META_BYTES = range(8)
INDEX_TO, INDEX_FROM, INDEX_BYTES, TO, FROM, ROW_BYTES, ROWS, COUNT = range(8, 16)


class Ticket(NamedTuple):
    """A batch on its way: the results of its devices are awaited in its slot."""

    slot: int
    value: int  # what the devices' result flags will hold: epoch << 32 | sequence number
    devices: np.ndarray  # the MoE devices that will answer
    flags: np.ndarray  # uint64, the addresses of their result flags
    values: np.ndarray  # uint64, ``value`` once for each
    order_p: np.ndarray  # int32, the (token, k) slot of each result row


class ResultHeader(NamedTuple):
    """What device ``e`` says beside its ``rows`` result rows; stamps are CLOCK_MONOTONIC in ns."""

    e: int
    rows: int
    complete_ns: int  # the last rank of the group had set its flag
    start_ns: int  # super kernel
    end_ns: int
    sent_ns: int  # the device set its flag


class AttentionPort:
    """Rank ``j`` of DP group ``i``: its ``own`` segment and those of the MoE devices, in order."""

    def __init__(self, d: Dims, i: int, j: int, own: Segment, moe: Sequence[Segment]) -> None:
        self.d, self.own, self.moe = d, own, moe
        self.name = f"attention {i}.{j}"
        self._plan = Planner(d)
        self._sequence = 0
        self._spin = spins(d.D * d.T + d.E)
        mine, theirs = attention_areas(d), moe_areas(d)
        self._areas = mine
        self._headers = own.array(mine.headers, (mine.count, HEADER_WORDS), np.int64, mine.header_stride)
        self._flags = (own.address + mine.flags + LINE * np.arange(mine.count)).astype(np.uint64)
        self._puts = np.zeros((d.slots, d.E, core.PUT_WORDS), np.uint64)  # what does not change from batch to batch
        meta = HEADER_WORDS * 8
        for slot in range(d.slots):
            row = (i * d.slots + slot) * d.T + j
            for e, segment in enumerate(moe):
                put = self._puts[slot, e]
                put[FLAG], put[BELL] = segment.address + theirs.flag(row), segment.bell_address
                put[HEADER] = segment.address + theirs.header(row)
                put[META_TO], put[INDEX_TO] = put[HEADER] + np.uint64(meta), segment.address + theirs.index(row, d)
                put[TO] = segment.address + theirs.area(row)

    def needed(self, expert_ids_nK: torch.Tensor) -> int:
        """The E-bit mask of the MoE devices that hold any of these experts."""
        chosen = torch.bincount(expert_ids_nK.reshape(-1), minlength=self.d.E_total).numpy()
        per_device = np.add.reduceat(chosen, self._plan.bounds_E1[:-1])
        return int(sum(1 << int(e) for e in np.flatnonzero(per_device)))

    def async_dispatch_send(
        self,
        slot: int,
        x_nH: torch.Tensor,
        expert_ids_nK: torch.Tensor,
        *,
        layer: int,
        batch: int,
        active: int,
        timeout_s: float,
    ) -> Ticket:
        """Write this rank's tokens to every device of ``active``, possibly zero rows; free devices come first.

        Args:
            slot: which of the region's buffers.
            x_nH: the tokens of this rank, n at most S/T; dtype of Dsize bytes.
            expert_ids_nK: their experts.
            active: E-bit mask of the devices that the whole DP group needs; the others hear nothing.

        Raises:
            InputError: an argument breaks the layout.
            Stalled: a device did not take the last rows of this slot in time.
            Aborted: the instance is being torn down.
        """
        d = self.d
        self._check(slot, x_nH, expert_ids_nK)
        x_nH, plan = x_nH.contiguous(), self._plan(expert_ids_nK)
        if plan.needed() & ~active:
            raise InputError(
                f"{self.name}: active mask {active:#x} leaves out devices that its tokens need; OR all ranks"
            )
        self._sequence += 1
        value = self.own.epoch << 32 | self._sequence & 0xFFFFFFFF
        e = np.array([e for e in range(d.E) if active >> e & 1], np.int64)
        ends = np.concatenate(([0], plan.row_ends_E)), np.concatenate(([0], plan.pair_ends_E))
        rows, pairs = np.diff(ends[0])[e], np.diff(ends[1])[e]
        first_row, first_pair = ends[0][e], ends[1][e]
        words = np.zeros((len(e), HEADER_WORDS), np.int64)
        words[:, [0, 1, 2, 6]] = value, layer, batch, len(x_nH)
        words[:, 3], words[:, 4], words[:, 5] = rows, pairs, first_pair
        starts = self._plan.bounds_E1
        puts = self._puts[slot, e]
        puts[:, VALUE] = value
        puts[:, WORDS] = address(words) + words.strides[0] * np.arange(len(e))
        puts[:, META_FROM] = address(plan.counts_E) + 4 * starts[e]
        puts[:, META_BYTES] = 4 * (starts[e + 1] - starts[e])
        puts[:, INDEX_FROM] = address(plan.index_p) + 4 * first_pair
        puts[:, INDEX_BYTES] = 4 * pairs
        puts[:, FROM], puts[:, ROW_BYTES] = x_nH.data_ptr(), d.H * d.Dsize
        puts[:, ROWS] = address(plan.rows_r) + 4 * first_row
        puts[:, COUNT] = rows
        self._transfer(puts, e, timeout_s)
        return Ticket(slot, value, e, self._flags[slot * d.E + e], np.full(len(e), value, np.uint64), plan.order_p)

    def _transfer(self, puts: np.ndarray, devices: np.ndarray, timeout_s: float) -> None:
        put_all(puts, self.own, self._spin, timeout_s, self.name, [f"moe {e}" for e in devices])

    def _check(self, slot: int, x_nH: torch.Tensor, ids_nK: torch.Tensor) -> None:
        d, n = self.d, len(x_nH)
        if not 0 <= slot < d.slots:
            raise InputError(f"{self.name}: slot is {slot}; the layout has slots 0 to {d.slots - 1}")
        if n > d.rank_tokens:
            raise InputError(f"{self.name}: {n} tokens for one rank; S = {d.S} allows {d.rank_tokens}")
        if x_nH.shape != (n, d.H) or x_nH.element_size() != d.Dsize or ids_nK.shape != (n, d.K):
            raise InputError(
                f"{self.name}: rows of shape {tuple(x_nH.shape)} in {x_nH.dtype} and ids {tuple(ids_nK.shape)} do not "
                f"fit H = {d.H}, K = {d.K} and Dsize = {d.Dsize}; build the layout from the model"
            )

    def combine_ready(self, ticket: Ticket) -> bool:
        """Whether all devices have answered; does not wait."""
        n = len(ticket.devices)
        return core.count_ready(address(ticket.flags), address(ticket.values), n) == n

    def async_combine_recv(self, ticket: Ticket, results_nKH: torch.Tensor, timeout_s: float) -> list[ResultHeader]:
        """Put every result row into its (token, k) slot of ``results_nKH`` and free the devices' result flags.

        Raises:
            Stalled: a device did not answer in time.
            Aborted: the instance is being torn down.
        """
        headers = self.await_results(ticket, timeout_s)
        row_bytes, area = self.d.H * self.d.Dsize, self.own.address + self._areas.area(ticket.slot)
        out = results_nKH if results_nKH.is_contiguous() else torch.empty_like(results_nKH).contiguous()
        core.move_rows(out.data_ptr(), address(ticket.order_p), area, 0, len(ticket.order_p), row_bytes)
        if out is not results_nKH:
            results_nKH.copy_(out)
        self.free_results(ticket)
        return headers

    def await_results(self, ticket: Ticket, timeout_s: float) -> list[ResultHeader]:
        """Wait until every device has answered; the rows stay where they are (``results``).

        Raises: as ``async_combine_recv``.
        """
        until = core.now_ns() + int(timeout_s * 1e9)
        while True:
            heard = self.own.bell()
            if self.combine_ready(ticket):
                break
            left_s = (until - core.now_ns()) * 1e-9
            if left_s <= 0:
                missing = [
                    f"moe {e}" for e, f in zip(ticket.devices, ticket.flags) if core.load(int(f)) != ticket.value
                ]
                raise Stalled(f"{self.name} waited {timeout_s:g} s for the results of {', '.join(missing)}")
            self.own.wait(heard, left_s, self._spin)
        words = self._headers[ticket.slot * self.d.E + ticket.devices].tolist()
        if sum(w[1] for w in words) != len(ticket.order_p):
            raise RuntimeError(f"{self.name}: {[w[1] for w in words]} result rows for {len(ticket.order_p)} pairs")
        return [ResultHeader(e, w[1], w[3], w[4], w[5], w[7]) for e, w in zip(ticket.devices.tolist(), words)]

    def results(self, ticket: Ticket, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The awaited rows where they lie, and the (token, k) slot of each; theirs until ``free_results``."""
        rows_pH = self.own.tensor(self._areas.area(ticket.slot), (len(ticket.order_p), self.d.H), dtype)
        return rows_pH, torch.from_numpy(ticket.order_p.astype(np.int64))

    def free_results(self, ticket: Ticket) -> None:
        """Let the devices write to this slot again."""
        for e, flag in zip(ticket.devices.tolist(), ticket.flags.tolist()):
            core.clear(flag, ticket.value)
            self.moe[e].ring()


def put_all(puts: np.ndarray, own: Segment, spin: int, timeout_s: float, who: str, targets: list[str]) -> None:
    """Make all puts, free targets first; wait on the own bell only while a target's flag is still set.

    Raises:
        Stalled: a target's flag was still set when the time was up.
        Aborted: the instance is being torn down.
    """
    n, done = len(puts), np.zeros(len(puts), np.uint8)
    outcome = core.put_all(
        address(puts), n, address(done), own.bell_address, own.abort_address, spin, int(timeout_s * 1e9)
    )
    if outcome == core.ABORTED:
        raise Aborted
    if outcome == core.TIMED_OUT:
        missing = ", ".join(name for name, made in zip(targets, done) if not made)
        raise Stalled(f"{who} waited {timeout_s:g} s for {missing} to take the rows of an earlier batch")
