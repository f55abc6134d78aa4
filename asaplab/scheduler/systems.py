"""The named systems. Each is a value: an ablation changes one field with ``dataclasses.replace``."""

from __future__ import annotations

from collections.abc import Callable

from asaplab.core import Batching, Pipeline, Placement, System, Transport
from asaplab.errors import InputError
from asaplab.scheduler.asynchronous import AsynchronousScheduler
from asaplab.scheduler.events import Scheduler
from asaplab.scheduler.synchronous import Cost, SynchronousScheduler


def asap() -> System:
    """The paper's system: sections 3.1-3.4, overlap on MoE devices only (4.3), but two slots a region instead of one.

    With a slot for each batch in flight no send ever waits; it doubles the buffers of Table 2.
    """
    return System(name="asap")


def asap_one_slot() -> System:
    """asap with Table 2's single buffer a region; two batches in flight then need FIFO order."""
    return System(name="asap-one-slot", transport=Transport(slots=1, order="fifo"))


def default() -> System:
    """Section 5.1 "Default": colocated stages, batches of similar token totals, barriers around every MoE layer."""
    return System(
        name="default",
        placement=Placement(kind="colocated"),
        batching=Batching(policy="balanced"),
        pipeline=Pipeline(barrier=True, in_flight=1, overlap=frozenset()),
        transport=Transport(primitives="all_to_all", slots=1, order="fifo"),
    )


NAMED: dict[str, Callable[[], System]] = {"asap": asap, "asap-one-slot": asap_one_slot, "default": default}


def named(name: str) -> System:
    """The system of that name.

    Raises:
        InputError: no system has the name.
    """
    if name not in NAMED:
        raise InputError(f"there is no system {name!r}; the named systems are {', '.join(NAMED)}")
    return NAMED[name]()


def scheduler_of(system: System, groups: int, cost: Cost | None = None) -> Scheduler:
    """The request scheduler of a system for that many DP groups: one policy body for engine and twin."""
    if system.pipeline.barrier:
        return SynchronousScheduler(system, groups, cost)
    return AsynchronousScheduler(system, groups)
