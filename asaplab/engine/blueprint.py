"""What an instance will be, decided and checked before anything is started."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from asaplab import models
from asaplab.core import Instance, System, expert_shares
from asaplab.engine.pace import pace_of
from asaplab.engine.spec import DeviceSpec, SegmentPaths, device_names
from asaplab.errors import InputError
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.counts import counts
from asaplab.models.policy import policy
from asaplab.primitives.barrier import Barrier
from asaplab.primitives.group import GroupPort
from asaplab.primitives.layout import Dims, attention_bytes, check_memory, moe_bytes
from asaplab.primitives.segment import Segment
from asaplab.profiles.costs import Costs
from asaplab.profiles.nominal import nominal_costs
from asaplab.scheduler import named, systems


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """An instance that fits its model and this machine."""

    checkpoint: Checkpoint
    dtype: str
    system: System
    asked: Instance
    instance: Instance  # as the system uses the devices; for colocated ones D*T == E
    dims: Dims
    costs: Costs | None  # paced mode
    pace: float
    notes: tuple[str, ...]  # what differs from what was asked

    @property
    def mode(self) -> str:
        return "shared cores" if self.costs is None else "paced"

    def specs(self, paths: SegmentPaths, timeout_s: float) -> list[DeviceSpec]:
        """One for every device, attention devices first."""
        return [
            DeviceSpec(
                name=name,
                role=role,
                group=i,
                rank=j,
                expert_device=e,
                system=self.system,
                instance=self.instance,
                dims=self.dims,
                segments=paths,
                model=str(self.checkpoint.directory),
                dtype=self.dtype,
                costs=self.costs,
                pace=self.pace,
                timeout_s=timeout_s,
            )
            for name, role, i, j, e in device_names(self.system, self.instance)
        ]

    def create_segments(self, stack: contextlib.ExitStack) -> tuple[list[Segment], SegmentPaths]:
        """All shared memory of the instance; the stack closes it.

        Raises:
            InputError: it does not fit.
        """
        segments: list[Segment] = []

        def create(name: str, size: int) -> str:
            segment = Segment.create(name, size)
            segments.append(segment)
            stack.callback(segment.close)
            return segment.path

        d, colocated = self.dims, self.system.placement.kind == "colocated"
        paths = SegmentPaths(
            attention=tuple(create(f"attention-{k}", attention_bytes(d)) for k in range(d.D * d.T)),
            moe=tuple(create(f"moe-{e}", moe_bytes(d)) for e in range(d.E)),
            group=tuple(create(f"group-{i}", GroupPort.size(d)) for i in range(d.D)),
            barrier=create("barrier", Barrier.size(d.E)) if colocated else None,
        )
        return segments, paths


def draw(
    model: str | Path,
    asked: Instance,
    system: str | System,
    *,
    mode: str | None,
    dtype: str,
    max_batch_tokens: int | None,
    tp: int | None,
    pace: float | None,
    shrink: int = 1,
) -> Blueprint:
    """Check everything that can be refused, cheapest first.

    Raises:
        InputError: the model cannot be read, or what is asked fits neither it nor the machine.
    """
    chosen = named(system) if isinstance(system, str) else system
    if max_batch_tokens is not None:
        chosen = with_most_tokens(chosen, max_batch_tokens)
    _refuse_simulated_only(chosen)
    if mode not in (None, "paced", "shared"):
        raise InputError(f"mode is {mode!r}; choose 'paced' or 'shared'")
    numbers = policy(dtype)
    checkpoint = Checkpoint(models.resolve(str(model)))
    checkpoint.validate()
    instance, notes = systems.place(chosen, asked, tp)
    config = checkpoint.config
    config.check_ranks(instance.T)
    expert_shares(config.E_total, instance.E)
    dims = Dims(
        D=instance.D,
        T=instance.T,
        E=instance.E,
        E_total=config.E_total,
        K=config.K,
        H=config.H,
        S=chosen.batching.max_tokens,
        Dsize=numbers.dtype.itemsize,
        slots=chosen.transport.slots,
    )
    check_memory(dims)
    paced = mode == "paced" or (mode is None and asked.devices > len(os.sched_getaffinity(0)))
    held = math.ceil(config.E_total / instance.E)
    costs = nominal_costs(counts(config), instance.T, held, shrink) if paced else None
    if paced and pace is None:
        pace = pace_of(checkpoint, numbers, asked)
    return Blueprint(
        checkpoint=checkpoint,
        dtype=dtype,
        system=chosen,
        asked=asked,
        instance=instance,
        dims=dims,
        costs=costs,
        pace=pace or 1.0,
        notes=notes,
    )


def _refuse_simulated_only(system: System) -> None:
    """Raises InputError for mechanisms that only the twin has."""
    lockstep = system.placement.kind == "disaggregated" and system.pipeline.barrier
    if lockstep or system.placement.shared_expert == "moe":
        what = "barriers between disaggregated stages" if lockstep else "shared experts on MoE devices"
        raise InputError(f"system {system.name!r} has {what}, which the engine does not run; use asaplab simulate")


def with_most_tokens(system: System, S: int) -> System:
    """The system with batches of at most S tokens.

    Raises:
        InputError: S is not at least 1.
    """
    b = system.batching
    batching = replace(b, max_tokens=S, budget_tokens=min(b.budget_tokens, max(S, 1)))
    return replace(system, batching=batching)
