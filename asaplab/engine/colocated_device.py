"""The loop of a device in a synchronous system: both stages on every device, in lock-step (Figure 1a).

Before each MoE layer all devices meet at a barrier, exchange rows all to all, compute the experts they hold on
the rows of all DP groups in one grouped GEMM, send the rows back and meet again. A group without a batch keeps the
barriers and still computes its experts for the others.
"""

from __future__ import annotations

from typing import Any

import torch

from asaplab import superkernel
from asaplab.core import expert_shares
from asaplab.engine.attention_role import AttentionRole
from asaplab.engine.batch import Flight, board
from asaplab.engine.device import now_ns, open_segments
from asaplab.errors import Stalled
from asaplab.primitives.barrier import Barrier
from asaplab.primitives.combine import MoEPort
from asaplab.primitives.dispatch import AttentionPort, Ticket
from asaplab.primitives.segment import Segment

WAIT_S = 0.25


class ColocatedDevice(AttentionRole):
    """Rank ``rank`` of DP group ``group``, and at once expert device number ``expert_device``."""

    def load(self) -> None:
        super().load()
        s, config = self.spec, self.config
        share = expert_shares(config.E_total, s.instance.E)[s.expert_device]
        self.table = superkernel.pack(self.checkpoint.expert_layers(share, self.numbers))
        self.experts = len(share)
        attention, moe = open_segments(s.segments.attention), open_segments(s.segments.moe)
        self.own, self.region = attention[s.index], moe[s.expert_device]
        self.sender = AttentionPort(s.dims, s.group, s.rank, self.own, moe)
        self.receiver = MoEPort(s.dims, s.expert_device, self.region, attention)
        assert s.segments.barrier is not None
        self.barrier = Barrier(Segment.open(s.segments.barrier), s.instance.E, s.expert_device)
        self.empty_nH = torch.empty(0, config.H, dtype=self.numbers.dtype)
        self.rows_2mH = torch.empty(2, 0, config.H, dtype=self.numbers.dtype)  # grown when needed, then kept
        self.everyone = (1 << s.instance.E) - 1

    def wake(self) -> None:
        if hasattr(self, "own"):
            self.own.ring()

    def step(self) -> None:
        heard = self.own.bell()
        if not self.inbox:
            self.waiting_for = "the next step"
            self.own.wait(heard, WAIT_S)
            return
        message = self.inbox.popleft()
        if message["what"] == "keep_kv":
            self.shelf.keep = message["keep"]
        elif message["what"] == "step":
            self._step(message["start"])

    def _step(self, start: dict[str, Any] | None) -> None:
        """All layers for this group's batch, or only the expert work of a group without one."""
        flight = board(start, 0, self.stage, self.shelf) if start else None
        for layer in range(self.config.L):
            if flight:
                self.attend(flight)
            if not self.config.is_moe(layer):
                continue
            self._meet(flight, layer)
            ticket = self._exchange(flight, layer)
            if flight:
                self.add_results(flight, *self.sender.results(ticket, self.numbers.dtype))
            self.sender.free_results(ticket)
        if flight:
            self.finish(flight)

    # -------------------------------------------------------------- all to all, experts, all to all

    def _meet(self, flight: Flight | None, layer: int) -> None:
        """The barrier: everybody waits for the slowest device."""
        self.waiting_for = f"the barrier of layer {layer}"
        start = now_ns()
        self.barrier.wait(self.spec.timeout_s)
        end = now_ns()
        if flight:
            flight.timeline.mark("barrier_wait", end)
        self.record("barrier_wait", flight.batch.id if flight else -1, layer, start, end, 0, "wait")

    def _exchange(self, flight: Flight | None, layer: int) -> Ticket:
        s = self.spec
        x_nH = flight.routed.x_nH if flight else self.empty_nH
        ids_nK = flight.routed.expert_ids_nK if flight else torch.empty(0, self.config.K, dtype=torch.int64)
        batch = flight.batch.id if flight else 0
        ticket = self.sender.async_dispatch_send(
            0, x_nH, ids_nK, layer=layer, batch=batch, active=self.everyone, timeout_s=s.timeout_s
        )
        arrivals = self._collect()
        received = now_ns()
        if flight:
            flight.timeline.mark("dispatch", received)
        y_all, start, end = self._experts(arrivals, layer)
        if flight:
            flight.timeline.mark("moe", end)
        for arrived, y_mH in zip(arrivals, y_all):
            self.receiver.async_combine_send(arrived, y_mH, stamps=(received, start, end), timeout_s=s.timeout_s)
        sent = now_ns()
        if flight:
            flight.timeline.mark("combine", sent)
        self._meet(flight, layer)
        self.sender.await_results(ticket, timeout_s=s.timeout_s)
        return ticket

    def _collect(self) -> list[Any]:
        """The regions of all DP groups, in group order."""
        D, until = self.spec.instance.D, now_ns() + int(self.spec.timeout_s * 1e9)
        while True:
            heard = self.region.bell()
            complete = self.receiver.complete()
            if len(complete) == D:
                break
            if now_ns() > until:
                missing = sorted(set(range(D)) - {region for region, _, _ in complete})
                raise Stalled(
                    f"{self.spec.name} waited {self.spec.timeout_s:.0f} s for the rows of DP groups {missing}"
                )
            self.region.wait(heard, WAIT_S)
        return [self.receiver.async_dispatch_recv(i, 0, copy=False) for i in range(D)]

    def _experts(self, arrivals: list[Any], layer: int) -> tuple[list[torch.Tensor], int, int]:
        """One grouped GEMM over the rows of all groups, and its rows dealt out to the groups again."""
        start = now_ns()
        rows = [len(arrived.x_mH) for arrived in arrivals]
        if len(arrivals) == 1 and not arrivals[0].in_place:  # grouped already, in private memory
            y_mH = self._grouped(arrivals[0].x_mH, arrivals[0].offsets_E1, layer)
        else:
            y_mH = self._merged(arrivals, layer)
        self.pacer.moe(sum(rows), (now_ns() - start) * 1e-9)
        end = now_ns()
        self.record("moe", -1, layer, start, end, sum(arrived.tokens for arrived in arrivals))
        return list(y_mH.split(rows)), start, end

    def _grouped(self, x_mH: torch.Tensor, offsets_E1: torch.Tensor, layer: int) -> torch.Tensor:
        return superkernel.grouped_mlp(x_mH, offsets_E1, torch.tensor([layer]), self.table, out=x_mH)

    def _merged(self, arrivals: list[Any], layer: int) -> torch.Tensor:
        """The groups' rows sorted by expert, and their results in the groups' order again."""
        counts = torch.stack([arrived.offsets_E1.diff() for arrived in arrivals])
        expert_m = torch.cat([torch.arange(self.experts).repeat_interleave(c) for c in counts])
        order_m = expert_m.argsort(stable=True)
        offsets = torch.zeros(self.experts + 1, dtype=torch.int64)
        torch.cumsum(counts.sum(0), 0, out=offsets[1:])
        if self.rows_2mH.shape[1] < len(order_m):
            self.rows_2mH = self.rows_2mH.new_empty(2, len(order_m), self.config.H)
        given_mH, sorted_mH = self.rows_2mH[:, : len(order_m)]
        torch.cat([arrived.x_mH for arrived in arrivals], out=given_mH)
        for arrived in arrivals:
            self.receiver.release(arrived)
        torch.index_select(given_mH, 0, order_m, out=sorted_mH)
        return given_mH.index_copy_(0, order_m, self._grouped(sorted_mH, offsets, layer))
