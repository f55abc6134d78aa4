"""A workload on a virtual clock: the scheduler is called back at every arrival, deadline and finished batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from asaplab.core import TTFT_PARTS, Batch, Request, Workload
from asaplab.errors import Stalled
from asaplab.scheduler import systems
from asaplab.scheduler.events import Arrival, Deadline, Finished, Start, Step, StepDone
from asaplab.twin import kernel, layout, lockstep
from asaplab.twin.setting import Setting

INF = float("inf")


class Simulation:
    """One run. ``play`` drives it; the arrays hold what came out."""

    def __init__(
        self, setting: Setting, workload: Workload, *, log_lines: int = 0, cached: np.ndarray | None = None
    ) -> None:
        D = setting.instance.D
        self.setting, self.workload = setting, workload
        self.cost = setting.cost_array()
        self.count = np.zeros(layout.COUNTS)
        self.log = np.zeros((log_lines, layout.LOG_COLUMNS))
        self.scheduler = systems.scheduler_of(setting.system, D, setting.attention_s)
        self.now = 0.0
        self._cached = None if cached is None else cached.tolist()
        computed = workload.tokens if cached is None else workload.tokens - cached
        self._tokens: list[int] = computed.tolist()
        # the books: one line a finished batch, and for each of its pieces the request and that line
        self._ends: list[tuple[float, float, int, int]] = []  # start, end, batch, group
        self._parts: list[list[float]] = []
        self._request: list[int] = []
        self._line: list[int] = []
        self._last: list[bool] = []

    def play(self, until_s: float = INF) -> None:
        """Run until every request is done, or the clock reaches ``until_s``.

        Raises:
            Stalled: requests are left but nothing can happen any more.
        """
        (self._synchronous if self.setting.system.pipeline.barrier else self._asynchronous)(until_s)

    # -------------------------------------------------------------- no barrier

    def _asynchronous(self, until_s: float) -> None:
        D, n = self.setting.instance.D, self.setting.system.pipeline.in_flight
        place = np.zeros((D * n, layout.PLACE_COLUMNS))
        place[:, [layout.NEXT_S, layout.READY_S]] = INF
        parts = np.zeros((D * n, layout.PARTS))
        group = np.zeros((D, layout.GROUP_COLUMNS))
        group[:, layout.LAST] = n - 1
        free_s = np.zeros(self.setting.instance.E)
        cost, count, log, shares = self.cost, self.count, self.log, self.setting.shares_LE
        held: list[tuple[Batch, float] | None] = [None] * (D * n)
        arrivals, tokens = self.workload.arrival_s.tolist(), self._tokens
        on, attention_s, total = self.scheduler.on, self.setting.attention_s, len(arrivals)
        coming, left, now, deadline = 0, total, 0.0, None
        while left:
            due = arrivals[coming] if coming < total else INF
            stop = due if deadline is None or due <= deadline else deadline
            if min(stop, now) >= until_s:
                break
            p = kernel.advance(stop, place, parts, group, free_s, shares, cost, count, log)
            if p >= 0:
                now = float(count[layout.NOW])
                entry = held[p]
                assert entry is not None
                left -= self._complete(entry[0], now, entry[1], parts[p], p // n)
                held[p] = None
                decisions, deadline = on(Finished(p // n, entry[0].id), now)
            elif stop == INF:
                raise Stalled(f"the twin waited for {left} requests, but no event is left at {now:.3f} s")
            elif stop == due:
                now = due
                decisions, deadline = on(Arrival(Request(coming, due, tokens[coming])), now)
                coming += 1
            else:
                now = stop
                decisions, deadline = on(Deadline(), now)
            for decision in decisions:
                assert isinstance(decision, Start)
                p = decision.group * n
                for batch in decision.batches:
                    while held[p] is not None:
                        p += 1
                    held[p] = (batch, now)
                    size = batch.tokens
                    stage_s = attention_s(size, self._squares(batch))
                    kernel.enter(p, now, float(size), stage_s, batch.id, place, parts, group, cost, count, log)
        self.now = now

    def _complete(self, batch: Batch, now: float, started_s: float, parts: Any, group: int) -> int:
        """Book a finished batch; returns how many requests have their first token now."""
        line, done = len(self._ends), 0
        self._ends.append((started_s, now, batch.id, group))
        self._parts.append(parts.tolist())
        for request, _, _, last in batch.pieces:
            self._request.append(request)
            self._line.append(line)
            self._last.append(last)
            done += last
        return done

    # -------------------------------------------------------------- barriers

    def _synchronous(self, until_s: float) -> None:
        arrivals, tokens = self.workload.arrival_s.tolist(), self._tokens
        D, m = self.setting.instance.D, self.setting.system.pipeline.in_flight
        on, total = self.scheduler.on, len(arrivals)
        coming, left, now, running = 0, total, 0.0, None
        while left:
            due = arrivals[coming] if coming < total else INF
            end_s = running[1] if running else INF
            if min(due, end_s) >= until_s:
                break
            if due == INF and end_s == INF:
                raise Stalled(f"the twin waited for {left} requests, but no step is running at {now:.3f} s")
            if due <= end_s:
                now = due
                decisions, _ = on(Arrival(Request(coming, due, tokens[coming])), now)
                coming += 1
            else:
                assert running is not None
                now, step, started_s, parts = end_s, running[0], running[2], running[3]
                for g, batch in enumerate(step.batches):
                    if batch is not None:
                        left -= self._complete(batch, now, started_s, parts[g], g)
                running = None
                decisions, _ = on(StepDone(step.step), now)
            for decision in decisions:
                assert isinstance(decision, Step)
                running = self._step(decision, now, D, m)
        self.now = now

    def _step(self, step: Step, now: float, D: int, m: int) -> tuple[Step, float, float, Any]:
        sizes, stage = np.zeros(D), np.zeros(D)
        for g, batch in enumerate(step.batches):
            if batch is not None:
                sizes[g] = batch.tokens / m
                stage[g] = self.setting.attention_s(sizes[g], self._squares(batch) / m)
        took_s, parts, attention_busy, moe_busy = lockstep.step(
            now, step.step, sizes, stage, self.setting.shares_LE, self.cost, self.count, self.log
        )
        self.count[layout.ATTENTION_BUSY] += attention_busy
        self.count[layout.MOE_BUSY] += moe_busy
        return step, now + took_s, now, parts

    def _squares(self, batch: Batch) -> float:
        """The growth of squared lengths; computed tokens attend to cached ones too."""
        if self._cached is None:
            return batch.sum_squares
        return batch.sum_squares + sum(2 * self._cached[piece.request] * piece.tokens for piece in batch.pieces)

    # -------------------------------------------------------------- results

    def ttft_s(self) -> np.ndarray:
        """By request; nan where the first token is still out."""
        ttft_s = np.full(len(self.workload), np.nan)
        last = np.array(self._last, bool)
        request, line = np.array(self._request, np.int64)[last], np.array(self._line, np.int64)[last]
        ends = np.array(self._ends, np.float64).reshape(-1, 4)
        ttft_s[request] = ends[line, 1] - self.workload.arrival_s[request]
        return ttft_s

    def utilization(self) -> dict[str, float]:
        """Share of the run's length in which devices of a role computed."""
        wall = max((end_s for _, end_s, _, _ in self._ends), default=1.0)
        attention = self.count[layout.ATTENTION_BUSY] / self.setting.instance.D / wall
        moe = self.count[layout.MOE_BUSY] / self.setting.instance.E / wall
        if self.setting.system.placement.kind == "colocated":
            return {"colocated": float(attention + moe)}
        return {"attention": float(attention), "moe": float(moe)}

    def requests(self) -> dict[str, np.ndarray]:
        """The table of a Run."""
        w, ttft_s = self.workload, self.ttft_s()
        request, line = np.array(self._request, np.int64), np.array(self._line, np.int64)
        ends = np.array(self._ends, np.float64).reshape(-1, 4)
        parts = np.array(self._parts, np.float64).reshape(-1, layout.PARTS)
        sums = np.zeros((len(w), layout.PARTS))
        np.add.at(sums, request, parts[line])
        # what is left of a TTFT when its batches have run: waiting for a batch, between chunks too
        ran_s = np.bincount(request, (ends[:, 1] - ends[:, 0])[line], len(w))
        sums[:, layout.BATCHING_WAIT] = np.where(np.isfinite(ttft_s), np.maximum(ttft_s - ran_s, 0.0), 0.0)
        columns = {name: sums[:, k] for k, name in enumerate(TTFT_PARTS)}
        batch, group = np.full(len(w), -1), np.full(len(w), -1)
        batch[request], group[request] = ends[line, 2], ends[line, 3]
        return {
            "id": np.arange(len(w)),
            "arrival_s": np.asarray(w.arrival_s),
            "tokens": np.asarray(w.tokens),
            "batch": batch,
            "group": group,
            "ttft_s": ttft_s,
            "first_token": np.full(len(w), -1),
            **columns,
        }
