"""Spans as columns: a log that a device loop can afford, and one table out of many logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from asaplab.core import TTFT_PARTS, Run, Span

_KINDS = (*TTFT_PARTS, "idle")
_CODE = {kind: code for code, kind in enumerate(_KINDS)}
_NAMES = np.array(_KINDS)
_DTYPES = {
    "device": np.str_,
    "stream": np.str_,
    "kind": np.str_,
    "batch": np.int64,
    "layer": np.int64,
    "start_s": np.float64,
    "end_s": np.float64,
    "tokens": np.int64,
}
assert tuple(_DTYPES) == Span._fields


def no_spans() -> dict[str, np.ndarray]:
    """The span columns without a row."""
    return {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}


def spans_of(run: Run) -> dict[str, np.ndarray]:
    """The span columns of a run, also of one that recorded none."""
    return {**no_spans(), **run.spans}


def natural(track: tuple[str, str]) -> tuple[Any, ...]:
    """Sort key of (device, stream): "moe 10" comes after "moe 9"."""
    name, _, number = track[0].partition(" ")
    return (name, *(int(part) if part.isdigit() else -1 for part in number.split(".")), track[1])


class SpanLog:
    """The spans of one stream of one device, in memory that is taken once.

    ``append`` costs about a microsecond and never grows: spans beyond ``capacity`` are dropped and counted. One
    thread writes a log; it may be read at any time.
    """

    def __init__(self, device: str, stream: str = "compute", capacity: int = 65536) -> None:
        self.device, self.stream, self.capacity = device, stream, capacity
        self.dropped = 0
        self._rows = 0
        self._numbers = np.zeros((capacity, 4), np.int64)  # kind, batch, layer, tokens
        self._times = np.zeros((capacity, 2), np.float64)

    def __len__(self) -> int:
        return self._rows

    def append(self, kind: str, batch: int, layer: int, start_s: float, end_s: float, tokens: int) -> None:
        """Log one piece of work. ``kind`` is a name of ``TTFT_PARTS`` or "idle"; another one is a KeyError."""
        row = self._rows
        if row == self.capacity:
            self.dropped += 1
            return
        self._numbers[row] = (_CODE[kind], batch, layer, tokens)
        self._times[row] = (start_s, end_s)
        self._rows = row + 1

    def columns(self, since: int = 0) -> dict[str, np.ndarray]:
        """The fields of ``Span`` as arrays, from row ``since`` on."""
        numbers, times = self._numbers[since : self._rows], self._times[since : self._rows]
        n = len(numbers)
        return {
            "device": np.full(n, self.device),
            "stream": np.full(n, self.stream),
            "kind": _NAMES[numbers[:, 0]],
            "batch": numbers[:, 1].copy(),
            "layer": numbers[:, 2].copy(),
            "start_s": times[:, 0].copy(),
            "end_s": times[:, 1].copy(),
            "tokens": numbers[:, 3].copy(),
        }

    def clear(self) -> None:
        self._rows = self.dropped = 0


def concat(logs: Iterable[SpanLog | Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """One table of the spans of many logs (or of their columns), by start time."""
    tables = [no_spans(), *(log.columns() if isinstance(log, SpanLog) else log for log in logs)]
    tables = [table for i, table in enumerate(tables) if i == 0 or len(table["start_s"])]
    joined = {name: np.concatenate([table[name] for table in tables]) for name in Span._fields}
    order = np.argsort(joined["start_s"], kind="stable")
    return {name: column[order] for name, column in joined.items()}
