"""Balanced lock-step batching: the scheduler of barrier systems, chunked prefill included (section 5.1).

When the last step is done, waiting prompts are dealt out in queue order, each to the DP group with the least load among
those with room for it, until the budgets are used up. With ``chunk_tokens`` a prompt advances by at most one chunk a
step; what is left of it keeps its place at the head of the queue and its group, whose devices hold its KV cache.
"""

from __future__ import annotations

from collections.abc import Callable

from asaplab.core import Batch, Piece, Request, System
from asaplab.scheduler.events import Arrival, Decision, Event, Step, StepDone

Cost = Callable[[int, int], float]  # (tokens, sum of squares) -> seconds of attention


class SynchronousScheduler:
    """Steps D groups together. ``cost`` is asked for where ``batching.balance`` is "cost"."""

    def __init__(self, system: System, groups: int, cost: Cost | None = None) -> None:
        b = system.batching
        if b.balance == "cost" and cost is None:
            raise ValueError("balance 'cost' needs a cost function")
        self._chunk = None if b.chunk_tokens is None else min(b.chunk_tokens, b.max_tokens)
        self._fill = b.fill_chunks
        self._budget = self._chunk or min(b.budget_tokens, b.max_tokens)
        self._cost = cost if b.balance == "cost" else None
        self._shortest_first = b.queue == "shortest_first"
        self._groups = groups
        self._queue: list[Request] = []
        self._done: dict[int, int] = {}  # tokens already prefilled of prompts in chunks
        self._home: dict[int, int] = {}  # the group that holds their KV cache
        self._running = False
        self._steps = self._batches = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def on(self, event: Event, now: float) -> tuple[list[Decision], float | None]:
        if type(event) is Arrival:
            self._queue.append(event.request)
        elif type(event) is StepDone:
            self._running = False
        if self._running or not self._queue:
            return [], None
        self._running = True
        return [self._step()], None

    def _step(self) -> Step:
        if self._shortest_first:
            self._queue.sort(key=lambda r: (r.id not in self._home, r.tokens))
        tokens, squares = [0] * self._groups, [0] * self._groups
        pieces: list[list[Piece]] = [[] for _ in range(self._groups)]
        left: list[Request] = []
        full = False  # queue order is kept: nobody overtakes a prompt that did not fit
        continuing = len(self._home)
        for at, request in enumerate(self._queue):
            if full and not continuing:
                left.extend(self._queue[at:])
                break
            start = self._done.get(request.id, 0)
            home = self._home.get(request.id)
            if home is not None:
                continuing -= 1
            elif full:
                left.append(request)
                continue
            rest = request.tokens - start
            group = home if home is not None else self._lightest(rest, tokens, squares)
            take = self._piece(rest, self._budget - tokens[group], empty=not tokens[group])
            if take == 0:
                full = full or home is None
                left.append(request)
                continue
            last = start + take == request.tokens
            pieces[group].append(Piece(request.id, start, take, last))
            tokens[group] += take
            squares[group] += (start + take) ** 2 - start**2
            if last:
                self._done.pop(request.id, None)
                self._home.pop(request.id, None)
            else:
                self._done[request.id], self._home[request.id] = start + take, group
                left.append(request)
        self._queue = left
        self._steps += 1
        return Step(self._steps - 1, tuple(self._batch(p) for p in pieces))

    def _lightest(self, rest: int, tokens: list[int], squares: list[int]) -> int:
        """The group of least load that has room; with token balance, the one of fewest tokens has the most room."""
        if self._cost is None:
            return tokens.index(min(tokens))
        fits = [g for g, n in enumerate(tokens) if self._piece(rest, self._budget - n, empty=not n)]
        loads = {g: self._cost(tokens[g], squares[g]) for g in fits}
        return min(fits, key=loads.__getitem__, default=0)

    def _piece(self, rest: int, room: int, *, empty: bool) -> int:
        """Tokens of a prompt that go into this step: none if they do not fit in the group's room."""
        if self._chunk is None:
            return rest if empty or rest <= room else 0
        if self._fill:
            return min(rest, max(room, 0))
        piece = min(rest, self._chunk)
        return piece if piece <= room else 0

    def _batch(self, pieces: list[Piece]) -> Batch | None:
        if not pieces:
            return None
        self._batches += 1
        return Batch(self._batches - 1, tuple(pieces))
