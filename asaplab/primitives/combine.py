"""The MoE device's side: complete regions in, result rows back (section 3.2).

A region is complete when every rank of its DP group has set its flag. Rows arrive once a token; ``async_dispatch_recv``
lays them out once an expert, grouped, for the super kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from asaplab.core import expert_shares
from asaplab.errors import InputError
from asaplab.primitives.backend import core, spins
from asaplab.primitives.dispatch import BELL, COUNT, FLAG, FROM, HEADER, ROW_BYTES, ROWS, TO, VALUE, WORDS, put_all
from asaplab.primitives.layout import HEADER_WORDS, LINE, Dims, attention_areas, moe_areas
from asaplab.primitives.plan import address
from asaplab.primitives.segment import Segment

DTYPES = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


class Arrived(NamedTuple):
    """The rows of all ranks of DP group ``i``, by local expert, then rank, then token: expert g has the rows
    ``offsets_E1[g]`` to ``offsets_E1[g + 1]`` of ``x_mH``."""

    i: int
    slot: int
    layer: int
    batch: int
    x_mH: torch.Tensor
    offsets_E1: torch.Tensor  # int64
    tokens: int  # of the batch, over all ranks
    complete_ns: int  # when the last rank set its flag
    in_place: bool  # x_mH is the region itself, until it is released
    values: list[int]  # of the ranks' flags
    bases: list[int]  # of each rank's result rows
    positions: list[np.ndarray]  # int32, the rows of x_mH that belong to each rank


class MoEPort:
    """MoE device ``e``: its ``own`` segment and those of the attention devices, number ``i * T + j``.

    Raises:
        InputError: no tensor has elements of Dsize bytes.
    """

    def __init__(self, d: Dims, e: int, own: Segment, attention: Sequence[Segment]) -> None:
        if d.Dsize not in DTYPES:
            raise InputError(f"Dsize is {d.Dsize}; activations have {', '.join(map(str, DTYPES))} bytes an element")
        self.d, self.e, self.own, self.attention = d, e, own, attention
        self.name = f"moe {e}"
        self.experts = len(expert_shares(d.E_total, d.E)[e])
        self.dtype = DTYPES[d.Dsize]
        self._spin = spins(d.D * d.T + d.E)
        mine = self._areas = moe_areas(d)
        shape = (d.D, d.slots, d.T)
        self._taken = np.zeros(shape, np.uint64)  # flags already received, so that a set flag counts once
        self._headers = own.array(mine.headers, (mine.count, HEADER_WORDS), np.int64, mine.header_stride)
        meta = mine.headers + HEADER_WORDS * 8
        self._counts = own.array(meta, (mine.count, d.share), np.int32, mine.header_stride)
        self._results = attention_areas(d)
        self._spare: list[torch.UntypedStorage] = []

    def _flags(self) -> np.ndarray:
        values = np.empty(self._taken.shape, np.uint64)
        core.loads(self.own.address + self._areas.flags, LINE, values.size, address(values))
        return values

    def complete(self) -> list[tuple[int, int, int]]:
        """Regions that every rank has filled and nobody has received: (region, slot, when its last flag was set)."""
        flags = self._flags()
        ready = ((flags != 0) & (flags != self._taken)).all(axis=2)
        return [(int(i), int(slot), int(self._words(i, slot)[:, 7].max())) for i, slot in np.argwhere(ready)]

    def _row(self, i: int, slot: int, j: int = 0) -> int:
        return (i * self.d.slots + slot) * self.d.T + j

    def _words(self, i: int, slot: int) -> np.ndarray:
        return self._headers[self._row(i, slot) : self._row(i, slot, self.d.T)]

    def async_dispatch_recv(self, i: int, slot: int, *, copy: bool) -> Arrived:
        """Receive a complete region.

        Args:
            copy: to private memory, and free the region at once (the paper's way). Otherwise rows that already lie
                grouped by expert are read where they are, until ``release``; rows that must be spread over experts or
                merged over ranks are copied by that alone.

        Raises:
            InputError: the region is not complete.
        """
        d, values = self.d, self._flags()[i, slot]
        if not ((values != 0) & (values != self._taken[i, slot])).all():
            raise InputError(f"{self.name}: slot {slot} of region {i} is not complete; take one that complete() names")
        self._taken[i, slot] = values
        words = self._words(i, slot).copy()
        if (words[:, 1:3] != words[0, 1:3]).any():
            raise RuntimeError(f"{self.name}: the ranks of group {i} sent different batches: {words[:, 1:3].tolist()}")
        at = self._row(i, slot)
        counts_TE = self._counts[at : at + d.T, : self.experts].astype(np.int64)
        # expert by expert, rank by rank: where each rank's block of an expert begins
        starts_ET = np.concatenate(([0], np.cumsum(counts_TE.T.reshape(-1))))
        total, offsets_E1 = int(starts_ET[-1]), torch.from_numpy(starts_ET[:: d.T].copy())
        positions = []
        for j in range(d.T):
            counts = counts_TE[j]
            shift = starts_ET[j : -1 : d.T] - (np.cumsum(counts) - counts)
            positions.append((np.repeat(shift, counts) + np.arange(counts.sum())).astype(np.int32))
        in_place = not copy and d.T == 1 and self._grouped(at, words[0])
        if in_place:
            x_mH = self.own.tensor(self._areas.area(at), (total, d.H), self.dtype)
        else:
            x_mH = self._private_rows(total)
            for j, position in enumerate(positions):
                base = self.own.address
                source, index = base + self._areas.area(at + j), base + self._areas.index(at + j, d)
                core.move_rows(x_mH.data_ptr(), address(position), source, index, len(position), d.H * d.Dsize)
        arrived = Arrived(
            i=i,
            slot=slot,
            layer=int(words[0, 1]),
            batch=int(words[0, 2]),
            x_mH=x_mH,
            offsets_E1=offsets_E1,
            tokens=int(words[:, 6].sum()),
            complete_ns=int(words[:, 7].max()),
            in_place=in_place,
            values=values.tolist(),
            bases=words[:, 5].tolist(),
            positions=positions,
        )
        if not in_place:
            self._free(arrived)
        return arrived

    def _private_rows(self, rows: int) -> torch.Tensor:
        """Memory that a batch before has left, if it is large enough: fresh memory costs a fault for every page."""
        size = rows * self.d.H * self.d.Dsize
        storage = self._spare.pop() if self._spare else None
        if storage is None or storage.nbytes() < size:
            storage = torch.UntypedStorage(size)
        return torch.empty(0, dtype=self.dtype).set_(storage, 0, (rows, self.d.H), (self.d.H, 1))

    def _grouped(self, row: int, words: np.ndarray) -> bool:
        """Every row has one expert here, so rows lie in the order of their experts already."""
        return bool(words[3] == words[4])

    def release(self, arrived: Arrived) -> None:
        """Free a region that was read in place; its rows must no longer be used. Others are free already."""
        if arrived.in_place:
            self._free(arrived)

    def _free(self, arrived: Arrived) -> None:
        at = self._row(arrived.i, arrived.slot)
        for j, value in enumerate(arrived.values):
            core.clear(self.own.address + self._areas.flag(at + j), value)
            self.attention[arrived.i * self.d.T + j].ring()

    def _result(self, arrived: Arrived, j: int) -> tuple[Segment, int]:
        return self.attention[arrived.i * self.d.T + j], arrived.slot * self.d.E + self.e

    def combine_free(self, arrived: Arrived) -> bool:
        """Whether ``async_combine_send`` would not wait: the ranks have taken this device's last results."""
        targets = [self._result(arrived, j) for j in range(self.d.T)]
        return not any(core.load(segment.address + self._results.flag(k)) for segment, k in targets)

    def async_combine_send(
        self, arrived: Arrived, y_mH: torch.Tensor, *, stamps: tuple[int, int, int], timeout_s: float
    ) -> None:
        """Write each row of ``y_mH`` back to the rank it came from; waits only while a result flag is still set.

        Rows that ``arrived`` holds in private memory end with this call: the memory is used again.

        Args:
            stamps: when the region was complete, the kernel started and ended (ns); the ranks read them.

        Raises:
            InputError: ``y_mH`` is not of the shape and size of ``arrived.x_mH``.
            Stalled: a rank did not take earlier results in time.
            Aborted: the instance is being torn down.
        """
        d = self.d
        rows = int(arrived.offsets_E1[-1])
        if y_mH.shape != (rows, d.H) or y_mH.element_size() != d.Dsize:
            raise InputError(f"{self.name}: results {tuple(y_mH.shape)} in {y_mH.dtype} for {rows} rows of H = {d.H}")
        y_mH = y_mH.contiguous()
        puts, words = np.zeros((d.T, core.PUT_WORDS), np.uint64), np.zeros((d.T, HEADER_WORDS), np.int64)
        row_bytes = d.H * d.Dsize
        for j, position in enumerate(arrived.positions):
            (segment, k), put = self._result(arrived, j), puts[j]
            words[j, :6] = arrived.values[j], len(position), arrived.bases[j], *stamps
            put[FLAG], put[BELL] = segment.address + self._results.flag(k), segment.bell_address
            put[VALUE] = arrived.values[j]
            put[HEADER], put[WORDS] = segment.address + self._results.header(k), address(words[j])
            put[TO] = segment.address + self._results.area(arrived.slot) + arrived.bases[j] * row_bytes
            put[FROM], put[ROW_BYTES] = y_mH.data_ptr(), row_bytes
            put[ROWS], put[COUNT] = address(position), len(position)
        self._transfer(puts, arrived, timeout_s)
        if not arrived.in_place:
            self._spare.append(arrived.x_mH.untyped_storage())

    def _transfer(self, puts: np.ndarray, arrived: Arrived, timeout_s: float) -> None:
        targets = [f"attention {arrived.i}.{j}" for j in range(self.d.T)]
        put_all(puts, self.own, self._spin, timeout_s, self.name, targets)
