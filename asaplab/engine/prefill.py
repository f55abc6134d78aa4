"""Driving an instance through a workload: arrivals in, scheduler decisions out, first tokens back.

The parent keeps the clock. Arrivals are replayed in open loop against absolute times, so a slow instance never slows
the asked rate down; the scheduler is told what happened and its decisions go to the devices as control messages.
"""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from asaplab.core import Batch, Run, Workload
from asaplab.engine.device import now_ns
from asaplab.engine.result import Account
from asaplab.errors import InputError, Stalled
from asaplab.models.counts import kv_bytes_per_token
from asaplab.scheduler import Arrival, Deadline, Finished, Start, Step, StepDone, scheduler_of
from asaplab.scheduler.events import Decision, Event
from asaplab.workload import prompt, replay

if TYPE_CHECKING:
    from asaplab.engine.deployment import Deployment

LEAD_S = 0.05  # the first arrival lies this far ahead, so that it is not late already
WATCH_S = 0.1  # how often processes and progress are looked at
SILENT_S = 2.0  # a device whose pulse is older than this is not waiting, it is stopped


class Prefill:
    """One workload on one deployment."""

    def __init__(self, live: Deployment, workload: Workload, keep_kv: bool, kv_limit: int, keep_logits: bool) -> None:
        self.live, self.workload, self.keep_kv = live, workload, keep_kv
        S = live.blueprint.dims.S
        if len(workload) and int(workload.tokens.max()) > S:
            raise InputError(
                f"a prompt of {int(workload.tokens.max())} tokens is longer than S = {S}; "
                "raise --max-batch-tokens, or read the trace with a limit on prompt length"
            )
        if keep_kv:
            _check_kv(live, workload, kv_limit)
        config = live.blueprint.checkpoint.config
        costs = live.blueprint.costs
        self.scheduler = scheduler_of(live.system, live.instance.D, costs.attention_s if costs else None)
        self.prompts = [prompt(workload, i, config.vocab) for i in range(len(workload))]
        self.account = Account(live, workload, keep_logits)
        self.deadline: float | None = None
        self.running_step: int | None = None
        self.step_left: set[int] = set()  # batches of the running step that are not done
        self.outstanding = len(workload)

    def run(self) -> Run:
        live, inbox = self.live, self.live.inbox
        live_names = [spec.name for spec in live.specs if spec.role != "moe"]
        for name in live_names:
            live.send(name, {"what": "keep_kv", "keep": self.keep_kv})
        _drain(inbox.reports)
        self.account.listen(inbox)
        self.start_ns = now_ns() + int(LEAD_S * 1e9)
        self.account.start_ns = self.start_ns
        try:
            self._drive()
            self.account.settle(kv_ranks=live.instance.T if self.keep_kv else 0)
        finally:
            self.account.unlisten(inbox)
        return self.account.run()

    # -------------------------------------------------------------- the loop

    def _now(self) -> float:
        return (now_ns() - self.start_ns) * 1e-9

    def _drive(self) -> None:
        arrivals = replay(self.workload)
        progress, since = -1, time.monotonic()
        watched = 0.0
        while self.outstanding:
            now = self._now()
            for request in arrivals.due(now):
                self._on(Arrival(request), now)
            if self.deadline is not None and now >= self.deadline:
                self._on(Deadline(), now)
            report = self._next_report(arrivals.next_s)
            if report is not None:
                self._hear(report)
            if time.monotonic() - watched > WATCH_S:
                watched = time.monotonic()
                assert self.live.watch is not None
                self.live.watch.check()
                seen = self._progress()
                if seen != progress or not self._given():
                    progress, since = seen, time.monotonic()
                elif time.monotonic() - since > self.live.stall_s:
                    raise Stalled(self._who_waits())

    def _next_report(self, arrival_s: float | None) -> dict[str, Any] | None:
        wakes = [t for t in (arrival_s, self.deadline) if t is not None]
        patience = min([WATCH_S, *(t - self._now() for t in wakes)])
        return self.live.inbox.next(patience)

    def _hear(self, report: dict[str, Any]) -> None:
        from asaplab.engine.deployment import failure

        if report["event"] == "failed":
            raise failure(report)
        if report["event"] == "kv":
            self.account.kv(report)
            return
        if report["event"] != "done":
            return
        self.outstanding -= self.account.done(report)
        if self.running_step is None:
            self._on(Finished(report["group"], report["batch"]), self._now())
            return
        self.step_left.discard(report["batch"])
        if not self.step_left:
            step, self.running_step = self.running_step, None
            self._on(StepDone(step), self._now())

    # -------------------------------------------------------------- decisions

    def _on(self, event: Event, now: float) -> None:
        decisions, self.deadline = self.scheduler.on(event, now)
        for decision in decisions:
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        sent_ns = now_ns()
        if isinstance(decision, Start):
            for batch in decision.batches:
                message = self._message(batch, sent_ns)
                self.account.handed(batch, decision.group, sent_ns)
                for name in self.live.group_devices(decision.group):
                    self.live.send(name, {"what": "start", **message})
            return
        assert isinstance(decision, Step)
        self.running_step = decision.step
        self.step_left = {batch.id for batch in decision.batches if batch is not None}
        for group, given in enumerate(decision.batches):
            start = None
            if given is not None:
                start = self._message(given, sent_ns)
                self.account.handed(given, group, sent_ns)
            for name in self.live.group_devices(group):
                self.live.send(name, {"what": "step", "step": decision.step, "start": start})

    def _message(self, batch: Batch, sent_ns: int) -> dict[str, Any]:
        ids = [self.prompts[p.request][p.start : p.start + p.tokens] for p in batch.pieces]
        return {
            "batch": batch.id,
            "pieces": [tuple(p) for p in batch.pieces],
            "prompt_tokens": [len(self.prompts[p.request]) for p in batch.pieces],
            "token_ids": np.concatenate(ids).astype(np.int64).tobytes(),
            "sent_ns": sent_ns,
        }

    # -------------------------------------------------------------- health

    def _given(self) -> bool:
        """Whether devices hold work: without it, standing still is no stall."""
        return self.running_step is not None or self.account.in_flight > 0

    def _progress(self) -> int:
        return sum(message["progress"] for message in self.live.inbox.latest.values())

    def _who_waits(self) -> str:
        latest, now = self.live.inbox.latest, time.monotonic()
        silent = [name for name in sorted(latest) if now - latest[name]["heard_s"] > SILENT_S]
        waits = [f"{name} is silent" for name in silent]
        waits += [f"{name} waits for {latest[name]['waiting_for']}" for name in sorted(latest) if name not in silent]
        return f"no device made progress for {self.live.stall_s:g} s: {'; '.join(waits)}"


def _drain(reports: queue.SimpleQueue) -> None:
    """Forget what a former workload left behind."""
    while True:
        try:
            reports.get_nowait()
        except queue.Empty:
            return


def _check_kv(live: Deployment, workload: Workload, limit: int) -> None:
    need = int(workload.tokens.sum()) * kv_bytes_per_token(live.blueprint.checkpoint.config, live.blueprint.dims.Dsize)
    if need > limit:
        raise InputError(
            f"keep_kv would hold {need:,} bytes of KV cache, more than kv_limit_bytes = {limit:,}; "
            "raise the limit or prefill fewer tokens"
        )
