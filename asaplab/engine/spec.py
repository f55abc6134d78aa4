"""What a device must know before it starts, and the message it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from asaplab.core import Instance, System
from asaplab.primitives.layout import Dims
from asaplab.profiles.costs import Costs

Role = Literal["attention", "moe", "colocated"]


@dataclass(frozen=True, kw_only=True)
class SegmentPaths:
    """Where the parent's shared-memory segments are mapped from; index lists follow the device numbers."""

    attention: tuple[str, ...]  # D*T
    moe: tuple[str, ...]  # E
    group: tuple[str, ...]  # D: collectives of one DP group
    barrier: str | None  # colocated systems only


@dataclass(frozen=True, kw_only=True)
class DeviceSpec:
    """One device of an instance: its place, its share of the model and its segments."""

    name: str
    role: Role
    group: int = -1
    rank: int = -1
    expert_device: int = -1
    system: System
    instance: Instance  # for colocated systems D and E count the same devices: D*T == E
    dims: Dims
    segments: SegmentPaths
    model: str  # checkpoint directory
    dtype: str
    costs: Costs | None  # paced mode: service times of this device; None: shared cores
    pace: float  # seconds of wall time for one second of ``costs``
    timeout_s: float  # bound of every wait inside the device

    @property
    def index(self) -> int:
        """Number of the attention device, counted over groups and ranks."""
        return self.group * self.instance.T + self.rank


def device_names(system: System, instance: Instance) -> list[tuple[str, Role, int, int, int]]:
    """Name, role, group, rank and expert device of every device, attention devices first."""
    attention = [(i, j) for i in range(instance.D) for j in range(instance.T)]
    if system.placement.kind == "colocated":
        return [(f"colocated {i}.{j}", "colocated", i, j, i * instance.T + j) for i, j in attention]
    return [
        *((f"attention {i}.{j}", "attention", i, j, -1) for i, j in attention),
        *((f"moe {e}", "moe", -1, -1, e) for e in range(instance.E)),
    ]
