"""Where the event kernels keep their numbers: columns of plain arrays, as compiled code wants them."""

from __future__ import annotations

from asaplab.core import TTFT_PARTS

# phases of a place (one of a DP group's batches in flight)
EMPTY, READY, ATTENTION, BLOCKED, DISPATCH, MOE, HEAD = range(7)

# columns of ``place``: float64; a row is a cache line
NEXT_S, READY_S, MARK_S, ATTENTION_S, TOKENS, PHASE, LAYER, BATCH = range(8)
PLACE_COLUMNS = 8
# columns of ``group``: until when its attention devices and its one slot are taken, the place they worked on last
BUSY_S, SLOT_S, LAST = range(3)
GROUP_COLUMNS = 3
# entries of ``count``: float64
NOW, EVENTS, LOGGED, MOE_BUSY, ATTENTION_BUSY = range(5)
COUNTS = 5
# entries of ``cost``: float64, seconds (a rate's unit is seconds a token or a row)
(
    LAYERS, DENSE, PLACES, IN_FLIGHT_FIFO, SLOTS, SYNCHRONOUS_SENDS, OVERLAP_ATTENTION, OVERLAP_MOE,
    DENSE_TOKEN_S, TP_FIXED_S, TP_TOKEN_S, LATENCY_S, DISPATCH_TOKEN_S, COMBINE_TOKEN_S, SUM_TOKEN_S, ROW_BACK_S,
    HANDSHAKE_S, COLLECTIVE_S, HOST_S, LAUNCH_S, MOE_FLOOR_S, MOE_ROW_S, ROWS_TOKEN, RANKS, SERIAL_NETWORK,
) = range(25)  # fmt: skip
COSTS = 25
# columns of ``log``: float64; kind is an index into TTFT_PARTS, device -1 stands for the group's own
KIND, GROUP, DEVICE, LOG_BATCH, LOG_LAYER, START_S, END_S, LOG_TOKENS = range(8)
LOG_COLUMNS = 8

(
    BATCHING_WAIT, ATTENTION_QUEUE, ATTENTION_PART, TP, DISPATCH_PART, MOE_QUEUE, MOE_PART, COMBINE, BARRIER_WAIT, HOST,
) = range(10)  # fmt: skip
PARTS = len(TTFT_PARTS)
