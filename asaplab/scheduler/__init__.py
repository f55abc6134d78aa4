"""Request schedulers: pure state machines that engine and twin call alike (section 3.3)."""

from asaplab.scheduler.events import Arrival, Deadline, Decision, Event, Finished, Scheduler, Start, Step, StepDone
from asaplab.scheduler.order import next_batch, next_region
from asaplab.scheduler.systems import NAMED, named, scheduler_of

__all__ = [
    "NAMED",
    "Arrival",
    "Deadline",
    "Decision",
    "Event",
    "Finished",
    "Scheduler",
    "Start",
    "Step",
    "StepDone",
    "named",
    "next_batch",
    "next_region",
    "scheduler_of",
]
