"""One step of a barrier system in closed form: every DP group meets before and after each MoE layer.

With m micro-batches in flight (ping-pong) attention, network and experts work on different ones: a recursion over
layers and micro-batches. Micro-batches are equal shares of the step's batches (assumed, in favour of such systems).
"""

from __future__ import annotations

import numba
import numpy as np

from asaplab.twin.kernel import record
from asaplab.twin.layout import (
    ATTENTION_PART,
    ATTENTION_QUEUE,
    BARRIER_WAIT,
    COLLECTIVE_S,
    COMBINE,
    COMBINE_TOKEN_S,
    DENSE,
    DENSE_TOKEN_S,
    DISPATCH_PART,
    DISPATCH_TOKEN_S,
    EVENTS,
    HANDSHAKE_S,
    HOST,
    HOST_S,
    LATENCY_S,
    LAYERS,
    LOGGED,
    MOE_FLOOR_S,
    MOE_PART,
    MOE_QUEUE,
    MOE_ROW_S,
    PARTS,
    PLACES,
    RANKS,
    ROWS_TOKEN,
    SERIAL_NETWORK,
    SUM_TOKEN_S,
    SYNCHRONOUS_SENDS,
    TP,
    TP_FIXED_S,
    TP_TOKEN_S,
)  # fmt: skip


@numba.njit(cache=True, error_model="numpy")
def step(now, step_id, tokens_D, attention_D, shares, cost, count, log):  # type: ignore[no-untyped-def]
    """Seconds of one step; parts per group that add up to it, busy seconds of attention and of MoE devices.

    ``attention_D`` is a layer's attention stage of the groups' micro-batch (s), ``tokens_D`` its tokens.
    """
    D, m, E = len(tokens_D), int(cost[PLACES]), shares.shape[1]
    parts = np.zeros((D, PARTS))
    busy_attention = busy_moe = 0.0
    most = total = 0.0
    for g in range(D):
        most = max(most, tokens_D[g])
        total += tokens_D[g]
    dense_s = cost[DENSE_TOKEN_S]
    tp_s, sum_s = cost[TP_FIXED_S] + cost[TP_TOKEN_S] * most, cost[SUM_TOKEN_S] * most
    if cost[SYNCHRONOUS_SENDS] == 1:  # one send after another
        out_s = E * cost[HANDSHAKE_S] + cost[DISPATCH_TOKEN_S] * most
        back_s = D * cost[RANKS] * cost[HANDSHAKE_S] + cost[COMBINE_TOKEN_S] * most
    else:
        latency_s = cost[COLLECTIVE_S] if cost[SYNCHRONOUS_SENDS] == 2 else cost[LATENCY_S]
        out_s = latency_s + cost[DISPATCH_TOKEN_S] * most
        back_s = latency_s + cost[COMBINE_TOKEN_S] * most
    ready = np.zeros(m)
    attention_free = network_free = moe_free = 0.0
    for layer in range(int(cost[LAYERS])):
        has_moe = layer >= cost[DENSE]
        slowest = 0.0
        for g in range(D):
            slowest = max(slowest, attention_D[g] + (0.0 if has_moe else dense_s * tokens_D[g]))
        least = worst = 0.0
        if has_moe:
            share_E = shares[layer % len(shares)]
            for e in range(E):
                rows = total * cost[ROWS_TOKEN] * share_E[e]
                kernel_s = max(cost[MOE_FLOOR_S], cost[MOE_ROW_S] * rows) if rows > 0 else 0.0
                worst = max(worst, kernel_s)
                least += kernel_s / E
            count[EVENTS] += (1 + 3 * E) * m * D
        for j in range(m):
            follow = j == m - 1  # the parts are those of the last micro-batch: it ends the step
            start_s = max(attention_free, ready[j])
            stage_s = slowest + tp_s + (sum_s if layer > cost[DENSE] else 0.0)
            attention_free = start_s + stage_s
            if follow:
                for g in range(D):
                    own_s = attention_D[g] + (0.0 if has_moe else dense_s * tokens_D[g])
                    parts[g, ATTENTION_QUEUE] += start_s - ready[j]
                    parts[g, ATTENTION_PART] += own_s
                    parts[g, TP] += tp_s
                    parts[g, COMBINE] += stage_s - slowest - tp_s
                    parts[g, BARRIER_WAIT] += slowest - own_s
            for g in range(D):
                own_s = attention_D[g] + (0.0 if has_moe else dense_s * tokens_D[g])
                busy_attention += own_s + tp_s
                if int(count[LOGGED]) < len(log):
                    a, b = now + start_s, now + start_s + own_s
                    record(log, count, ATTENTION_PART, g, -1, step_id, layer, a, b, tokens_D[g])
                    record(log, count, BARRIER_WAIT, g, -1, step_id, layer, b, now + start_s + slowest, tokens_D[g])
            ready[j] = attention_free
            if has_moe:
                out_at = max(attention_free, network_free) if cost[SERIAL_NETWORK] > 0 else attention_free
                if cost[SERIAL_NETWORK] > 0:
                    network_free = out_at + out_s
                kernel_at = max(moe_free, out_at + out_s)
                moe_free = kernel_at + worst
                busy_moe += least * E
                ready[j] = moe_free + back_s
                if follow:
                    for g in range(D):
                        parts[g, DISPATCH_PART] += out_at + out_s - attention_free
                        parts[g, MOE_QUEUE] += max(0.0, kernel_at - (out_at + out_s))
                        parts[g, MOE_PART] += least
                        parts[g, BARRIER_WAIT] += max(0.0, worst - least)
                        parts[g, COMBINE] += back_s
                if int(count[LOGGED]) < len(log):
                    for e in range(E):
                        rows = total * cost[ROWS_TOKEN] * share_E[e]
                        kernel_s = max(cost[MOE_FLOOR_S], cost[MOE_ROW_S] * rows) if rows > 0 else 0.0
                        a = now + kernel_at
                        record(log, count, MOE_PART, 0, e, step_id, layer, a, a + kernel_s, rows)
    end_s = ready[m - 1] + (sum_s if cost[LAYERS] > cost[DENSE] else 0.0)
    for g in range(D):
        parts[g, COMBINE] += end_s - ready[m - 1]
        parts[g, HOST] += cost[HOST_S]
    return end_s + cost[HOST_S], parts, busy_attention, busy_moe
