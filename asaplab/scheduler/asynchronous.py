"""Length-aware batching and dual-batch interleaving: the scheduler of barrier-free systems (section 3.3).

Requests join the open batch in queue order. The open batch closes when it reaches the MoE inflection point, when the
next prompt would take it beyond S, or when its oldest request has waited ``longest_wait_s``. A prompt longer than
``solo_tokens`` is a batch of its own and has its DP group to itself. An idle group takes ``in_flight`` closed batches
at once (refill "pair"; fewer when the oldest has waited long enough), or one for each free place (refill "slot").
The group with the fewest batches is served first, among equals the one that has been free longest. Nobody overtakes a
long prompt that waits for an idle group, so it is never starved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import TypeAlias

from asaplab.core import Batch, Piece, Request, System
from asaplab.scheduler.events import Arrival, Decision, Event, Finished, Start

_Entry: TypeAlias = tuple[Batch, float, bool, int]  # batch, arrival of its oldest request, solo, tokens
_ARRIVAL, _TOKENS = itemgetter(1), itemgetter(3)


class AsynchronousScheduler:
    """Feeds D groups that never wait for each other."""

    def __init__(self, system: System, groups: int) -> None:
        b, p = system.batching, system.pipeline
        self._threshold = b.threshold_tokens if b.policy == "length_aware" else 1
        self._wait, self._most, self._solo = b.longest_wait_s, b.max_tokens, b.solo_tokens
        self._shortest_first = b.queue == "shortest_first"
        self._in_flight, self._by_slot = p.in_flight, p.refill == "slot"
        self._open: list[Request] = []
        self._open_tokens = 0
        self._closed: deque[_Entry] = deque()
        self._free: deque[int] = deque(range(groups))  # groups that can take batches, longest idle first
        self._held: list[int] = [0] * groups  # batches in flight
        self._alone: list[bool] = [False] * groups  # a solo batch is in flight
        self._batches = 0
        self.waiting = 0

    def on(self, event: Event, now: float) -> tuple[list[Decision], float | None]:
        if type(event) is Arrival:
            self._enqueue(event.request)
        elif type(event) is Finished:
            group = event.group
            self._held[group] -= 1
            if self._held[group] == 0:
                self._alone[group] = False
            if group not in self._free and (self._by_slot or self._held[group] == 0) and not self._alone[group]:
                self._free.append(group)
        if not self._free:
            return [], None
        return self._assign(now), self._deadline()

    # -------------------------------------------------------------- batching

    def _enqueue(self, request: Request) -> None:
        self.waiting += 1
        if request.tokens > self._solo:
            self._close()
            self._append([request], request.tokens, solo=True)
            return
        if self._open_tokens + request.tokens > self._most:
            self._close()
        self._open.append(request)
        self._open_tokens += request.tokens
        if self._open_tokens >= self._threshold:
            self._close()

    def _close(self) -> None:
        if self._open:
            self._append(self._open, self._open_tokens, solo=False)
            self._open, self._open_tokens = [], 0

    def _append(self, requests: list[Request], tokens: int, *, solo: bool) -> None:
        batch = Batch(self._batches, tuple(Piece(r.id, 0, r.tokens, True) for r in requests))
        self._batches += 1
        entry = (batch, requests[0].arrival_s, solo, tokens)
        at = bisect_right(self._closed, tokens, key=_TOKENS) if self._shortest_first else len(self._closed)
        self._closed.insert(at, entry)

    # -------------------------------------------------------------- handing out

    def _oldest(self) -> float | None:
        if not self._closed:
            return self._open[0].arrival_s if self._open else None
        oldest = min(map(_ARRIVAL, self._closed)) if self._shortest_first else self._closed[0][1]
        return min(oldest, self._open[0].arrival_s) if self._open else oldest

    def _deadline(self) -> float | None:
        """A wait can only end by time where a group could take the batch: a long prompt waits for an idle group."""
        if not self._free or (self._closed and self._closed[0][2]):
            return None
        oldest = self._oldest()
        return None if oldest is None else oldest + self._wait

    def _assign(self, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        while self._free:
            group = min(self._free, key=self._held.__getitem__) if self._by_slot else self._free[0]
            taken = self._take(group, now)
            if not taken:
                break
            self._held[group] += len(taken)
            self._free.remove(group)
            if self._by_slot and self._held[group] < self._in_flight and not self._alone[group]:
                self._free.append(group)
            self.waiting -= sum(len(batch.pieces) for batch in taken)
            decisions.append(Start(group, taken))
        return decisions

    def _take(self, group: int, now: float) -> tuple[Batch, ...]:
        """The batches that the group gets now; none while a wait for company is still worthwhile."""
        places = 1 if self._by_slot else self._in_flight
        oldest = self._oldest()
        due = oldest is not None and now >= oldest + self._wait
        if due and not (self._closed and self._closed[0][2]) and len(self._closed) < places:
            self._close()
        if not self._closed:
            return ()
        if self._closed[0][2]:
            if self._held[group]:
                return ()
            self._alone[group] = True
            return (self._closed.popleft()[0],)
        company = 0
        while company < min(places, len(self._closed)) and not self._closed[company][2]:
            company += 1
        followed_by_solo = company < len(self._closed) and self._closed[company][2]
        if company < places and not due and not followed_by_solo:
            return ()
        return tuple(self._closed.popleft()[0] for _ in range(company))
