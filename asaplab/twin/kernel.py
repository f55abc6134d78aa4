"""The event kernel of barrier-free systems: batches on D groups, E separate MoE queues, layer by layer.

Each place (a batch in flight of a DP group) has one pending event at most, so the next event is the least of a short
array; a row of it holds all of a batch's state. A MoE device serves regions in the order in which they became
complete, so its queue needs no events: a region starts when the device is free. With numba's JIT disabled the same
functions run as plain Python: the oracle.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from asaplab.scheduler import order
from asaplab.twin.layout import (
    ATTENTION,
    ATTENTION_BUSY,
    ATTENTION_PART,
    ATTENTION_QUEUE,
    ATTENTION_S,
    BATCH,
    BLOCKED,
    BUSY_S,
    COMBINE,
    COMBINE_TOKEN_S,
    DENSE,
    DENSE_TOKEN_S,
    DEVICE,
    DISPATCH,
    DISPATCH_PART,
    DISPATCH_TOKEN_S,
    EMPTY,
    END_S,
    EVENTS,
    GROUP,
    HANDSHAKE_S,
    HEAD,
    HOST,
    HOST_S,
    IN_FLIGHT_FIFO,
    KIND,
    LAST,
    LATENCY_S,
    LAUNCH_S,
    LAYER,
    LAYERS,
    LOG_BATCH,
    LOG_LAYER,
    LOG_TOKENS,
    LOGGED,
    MARK_S,
    MOE,
    MOE_BUSY,
    MOE_FLOOR_S,
    MOE_PART,
    MOE_QUEUE,
    MOE_ROW_S,
    NEXT_S,
    NOW,
    OVERLAP_ATTENTION,
    OVERLAP_MOE,
    PHASE,
    PLACES,
    RANKS,
    READY,
    READY_S,
    ROW_BACK_S,
    ROWS_TOKEN,
    SLOT_S,
    SLOTS,
    START_S,
    SUM_TOKEN_S,
    SYNCHRONOUS_SENDS,
    TOKENS,
    TP,
    TP_FIXED_S,
    TP_TOKEN_S,
)  # fmt: skip

INF = np.inf
# arrays are borrowed from the caller: without counting references to them the kernel is three times as fast
_borrowed: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}
compiled = numba.njit(**_borrowed)
inlined = numba.njit(**_borrowed, forceinline=True)
next_batch = inlined(order.next_batch)


@inlined
def record(log, count, kind, group, device, batch, layer, start_s, end_s, tokens):  # type: ignore[no-untyped-def]
    """Add a line to the log while it has room; it has none in a run without spans."""
    at = int(count[LOGGED])
    if at < len(log):
        line = log[at]
        line[KIND], line[GROUP], line[DEVICE], line[LOG_BATCH] = kind, group, device, batch
        line[LOG_LAYER], line[START_S], line[END_S], line[LOG_TOKENS] = layer, start_s, end_s, tokens
        count[LOGGED] = at + 1


@inlined
def begin(g, now, place, parts, group, cost, count, log):  # type: ignore[no-untyped-def]
    """Let the attention devices of group g take up the batch that the order rule names, if they are free."""
    n = int(cost[PLACES])
    if group[g, BUSY_S] > now:
        return
    chosen = next_batch(place[g * n : g * n + n, READY_S], int(group[g, LAST]), cost[IN_FLIGHT_FIFO] > 0)
    if chosen < 0:
        return
    p = g * n + chosen
    tokens, layer = place[p, TOKENS], place[p, LAYER]
    # rows that came back are weighted and added on the device that goes on with them
    after_moe = layer > cost[DENSE]
    sum_s = cost[SUM_TOKEN_S] * tokens if after_moe and cost[OVERLAP_ATTENTION] == 0 else 0.0
    stage_s = place[p, ATTENTION_S]
    if layer < cost[DENSE]:
        stage_s += cost[DENSE_TOKEN_S] * tokens
    tp_s = cost[TP_FIXED_S] + cost[TP_TOKEN_S] * tokens
    parts[p, ATTENTION_QUEUE] += now - place[p, READY_S]
    parts[p, COMBINE] += sum_s
    parts[p, ATTENTION_PART] += stage_s
    parts[p, TP] += tp_s
    end_s = now + sum_s + stage_s + tp_s
    place[p, READY_S] = -1.0
    place[p, NEXT_S] = end_s
    place[p, PHASE] = ATTENTION
    group[g, LAST] = chosen
    group[g, BUSY_S] = INF  # until its event says otherwise
    count[ATTENTION_BUSY] += end_s - now
    record(log, count, ATTENTION_PART, g, -1, place[p, BATCH], layer, now + sum_s, now + sum_s + stage_s, tokens)


@inlined
def send(p, g, now, place, parts, group, free_s, cost, count, log):  # type: ignore[no-untyped-def]
    """Dispatch a batch's rows; the event is the last region's completion. Returns when the sender is free again."""
    n, tokens = int(cost[PLACES]), place[p, TOKENS]
    begin_s = now
    if cost[SLOTS] < n:
        for q in range(g * n, g * n + n):
            if q != p and place[q, PHASE] == DISPATCH:
                place[p, PHASE] = BLOCKED  # its flag is still set: wait until that region was taken
                place[p, NEXT_S] = INF
                return INF
        begin_s = max(now, group[g, SLOT_S])
    move_s = cost[DISPATCH_TOKEN_S] * tokens
    if cost[SYNCHRONOUS_SENDS] > 0:
        done_s = begin_s
        for e in range(len(free_s)):  # one after another; each waits until its receiver stops computing
            done_s = max(done_s, free_s[e]) + cost[HANDSHAKE_S] + move_s / len(free_s)
        sender_s = done_s
    else:
        sender_s = begin_s + move_s
        done_s = sender_s + cost[LATENCY_S]
    place[p, PHASE] = DISPATCH
    place[p, NEXT_S] = done_s
    parts[p, DISPATCH_PART] += done_s - place[p, MARK_S]
    record(log, count, DISPATCH_PART, g, -1, place[p, BATCH], place[p, LAYER], begin_s, done_s, tokens)
    return sender_s


@inlined
def serve(p, g, now, place, parts, group, free_s, shares, cost, count, log):  # type: ignore[no-untyped-def]
    """Complete regions of one batch on all MoE devices: the queues in closed form, and when the last answer is back."""
    tokens, layer = place[p, TOKENS], place[p, LAYER]
    rows_all = tokens * cost[ROWS_TOKEN]
    floor_s, row_s, launch_s = cost[MOE_FLOOR_S], cost[MOE_ROW_S], cost[LAUNCH_S]
    of_layer = 0 if len(shares) == 1 else int(layer) % len(shares)
    logging = int(count[LOGGED]) < len(log)
    synchronous, overlapped = cost[SYNCHRONOUS_SENDS] > 0, cost[OVERLAP_MOE] > 0
    latest = critical_start = taken_s = now
    critical_service = served_s = 0.0
    for e in range(len(free_s)):
        rows = rows_all * shares[of_layer, e]
        if rows <= 0.0:
            continue
        service_s = max(floor_s, row_s * rows) + launch_s
        start_s = max(now, free_s[e])
        end_s = answer_s = held_s = start_s + service_s
        if synchronous:
            idle_s = group[g, BUSY_S] if group[g, BUSY_S] < INF else end_s
            held_s = max(end_s, idle_s) + cost[RANKS] * cost[HANDSHAKE_S] + cost[ROW_BACK_S] * rows
            answer_s = held_s
        elif not overlapped:
            held_s = end_s + cost[ROW_BACK_S] * rows
        free_s[e] = held_s
        if answer_s > latest:
            latest, critical_start, critical_service = answer_s, start_s, service_s
        taken_s = max(taken_s, start_s)
        served_s += service_s
        if logging:
            record(log, count, MOE_PART, g, e, place[p, BATCH], layer, start_s, end_s, rows)
    count[MOE_BUSY] += served_s
    if cost[SLOTS] < cost[PLACES]:
        group[g, SLOT_S] = taken_s  # with one slot the device copies the region and clears the flag when it starts
    back_s = latest
    if cost[SYNCHRONOUS_SENDS] == 0:
        back_s += cost[LATENCY_S] + cost[COMBINE_TOKEN_S] * tokens
    if cost[OVERLAP_ATTENTION] > 0:
        back_s += cost[SUM_TOKEN_S] * tokens
    parts[p, MOE_QUEUE] += critical_start - now
    parts[p, MOE_PART] += critical_service
    parts[p, COMBINE] += back_s - critical_start - critical_service
    place[p, PHASE] = MOE
    place[p, NEXT_S] = back_s


@compiled
def advance(until_s, place, parts, group, free_s, shares, cost, count, log):  # type: ignore[no-untyped-def]
    """Run events up to ``until_s``; stops at the first batch that is done and returns its emptied place, else -1."""
    n, places = int(cost[PLACES]), len(place)
    while True:
        p, now = 0, place[0, NEXT_S]
        for q in range(1, places):
            if place[q, NEXT_S] < now:
                p, now = q, place[q, NEXT_S]
        if now > until_s or now == INF:
            return -1
        count[NOW] = now
        g, phase = p // n, place[p, PHASE]
        if phase == ATTENTION:
            group[g, BUSY_S] = now
            place[p, MARK_S] = now
            if place[p, LAYER] < cost[DENSE]:
                count[EVENTS] += 1
                place[p, LAYER] += 1
                arrive(p, now, place, parts, cost)
            else:
                sender_s = send(p, g, now, place, parts, group, free_s, cost, count, log)
                if cost[OVERLAP_ATTENTION] == 0:
                    group[g, BUSY_S] = sender_s
        elif phase == DISPATCH:
            serve(p, g, now, place, parts, group, free_s, shares, cost, count, log)
            count[EVENTS] += 1 + 3 * len(free_s)  # attention, and dispatch, kernel and combine of every MoE device
            if cost[SLOTS] < n:
                for q in range(g * n, g * n + n):
                    if place[q, PHASE] == BLOCKED:
                        sender_s = send(q, g, now, place, parts, group, free_s, cost, count, log)
                        if cost[OVERLAP_ATTENTION] == 0:
                            group[g, BUSY_S] = sender_s
                        break
        elif phase == MOE:
            place[p, LAYER] += 1
            arrive(p, now, place, parts, cost)
        elif phase == READY:
            # the sender becomes free at a time without an event of its own: this place was set to look again then
            place[p, NEXT_S] = INF
        else:
            place[p, PHASE] = EMPTY
            place[p, NEXT_S] = place[p, READY_S] = INF
            return p
        begin(g, now, place, parts, group, cost, count, log)
        for q in range(g * n, g * n + n):
            if place[q, PHASE] == READY and place[q, READY_S] >= 0.0 and now < group[g, BUSY_S] < INF:
                place[q, NEXT_S] = group[g, BUSY_S]
            elif place[q, PHASE] == READY and place[q, READY_S] >= 0.0:
                place[q, NEXT_S] = INF


@inlined
def arrive(p, now, place, parts, cost):  # type: ignore[no-untyped-def]
    """A batch is ready for its next layer, or for the head after the last one."""
    if place[p, LAYER] < cost[LAYERS]:
        place[p, PHASE] = READY
        place[p, READY_S] = now
        place[p, NEXT_S] = INF
        return
    sum_s = 0.0
    if cost[LAYERS] > cost[DENSE] and cost[OVERLAP_ATTENTION] == 0:
        sum_s = cost[SUM_TOKEN_S] * place[p, TOKENS]
    parts[p, COMBINE] += sum_s
    parts[p, HOST] += cost[HOST_S]
    place[p, PHASE] = HEAD
    place[p, READY_S] = -1.0
    place[p, NEXT_S] = now + sum_s + cost[HOST_S]


@compiled
def enter(p, now, tokens, attention_s, batch, place, parts, group, cost, count, log):  # type: ignore[no-untyped-def]
    """Put a batch into a place and let its group begin."""
    parts[p, :] = 0.0
    place[p, TOKENS], place[p, ATTENTION_S] = tokens, attention_s
    place[p, READY_S], place[p, NEXT_S] = now, INF
    place[p, PHASE], place[p, LAYER], place[p, BATCH] = READY, 0, batch
    g = p // int(cost[PLACES])
    begin(g, now, place, parts, group, cost, count, log)
    if place[p, PHASE] == READY and now < group[g, BUSY_S] < INF:
        place[p, NEXT_S] = group[g, BUSY_S]
