"""The numpy reference of the native core (native/core.hpp): the same functions on the same memory.

Flags are single aligned 8-byte loads and stores, ordered by x86. Bells are polled: nothing here can wake a sleeper.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ABI = 2
TIMED_OUT, ABORTED = -1, -2
PUT_WORDS = 16
POLL_S = 50e-6

now_ns = time.monotonic_ns


def _array(address: int, n: int, dtype: Any) -> np.ndarray:
    size = n * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype) if n else np.empty(0, dtype)


def load(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def store(address: int, value: int) -> None:
    ctypes.c_uint64.from_address(address).value = value


def loads(base: int, stride: int, n: int, out: int) -> None:
    _array(out, n, np.uint64)[:] = _array(base, n * stride // 8, np.uint64)[:: stride // 8]


def clear(address: int, expected: int) -> bool:
    taken = load(address) == expected  # only the receiver clears, so nobody comes between
    if taken:
        store(address, 0)
    return taken


def heard(bell: int) -> int:
    return ctypes.c_uint32.from_address(bell).value


def ring(bell: int) -> None:
    # two who ring at once may overwrite each other, but never with the value that was heard before
    ctypes.c_uint32.from_address(bell).value = (heard(bell) + 1 + random.getrandbits(30)) & 0xFFFFFFFF


def wait_bell(bell: int, count: int, spin: int, timeout_ns: int) -> bool:
    until = now_ns() + timeout_ns
    while heard(bell) == count:
        if now_ns() >= until:
            return False
        time.sleep(POLL_S)
    return True


def _wait_for(test: Callable[[], bool], abort: int, timeout_ns: int) -> int:
    until = now_ns() + timeout_ns
    while not test():
        if abort and load(abort):
            return ABORTED
        if now_ns() >= until:
            return TIMED_OUT
        time.sleep(POLL_S)
    return 0


def count_ready(addresses: int, expected: int, n: int) -> int:
    wanted = _array(expected, n, np.uint64).tolist()
    return sum(load(address) == value for address, value in zip(_array(addresses, n, np.uint64).tolist(), wanted))


def wait_at_least(base: int, stride: int, n: int, value: int, bell: int, abort: int, spin: int, timeout_ns: int) -> int:
    words = _array(base, n * stride // 8, np.uint64)[:: stride // 8]
    return _wait_for(lambda: bool((words >= value).all()), abort, timeout_ns)


def put_all(puts: int, n: int, done: int, own_bell: int, abort: int, spin: int, timeout_ns: int) -> int:
    todo = _array(puts, n * PUT_WORDS, np.uint64).reshape(n, PUT_WORDS).tolist()
    made = _array(done, n, np.uint8)

    def serve() -> bool:
        for k, put in enumerate(todo):
            if not made[k] and not load(put[0]):
                _deliver(*put)
                made[k] = 1
        return bool(made.all())

    return _wait_for(serve, abort, timeout_ns) or n


def _deliver(
    flag: int, bell: int, value: int, header: int, words: int,
    meta_to: int, meta_from: int, meta_bytes: int, index_to: int, index_from: int, index_bytes: int,
    to: int, source: int, row_bytes: int, rows: int, count: int,
) -> None:  # fmt: skip
    move_rows(to, 0, source, rows, count, row_bytes)
    ctypes.memmove(meta_to, meta_from, meta_bytes)
    ctypes.memmove(index_to, index_from, index_bytes)
    ctypes.memmove(header, words, 64)
    store(header + 56, now_ns())
    store(flag, value)
    ring(bell)


def move_rows(to: int, to_rows: int, source: int, source_rows: int, n: int, row_bytes: int) -> None:
    if not n:
        return
    put = _array(to_rows, n, np.int32) if to_rows else np.arange(n)
    take = _array(source_rows, n, np.int32) if source_rows else np.arange(n)
    out = _array(to, (int(put.max()) + 1) * row_bytes, np.uint8).reshape(-1, row_bytes)
    out[put] = _array(source, (int(take.max()) + 1) * row_bytes, np.uint8).reshape(-1, row_bytes)[take]


def plan(
    ids: int, n: int, K: int, E_total: int, bounds: int, E: int,
    counts: int, order: int, index: int, rows: int, row_ends: int, pair_ends: int,
) -> None:  # fmt: skip
    ids_p, ends = _array(ids, n * K, np.int64), _array(bounds, E + 1, np.int64)
    counts_E, order_p = _array(counts, E_total, np.int32), _array(order, n * K, np.int32)
    counts_E[:] = np.bincount(ids_p, minlength=E_total)
    order_p[:] = np.argsort(ids_p, kind="stable")
    pairs = np.concatenate(([0], np.cumsum(counts_E)))[ends]
    index_p, rows_r = _array(index, n * K, np.int32), _array(rows, n * min(K, E), np.int32)
    filled = 0
    for device in range(E):
        tokens = order_p[pairs[device] : pairs[device + 1]] // K
        once, first, back = np.unique(tokens, return_index=True, return_inverse=True)
        by_use = np.argsort(first)  # rows lie in the order of their first use
        place = np.empty_like(by_use)
        place[by_use] = np.arange(len(by_use))
        index_p[pairs[device] : pairs[device + 1]] = place[back]
        rows_r[filled : filled + len(once)] = once[by_use]
        filled += len(once)
        _array(row_ends, E, np.int64)[device] = filled
    _array(pair_ends, E, np.int64)[:] = pairs[1:]
