"""Deploying an instance: checks, shared memory, device processes; and taking all of it down again.

Start-up is all or nothing. Everything that can be refused is refused before a process exists; if a device then fails
to load, the others are stopped and the segments closed before the error leaves ``deploy``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from distributed import Client, SpecCluster

from asaplab.core import Instance, Run, System, Workload
from asaplab.engine.blueprint import Blueprint, draw
from asaplab.engine.cluster import start_cluster
from asaplab.engine.plugin import DevicePlugin
from asaplab.engine.prefill import Prefill
from asaplab.engine.spec import DeviceSpec
from asaplab.engine.telemetry import CONTROL, Inbox
from asaplab.engine.watch import Watch
from asaplab.errors import DeviceLost, InputError, Stalled
from asaplab.primitives.segment import Segment, abort

START_S = 120.0  # bound on loading weights and opening segments


class Deployment:
    """A running instance. Made by ``deploy``; ``prefill`` may be called any number of times."""

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        cluster: SpecCluster,
        client: Client,
        specs: list[DeviceSpec],
        segments: list[Segment],
        stall_s: float,
    ) -> None:
        self.blueprint, self.cluster, self.client, self.specs = blueprint, cluster, client, specs
        self.system, self.instance = blueprint.system, blueprint.instance
        self.stall_s = stall_s
        self.broken = False  # a run ended badly: devices may not answer any more
        self._segments = segments
        self.scheduler = cast(Any, cluster.scheduler)  # of Dask, in this process
        self.inbox: Inbox = self.scheduler.asap_inbox
        self.watch: Watch | None = None
        self._address = {w["name"]: address for address, w in cluster.scheduler_info["workers"].items()}

    @property
    def dashboard_link(self) -> str:
        return self.cluster.dashboard_link

    def prefill(
        self, workload: Workload, *, keep_kv: bool = False, kv_limit_bytes: int = 1 << 30, keep_logits: bool = False
    ) -> Run:
        """Replay a workload in open loop and return what happened.

        Raises:
            InputError: a prompt is longer than S, or the asked KV caches exceed ``kv_limit_bytes``.
            DeviceLost: a device process died. The instance is unusable afterwards.
            Stalled: no device made progress while work was outstanding; says who waits for whom.
        """
        if self.broken:
            raise DeviceLost("the instance lost a device in an earlier run; deploy it again")
        prefill = Prefill(self, workload, keep_kv, kv_limit_bytes, keep_logits)
        try:
            return prefill.run()
        except BaseException:
            self.broken = True
            raise

    def send(self, device: str, message: dict[str, Any]) -> None:
        """One control message to a device, in order with the others."""
        stream = {"op": CONTROL, "messages": [message]}
        self.scheduler.loop.add_callback(self.scheduler.worker_send, self._address[device], stream)

    def group_devices(self, group: int) -> list[str]:
        return [spec.name for spec in self.specs if spec.group == group]

    def await_ready(self) -> None:
        """Until every device has its weights; the first failure ends the start."""
        waiting = {spec.name for spec in self.specs}
        pids: dict[str, int] = {}
        until = time.monotonic() + START_S
        while waiting:
            report = self.inbox.next(min(0.2, until - time.monotonic()))
            if report is None:
                self._check_workers(waiting)
                if time.monotonic() > until:
                    raise Stalled(f"{', '.join(sorted(waiting))} did not become ready within {START_S:.0f} s")
            elif report["event"] == "failed":
                raise failure(report)
            elif report["event"] == "ready":
                waiting.discard(report["device"])
                pids[report["device"]] = report["pid"]
        self.watch = Watch(pids)

    def _check_workers(self, waiting: set[str]) -> None:
        alive = {str(state.name) for state in self.scheduler.workers.values()}
        for name in sorted(waiting - alive):
            raise DeviceLost(f"device {name!r} died while it was starting")

    def close(self) -> None:
        """Stop the devices, the cluster and every process that is left, and give the memory back."""
        abort(self._segments)
        if self.watch and self.broken:
            self.watch.kill()
        for close in (self.client.close, self.cluster.close):
            with contextlib.suppress(Exception):
                close(timeout=10)
        if self.watch:
            self.watch.kill()
            self.watch.close()
        for segment in self._segments:
            segment.close()


@contextlib.contextmanager
def deploy(
    model: str | Path,
    *,
    attention: tuple[int, int] = (2, 1),
    experts: int = 2,
    system: str | System = "asap",
    mode: str | None = None,
    dtype: str = "float32",
    max_batch_tokens: int | None = None,
    tp: int | None = None,
    pace: float | None = None,
    shrink: int = 1,
    timeout_s: float = 60.0,
    stall_s: float = 45.0,
    dashboard: str = "127.0.0.1:0",
) -> Iterator[Deployment]:
    """A prefill instance of real processes, for the length of a ``with`` block.

    Args:
        model: a checkpoint directory, or the name of an embedded one (``tiny-deepseek-v3`` ...).
        attention: (D, T), DP groups and their TP degree.
        experts: E, the number of MoE devices.
        system: a named system or a ``System``. A colocated one uses the same D*T + E devices for both stages; it keeps
            T if T divides their number, else takes T = 1; ``tp`` overrides.
        mode: "paced" or "shared"; None takes "paced" where there are more devices than cores.
        dtype: "float32", "float64" or "bfloat16".
        max_batch_tokens: S; the largest batch, which sizes the buffers (None: the system's).
        pace: seconds for one second of the nominal profile in paced mode (None: measured once on this machine).
        shrink: how many times shorter than the paper's all prompts are; paced service times then bend so much earlier.
        timeout_s: bound of every wait inside a device.
        stall_s: a run ends when no device made progress for this long while work was outstanding.

    Raises:
        InputError: the model cannot be read, or D, T, E do not fit it or the memory.
        DeviceLost, Stalled: a device did not start.
    """
    blueprint = draw(
        model,
        Instance(D=attention[0], T=attention[1], E=experts),
        system,
        mode=mode,
        dtype=dtype,
        max_batch_tokens=max_batch_tokens,
        tp=tp,
        pace=pace,
        shrink=shrink,
    )
    with contextlib.ExitStack() as stack:
        segments, paths = blueprint.create_segments(stack)
        specs = blueprint.specs(paths, timeout_s)
        cluster = start_cluster([(spec.name, spec.role) for spec in specs], dashboard=dashboard)
        stack.callback(cluster.close, timeout=10)
        client = Client(cluster, set_as_default=False)
        stack.callback(client.close, timeout=10)
        live = Deployment(blueprint, cluster=cluster, client=client, specs=specs, segments=segments, stall_s=stall_s)
        stack.callback(live.close)
        client.register_plugin(DevicePlugin({spec.name: spec for spec in specs}))
        live.await_ready()
        live.prefill(_warm_up(live.instance))
        yield live


def failure(report: dict[str, Any]) -> Exception:
    kinds = {"InputError": InputError, "Stalled": Stalled}
    return kinds.get(report["kind"], RuntimeError)(f"device {report['device']!r}: {report['error']}")


def _warm_up(instance: Instance) -> Workload:
    """One short prompt for every DP group, so that the first request finds warm code and mapped pages."""
    return Workload(arrival_s=np.zeros(instance.D), tokens=np.full(instance.D, 16), name="warm-up")
