"""What a request scheduler hears and what it says. No clock, no I/O, no torch.

A scheduler is driven like a state machine: ``decisions, deadline = scheduler.on(event, now)``. The caller owns the
clock (a wall clock in the engine, a virtual one in the twin), carries out the decisions, and sends ``Deadline`` when
``deadline`` has passed without another event. Times are seconds on the caller's clock.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from asaplab.core import Batch, Request


class Arrival(NamedTuple):
    """A request came in."""

    request: Request


class Finished(NamedTuple):
    """A DP group computed the last layer of a batch."""

    group: int
    batch: int


class StepDone(NamedTuple):
    """Every DP group finished the synchronous step."""

    step: int


class Deadline(NamedTuple):
    """The deadline that the scheduler asked for has passed."""


Event: TypeAlias = Arrival | Finished | StepDone | Deadline


class Start(NamedTuple):
    """Give these batches to a DP group; it interleaves them with those it already holds."""

    group: int
    batches: tuple[Batch, ...]


class Step(NamedTuple):
    """Run all DP groups in lock-step through all layers; group i gets ``batches[i]``.

    A group without a batch (None) only keeps the barriers.
    """

    step: int
    batches: tuple[Batch | None, ...]


Decision: TypeAlias = Start | Step


class Scheduler(Protocol):
    """One policy of one system for D groups."""

    def on(self, event: Event, now: float) -> tuple[list[Decision], float | None]:
        """Take in one event; return what to do now, and when to be asked again (None: only on the next event)."""
        ...

    @property
    def waiting(self) -> int:
        """Requests taken in but not yet (wholly) handed to a DP group."""
        ...
