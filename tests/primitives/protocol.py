"""The flag protocol as a state machine, and an explorer of everything that can happen in it.

A rank of a group turns to one of its batches after the other: it takes the batch's results, meets the other ranks and
puts the next round's rows into the regions of the active devices, waiting while a flag there is still set. A device
receives complete regions in any order, at most ``queue`` at a time, and puts results back, waiting while a result flag
is still set. Rank 0 chooses whose turn it is: the batches in rotation (fifo), or any batch whose results are all there.

What commutes with everything else is taken at once (a put to a free flag has one writer, and disables nobody), so the
explorer branches only where somebody has a choice; ``everything=True`` branches everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Protocol(NamedTuple):
    D: int
    T: int
    E: int
    slots: int
    batches: int  # in flight for each group
    rounds: int = 2
    order: str = "ready"  # or "fifo"
    copy: bool = True  # regions are copied and freed when received, or freed when their results go back
    queue: int = 1  # regions a device holds
    first_free: bool = False  # a device may send the first held results whose flags are clear, not only its oldest
    sparse: bool = False  # each round of a batch needs one device only, in turn

    def active(self, batch: int, round: int) -> tuple[int, ...]:
        return ((batch + round) % self.E,) if self.sparse else tuple(range(self.E))

    def slot(self, batch: int) -> int:
        return batch % self.slots


class Rank(NamedTuple):
    turns: int  # taken so far, modulo 4: the ranks of a group are never more than one apart
    done: tuple[int, ...]  # rounds that came back, by batch
    flying: frozenset  # batches that await results
    turn: int  # the batch whose turn it is, or -1
    received: bool  # its results are taken
    left: tuple[int, ...]  # devices that its rows still have to go to; () and turn -1 between turns


class State(NamedTuple):
    ranks: tuple[Rank, ...]  # number i * T + j
    chosen: tuple[int, ...]  # by group: rank 0's last choice
    regions: frozenset  # (e, i, slot, j, batch, round): flags that are set
    taken: frozenset  # of those, received but not freed
    held: tuple[tuple, ...]  # by device: (i, slot, batch, round, ranks that still wait for it)
    results: frozenset  # (i, j, slot, e, batch, round): result flags that are set


class Violation(Exception):
    """The protocol lost, doubled or mixed up something."""


def start(p: Protocol) -> State:
    rank = Rank(0, (0,) * p.batches, frozenset(), -1, False, ())
    return State((rank,) * (p.D * p.T), (p.batches - 1,) * p.D, frozenset(), frozenset(), ((),) * p.E, frozenset())


def finished(p: Protocol, s: State) -> bool:
    return all(min(rank.done) == p.rounds for rank in s.ranks)


def _put_in(ranks: tuple, k: int, rank: Rank) -> tuple:
    return (*ranks[:k], rank, *ranks[k + 1 :])


def _results_of(p: Protocol, s: State, i: int, j: int, batch: int, round: int) -> frozenset:
    wanted = {(i, j, p.slot(batch), e, batch, round) for e in p.active(batch, round)}
    return frozenset(wanted & s.results)


def _answered(p: Protocol, s: State, k: int, batch: int) -> bool:
    rank, (i, j) = s.ranks[k], divmod(k, p.T)
    round = rank.done[batch]
    return len(_results_of(p, s, i, j, batch, round)) == len(p.active(batch, round))


def _choices(p: Protocol, s: State, i: int) -> list[int]:
    """Batches whose turn rank 0 may choose."""
    rank = s.ranks[i * p.T]
    unfinished = [b for b in range(p.batches) if rank.done[b] < p.rounds]
    if p.order == "fifo":
        unfinished = sorted(unfinished, key=lambda b: (b - s.chosen[i] - 1) % p.batches)[:1]
    return [b for b in unfinished if b not in rank.flying or _answered(p, s, i * p.T, b)]


def steps(p: Protocol, s: State) -> Iterator[tuple[bool, State]]:
    """What can happen next: (it commutes with all else, the state after it)."""
    for k, rank in enumerate(s.ranks):
        yield from _rank_steps(p, s, k, rank)
    for e in range(p.E):
        yield from _receives(p, s, e)
        yield from _sends(p, s, e)


def _rank_steps(p: Protocol, s: State, k: int, rank: Rank) -> Iterator[tuple[bool, State]]:
    i, j = divmod(k, p.T)
    if rank.turn < 0:
        if j == 0:
            for batch in _choices(p, s, i):
                ranks = _put_in(s.ranks, k, rank._replace(turn=batch))
                yield False, s._replace(ranks=ranks, chosen=_put_in(s.chosen, i, batch))
        elif _ahead(s.ranks[i * p.T], rank) or (_level(s.ranks[i * p.T], rank) and s.ranks[i * p.T].turn >= 0):
            yield True, s._replace(ranks=_put_in(s.ranks, k, rank._replace(turn=s.chosen[i])))
        return
    batch, slot = rank.turn, p.slot(rank.turn)
    if not rank.received:
        if batch not in rank.flying:
            yield True, s._replace(ranks=_put_in(s.ranks, k, rank._replace(received=True)))
        elif _answered(p, s, k, batch):
            round = rank.done[batch]
            done = (*rank.done[:batch], round + 1, *rank.done[batch + 1 :])
            now = rank._replace(done=done, flying=rank.flying - {batch}, received=True)
            results = s.results - _results_of(p, s, i, j, batch, round)
            yield True, s._replace(ranks=_put_in(s.ranks, k, now), results=results)
        return
    if not rank.left:
        mates = s.ranks[i * p.T : (i + 1) * p.T]
        if not all(_ahead(m, rank) or (_level(m, rank) and m.received) for m in mates):
            return  # the ranks meet before they send
        if rank.done[batch] == p.rounds:
            yield True, s._replace(ranks=_put_in(s.ranks, k, _next_turn(rank)))
        else:
            now = rank._replace(left=p.active(batch, rank.done[batch]))
            yield True, s._replace(ranks=_put_in(s.ranks, k, now))
        return
    for e in rank.left:
        if not any(flag[:4] == (e, i, slot, j) for flag in s.regions):
            left = tuple(x for x in rank.left if x != e)
            now = rank._replace(left=left)
            if not left:
                now = _next_turn(now._replace(flying=rank.flying | {batch}))
            flag = (e, i, slot, j, batch, rank.done[batch])
            yield True, s._replace(ranks=_put_in(s.ranks, k, now), regions=s.regions | {flag})


def _level(one: Rank, other: Rank) -> bool:
    return one.turns == other.turns


def _ahead(one: Rank, other: Rank) -> bool:
    return (one.turns - other.turns) % 4 == 1


def _next_turn(rank: Rank) -> Rank:
    return rank._replace(turns=(rank.turns + 1) % 4, turn=-1, received=False)


def _receives(p: Protocol, s: State, e: int) -> Iterator[tuple[bool, State]]:
    if len(s.held[e]) >= p.queue:
        return
    for i in range(p.D):
        for slot in range(p.slots):
            flags = [f for f in s.regions if f[:3] == (e, i, slot) and f not in s.taken]
            if len(flags) < p.T:
                continue
            if len({f[4:] for f in flags}) > 1:
                raise Violation(f"ranks of group {i} filled one region with different batches: {flags}")
            batch, round = flags[0][4:]
            if any(h[:1] + h[2:4] == (i, batch, round) for h in s.held[e]):
                raise Violation(f"device {e} received batch {batch} of group {i} twice")
            held = _put_in(s.held, e, (*s.held[e], (i, slot, batch, round, tuple(range(p.T)))))
            if p.copy:
                yield False, s._replace(held=held, regions=s.regions - set(flags))
            else:
                yield False, s._replace(held=held, taken=s.taken | set(flags))


def _sends(p: Protocol, s: State, e: int) -> Iterator[tuple[bool, State]]:
    held = s.held[e]
    for place, (i, slot, batch, round, waiting) in enumerate(held):
        if place and not p.first_free:
            return
        if any(h[:2] == (i, slot) for h in held[:place]):
            continue  # of one slot the older results go first
        mine = {f for f in s.taken if f[0] == e and f[1:3] == (i, slot)}
        for j in waiting:
            if any(flag[:4] == (i, j, slot, e) for flag in s.results):
                continue
            if (i, j, slot, e, batch, round) in s.results or s.ranks[i * p.T + j].done[batch] != round:
                raise Violation(f"device {e} answers round {round} of batch {batch} of group {i}, which nobody awaits")
            rest = tuple(x for x in waiting if x != j)
            entry = () if not rest else ((i, slot, batch, round, rest),)
            now = s._replace(
                held=_put_in(s.held, e, (*held[:place], *entry, *held[place + 1 :])),
                results=s.results | {(i, j, slot, e, batch, round)},
                regions=s.regions - mine,
                taken=s.taken - mine,
            )
            yield True, now


def explore(p: Protocol, *, everything: bool = False, most: int = 400_000) -> tuple[int, State | None]:
    """Visit every reachable state: how many there are, and one in which nobody can move although work is left.

    Raises:
        Violation: something was lost, doubled or mixed up.
    """
    todo, seen, stuck = [start(p)], {start(p)}, None
    while todo:
        state = todo.pop()
        following = list(steps(p, state))
        if not following and not finished(p, state):
            stuck = stuck or state
        if not following and finished(p, state) and (state.regions or state.results or any(state.held)):
            raise Violation(f"something is left over: {state}")
        if not everything:
            following = next(([step] for step in following if step[0]), following)
        for _, after in following:
            if after not in seen:
                if len(seen) >= most:
                    raise RuntimeError(f"more than {most} states")
                seen.add(after)
                todo.append(after)
    return len(seen), stuck
