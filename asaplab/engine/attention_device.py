"""The loop of an attention device: up to ``in_flight`` batches take turns, layer by layer (section 3.3.2).

One turn of a batch: take the MoE devices' rows of its last layer and sum them (combine), share the tokens with the
other ranks (all-gather), attention, split the tokens over the ranks (reduce-scatter), route, and send the rows off
(dispatch). Then the next batch that is ready has its turn. Rank 0 chooses and publishes the choice, because ranks that
chose from what they see themselves would enter different collectives.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

from asaplab.engine.attention_role import AttentionRole
from asaplab.engine.batch import Flight, board
from asaplab.engine.device import now_ns, open_segments
from asaplab.errors import Stalled
from asaplab.primitives import p2p
from asaplab.primitives.dispatch import AttentionPort, ResultHeader, Ticket
from asaplab.primitives.segment import Segment
from asaplab.scheduler.order import next_batch

EMPTY, BUSY = float("inf"), -1.0
WAIT_S = 0.25  # an idle device looks up this often even if nobody rings


class Received(NamedTuple):
    """A batch's results as they came, before the sum."""

    headers: list[ResultHeader]
    rows_pH: torch.Tensor
    slot_p: torch.Tensor
    ticket: Ticket


class AttentionDevice(AttentionRole):
    """Rank ``rank`` of DP group ``group``."""

    def load(self) -> None:
        super().load()
        s = self.spec
        self.own = Segment.open(s.segments.attention[s.index])
        self.moe = open_segments(s.segments.moe)
        port = p2p.SyncAttentionPort if s.system.transport.primitives == "p2p" else AttentionPort
        self.port = port(s.dims, s.group, s.rank, self.own, self.moe)
        self.flights: list[Flight | None] = [None] * s.system.pipeline.in_flight
        self.pending: dict[int, dict[str, Any]] = {}  # announced batches that have no place yet
        self.last = len(self.flights) - 1
        self.fifo = s.system.transport.order == "fifo"
        overlapped = "attention" in s.system.pipeline.overlap
        self.streams = ThreadPoolExecutor(len(self.flights), thread_name_prefix="exchange") if overlapped else None
        self.sending = threading.Lock()
        self.shared_slots = s.dims.slots < len(self.flights)

    def wake(self) -> None:
        if hasattr(self, "own"):
            self.own.ring()

    def close(self) -> None:
        streams: ThreadPoolExecutor | None = getattr(self, "streams", None)  # None too if loading failed
        if streams is not None:
            streams.shutdown(wait=True, cancel_futures=True)

    # -------------------------------------------------------------- whose turn

    def step(self) -> None:
        heard = self.own.bell()
        self._hear()
        if self.spec.rank == 0:
            self._board_waiting()
            place = self._choose()
            if place < 0:
                busy = [f.batch.id for f in self.flights if f]
                self.waiting_for = f"the MoE devices with batch {busy}" if busy else "work"
                self.own.wait(heard, WAIT_S)
                return
            flight = self.flights[place]
            assert flight is not None
            self.group.publish((place, flight.batch.id))
        else:
            self.waiting_for = f"rank 0 of group {self.spec.group}"
            choice = self.group.receive(WAIT_S)
            if choice is None:
                return
            flight = self._flight_of(*choice)
        self.last = flight.place
        self._turn(flight)

    def _hear(self) -> None:
        while self.inbox:
            message = self.inbox.popleft()
            if message["what"] == "start":
                self.pending[message["batch"]] = message
            elif message["what"] == "keep_kv":
                self.shelf.keep = message["keep"]
        self.depth = len(self.pending)

    def _board_waiting(self) -> None:
        for place, flight in enumerate(self.flights):
            if flight is None and self.pending:
                message = self.pending.pop(next(iter(self.pending)))
                self.flights[place] = board(message, place, self.stage, self.shelf)

    def _choose(self) -> int:
        now = now_ns()
        for flight in self.flights:
            if flight is not None and flight.ready_ns < 0 and self._answered(flight):
                flight.ready_ns = now
        since = [EMPTY if f is None else BUSY if f.ready_ns < 0 else f.ready_ns * 1e-9 for f in self.flights]
        return next_batch(since, self.last, self.fifo)

    def _answered(self, flight: Flight) -> bool:
        if isinstance(flight.exchange, Future):
            return flight.exchange.done()
        return self.port.combine_ready(flight.exchange)

    def _flight_of(self, place: int, batch: int) -> Flight:
        """The flight that rank 0 chose; its token ids may still be on their way."""
        flight = self.flights[place]
        if flight is not None and flight.batch.id == batch:
            return flight
        until = now_ns() + int(self.spec.timeout_s * 1e9)
        while batch not in self.pending:
            heard = self.own.bell()
            self._hear()
            if batch in self.pending:
                break
            if now_ns() > until:
                raise Stalled(f"{self.spec.name} waited {self.spec.timeout_s:.0f} s for the token ids of batch {batch}")
            self.own.wait(heard, WAIT_S)
        flight = self.flights[place] = board(self.pending.pop(batch), place, self.stage, self.shelf)
        return flight

    # -------------------------------------------------------------- one turn

    def _turn(self, flight: Flight) -> None:
        picked = now_ns()
        if flight.exchange is None:
            flight.timeline.mark("attention_queue", picked)
        else:
            self._combine(flight, picked)
        if flight.layer < self.config.L:
            self.attend(flight)
            if flight.routed is not None:
                self._leave(flight)
        if flight.layer == self.config.L:
            self.finish(flight)
            self.flights[flight.place] = None

    def _leave(self, flight: Flight) -> None:
        """Send the batch to the MoE devices that any rank of the group needs."""
        active = self.group.or_mask(self.port.needed(flight.routed.expert_ids_nK))
        flight.timeline.mark("tp", now_ns())
        flight.ready_ns = -1
        if self.streams is not None:
            flight.exchange = self.streams.submit(self._exchange, flight, active)
        else:
            flight.exchange = self._dispatch(flight, active)

    # -------------------------------------------------------------- to the MoE devices and back

    def _dispatch(self, flight: Flight, active: int) -> Any:
        start = now_ns()
        ticket = self.port.async_dispatch_send(
            flight.place % self.spec.dims.slots,
            flight.routed.x_nH,
            flight.routed.expert_ids_nK,
            layer=flight.layer,
            batch=flight.batch.id,
            active=active,
            timeout_s=self.spec.timeout_s,
        )
        self.record("dispatch", flight.batch.id, flight.layer, start, now_ns(), len(flight.routed.x_nH), "send")
        return ticket

    def _receive(self, ticket: Ticket) -> Received:
        """Wait for the results. They are summed where they lie, unless another batch needs their slot before that."""
        headers = self.port.await_results(ticket, timeout_s=self.spec.timeout_s)
        rows_pH, slot_p = self.port.results(ticket, self.numbers.dtype)
        if self.shared_slots:
            rows_pH = rows_pH.clone()
            self.port.free_results(ticket)
        return Received(headers, rows_pH, slot_p, ticket)

    def _exchange(self, flight: Flight, active: int) -> Received:
        """Dispatch and combine of one batch on a communication thread (overlap on attention devices)."""
        with torch.inference_mode():
            with self.sending:
                ticket = self._dispatch(flight, active)
            received = self._receive(ticket)
        self.own.ring()
        return received

    def _combine(self, flight: Flight, picked: int) -> None:
        exchange = flight.exchange
        received = exchange.result() if isinstance(exchange, Future) else self._receive(exchange)
        line = flight.timeline
        last = max(received.headers, key=lambda header: header.end_ns)  # the critical path: who answered last
        line.mark("dispatch", last.complete_ns)
        line.mark("moe_queue", last.start_ns)
        line.mark("moe", last.end_ns)
        line.mark("combine", last.sent_ns)
        line.mark("attention_queue", picked)
        self.add_results(flight, received.rows_pH, received.slot_p)
        if not self.shared_slots:
            self.port.free_results(received.ticket)
