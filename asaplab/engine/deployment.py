"""Deploying an instance: checks, shared memory, device processes; and taking all of it down again.

Start-up is all or nothing. Everything that can be refused is refused before a process exists; if a device then fails
to load, the others are stopped and the segments closed before the error leaves ``deploy``.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, SpecCluster

from asaplab import models
from asaplab.core import Instance, Run, System, Workload, expert_shares
from asaplab.engine.cluster import start_cluster
from asaplab.engine.pace import pace_of
from asaplab.engine.plugin import DevicePlugin
from asaplab.engine.prefill import Prefill
from asaplab.engine.spec import DeviceSpec, SegmentPaths, device_names
from asaplab.engine.telemetry import CONTROL, Inbox
from asaplab.engine.watch import Watch
from asaplab.errors import DeviceLost, InputError, Stalled
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.counts import counts
from asaplab.models.policy import policy
from asaplab.primitives.barrier import Barrier
from asaplab.primitives.group import GroupPort
from asaplab.primitives.layout import Dims, attention_bytes, check_memory, moe_bytes
from asaplab.primitives.segment import Segment, abort
from asaplab.profiles.costs import Costs
from asaplab.profiles.nominal import nominal_costs
from asaplab.scheduler import named

START_S = 120.0  # bound on loading weights and opening segments


class Deployment:
    """A running instance. Made by ``deploy``; ``prefill`` may be called any number of times."""

    def __init__(
        self,
        *,
        cluster: SpecCluster,
        client: Client,
        specs: list[DeviceSpec],
        segments: list[Segment],
        checkpoint: Checkpoint,
        asked: Instance,
        mode: str,
    ) -> None:
        self.cluster, self.client, self.specs = cluster, client, specs
        self.checkpoint, self.asked, self.mode = checkpoint, asked, mode
        self.system, self.instance = specs[0].system, specs[0].instance
        self.dtype, self.pace = specs[0].dtype, specs[0].pace
        self._segments = segments
        self.inbox: Inbox = cluster.scheduler.asap_inbox
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
        return Prefill(self, workload, keep_kv, kv_limit_bytes, keep_logits).run()

    def send(self, device: str, message: dict[str, Any]) -> None:
        """One control message to a device, in order with the others."""
        scheduler = self.cluster.scheduler
        stream = {"op": CONTROL, "messages": [message]}
        scheduler.loop.add_callback(scheduler.worker_send, self._address[device], stream)

    def group_devices(self, group: int) -> list[str]:
        return [spec.name for spec in self.specs if spec.group == group]

    def await_ready(self) -> None:
        """Until every device has its weights; the first failure ends the start."""
        waiting = {spec.name for spec in self.specs}
        pids: dict[str, int] = {}
        until = time.monotonic() + START_S
        while waiting:
            report = _next_report(self.inbox, min(0.2, max(0.0, until - time.monotonic())))
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
        alive = {str(state.name) for state in self.cluster.scheduler.workers.values()}
        for name in sorted(waiting - alive):
            raise DeviceLost(f"device {name!r} died while it was starting")

    def close(self) -> None:
        """Stop the devices, the cluster and every process that is left, and give the memory back."""
        abort(self._segments)
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
    timeout_s: float = 60.0,
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
        timeout_s: bound of every wait inside a device.

    Raises:
        InputError: the model cannot be read, or D, T, E do not fit it or the memory.
        DeviceLost, Stalled: a device did not start.
    """
    chosen = named(system) if isinstance(system, str) else system
    if max_batch_tokens is not None:
        chosen = with_most_tokens(chosen, max_batch_tokens)
    asked = Instance(D=attention[0], T=attention[1], E=experts)
    checkpoint = Checkpoint(models.resolve(str(model)))
    checkpoint.validate()
    numbers = policy(dtype)
    instance = place(chosen, asked, tp)
    checkpoint.config.check_ranks(instance.T)
    expert_shares(checkpoint.config.E_total, instance.E)
    dims = _dims(checkpoint, instance, chosen, numbers.dtype.itemsize)
    check_memory(dims)
    chosen_mode = _mode(mode, instance, chosen)
    if chosen_mode == "paced" and pace is None:
        pace = pace_of(checkpoint, numbers, asked)
    segments: list[Segment] = []
    with contextlib.ExitStack() as stack:
        paths = _segments(dims, chosen, instance, segments, stack)
        specs = [
            DeviceSpec(
                name=name,
                role=role,
                group=i,
                rank=j,
                expert_device=e,
                system=chosen,
                instance=instance,
                dims=dims,
                segments=paths,
                model=str(checkpoint.directory),
                dtype=dtype,
                pace=pace or 1.0,
                timeout_s=timeout_s,
                costs=_costs(checkpoint, instance) if chosen_mode == "paced" else None,
            )
            for name, role, i, j, e in device_names(chosen, instance)
        ]
        cluster = start_cluster([(spec.name, spec.role) for spec in specs], dashboard=dashboard)
        stack.callback(cluster.close, timeout=10)
        client = Client(cluster, set_as_default=False)
        stack.callback(client.close, timeout=10)
        live = Deployment(
            cluster=cluster,
            client=client,
            specs=specs,
            segments=segments,
            checkpoint=checkpoint,
            asked=asked,
            mode="paced" if chosen_mode == "paced" else "shared cores",
        )
        stack.callback(live.close)
        client.register_plugin(DevicePlugin({spec.name: spec for spec in specs}))
        live.await_ready()
        live.prefill(_warm_up(instance))
        yield live


def place(system: System, asked: Instance, tp: int | None = None) -> Instance:
    """The devices as the system uses them: a colocated one spreads both stages over all D*T + E.

    It keeps T if T divides the number of devices and else takes T = 1.

    Raises:
        InputError: ``tp`` does not divide the number of devices.
    """
    if system.placement.kind == "disaggregated":
        return asked if tp is None else Instance(D=asked.D, T=tp, E=asked.E)
    n = asked.devices
    if tp is not None and n % tp:
        raise InputError(
            f"--tp {tp} does not divide the {n} devices of system {system.name!r}; choose a divisor of {n}"
        )
    T = tp if tp is not None else asked.T if n % asked.T == 0 else 1
    return Instance(D=n // T, T=T, E=n)


def with_most_tokens(system: System, S: int) -> System:
    """The system with batches of at most S tokens."""
    b = system.batching
    batching = replace(b, max_tokens=S, budget_tokens=min(b.budget_tokens, S))
    return replace(system, batching=batching)


def failure(report: dict[str, Any]) -> Exception:
    kinds = {"InputError": InputError, "Stalled": Stalled}
    return kinds.get(report["kind"], RuntimeError)(f"device {report['device']!r}: {report['error']}")


def _next_report(inbox: Inbox, timeout_s: float) -> dict[str, Any] | None:
    import queue

    try:
        return inbox.reports.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _mode(mode: str | None, instance: Instance, system: System) -> str:
    if mode not in (None, "paced", "shared"):
        raise InputError(f"mode is {mode!r}; choose 'paced' or 'shared'")
    if mode is not None:
        return mode
    devices = instance.E if system.placement.kind == "colocated" else instance.devices
    return "paced" if devices > len(os.sched_getaffinity(0)) else "shared"


def _dims(checkpoint: Checkpoint, instance: Instance, system: System, itemsize: int) -> Dims:
    config = checkpoint.config
    return Dims(
        D=instance.D,
        T=instance.T,
        E=instance.E,
        E_total=config.E_total,
        K=config.K,
        H=config.H,
        S=system.batching.max_tokens,
        Dsize=itemsize,
        slots=system.transport.slots,
    )


def _segments(
    dims: Dims, system: System, instance: Instance, segments: list[Segment], stack: contextlib.ExitStack
) -> SegmentPaths:
    def create(name: str, size: int) -> str:
        segment = Segment.create(name, size)
        segments.append(segment)
        stack.callback(segment.close)
        return segment.path

    colocated = system.placement.kind == "colocated"
    return SegmentPaths(
        attention=tuple(create(f"attention-{k}", attention_bytes(dims)) for k in range(instance.D * instance.T)),
        moe=tuple(create(f"moe-{e}", moe_bytes(dims)) for e in range(instance.E)),
        group=tuple(create(f"group-{i}", GroupPort.size(dims)) for i in range(instance.D)),
        barrier=create("barrier", Barrier.size(instance.E)) if colocated else None,
    )


def _costs(checkpoint: Checkpoint, instance: Instance) -> Costs:
    return nominal_costs(counts(checkpoint.config), instance.T, math.ceil(checkpoint.config.E_total / instance.E))


def _warm_up(instance: Instance) -> Workload:
    """One short prompt for every DP group, so that the first request finds warm code and mapped pages."""
    return Workload(arrival_s=np.zeros(instance.D), tokens=np.full(instance.D, 16), name="warm-up")
