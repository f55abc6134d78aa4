"""A run's spans for Perfetto and Chrome's tracing page: the Trace Event Format (JSON)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from asaplab.core import Run, Span
from asaplab.observe.spans import natural, spans_of


def chrome_trace(run: Run, path: str | Path) -> Path:
    """Write the spans as complete ("X") events, one process a device and one thread a stream; returns the path.

    Times are microseconds. Requests appear as asynchronous events from arrival to first token.
    """
    events = [*_devices(run), *_spans(run), *_requests(run)]
    path = Path(path)
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":")))
    return path


def _tracks(run: Run) -> tuple[list[str], list[tuple[str, str]]]:
    spans = spans_of(run)
    pairs = sorted(set(zip(spans["device"].tolist(), spans["stream"].tolist())), key=natural)
    return list(dict.fromkeys(device for device, _ in pairs)), pairs


def _devices(run: Run) -> list[dict[str, Any]]:
    devices, pairs = _tracks(run)
    events: list[dict[str, Any]] = []
    for pid, device in enumerate(devices, 1):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": device}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
        for tid, stream in enumerate((s for d, s in pairs if d == device), 1):
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": stream}})
    return events


def _spans(run: Run) -> list[dict[str, Any]]:
    devices, pairs = _tracks(run)
    pid = {device: number for number, device in enumerate(devices, 1)}
    tid: dict[tuple[str, str], int] = {}
    for pair in pairs:
        tid[pair] = 1 + sum(1 for other in tid if other[0] == pair[0])
    columns = [spans_of(run)[name].tolist() for name in Span._fields]
    return [
        {
            "ph": "X",
            "name": f"{kind} L{layer}" if layer >= 0 else kind,
            "cat": kind,
            "pid": pid[device],
            "tid": tid[device, stream],
            "ts": start * 1e6,
            "dur": (end - start) * 1e6,
            "args": {"batch": batch, "layer": layer, "tokens": tokens},
        }
        for device, stream, kind, batch, layer, start, end, tokens in zip(*columns)
    ]


def _requests(run: Run) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    r = run.requests
    for i in np.flatnonzero(np.isfinite(r["ttft_s"])).tolist():
        both = {"cat": "request", "id": int(r["id"][i]), "name": f"request {int(r['id'][i])}", "pid": 0, "tid": 0}
        start = float(r["arrival_s"][i])
        events.append({"ph": "b", **both, "ts": start * 1e6, "args": {"tokens": int(r["tokens"][i])}})
        events.append({"ph": "e", **both, "ts": (start + float(r["ttft_s"][i])) * 1e6})
    if events:
        events.append({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "requests"}})
    return events
