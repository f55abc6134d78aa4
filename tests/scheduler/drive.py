"""Drives a scheduler on a virtual clock and records what it did. Service times come from the test."""

from __future__ import annotations

from dataclasses import dataclass, field

from asaplab.core import Batch, Request, System
from asaplab.scheduler import Arrival, Deadline, Finished, Start, Step, StepDone, scheduler_of


@dataclass
class Log:
    """What was handed out, in order, with the time; and what was in flight before each hand-over."""

    starts: list[tuple[float, Start, tuple[Batch, ...]]] = field(
        default_factory=list
    )  # with the group's batches before
    steps: list[tuple[float, Step]] = field(default_factory=list)
    events: int = 0
    deadlines: int = 0
    end_s: float = 0.0

    @property
    def batches(self) -> list[tuple[float, int, Batch]]:
        """(time, group, batch) of everything handed out."""
        started = [(at, start.group, batch) for at, start, _ in self.starts for batch in start.batches]
        return started + [(at, g, b) for at, step in self.steps for g, b in enumerate(step.batches) if b is not None]

    @property
    def started_at(self) -> dict[int, float]:
        """When the first piece of each request was handed out."""
        first: dict[int, float] = {}
        for at, _, batch in sorted(self.batches, key=lambda entry: entry[0]):
            for piece in batch.pieces:
                first.setdefault(piece.request, at)
        return first


def drive(system: System, groups: int, requests: list[Request], service, cost=None, most_events: int = 20_000) -> Log:
    """Run until nothing is left. ``service(group, batch)`` is how long a batch takes; a step takes its longest.

    Fails if the scheduler stops with work in hand, asks to be woken in the past, or does not come to an end.
    """
    scheduler, log = scheduler_of(system, groups, cost), Log()
    due: list[tuple[float, int, object]] = [(r.arrival_s, i, Arrival(r)) for i, r in enumerate(requests)]
    due.sort(key=lambda entry: entry[:2])
    number, deadline, now = len(due), None, 0.0
    held: list[dict[int, Batch]] = [{} for _ in range(groups)]
    while due or deadline is not None:
        log.events += 1
        assert log.events < most_events, "the scheduler does not come to an end"
        if deadline is not None and (not due or deadline < due[0][0]):
            now, event = max(now, deadline), Deadline()
            log.deadlines += 1
        else:
            at, _, event = due.pop(0)
            now = max(now, at)
        if isinstance(event, Finished):
            del held[event.group][event.batch]
        decisions, deadline = scheduler.on(event, now)
        assert deadline is None or deadline > now, f"at {now} it asks to be woken at {deadline}"
        done = []
        for decision in decisions:
            if isinstance(decision, Step):
                log.steps.append((now, decision))
                longest = max(service(g, b) for g, b in enumerate(decision.batches) if b is not None)
                done.append((now + longest, StepDone(decision.step)))
                continue
            log.starts.append((now, decision, tuple(held[decision.group].values())))
            for batch in decision.batches:
                held[decision.group][batch.id] = batch
                done.append((now + service(decision.group, batch), Finished(decision.group, batch.id)))
        for at, event in done:
            due.append((at, number, event))
            number += 1
        due.sort(key=lambda entry: entry[:2])
    log.end_s = now
    assert scheduler.waiting == 0, f"{scheduler.waiting} requests are left although nothing will happen any more"
    return log


def requests_of(arrivals: list[float], tokens: list[int]) -> list[Request]:
    return [Request(i, at, n) for i, (at, n) in enumerate(zip(sorted(arrivals), tokens))]
