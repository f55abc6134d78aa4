"""The loop of a MoE device: take the oldest complete region, run the super kernel, send the rows back (section 3.4).

With overlap (the paper's triple stream) a receive thread fetches the next region while the kernel runs, and a send
thread returns the last one; without it all three happen in turn on the compute thread.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, NamedTuple

import torch

from asaplab import superkernel
from asaplab.core import expert_shares
from asaplab.engine.device import Device, now_ns, open_segments
from asaplab.errors import AsapError
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.policy import policy
from asaplab.primitives import p2p
from asaplab.primitives.combine import MoEPort
from asaplab.primitives.segment import Aborted, Segment
from asaplab.scheduler.order import next_region

WAIT_S = 0.25


class Unsent(NamedTuple):
    """Results on their way out, and when their kernel started and ended."""

    arrived: Any
    y_mH: torch.Tensor
    start: int
    end: int


class MoEDevice(Device):
    """MoE device ``expert_device`` with its share of every layer's routed experts."""

    def load(self) -> None:
        s = self.spec
        checkpoint, numbers = Checkpoint(s.model), policy(s.dtype)
        config = checkpoint.config
        share = expert_shares(config.E_total, s.instance.E)[s.expert_device]
        self.table = superkernel.pack(checkpoint.expert_layers(share, numbers))
        self.own = Segment.open(s.segments.moe[s.expert_device])
        self.attention = open_segments(s.segments.attention)
        port = p2p.SyncMoEPort if s.system.transport.primitives == "p2p" else MoEPort
        self.port = port(s.dims, s.expert_device, self.own, self.attention)
        # with a slot for each batch in flight a region can stay occupied while the kernel reads it in place
        self.copy = s.system.transport.slots < s.system.pipeline.in_flight
        self.overlapped = "moe" in s.system.pipeline.overlap
        self.unsent: list[Unsent] = []
        self.fault: BaseException | None = None
        self.threads: list[threading.Thread] = []
        if self.overlapped:
            self.received: queue.Queue = queue.Queue(maxsize=1)
            self.computed: queue.Queue = queue.Queue(maxsize=2)
            for loop in (self._receive_loop, self._send_loop):
                thread = threading.Thread(target=self._stream, args=(loop,), name=loop.__name__, daemon=True)
                self.threads.append(thread)
                thread.start()

    def wake(self) -> None:
        if hasattr(self, "own"):
            self.own.ring()

    def close(self) -> None:
        self.stopped = True
        self.wake()
        for thread in getattr(self, "threads", []):
            thread.join(2.0)

    def step(self) -> None:
        if not self.overlapped:
            self._send_free()
            arrived = self._receive()
            if arrived is not None:
                self.unsent.append(Unsent(arrived, *self._compute(arrived)))
                self._send_free()
            return
        if self.fault is not None:
            raise self.fault
        try:
            arrived = self.received.get(timeout=WAIT_S)
        except queue.Empty:
            return
        self._put(self.computed, Unsent(arrived, *self._compute(arrived)))
        self.own.ring()  # the send thread may be waiting for a rank to take older rows

    # -------------------------------------------------------------- the three streams

    def _receive(self) -> Any | None:
        """The oldest complete region, or None after a bounded wait."""
        heard = self.own.bell()
        complete = self.port.complete()
        self.depth = len(complete)
        choice = next_region([float(since) for _, _, since in complete])
        if choice < 0:
            self.waiting_for = "rows from the attention devices"
            self.own.wait(heard, WAIT_S)
            return None
        region, slot, _ = complete[choice]
        start = now_ns()
        arrived = self.port.async_dispatch_recv(region, slot, copy=self.copy)
        self.record("dispatch", arrived.batch, arrived.layer, start, now_ns(), arrived.tokens, "receive")
        return arrived

    def _compute(self, arrived: Any) -> tuple[torch.Tensor, int, int]:
        start = now_ns()
        if not self.spec.system.pipeline.layer_oblivious:
            self.pacer.host(self.spec.system.pipeline.dispatch_s)
        began = now_ns()
        layer = torch.tensor([arrived.layer])
        out_mH = None if arrived.in_place else arrived.x_mH  # private rows give way to their results
        y_mH = superkernel.grouped_mlp(arrived.x_mH, arrived.offsets_E1, layer, self.table, out=out_mH)
        self.port.release(arrived)
        self.pacer.moe(len(arrived.x_mH), (now_ns() - began) * 1e-9)
        end = now_ns()
        self.record("moe", arrived.batch, arrived.layer, start, end, arrived.tokens)
        return y_mH, start, end

    def _send_free(self) -> None:
        """Send what would not wait, oldest first.

        With fewer slots than batches in flight a rank may not have taken this device's last rows yet. Waiting for it
        would also hold up the other groups' rows, and two MoE devices that each hold what the other's group needs
        would wait for ever; so what cannot be sent is passed over.
        """
        waiting = []
        for item in self.unsent:
            if self.port.combine_free(item.arrived):
                self._send(item)
            elif now_ns() - item.end > self.spec.timeout_s * 1e9:
                self._send(item, timeout_s=0.0)  # says who did not take its rows
            else:
                waiting.append(item)
        self.unsent = waiting

    def _send(self, item: Unsent, timeout_s: float | None = None) -> None:
        arrived, sending = item.arrived, now_ns()
        self.port.async_combine_send(
            arrived,
            item.y_mH,
            stamps=(arrived.complete_ns, item.start, item.end),
            timeout_s=self.spec.timeout_s if timeout_s is None else timeout_s,
        )
        self.record("combine", arrived.batch, arrived.layer, sending, now_ns(), arrived.tokens, "send")

    # -------------------------------------------------------------- threads of the triple stream

    def _stream(self, loop: Any) -> None:
        try:
            with torch.inference_mode():
                while not self.stopped:
                    loop()
        except Aborted as aborted:
            self.fault = aborted
        except AsapError as error:
            self.fault = error
        except BaseException as error:
            self.fault = RuntimeError(f"{threading.current_thread().name}: {type(error).__name__}: {error}")

    def _receive_loop(self) -> None:
        arrived = self._receive()
        if arrived is not None:
            self._put(self.received, arrived)

    def _send_loop(self) -> None:
        heard = self.own.bell()
        try:
            self.unsent.append(self.computed.get(block=not self.unsent, timeout=WAIT_S))
        except queue.Empty:
            if self.unsent:
                self.own.wait(heard, WAIT_S)
        self._send_free()

    def _put(self, place: queue.Queue, item: Any) -> None:
        """Hand over to the next stream; give up only when the device stops."""
        while not self.stopped:
            if self.fault is not None:
                raise self.fault
            try:
                place.put(item, timeout=WAIT_S)
                return
            except queue.Full:
                continue
