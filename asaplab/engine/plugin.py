"""The Dask side of a device process: a WorkerPlugin owns the device and carries messages to and from it.

The device computes on its own thread; the worker's event loop stays free, so that liveness and control never depend
on the busy thread. Reports and telemetry leave through the worker's stream, control messages come in through it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from distributed import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from asaplab.engine.device import Device
from asaplab.engine.spec import DeviceSpec
from asaplab.engine.telemetry import CONTROL, REPORT, TELEMETRY

PERIOD_MS = 100


def make_device(spec: DeviceSpec, report: Any) -> Device:
    if spec.role == "attention":
        from asaplab.engine.attention_device import AttentionDevice

        return AttentionDevice(spec, report)
    if spec.role == "moe":
        from asaplab.engine.moe_device import MoEDevice

        return MoEDevice(spec, report)
    from asaplab.engine.colocated_device import ColocatedDevice

    return ColocatedDevice(spec, report)


class DevicePlugin(WorkerPlugin):
    """Owns the device that bears the worker's name."""

    name = "asap-device"

    def __init__(self, specs: dict[str, DeviceSpec]) -> None:
        self.specs = specs

    def setup(self, worker: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tears down
        self.worker = worker
        self.spec = self.specs[str(worker.name)]
        self.device = worker.asap_device = make_device(self.spec, self._report)
        worker.stream_handlers[CONTROL] = self._control
        self._last = (time.monotonic(), 0)
        self.utilization = 0.0
        worker.metrics["asap_role"] = lambda w: self.spec.role
        worker.metrics["asap_utilization"] = lambda w: round(self.utilization, 3)
        worker.metrics["asap_progress"] = lambda w: self.device.progress
        pulse = PeriodicCallback(self._pulse, PERIOD_MS)
        worker.periodic_callbacks["asap-telemetry"] = pulse
        pulse.start()
        self.device.start()

    def teardown(self, worker: Any) -> None:
        self.device.stop(timeout_s=2.0)

    def _control(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self.device.tell(message)

    def _send(self, op: str, message: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # a closed stream means that the run is over
            self.worker.batched_stream.send({"op": op, "device": self.spec.name, **message})

    def _report(self, **message: Any) -> None:
        """Called on the device's threads; the stream belongs to the event loop."""
        message["pid"] = os.getpid()
        with contextlib.suppress(RuntimeError):
            self.worker.loop.add_callback(self._send, REPORT, message)

    def _pulse(self) -> None:
        now, busy = time.monotonic(), self.device.busy_ns
        then, before = self._last
        self._last = (now, busy)
        self.utilization = min(1.0, (busy - before) * 1e-9 / max(now - then, 1e-6))
        self._send(
            TELEMETRY,
            {
                "role": self.spec.role,
                "busy": self.utilization,
                "busy_ns": busy,
                "depth": self.device.depth,
                "progress": self.device.progress,
                "waiting_for": self.device.waiting_for,
                "spans": self.device.take_spans(),
            },
        )
